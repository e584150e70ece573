"""The machine under every controller: a cache fed by one watch, a queue of keys, one worker thread.

A controller is level-triggered: ``observe`` only says which key to look at, ``reconcile`` reads the cache
and brings the world nearer to what is asked. One worker runs them all, so none sees another half-way; what
it writes is in the cache before the next line, so a controller never acts on less than it has done itself.
"""

import heapq
import itertools
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence

from sandbox.api import Api, ApiError, Obj
from sandbox.controllers.objects import name_of, namespace_of, uid_of
from sandbox.options import Options

log = logging.getLogger(__name__)

type Key = tuple[str | None, str]

REMEMBERED_DELETIONS = 4096
SERVER_PAUSE = 1.0


class Retry(Exception):
    """Raised by ``reconcile``: come back to this key after a pause that grows with each time."""


class Cache:
    """What the watch last said, by kind, namespace and name. Its objects are shared: copy before changing."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._kinds: dict[str, dict[Key, Obj]] = {}
        self._owned: dict[str, dict[tuple[str, Key], None]] = {}
        self._gone: OrderedDict[str, None] = OrderedDict()

    def get(self, kind: str, namespace: str | None, name: str) -> Obj | None:
        """The object, or None."""
        with self._lock:
            return self._kinds.get(kind, {}).get((namespace, name))

    def list(self, kind: str, namespace: str | None = None) -> Sequence[Obj]:
        """All objects of a kind, in one namespace where one is given."""
        with self._lock:
            objects = self._kinds.get(kind, {}).values()
            if namespace is None:
                return list(objects)
            return [obj for obj in objects if obj["metadata"].get("namespace") == namespace]

    def owned(self, uid: str, kind: str | None = None) -> Sequence[Obj]:
        """The objects with an owner reference to ``uid``."""
        with self._lock:
            keys = list(self._owned.get(uid, ()))
            found = (self._kinds[k].get(key) for k, key in keys if kind is None or k == kind)
            return [obj for obj in found if obj is not None]

    def put(self, obj: Obj) -> tuple[Obj | None, Obj] | None:
        """Take in an object; None where it is older than what is known, else (before, now)."""
        kind, key = obj["kind"], (namespace_of(obj), name_of(obj))
        with self._lock:
            if uid_of(obj) in self._gone:
                return None
            before = self._kinds.setdefault(kind, {}).get(key)
            if before is not None and _version(before) >= _version(obj):
                return None
            if before is not None:
                self._unlink(kind, key, before)
            self._kinds[kind][key] = obj
            for reference in obj["metadata"].get("ownerReferences") or []:
                self._owned.setdefault(reference["uid"], {})[(kind, key)] = None
            return before, obj

    def remove(self, obj: Obj) -> Obj | None:
        """Forget an object; the one forgotten, None where it was not there."""
        kind, key = obj["kind"], (namespace_of(obj), name_of(obj))
        with self._lock:
            self._gone[uid_of(obj)] = None
            if len(self._gone) > REMEMBERED_DELETIONS:
                self._gone.popitem(last=False)
            present = self._kinds.get(kind, {}).get(key)
            if present is None or uid_of(present) != uid_of(obj):
                return None
            del self._kinds[kind][key]
            self._unlink(kind, key, present)
            return present

    def _unlink(self, kind: str, key: Key, obj: Obj) -> None:
        for reference in obj["metadata"].get("ownerReferences") or []:
            keys = self._owned.get(reference["uid"])
            if keys is not None:
                keys.pop((kind, key), None)
                if not keys:
                    del self._owned[reference["uid"]]


def _version(obj: Obj) -> int:
    return int(obj["metadata"]["resourceVersion"])


class WorkQueue:
    """Keys to look at, each once and not before its time."""

    def __init__(self, base: float, cap: float) -> None:
        self._base, self._cap = base, cap
        self._ready = threading.Condition()
        self._due: dict[tuple[str, Key], float] = {}
        self._heap: list[tuple[float, int, tuple[str, Key]]] = []
        self._order = itertools.count()
        self._failures: dict[tuple[str, Key], int] = {}

    def add(self, controller: str, key: Key, delay: float = 0.0) -> None:
        """Look at the key after ``delay`` seconds, or earlier where that was asked already."""
        item, due = (controller, key), time.monotonic() + delay
        with self._ready:
            if self._due.get(item, float("inf")) <= due:
                return
            self._due[item] = due
            heapq.heappush(self._heap, (due, next(self._order), item))
            self._ready.notify()

    def retry(self, controller: str, key: Key) -> None:
        """Look again after a pause that doubles with each failure in a row, up to the cap."""
        item = (controller, key)
        failures = self._failures.get(item, 0)
        self._failures[item] = failures + 1
        self.add(controller, key, min(self._cap, self._base * 2 ** min(failures, 40)))

    def forget(self, controller: str, key: Key) -> None:
        """The key is well: its next failure starts with the short pause again."""
        self._failures.pop((controller, key), None)

    def take(self, timeout: float) -> tuple[str, Key] | None:
        """The next key that is due; None after ``timeout`` seconds without one."""
        end = time.monotonic() + timeout
        with self._ready:
            while True:
                now = time.monotonic()
                while self._heap and self._due.get(self._heap[0][2]) != self._heap[0][0]:
                    heapq.heappop(self._heap)  # was asked for an earlier time meanwhile
                if self._heap and self._heap[0][0] <= now:
                    item = heapq.heappop(self._heap)[2]
                    del self._due[item]
                    return item
                if now >= end:
                    return None
                self._ready.wait(min(end, self._heap[0][0] if self._heap else end) - now)


class Writer:
    """The API in the name of one controller; what it answers is in the cache before a call returns."""

    def __init__(self, engine: "Engine", api: Api) -> None:
        self._engine, self.plain = engine, api

    def get(self, kind: str, namespace: str | None, name: str) -> Obj | None:
        """Ask the API, not the cache."""
        return self.plain.get(kind, namespace, name)

    def list(self, kind: str, namespace: str | None = None) -> Sequence[Obj]:
        """Ask the API, not the cache."""
        return self.plain.list(kind, namespace)

    def create(self, obj: Obj) -> Obj:
        """Create the object."""
        return self._engine.note(self.plain.create(obj))

    def update(self, obj: Obj) -> Obj:
        """Write all but the status."""
        return self._engine.note(self.plain.update(obj))

    def update_status(self, obj: Obj) -> Obj:
        """Write the status."""
        return self._engine.note(self.plain.update_status(obj))

    def delete(self, obj: Obj, propagation: str = "Background", grace_seconds: int | None = None) -> None:
        """Ask for the deletion of exactly this object."""
        kind, namespace, name = obj["kind"], namespace_of(obj), name_of(obj)
        try:
            self.plain.delete(kind, namespace, name, uid_of(obj), propagation, grace_seconds)
        except ApiError as error:
            if error.status not in (404, 409):
                raise
        left = self.plain.get(kind, namespace, name)
        if left is None or uid_of(left) != uid_of(obj):
            self._engine.note_gone(obj)
        if left is not None:
            self._engine.note(left)


class Controller:
    """Base of the controllers.

    ``name`` is also the component that its events come from, ``actor`` the account it acts as, where that is
    another.
    """

    name = ""
    actor = ""

    def __init__(self, engine: "Engine") -> None:
        self.engine = engine
        self.api = Writer(engine, engine.api.acting(self.actor or self.name))
        self.cache = engine.cache
        self.options = engine.options

    def enqueue(self, namespace: str | None, name: str, delay: float = 0.0) -> None:
        """Have ``reconcile`` look at that key."""
        self.engine.queue.add(self.name, (namespace, name), delay)

    def observe(self, change: str, obj: Obj, before: Obj | None) -> None:
        """Called under the cache's lock for every change; may only enqueue."""
        raise NotImplementedError

    def reconcile(self, namespace: str | None, name: str) -> float | None:
        """Bring one key nearer to what is asked; the seconds after which to look again, None for never."""
        raise NotImplementedError

    def start(self) -> None:
        """Called once, with the cache filled and before the first ``reconcile``."""

    def close(self) -> None:
        """Called once, after the last ``reconcile``."""


class Engine:
    """Runs controllers over one :class:`Api`: one cache, one watch, one queue, one worker."""

    def __init__(self, api: Api, kinds: Sequence[str], options: Options, stop: threading.Event) -> None:
        self.api, self.kinds, self.options, self.stop = api, tuple(kinds), options, stop
        self.cache = Cache()
        self.queue = WorkQueue(options.retry_base, options.retry_cap)
        self.controllers: dict[str, Controller] = {}
        self._dispatching = threading.RLock()

    def add(self, controller: Controller) -> None:
        """Have the controller see every change and be run."""
        self.controllers[controller.name] = controller

    def run(self) -> list[threading.Thread]:
        """Fill the cache, start the watch and the worker; their threads end after ``stop`` is set."""
        self._resync()
        for controller in self.controllers.values():
            controller.start()
        threads = [
            threading.Thread(target=self._watch, name=f"watch-{next(iter(self.controllers))}", daemon=True),
            threading.Thread(target=self._work, name=f"work-{next(iter(self.controllers))}", daemon=True),
        ]
        for thread in threads:
            thread.start()
        return threads

    def note(self, obj: Obj) -> Obj:
        """Take an answer of the API into the cache."""
        if obj.get("kind") in self.kinds:
            self._apply("MODIFIED", obj)
        return obj

    def note_gone(self, obj: Obj) -> None:
        """Take an object out of the cache."""
        self._apply("DELETED", obj)

    def _apply(self, change: str, obj: Obj) -> None:
        with self._dispatching:
            if change == "DELETED":
                gone = self.cache.remove(obj)
                if gone is not None:
                    self._dispatch("DELETED", obj, gone)
                return
            taken = self.cache.put(obj)
            if taken is None:
                return
            before, present = taken
            if before is not None and uid_of(before) != uid_of(present):
                self._dispatch("DELETED", before, before)
                before = None
            self._dispatch("ADDED" if before is None else "MODIFIED", present, before)

    def _dispatch(self, change: str, obj: Obj, before: Obj | None) -> None:
        for controller in self.controllers.values():
            controller.observe(change, obj, before)

    def _watch(self) -> None:
        while not self.stop.is_set():
            try:
                for change, obj in self.api.watch(self.kinds, self.stop):
                    self._apply(change, obj)
            except Exception:
                if self.stop.is_set():
                    return
                log.exception("the watch broke; starting again")
            self.stop.wait(0.5)
            if not self.stop.is_set():
                self.queue.add("", (None, "resync"))

    def _resync(self) -> None:
        """Compare the cache with lists: finds what was deleted while no watch was running."""
        for kind in self.kinds:
            known = self.cache.list(kind)
            listed = self.api.list(kind)
            present = {uid_of(obj) for obj in listed}
            for obj in listed:
                self._apply("MODIFIED", obj)
            for obj in known:
                if uid_of(obj) not in present:
                    self._apply("DELETED", obj)

    def _work(self) -> None:
        self.queue.add("", (None, "resync"), 2.0)  # what went between the first lists and the watch
        while not self.stop.is_set():
            item = self.queue.take(0.25)
            if item is not None:
                self._handle(*item)
        for controller in self.controllers.values():
            controller.close()

    def _handle(self, name: str, key: Key) -> None:
        try:
            if name == "":
                self._resync()
                again: float | None = self.options.resync
            else:
                again = self.controllers[name].reconcile(*key)
        except Retry:
            self.queue.retry(name, key)
        except ApiError as error:
            if error.status == 404:  # gone meanwhile, or its namespace: the watch tells
                return
            if error.status >= 500:  # the server is away or unwell: no reason to look ever later
                self.queue.add(name, key, SERVER_PAUSE)
                return
            if error.status != 409:
                log.warning("%s %s: %s", name, key, error)
            self.queue.retry(name, key)
        except Exception:
            if not self.stop.is_set():
                log.exception("%s failed at %s", name, key)
                self.queue.retry(name, key)
        else:
            self.queue.forget(name, key)
            if again is not None:
                self.queue.add(name, key, again)
