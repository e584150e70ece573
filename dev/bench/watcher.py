"""How long the watcher takes to take in 50,000 objects at its start, and the memory and processor time it needs."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from dev import processes, stack
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
    first = _take_in(fleet, 1)
    written = _written()
    fleet.kill("watcher")
    again = _take_in(fleet, 2)
    written = _written() - written
    return [
        Line(f"Watcher takes in {OBJECTS:,} objects, its start included", {"time": first.seconds}, unit="s"),
        Line("  objects a second", {"rate": round(OBJECTS / first.seconds)}, unit=""),
        Line("  most memory", {"peak": round(first.memory_mib)}, unit="MiB"),
        Line("  processor time", {"watcher": first.cpu, "sandbox": first.cpu_of_sandbox}, unit="s"),
        Line("  started again with nothing changed", {"time": again.seconds, "CPU": again.cpu}, unit="s"),
        Line("  rows written by that", {"rows": written}, unit=""),
        Line("  (filling the cluster took)", {"time": round(filled, 1)}, unit="s"),
    ]


@dataclass(frozen=True)
class _Taken:
    """What taking in all objects took."""

    seconds: float
    memory_mib: float
    cpu: float
    cpu_of_sandbox: float


def _take_in(fleet: Fleet, lists: int) -> _Taken:
    """Start the watcher and wait until it has listed so many times, which shows all objects at once."""
    from gpu.models import Observed, WatchState

    before, began = _cpu_of_sandbox(fleet), time.perf_counter()
    fleet.start("watcher", stack.watcher())
    watcher = fleet.running["watcher"].pid
    while not WatchState.objects.filter(kind="Service", relists__gte=lists).exists():
        if time.perf_counter() - began > 300:
            raise RuntimeError(f"no list after 300 s\n{fleet.tail('watcher')}")
        time.sleep(0.2)
    took = time.perf_counter() - began
    if (count := Observed.objects.filter(kind="Service").count()) < OBJECTS:
        raise RuntimeError(f"{count} of {OBJECTS} objects")
    used, of_sandbox = processes.cpu_s(watcher), _cpu_of_sandbox(fleet) - before
    return _Taken(round(took, 1), processes.peak_mib(watcher), round(used, 1), round(of_sandbox, 1))


def _written() -> int:
    """Rows of what was seen that have been written so far."""
    from django.db import connection

    time.sleep(2)  # a backend tells its statistics after at most a second
    with connection.cursor() as cursor:
        cursor.execute("SELECT n_tup_ins + n_tup_upd FROM pg_stat_user_tables WHERE relname = 'gpu_observed'")
        return int(cursor.fetchone()[0])


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


def _cpu_of_sandbox(fleet: Fleet) -> float:
    """The same of the sandbox; 0 with another cluster."""
    return processes.cpu_s(fleet.running["sandbox"].pid) if "sandbox" in fleet.running else 0.0
