"""How long the watcher takes to take in 50,000 objects at its start, and the memory it needs."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from dev import stack
from dev.bench.cluster import reach
from dev.bench.line import Line
from dev.fleet import Fleet

OBJECTS = int(os.environ.get("BENCH_OBJECTS", "50000"))
NAMESPACE = "acme-ai"


def measure(fleet: Fleet) -> list[Line]:
    """Fill the cluster, start the watcher, and wait for the last row."""
    admin = reach(fleet)
    fleet.manage("migrate", "--no-input")
    fleet.manage("seed_demo", "--no-slices")
    began = time.perf_counter()

    def make(number: int) -> None:
        answer = admin.create(_service(number), namespace=NAMESPACE)
        if not answer.ok:
            raise RuntimeError(answer.message)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(make, range(OBJECTS)))
    filled = time.perf_counter() - began
    from gpu.models import Observed

    began = time.perf_counter()
    fleet.start("watcher", stack.watcher())
    most = 0.0
    while (count := Observed.objects.filter(kind="Service").count()) < OBJECTS:
        most = max(most, _memory_mib(fleet.running["watcher"].pid))
        if time.perf_counter() - began > 300:
            raise RuntimeError(f"{count} of {OBJECTS} objects after 300 s\n{fleet.tail('watcher')}")
        time.sleep(0.2)
    took = time.perf_counter() - began
    most = max(most, _memory_mib(fleet.running["watcher"].pid))
    return [
        Line(f"Watcher takes in {OBJECTS:,} objects, its start included", {"time": round(took, 1)}, unit="s"),
        Line("  objects a second", {"rate": round(OBJECTS / took)}, unit=""),
        Line("  most memory", {"peak": round(most)}, unit="MiB"),
        Line("  (filling the cluster took)", {"time": round(filled, 1)}, unit="s"),
    ]


def _service(number: int) -> dict[str, object]:
    """A Service like those of slices."""
    app = f"bench-{number}"
    labels = {"app.kubernetes.io/name": app, "app.kubernetes.io/managed-by": "kube-dc"}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": app, "labels": labels, "annotations": {"bench": "x" * 600}},
        "spec": {"selector": {"app.kubernetes.io/name": app}, "clusterIP": "None", "ports": [{"port": 8080}]},
    }


def _memory_mib(pid: int) -> float:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    for line in status.splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0
