"""The watcher process: one watch a kind into Observed rows, a heartbeat, and a lock so that only one watches."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

from django.db import DatabaseError, InterfaceError, close_old_connections, connection
from django.utils import timezone

from gpu.cluster.client import Cluster
from gpu.cluster.errors import ClusterError
from gpu.cluster.watch import Watcher, WatchOptions
from gpu.facts import WATCHED_KINDS
from gpu.models import WatchState
from gpu.observe import RowSink

log = logging.getLogger(__name__)

WATCH_LOCK = 0x3A7C4
# Short streams: a connection that went silent without a word is noticed within a minute, and going on costs no list.
OPTIONS = WatchOptions(timeout_s=50, silence_s=60.0, longest_pause_s=15.0)
HEARTBEAT_S = 1.0


class LiveSink(RowSink):
    """A RowSink that knows which watches stand, and drops a database connection that broke."""

    def __init__(self) -> None:
        super().__init__()
        self.standing: set[str] = set()

    def alive(self, kind: str) -> None:
        """The watch of `kind` stands."""
        self.standing.add(kind)
        super().alive(kind)

    def failed(self, kind: str, error: Exception) -> None:
        """The watch of `kind` fails."""
        self.standing.discard(kind)
        self._guarded(super().failed, kind, error)

    def replace(self, kind: str, items: Sequence[Any], resource_version: str) -> None:
        """Take in a list."""
        self._guarded(super().replace, kind, items, resource_version)

    def upsert(self, kind: str, obj: Any) -> None:
        """Take in an object."""
        self._guarded(super().upsert, kind, obj)

    def _guarded(self, call: Callable[..., None], *args: Any) -> None:
        try:
            call(*args)
        except (DatabaseError, InterfaceError):
            connection.close()
            raise


def watch(cluster: Cluster, stop: threading.Event, options: WatchOptions = OPTIONS) -> None:
    """Watch until `stop` is set; while another process holds the lock, wait for it as a stand-by."""
    while not stop.is_set():
        try:
            if _take_lock():
                _watch_as_holder(cluster, stop, options)
        except (DatabaseError, InterfaceError) as error:
            log.warning("the database does not answer: %s", error.__class__.__name__)
            connection.close()
        stop.wait(2.0)


def _take_lock() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s)", [WATCH_LOCK])
        return bool(cursor.fetchone()[0])


def _watch_as_holder(cluster: Cluster, stop: threading.Event, options: WatchOptions) -> None:
    """Run the watches until `stop`, or until the connection that holds the lock is lost."""
    log.info("watching %s kinds", len(WATCHED_KINDS))
    sink = LiveSink()
    ended = threading.Event()
    threads = [
        threading.Thread(
            target=_run_watcher, args=(Watcher(cluster, kind, sink, options), ended), daemon=True
        )
        for kind in WATCHED_KINDS
    ]
    threads.append(threading.Thread(target=_heartbeat, args=(cluster, sink, ended), daemon=True))
    for thread in threads:
        thread.start()
    try:
        while not stop.wait(HEARTBEAT_S):
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1")
    finally:
        ended.set()
        for thread in threads:
            thread.join(1.5)


def _run_watcher(watcher: Watcher, stop: threading.Event) -> None:
    try:
        watcher.run(stop)
    finally:
        connection.close()


def _heartbeat(cluster: Cluster, sink: LiveSink, stop: threading.Event) -> None:
    """Once a second ask the cluster for a sign of life, and note it for every watch that stands."""
    while not stop.wait(HEARTBEAT_S):
        try:
            try:
                cluster.version()
            except ClusterError as error:
                for kind in WATCHED_KINDS:
                    RowSink.failed(sink, kind, error)
            else:
                WatchState.objects.filter(kind__in=sink.standing).update(
                    seen_at=timezone.now(), failing_since=None, error_code=""
                )
        except (DatabaseError, InterfaceError) as error:
            log.warning("no heartbeat: %s", error.__class__.__name__)
            connection.close()
        close_old_connections()
    connection.close()
