"""What the tests of the watcher share: a sink that remembers, events, and a watcher running in a thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gpu.cluster.client import Cluster, ClusterSettings, connect
from gpu.cluster.watch import Watcher, WatchOptions
from tests.fake_api import Asked, FakeApi

QUICK = WatchOptions(timeout_s=240, silence_s=5.0, first_pause_s=0.01, longest_pause_s=0.05)
TOO_OLD = {
    "type": "ERROR",
    "object": {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "too old resource version: 100 (5000)",
        "reason": "Gone",
        "code": 410,
    },
}
BOOKMARK = {
    "type": "BOOKMARK",
    "object": {
        "kind": "Job",
        "apiVersion": "batch/v1",
        "metadata": {"resourceVersion": "12746"},
        "spec": {"template": {"metadata": {}, "spec": {"containers": None}}},
        "status": {},
    },
}


class View:
    """A sink that remembers what a page would show, and what it was told."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        self.calls: list[str] = []
        self.errors: list[Exception] = []
        self.fail_at: set[str] = set()
        self.up: list[bool] = []

    def _note(self, call: str) -> None:
        self.calls.append(call)
        if call in self.fail_at:
            self.fail_at.remove(call)
            raise OSError("the database went away")

    def replace(self, kind: str, items: Iterable[dict[str, Any]], resource_version: str) -> None:
        found = list(items)
        self._note(f"replace {resource_version}")
        self.names = {each["metadata"]["name"]: each["metadata"]["resourceVersion"] for each in found}
        assert len(self.names) == len(found)

    def changes(self, kind: str, changes: Sequence[tuple[str, dict[str, Any]]]) -> None:
        for event, obj in changes:
            name = obj["metadata"]["name"]
            if event == "DELETED":
                self._note(f"remove {name}")
                self.names.pop(name, None)
            else:
                self._note(f"upsert {name}")
                self.names[name] = obj["metadata"]["resourceVersion"]

    def progress(self, kind: str, resource_version: str) -> None:
        self._note(f"progress {resource_version}")

    def alive(self, kind: str) -> None:
        self.up.append(True)

    def ended(self, kind: str) -> None:
        self.up.append(False)

    def failed(self, kind: str, error: Exception) -> None:
        self.errors.append(error)


def job(name: str, version: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "acme-ai", "resourceVersion": version, "managedFields": [1]}
    }


def event(kind: str, name: str, version: str) -> dict[str, Any]:
    return {"type": kind, "object": {"kind": "Job", "apiVersion": "batch/v1", **job(name, version)}}


def cluster_for(api: FakeApi, folder: Path) -> Cluster:
    path = folder / "kubeconfig"
    path.write_text(api.kubeconfig())
    return connect(ClusterSettings(str(path), read_timeout_s=5.0))


def until(condition: Callable[[], object], seconds: float = 5.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.005)


@contextmanager
def watching(cluster: Cluster, view: View, options: WatchOptions = QUICK) -> Iterator[None]:
    stop = threading.Event()
    thread = threading.Thread(target=Watcher(cluster, "Job", view, options).run, args=(stop,))
    thread.start()
    try:
        yield
    finally:
        began = time.monotonic()
        stop.set()
        thread.join(5)
        assert not thread.is_alive()
        assert time.monotonic() - began < 1.0, "stop is honoured within a second"


def versions(asked: Sequence[Asked]) -> list[str | None]:
    return [each.query.get("resourceVersion") for each in asked]
