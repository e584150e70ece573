"""One app's objects, found among what was seen, with the readings the diagnosis needs.

Objects are joined by owner and uid, never by a name's prefix. An event counts only for an object that exists: events
outlive their object by up to an hour.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gpu.diagnosis.model import Intent, Object, Seen
from gpu.names import LABEL_NAME
from gpu.redact import redact

MAX_DETAIL = 300
"""Characters of the platform's own words that a sentence takes."""
MAX_REDACTED = 4096
"""Characters of them that are looked through."""

_YEARS = (1970, 9998)
_FOLDED = "(combined from similar events): "
_REVISION = "deployment.kubernetes.io/revision"


def moment(text: object) -> datetime | None:
    """A Kubernetes time, or None where there is none, or one that no time zone can show (an event holds any)."""
    if not isinstance(text, str) or not text:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None and _YEARS[0] <= found.year <= _YEARS[1] else None


def created(obj: Object) -> datetime | None:
    """When the object was made."""
    return moment(obj["metadata"].get("creationTimestamp"))


def deleting(obj: Object) -> bool:
    """Whether somebody asked for the object's deletion."""
    return bool(obj["metadata"].get("deletionTimestamp"))


def uid(obj: Object) -> str:
    """The object's uid."""
    return str(obj["metadata"].get("uid") or "")


def status(obj: Object) -> Mapping[str, Any]:
    """The object's status, empty where there is none yet."""
    found = obj.get("status")
    return found if isinstance(found, Mapping) else {}


def condition(obj: Object, kind: str) -> Mapping[str, Any] | None:
    """The condition of type `kind`."""
    found = (each for each in status(obj).get("conditions") or () if each.get("type") == kind)
    return next(found, None)


def holds(obj: Object, kind: str) -> bool:
    """Whether the condition `kind` is True."""
    found = condition(obj, kind)
    return found is not None and found.get("status") == "True"


def container_status(pod: Object) -> Mapping[str, Any]:
    """The status of the slice's one container, empty before there is one."""
    found: Sequence[Mapping[str, Any]] = status(pod).get("containerStatuses") or ()
    return found[0] if found else {}


def owner_uid(obj: Object, kind: str) -> str:
    """The uid of the controlling owner, "" where it is not of `kind`."""
    for owner in obj["metadata"].get("ownerReferences") or ():
        if owner.get("controller") and owner.get("kind") == kind:
            return str(owner.get("uid") or "")
    return ""


def event_time(event: Object) -> datetime | None:
    """When the event last happened: series, eventTime, lastTimestamp, creationTimestamp, in this order."""
    series = event.get("series") or {}
    for text in (series.get("lastObservedTime"), event.get("eventTime"), event.get("lastTimestamp")):
        if (at := moment(text)) is not None:
            return at
    return created(event)


def event_message(event: Object) -> str:
    """The event's text without the mark of folded repeats."""
    return str(event.get("message") or "").removeprefix(_FOLDED)


def detail(text: object) -> str:
    """The platform's own words for a sentence: redacted, on one line, at most `MAX_DETAIL` characters."""
    # Redacted before it is cut to size, so that no half of a name is left, but not at any length.
    line = " ".join(redact(str(text or "")[:MAX_REDACTED]).split())
    return line if len(line) <= MAX_DETAIL else line[: MAX_DETAIL - 1].rstrip() + "…"


def _newest_first(objects: Iterable[Object]) -> list[Object]:
    def age(obj: Object) -> tuple[float, str]:
        at = created(obj)
        return (at.timestamp() if at else 0.0, str(obj["metadata"].get("name")))

    return sorted(objects, key=age, reverse=True)


def _revision(replica_set: Object) -> tuple[int, float]:
    written = str((replica_set["metadata"].get("annotations") or {}).get(_REVISION) or "")
    at = created(replica_set)
    return (int(written) if written.isdecimal() else 0, at.timestamp() if at else 0.0)


@dataclass(frozen=True)
class View:
    """One app's objects. `pod` is the one to judge by, `former` are older pods that are still there."""

    intent: Intent
    deployment: Object | None
    replica_set: Object | None
    pod: Object | None
    former: tuple[Object, ...]
    claims: tuple[Object, ...]
    volumes: tuple[Object, ...]
    quotas: tuple[Object, ...]
    events: tuple[Object, ...]
    leftovers: bool
    """Whether a claim template or Service of the app is still there."""

    def claims_of(self, pod: Object) -> list[Object]:
        """The claims made for a pod."""
        return [claim for claim in self.claims if owner_uid(claim, "Pod") == uid(pod)]

    def last_event(self, obj: Object, matches: Callable[[Object], bool]) -> Object | None:
        """The newest matching event about `obj`."""
        found = [
            event
            for event in self.events
            if event["involvedObject"].get("uid") == uid(obj) and matches(event)
        ]
        return max(found, key=_time_order, default=None)

    def last_reason(self, obj: Object, *reasons: str) -> Object | None:
        """The newest event about `obj` with one of `reasons`."""
        return self.last_event(obj, lambda event: event.get("reason") in reasons)


def _time_order(event: Object) -> tuple[float, int]:
    at = event_time(event)
    version = str(event["metadata"].get("resourceVersion") or "")
    return (at.timestamp() if at else 0.0, int(version) if version.isdecimal() else 0)


def view(intent: Intent, seen: Seen) -> View:
    """Find the objects of `intent.app` among what was seen; objects of other apps are left out."""

    def of(kind: str) -> list[Object]:
        namespace = intent.namespace
        return [
            obj
            for obj in seen.objects.get(kind) or ()
            if obj["metadata"].get("namespace", namespace) == namespace
        ]

    def labelled(obj: Object) -> bool:
        return (obj["metadata"].get("labels") or {}).get(LABEL_NAME) == intent.app

    deployment = next((obj for obj in of("Deployment") if obj["metadata"]["name"] == intent.app), None)
    if deployment is not None:
        sets = [obj for obj in of("ReplicaSet") if owner_uid(obj, "Deployment") == uid(deployment)]
    else:
        sets = [obj for obj in of("ReplicaSet") if labelled(obj)]
    sets.sort(key=_revision, reverse=True)
    set_uids = {uid(obj) for obj in sets}
    pods = _newest_first(
        pod
        for pod in of("Pod")
        # A pull Job's pod may carry the app's name too: only pods of a ReplicaSet are the workload.
        if (owner := owner_uid(pod, "ReplicaSet")) and (owner in set_uids or labelled(pod))
    )
    pod = _judged(pods, uid(sets[0]) if sets else "")
    pod_uids = {uid(each) for each in pods}
    claims = [
        claim for claim in of("ResourceClaim") if owner_uid(claim, "Pod") in pod_uids or labelled(claim)
    ]
    volumes = [
        obj
        for obj in of("PersistentVolumeClaim")
        if labelled(obj) or LABEL_NAME not in (obj["metadata"].get("labels") or {})
    ]
    present = {uid(obj) for obj in (*pods, *sets, *claims, *volumes, *([deployment] if deployment else ()))}
    return View(
        intent=intent,
        deployment=deployment,
        replica_set=sets[0] if sets else None,
        pod=pod,
        former=tuple(each for each in pods if each is not pod),
        claims=tuple(claims),
        volumes=tuple(volumes),
        quotas=tuple(of("ResourceQuota")),
        events=tuple(
            event for event in of("Event") if (event.get("involvedObject") or {}).get("uid") in present
        ),
        leftovers=any(labelled(obj) for kind in ("ResourceClaimTemplate", "Service") for obj in of(kind)),
    )


def _judged(pods: list[Object], newest_set: str) -> Object | None:
    """The pod to judge by: of the newest ReplicaSet, alive rather than ended, ended rather than being deleted."""

    def rank(pod: Object) -> tuple[bool, bool, bool]:
        ended = status(pod).get("phase") in ("Failed", "Succeeded")
        return (deleting(pod), owner_uid(pod, "ReplicaSet") != newest_set, ended)

    return min(pods, key=rank, default=None)  # `pods` has the newest first, and min keeps the first of equals
