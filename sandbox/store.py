"""The objects: in memory for reading, in SQLite for the next start, with a history that watches follow."""

import itertools
import json
import queue
import sqlite3
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from sandbox import refusals
from sandbox.api import Obj

type Key = tuple[str, str]
"""Namespace ("" for cluster-wide objects) and name."""


@dataclass(frozen=True, slots=True)
class Stored:
    """One version of an object and its JSON text, which begins with kind and apiVersion. Never changed."""

    obj: Obj
    text: str

    @staticmethod
    def of(obj: Obj) -> "Stored":
        """An object with its text."""
        obj = {"kind": obj["kind"], "apiVersion": obj["apiVersion"]} | obj
        return Stored(obj, json.dumps(obj, separators=(",", ":")))

    @property
    def version(self) -> int:
        """The resource version as a number."""
        return int(self.obj["metadata"]["resourceVersion"])


@dataclass(frozen=True, slots=True)
class Change:
    """A write: ADDED, MODIFIED or DELETED, with what was there before."""

    version: int
    type: str
    kind: str
    key: Key
    new: Stored
    old: Stored | None


class Subscription:
    """The changes of some kinds in one namespace (None: all) since a version."""

    def __init__(self, kinds: frozenset[str], namespace: str | None) -> None:
        self.kinds = kinds
        self.namespace = namespace
        self.queue: queue.SimpleQueue[Change | None] = queue.SimpleQueue()

    def wants(self, change: Change) -> bool:
        """Whether the change belongs to what was asked for."""
        return change.kind in self.kinds and (self.namespace is None or change.key[0] == self.namespace)


class Store:
    """All objects of one sandbox. Writers hold ``lock`` from their check to their write."""

    def __init__(self, path: Path | None, keep: int = 5_000) -> None:
        self.lock = threading.RLock()
        self.version = 1
        self.compacted = 0
        self._keep = keep
        self._objects: dict[str, dict[Key, Stored]] = {}
        self._history: deque[Change] = deque()
        self._selected: dict[str, tuple[str | None, int, list[tuple[Key, Stored]]]] = {}
        self._subscriptions: set[Subscription] = set()
        self._logs: dict[tuple[str, str, str, bool], str] = {}
        self._database = sqlite3.connect(
            str(path) if path else ":memory:", check_same_thread=False, isolation_level=None
        )
        self._open()

    def _open(self) -> None:
        self._database.execute("PRAGMA journal_mode=WAL")
        self._database.execute("PRAGMA synchronous=NORMAL")
        self._database.execute(
            "CREATE TABLE IF NOT EXISTS objects (kind TEXT, namespace TEXT, name TEXT, text TEXT, "
            "PRIMARY KEY (kind, namespace, name)) WITHOUT ROWID"
        )
        self._database.execute("CREATE TABLE IF NOT EXISTS version (one INTEGER PRIMARY KEY, value INTEGER)")
        self._database.execute(
            "CREATE TABLE IF NOT EXISTS logs (namespace TEXT, pod TEXT, container TEXT, previous INTEGER, "
            "text TEXT, PRIMARY KEY (namespace, pod, container, previous)) WITHOUT ROWID"
        )
        for kind, namespace, name, text in self._database.execute("SELECT * FROM objects"):
            self._objects.setdefault(kind, {})[namespace, name] = Stored(json.loads(text), text)
        for (value,) in self._database.execute("SELECT value FROM version"):
            self.version = value
        for namespace, pod, container, previous, text in self._database.execute("SELECT * FROM logs"):
            self._logs[namespace, pod, container, bool(previous)] = text
        # What happened before this start is not remembered: older watches are told to list again.
        self.compacted = self.version

    def wake(self) -> None:
        """End all watches."""
        with self.lock:
            for subscription in self._subscriptions:
                subscription.queue.put(None)

    def close(self) -> None:
        """End all watches and close the file; nothing can be written after that."""
        self.wake()
        with self.lock:
            self._database.close()

    def get(self, kind: str, namespace: str, name: str) -> Stored | None:
        """The present version, or None."""
        return self._objects.get(kind, {}).get((namespace, name))

    def select(self, kind: str, namespace: str | None = None) -> list[Stored]:
        """The present objects of a kind by namespace and name."""
        with self.lock:
            items = list(self._objects.get(kind, {}).items())
        return [stored for key, stored in sorted(items) if namespace is None or key[0] == namespace]

    def select_at(
        self, kind: str, namespace: str | None, version: int | None
    ) -> tuple[list[tuple[Key, Stored]], int]:
        """The objects as they were at a version (None: now) and that version. 410 where it is forgotten."""
        with self.lock:
            if version is None or version >= self.version:
                version = self.version
            elif version < self.compacted:
                raise refusals.expired(version, self.compacted)
            # The next page of a list asks for the same again.
            known = self._selected.get(kind)
            if known is not None and known[:2] == (namespace, version):
                return known[2], version
            objects = dict(self._objects.get(kind, {}))
            for change in reversed(self._history):
                if change.version <= version:
                    break
                if change.kind == kind and change.old is None:
                    objects.pop(change.key, None)
                elif change.kind == kind and change.old is not None:
                    objects[change.key] = change.old
        items = sorted(objects.items())
        found = [item for item in items if namespace is None or item[0][0] == namespace]
        self._selected[kind] = (namespace, version, found)
        return found, version

    def put(self, kind: str, obj: Obj) -> Stored:
        """Write an object under the next version. The caller holds the lock and hands the object over."""
        metadata = obj["metadata"]
        key = (metadata.get("namespace", ""), metadata["name"])
        old = self.get(kind, *key)
        self.version += 1
        metadata["resourceVersion"] = str(self.version)
        stored = Stored.of(obj)
        self._objects.setdefault(kind, {})[key] = stored
        self._save("INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?)", (kind, *key, stored.text))
        self._publish(Change(self.version, "MODIFIED" if old else "ADDED", kind, key, stored, old))
        return stored

    def remove(self, kind: str, namespace: str, name: str) -> Stored:
        """Take an object away under the next version; the answer carries that version."""
        key = (namespace, name)
        old = self._objects[kind].pop(key)
        self.version += 1
        metadata = old.obj["metadata"] | {"resourceVersion": str(self.version)}
        last = Stored.of(old.obj | {"metadata": metadata})
        self._save("DELETE FROM objects WHERE kind = ? AND namespace = ? AND name = ?", (kind, *key))
        if kind == "Pod":
            self._forget_logs(namespace, name)
        self._publish(Change(self.version, "DELETED", kind, key, last, old))
        return last

    def _save(self, statement: str, values: tuple[str, ...]) -> None:
        self._database.execute("BEGIN")
        self._database.execute(statement, values)
        self._database.execute("INSERT OR REPLACE INTO version VALUES (1, ?)", (self.version,))
        self._database.execute("COMMIT")

    def _publish(self, change: Change) -> None:
        self._history.append(change)
        if len(self._history) > self._keep:
            self.compacted = self._history.popleft().version
        for subscription in self._subscriptions:
            if subscription.wants(change):
                subscription.queue.put(change)

    def compact(self) -> int:
        """Forget the history, as etcd does from time to time; returns the oldest version still known."""
        with self.lock:
            self._history.clear()
            self.compacted = self.version
            return self.compacted

    def subscribe(
        self, kinds: Iterable[str], namespace: str | None, since: int | None
    ) -> tuple[list[Stored], int, Subscription]:
        """Follow changes: the present objects where ``since`` is None, the version they are from, the changes.

        410 where the changes since then are forgotten.
        """
        subscription = Subscription(frozenset(kinds), namespace)
        with self.lock:
            present: list[Stored] = []
            if since is None:
                present = list(itertools.chain.from_iterable(self.select(kind, namespace) for kind in kinds))
            elif since < self.compacted:
                raise refusals.expired(since, self.compacted)
            else:
                for change in self._history:
                    if change.version > since and subscription.wants(change):
                        subscription.queue.put(change)
            self._subscriptions.add(subscription)
            return present, self.version, subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """Stop following."""
        with self.lock:
            self._subscriptions.discard(subscription)

    def caught_up(self, subscription: Subscription) -> int | None:
        """The present version where the subscriber has seen all up to it, else None."""
        with self.lock:
            return self.version if subscription.queue.empty() else None

    def append_log(self, namespace: str, pod: str, container: str, text: str, limit: int = 256_000) -> None:
        """Add to a container's log; the oldest lines go when it grows above ``limit`` characters."""
        with self.lock:
            key = (namespace, pod, container, False)
            whole = self._logs.get(key, "") + text
            if len(whole) > limit:
                whole = whole[-limit:].partition("\n")[2]
            self._write_log(key, whole)

    def rotate_log(self, namespace: str, pod: str, container: str) -> None:
        """The present log becomes the previous one."""
        with self.lock:
            self._write_log((namespace, pod, container, True), self.log(namespace, pod, container))
            self._write_log((namespace, pod, container, False), "")

    def log(self, namespace: str, pod: str, container: str, previous: bool = False) -> str:
        """The log of a container, "" where nothing was written."""
        return self._logs.get((namespace, pod, container, previous), "")

    def has_log(self, namespace: str, pod: str, container: str, previous: bool = False) -> bool:
        """Whether the container has written (or rotated) a log."""
        return (namespace, pod, container, previous) in self._logs

    def _write_log(self, key: tuple[str, str, str, bool], text: str) -> None:
        self._logs[key] = text
        self._database.execute("INSERT OR REPLACE INTO logs VALUES (?, ?, ?, ?, ?)", (*key, text))

    def _forget_logs(self, namespace: str, pod: str) -> None:
        for key in [key for key in self._logs if key[:2] == (namespace, pod)]:
            del self._logs[key]
        self._database.execute("DELETE FROM logs WHERE namespace = ? AND pod = ?", (namespace, pod))

    def __iter__(self) -> Iterator[Stored]:
        """All present objects."""
        with self.lock:
            return iter([stored for objects in self._objects.values() for stored in objects.values()])
