"""From `make demo` on an installed checkout to the first page, in a fresh data folder."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from dev import processes, stack
from dev.bench.line import Line
from dev.fleet import Fleet, free_port

GOAL_S = 15.0


def measure(fleet: Fleet) -> list[Line]:
    """Start the demo as a person would, and wait for the first page that is not an error."""
    port = free_port()
    bare = {key: value for key, value in os.environ.items() if key in ("PATH", "HOME", "LANG", "USER")}
    env = bare | {"DATA_DIR": str(fleet.folder / "demo"), "PORT": str(port)}
    subprocess.run(["make", "-s", "--version"], env=env, check=True, capture_output=True)
    began = time.perf_counter()
    demo = processes.spawn(
        ["make", "-s", "demo"], log=fleet.log("demo"), env=env | {"PYTHON": sys.executable}, cwd=stack.ROOT
    )
    try:
        while not stack.answers(port, "/login/"):
            if processes.exit_code(demo) is not None or time.perf_counter() - began > 120:
                raise RuntimeError(f"the demo did not start\n{fleet.tail('demo')}")
            time.sleep(0.05)
        page = time.perf_counter() - began
        while "Portal ready" not in fleet.tail("demo", 10_000):
            if processes.exit_code(demo) is not None or time.perf_counter() - began > 120:
                raise RuntimeError(f"the demo did not start\n{fleet.tail('demo')}")
            time.sleep(0.05)
        ready = time.perf_counter() - began
    finally:
        processes.stop(demo, patience=20.0)
    return [
        Line(
            "make demo to the first page",
            {"time": round(page, 1)},
            unit="s",
            goal=f"≤ {GOAL_S:.0f} s",
            met=page <= GOAL_S,
        ),
        Line("  to “Portal ready”", {"time": round(ready, 1)}, unit="s"),
    ]
