"""Runs a control plane with everything of `deploy/` in it until it is told to stop.

    python -m dev.controlplane.run --data DIR [--deploy DIR] [--without-kubelet]

Writes DIR/admin.kubeconfig and DIR/portal.kubeconfig, and prints a line when all is ready.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from pathlib import Path

from dev.controlplane import install
from dev.controlplane.build import BuildError, provide
from dev.controlplane.client import Refused
from dev.controlplane.cluster import ControlPlane, StartError
from dev.controlplane.nodes import Nodes


def main() -> int:
    """Run until SIGTERM or SIGINT; 1 where something does not start or ends by itself."""
    parser = argparse.ArgumentParser(prog="dev.controlplane.run", description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, default=Path(".data/controlplane"))
    parser.add_argument("--deploy", type=Path, default=install.DEPLOY, help="what is applied")
    parser.add_argument("--without-kubelet", action="store_true", help="no pretended nodes")
    arguments = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received, frame: sys.exit(0))
    begin = time.monotonic()
    try:
        with ControlPlane(provide(_say), arguments.data, _say) as plane:
            install.install(plane.client(), install.documents(arguments.deploy))
            plane.kubeconfig("admin", plane.token("admin"))
            plane.kubeconfig("portal", install.portal_token(plane.client()))
            nodes = None if arguments.without_kubelet else Nodes(plane)
            try:
                _say(f"Control plane ready: {plane.server} after {time.monotonic() - begin:.1f} s")
                _watch_over(plane, nodes)
            finally:
                if nodes is not None:
                    nodes.stop()
    except (BuildError, StartError, Refused) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _watch_over(plane: ControlPlane, nodes: Nodes | None) -> None:
    while True:
        time.sleep(1)
        plane.check()
        if nodes is not None:
            nodes.check()


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
