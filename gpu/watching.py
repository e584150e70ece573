"""The watcher process: for each cluster a watch a kind into Observed rows, a heartbeat, and a lock so that only one
process watches it. Clusters share nothing but the process: one that does not answer holds up no other."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import DatabaseError, InterfaceError, close_old_connections, connection
from django.db.models.functions import Now

from gpu import link
from gpu.cluster.client import Cluster
from gpu.cluster.errors import ClusterError
from gpu.cluster.watch import Watcher, WatchOptions
from gpu.facts import WATCHED_KINDS
from gpu.observe import RowSink
from tenants.models import FIRST_CLUSTER
from tenants.models import Cluster as ClusterRow

log = logging.getLogger(__name__)

WATCH_LOCK = 0x3A7C4
WRITE_LOCKS = 0x3A7E0
"""The first of a lock a kind."""

# Short streams: a connection that went silent without a word is noticed within a minute, and going on costs no list.
OPTIONS = WatchOptions(timeout_s=50, silence_s=60.0, longest_pause_s=15.0)
HEARTBEAT_S = 1.0


class Superseded(Exception):
    """Another process writes this kind of this cluster."""


class LiveSink(RowSink):
    """A RowSink that knows which watches stand, drops a database connection that broke, and writes only its own kinds.

    Whoever writes a kind holds its lock on the very connection that writes: a watcher that has lost its place and does
    not know it yet cannot write something old over what its successor has taken in.
    """

    def __init__(self, cluster: int = FIRST_CLUSTER) -> None:
        super().__init__(cluster)
        self.standing: set[str] = set()
        self._held: dict[str, Any] = {}

    def alive(self, kind: str) -> None:
        """The watch of `kind` stands; written once, since the heartbeat writes it from then on."""
        if kind not in self.standing:
            self._guarded(super().alive, kind)
            self.standing.add(kind)

    def ended(self, kind: str) -> None:
        """The heartbeat tells no longer that `kind` is up to date."""
        self.standing.discard(kind)

    def failed(self, kind: str, error: Exception) -> None:
        """The watch of `kind` fails, and keeps no connection until it is tried again: many clusters may be away."""
        self.standing.discard(kind)
        self._guarded(super().failed, kind, error)
        connection.close()

    def replace(self, kind: str, items: Iterable[Any], resource_version: str) -> None:
        """Take in a list."""
        self._guarded(super().replace, kind, items, resource_version)

    def changes(self, kind: str, changes: Sequence[Any]) -> None:
        """Take in changes."""
        self._guarded(super().changes, kind, changes)

    def progress(self, kind: str, resource_version: str) -> None:
        """Note how far the watch is."""
        self._guarded(super().progress, kind, resource_version)

    def _guarded(self, call: Callable[..., None], kind: str, *args: Any) -> None:
        try:
            self._hold(kind)
            call(kind, *args)
        except (DatabaseError, InterfaceError):
            connection.close()
            raise

    def _hold(self, kind: str) -> None:
        if connection.connection is not None and self._held.get(kind) is connection.connection:
            return
        if not _take_lock(WRITE_LOCKS + WATCHED_KINDS.index(kind), self.cluster):
            raise Superseded(f"{kind} of cluster {self.cluster} is written by another process")
        self._held[kind] = connection.connection


@dataclass(frozen=True)
class _Group:
    """The thread that watches one cluster, and how it reaches it."""

    reached: tuple[str, str]
    stop: threading.Event
    thread: threading.Thread


def serve(
    stop: threading.Event,
    slugs: Collection[str] = (),
    options: WatchOptions = OPTIONS,
    *,
    look_every_s: float = 10.0,
    alive: Callable[[], None] = lambda: None,
) -> None:
    """Watch every cluster there is a row for, or only `slugs`, until `stop`: a thread group each.

    A row that is added, changed or removed is noticed within `look_every_s`; no restart is needed. `alive` is called as
    often, as a sign of life.
    """
    groups: dict[ClusterRow, _Group] = {}
    while not stop.is_set():
        try:
            rows = list(ClusterRow.objects.filter(slug__in=slugs) if slugs else ClusterRow.objects.all())
        except (DatabaseError, InterfaceError) as error:
            log.warning("the database does not answer: %s", error.__class__.__name__)
            connection.close()
        else:
            _start_and_end(groups, {row: (row.kubeconfig, row.context) for row in rows}, options)
        alive()
        stop.wait(look_every_s)
    for group in groups.values():
        group.stop.set()
    for group in groups.values():
        group.thread.join(5.0)


def _start_and_end(
    groups: dict[ClusterRow, _Group], wanted: Mapping[ClusterRow, tuple[str, str]], options: WatchOptions
) -> None:
    for row, group in list(groups.items()):
        if wanted.get(row) != group.reached or not group.thread.is_alive():
            group.stop.set()
            del groups[row]
    for row in wanted.keys() - groups.keys():
        end = threading.Event()
        thread = threading.Thread(target=_serve_one, args=(row, end, options), daemon=True)
        groups[row] = _Group(wanted[row], end, thread)
        thread.start()


def _serve_one(row: ClusterRow, stop: threading.Event, options: WatchOptions) -> None:
    try:
        watch(link.cluster(row), stop, options, row.pk)
    finally:
        connection.close()


def watch(
    cluster: Cluster, stop: threading.Event, options: WatchOptions = OPTIONS, key: int = FIRST_CLUSTER
) -> None:
    """Watch one cluster (`key` of its row) until `stop`; while another process holds its lock, wait as a stand-by."""
    while not stop.is_set():
        try:
            if _take_lock(WATCH_LOCK, key):
                _watch_as_holder(cluster, stop, options, key)
        except (DatabaseError, InterfaceError) as error:
            log.warning("the database does not answer: %s", error.__class__.__name__)
            connection.close()
        stop.wait(2.0)


def _take_lock(space: int, key: int) -> bool:
    """Take a lock that this connection holds until it closes."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s, %s)", [space, key])
        return bool(cursor.fetchone()[0])


def _watch_as_holder(cluster: Cluster, stop: threading.Event, options: WatchOptions, key: int) -> None:
    """Run the watches until `stop`, or until the connection that holds the lock is lost."""
    log.info("watching %s kinds of cluster %s", len(WATCHED_KINDS), key)
    sink = LiveSink(key)
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
                sink.all_failed(WATCHED_KINDS, error)
            else:
                sink.states(*sink.standing).update(seen_at=Now(), failing_since=None, error_code="")
        except (DatabaseError, InterfaceError) as error:
            log.warning("no heartbeat: %s", error.__class__.__name__)
            connection.close()
        close_old_connections()
    connection.close()
