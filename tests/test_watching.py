"""Who may write what was seen: one watcher a kind of a cluster, on the connection that holds its lock."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.utils import timezone

from gpu.models import Observed, WatchState
from gpu.watching import LiveSink, Superseded, _heartbeat
from tests.test_observe import pod
from tests.watch_helpers import until

pytestmark = pytest.mark.django_db(transaction=True)


class Process:
    """A watcher process as the database sees it: a connection of its own."""

    def __init__(self) -> None:
        self.sink = LiveSink()
        self._thread = ThreadPoolExecutor(1)

    def do(self, call: Callable[..., Any], *args: Any) -> Any:
        return self._thread.submit(call, *args).result(20)

    def end(self) -> None:
        self.do(_disconnect)
        self._thread.shutdown()


def _disconnect() -> None:
    connection.close()


@pytest.fixture
def two() -> Iterator[tuple[Process, Process]]:
    found = Process(), Process()
    yield found
    for process in found:
        process.end()


def backend() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return int(cursor.fetchone()[0])


def phase() -> str:
    found: str = Observed.objects.get(kind="Pod").data["status"]["phase"]
    return found


def test_a_watcher_that_lost_its_place_writes_nothing_over_its_successor(
    two: tuple[Process, Process],
) -> None:
    first, second = two
    old, new = (
        {**pod("a", resourceVersion="5"), "status": {"phase": each}} for each in ("Pending", "Running")
    )
    first.do(first.sink.replace, "Pod", [old], "5")
    with pytest.raises(Superseded):
        second.do(second.sink.replace, "Pod", [new], "9")
    assert phase() == "Pending"

    # The first one's connection is lost, which it does not know yet; the second one takes its place.
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s)", [first.do(backend)])
    until(lambda: _works(second, new))
    assert phase() == "Running"
    with pytest.raises(OperationalError):
        first.do(first.sink.upsert, "Pod", old)
    sink = first.sink
    calls: list[tuple[Callable[..., None], Any]] = [
        (sink.changes, [[("MODIFIED", old)]]),
        (sink.replace, [[old], "5"]),
        (sink.alive, []),
    ]
    for call, arguments in calls:
        with pytest.raises(Superseded):
            first.do(call, "Pod", *arguments)
    assert phase() == "Running"
    first.do(first.sink.changes, "Service", [("ADDED", pod("b"))])  # another kind is nobody's


def _works(process: Process, obj: dict[str, Any]) -> bool:
    try:
        process.do(process.sink.replace, "Pod", [obj], "9")
    except Superseded:
        return False
    return True


class Answers:
    """A cluster that answers."""

    def version(self) -> dict[str, Any]:
        return {}


def seen(kind: str) -> datetime:
    found = WatchState.objects.get(kind=kind).seen_at
    assert found is not None
    return found


def test_the_heartbeat_tells_only_of_watches_that_stand(two: tuple[Process, Process]) -> None:
    process, sink, stop = two[0], two[0].sink, threading.Event()
    for kind in ("Pod", "Service"):
        process.do(sink.replace, kind, [], "1")
        process.do(sink.alive, kind)
    sink.ended("Pod")
    began = timezone.now()
    thread = threading.Thread(target=_heartbeat, args=(Answers(), sink, stop))
    thread.start()
    try:
        until(lambda: seen("Service") > began)
    finally:
        stop.set()
        thread.join()
    assert seen("Pod") < began


def test_a_watch_that_stands_is_noted_once(two: tuple[Process, Process]) -> None:
    process, sink = two[0], two[0].sink
    process.do(sink.replace, "Pod", [], "1")
    process.do(sink.alive, "Pod")
    first = seen("Pod")
    process.do(sink.alive, "Pod")
    assert seen("Pod") == first
    sink.ended("Pod")
    process.do(sink.alive, "Pod")
    assert seen("Pod") > first
