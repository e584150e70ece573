"""python -m dev.bench [--cluster controlplane] [--only NAME...]: a table, and artefacts/bench.json."""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from dev import processes, throwaway

ROOT = Path(__file__).resolve().parents[2]
SCENARIOS = ("orders", "changes", "pages", "watcher", "load", "start", "agent", "upgrade")
OF_CLUSTER = ("orders", "changes", "watcher")
"""The scenarios that a real control plane can answer."""

MOST_S = 420.0
"""No scenario may take longer, but for those that fill a database or a cluster, or order from a real one."""

MOST_S_OF = {"orders": 900.0, "watcher": 1200.0, "upgrade": 1800.0}


def main() -> int:
    """Measure each scenario in a process of its own; 0 where every goal is met, 1 otherwise."""
    parser = argparse.ArgumentParser(prog="dev.bench")
    parser.add_argument("--cluster", choices=("sandbox", "controlplane"), default="sandbox")
    parser.add_argument("--only", nargs="+", choices=SCENARIOS, default=None)
    parser.add_argument("--json", type=Path, default=ROOT / "artefacts" / "bench.json")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    wanted = arguments.only or (OF_CLUSTER if arguments.cluster == "controlplane" else SCENARIOS)
    began = time.monotonic()
    results: dict[str, Any] = {}
    for name in wanted:
        lines = _measure(name, arguments.cluster)
        results[name] = lines
        for line in lines:
            print(describe(line), flush=True)
    about = {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "cluster": arguments.cluster,
        "load_average": os.getloadavg(),
        "seconds": round(time.monotonic() - began),
    }
    arguments.json.parent.mkdir(exist_ok=True)
    arguments.json.write_text(json.dumps(about | {"results": results}, indent=1))
    print(f"\n{about['machine']}, load {os.getloadavg()[0]:.1f}, {about['seconds']} s; {arguments.json}")
    missed = [line["name"].strip() for lines in results.values() for line in lines if line["met"] is False]
    if missed:
        print(f"Missed: {'; '.join(missed)}")
    return 1 if missed else 0


def describe(line: dict[str, Any]) -> str:
    """One line of the table."""
    numbers = ", ".join(f"{name} {value:g}" for name, value in line["numbers"].items())
    sign = {True: "met   ", False: "MISSED", None: "      "}[line["met"]]
    return f"{line['name']:<58} {numbers + ' ' + line['unit']:<38} {sign} {line['goal']}".rstrip()


def _measure(name: str, cluster: str) -> list[dict[str, Any]]:
    folder = throwaway.make(ROOT / ".data" / "bench")
    log = folder.path / "scenario.log"
    child = processes.spawn(
        [sys.executable, "-m", "dev.bench.scenario", name, str(folder.path)],
        log=log,
        env=dict(os.environ) | {"BENCH_CLUSTER": cluster},
        cwd=ROOT,
    )
    try:
        code = child.wait(MOST_S_OF.get(name, MOST_S))
        lines: list[dict[str, Any]] = (
            json.loads((folder.path / "result.json").read_text()) if code == 0 else []
        )
    except subprocess.TimeoutExpired:
        code, lines = None, []
    finally:
        processes.stop(child)
        text = log.read_text(errors="replace")[-1500:]
        shutil.rmtree(folder.path, ignore_errors=True)
        folder.lock.close()
    if code != 0:
        why = "took too long" if code is None else f"ended with {code}"
        print(text, file=sys.stderr)
        lines = [{"name": f"{name} {why}", "numbers": {}, "unit": "", "goal": "measured", "met": False}]
    return lines


if __name__ == "__main__":
    sys.exit(main())
