"""Events as Kubernetes' recorders write them: repeats folded into one object with a count."""

import logging
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, field

from sandbox.api import ApiError, Obj
from sandbox.controllers.engine import Controller, Writer
from sandbox.controllers.objects import moment, name_of, namespace_of, now, now_micro, uid_of

log = logging.getLogger(__name__)

# client-go's EventCorrelator: ten different messages of one kind within ten minutes become one event, and an
# object may have 25 events at once, then one more every five minutes.
SIMILAR, SIMILAR_WINDOW = 10, 600.0
BURST, REFILL_SECONDS = 25, 300.0
REMEMBERED = 4096
SERIES_WINDOW = 360.0


@dataclass
class _Similar:
    messages: set[str] = field(default_factory=set)
    last: float = 0.0


@dataclass
class _Budget:
    left: float = BURST
    at: float = field(default_factory=time.monotonic)

    def spend(self) -> bool:
        present = time.monotonic()
        self.left = min(BURST, self.left + (present - self.at) / REFILL_SECONDS)
        self.at = present
        if self.left < 1:
            return False
        self.left -= 1
        return True


class _Memory[V](OrderedDict[tuple[str, ...], V]):
    """A dictionary that forgets its oldest entries."""

    def remember(self, key: tuple[str, ...], value: V) -> V:
        self[key] = value
        self.move_to_end(key)
        while len(self) > REMEMBERED:
            self.popitem(last=False)
        return value


def reference(obj: Obj, field_path: str | None = None) -> Obj:
    """The ``involvedObject`` of an event about ``obj``."""
    found: Obj = {
        "apiVersion": obj["apiVersion"],
        "kind": obj["kind"],
        "name": name_of(obj),
        "namespace": namespace_of(obj),
        "resourceVersion": obj["metadata"]["resourceVersion"],
        "uid": uid_of(obj),
    }
    if field_path:
        found["fieldPath"] = field_path
    return {key: value for key, value in found.items() if value is not None}


class Recorder:
    """Writes events for one component. An event that cannot be written is dropped, as Kubernetes does."""

    def __init__(self, api: Writer, component: str, host: str | None = None) -> None:
        self._api, self._component, self._host = api, component, host
        self._lock = threading.Lock()
        self._similar: _Memory[_Similar] = _Memory()
        self._written: _Memory[Obj] = _Memory()
        self._budgets: _Memory[_Budget] = _Memory()

    def event(self, obj: Obj, type_: str, reason: str, message: str, field_path: str | None = None) -> None:
        """Tell that something happened to ``obj``; ``type_`` is Normal or Warning."""
        with self._lock:
            try:
                self._record(obj, type_, reason, message, field_path)
            except ApiError as error:
                log.debug("event %s of %s not written: %s", reason, name_of(obj), error)

    def _record(self, obj: Obj, type_: str, reason: str, message: str, field_path: str | None) -> None:
        budget = self._budgets.get((uid_of(obj),)) or _Budget()
        self._budgets.remember((uid_of(obj),), budget)
        if not budget.spend():
            return
        kind = (uid_of(obj), type_, reason, field_path or "")
        similar = self._similar.get(kind) or _Similar()
        if time.monotonic() - similar.last > SIMILAR_WINDOW:
            similar = _Similar()
        self._similar.remember(kind, similar)
        similar.messages.add(message)
        similar.last = time.monotonic()
        combined = len(similar.messages) >= SIMILAR
        key = kind if combined else (*kind, message)
        if combined:
            similar.messages.discard(next(iter(similar.messages)))
            message = f"(combined from similar events): {message}"
        known = self._written.get(key)
        if known is not None:
            known = {**known, "count": known["count"] + 1, "lastTimestamp": now(), "message": message}
            known["metadata"] = {k: v for k, v in known["metadata"].items() if k != "resourceVersion"}
            try:
                self._written.remember(key, self._api.update(known))
                return
            except ApiError as error:
                if error.status != 404:
                    raise
        event = self._new(obj, type_, reason, message, field_path)
        event |= {"count": 1, "eventTime": None, "firstTimestamp": now(), "lastTimestamp": now()}
        event["reportingComponent"] = "" if combined else self._component
        event["reportingInstance"] = self._host or ""
        event["source"] = {"component": self._component} | ({"host": self._host} if self._host else {})
        self._written.remember(key, self._api.create(event))

    def series(self, obj: Obj, type_: str, reason: str, action: str, message: str) -> None:
        """The newer form of events, which the scheduler writes: ``eventTime`` and no count."""
        with self._lock:
            try:
                self._record_series(obj, type_, reason, action, message)
            except ApiError as error:
                log.debug("event %s of %s not written: %s", reason, name_of(obj), error)

    def _record_series(self, obj: Obj, type_: str, reason: str, action: str, message: str) -> None:
        key = (uid_of(obj), type_, reason, message)
        known = self._written.get(key)
        if known is not None and time.time() - moment(_last_seen(known)) < SERIES_WINDOW:
            count = (known.get("series") or {}).get("count", 1) + 1
            known = {**known, "series": {"count": count, "lastObservedTime": now_micro()}}
            known["metadata"] = {k: v for k, v in known["metadata"].items() if k != "resourceVersion"}
            try:
                self._written.remember(key, self._api.update(known))
                return
            except ApiError as error:
                if error.status != 404:
                    raise
        event = self._new(obj, type_, reason, message, None)
        event |= {"action": action, "eventTime": now_micro(), "firstTimestamp": None, "lastTimestamp": None}
        event["reportingComponent"] = self._component
        event["reportingInstance"] = f"{self._component}-sandbox"
        event["source"] = {}
        self._written.remember(key, self._api.create(event))

    def _new(self, obj: Obj, type_: str, reason: str, message: str, field_path: str | None) -> Obj:
        namespace = namespace_of(obj) or "default"
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{name_of(obj)}.{time.time_ns():x}", "namespace": namespace},
            "involvedObject": reference(obj, field_path),
            "type": type_,
            "reason": reason,
            "message": message[:1024],
        }


def _last_seen(event: Obj) -> str:
    """When the event last happened: series, eventTime, lastTimestamp, creationTimestamp, in this order."""
    series = event.get("series") or {}
    return str(
        series.get("lastObservedTime")
        or event.get("eventTime")
        or event.get("lastTimestamp")
        or event["metadata"]["creationTimestamp"]
    )


class EventExpiry(Controller):
    """Removes events an hour after they last happened (etcd does this for Kubernetes by a lease)."""

    name = "event-expiry"

    def start(self) -> None:
        self.enqueue(None, "all")

    def observe(self, change: str, obj: Obj, before: Obj | None) -> None:
        pass

    def reconcile(self, namespace: str | None, name: str) -> float | None:
        oldest = time.time() - self.options.event_ttl
        for event in self.api.list("Event"):
            if moment(_last_seen(event)) < oldest:
                self.api.plain.delete("Event", namespace_of(event), name_of(event), uid_of(event))
        return max(0.05, min(60.0, self.options.event_ttl / 2))
