"""``python -m sandbox``: a stand-in cluster until SIGTERM or Ctrl-C."""

import argparse
import signal
import sys
import threading
from pathlib import Path

from sandbox.runner import Sandbox
from sandbox.seeding import SeedError


def main() -> int:
    """Start, say so in one line, wait, stop. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="sandbox", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder that keeps objects and tokens")
    parser.add_argument("--port", type=int, default=0, help="port on 127.0.0.1 (0: any free one)")
    parser.add_argument("--deploy", type=Path, help="folder with policies, RBAC and DeviceClasses")
    parser.add_argument("--also", type=Path, help="one more file or folder of documents, such as namespaces")
    parser.add_argument(
        "--kubeconfig-dir", type=Path, help="where the kubeconfigs go (default: the data folder)"
    )
    arguments = parser.parse_args()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    sandbox = Sandbox(
        arguments.data,
        arguments.deploy,
        port=arguments.port,
        kubeconfig_dir=arguments.kubeconfig_dir,
        also=arguments.also,
    )
    try:
        sandbox.start()
    except (OSError, SeedError) as error:
        print(f"Sandbox cluster cannot start: {error}", file=sys.stderr)
        return 1
    print(f"Sandbox cluster ready: {sandbox.url} (kubeconfig {sandbox.admin_kubeconfig})", flush=True)
    stop.wait()
    sandbox.stop()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
