"""What a pod's present state proves to have happened to it, with the cluster's own times."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from gpu.diagnosis.container import node_lost
from gpu.diagnosis.crashes import is_out_of_memory
from gpu.diagnosis.model import Object
from gpu.diagnosis.view import condition, container_status, deleting, moment, owner_uid, status

CODES = ("card_found", "started", "ready", "node_lost", "out_of_memory", "crashed", "pod_failed", "ended")
"""In the order in which they lead to one another within a second."""

_REASON = re.compile(r"[A-Za-z]{1,40}")


@dataclass(frozen=True)
class Happening:
    """One thing that happened; `params` holds figures and Kubernetes' reasons, no sentence."""

    code: str
    at: datetime
    params: dict[str, Any] = field(default_factory=dict)


def happenings(pod: Object) -> list[Happening]:
    """Return what is certain to have happened to a workload's pod; nothing for a pod of another kind."""
    if not owner_uid(pod, "ReplicaSet"):
        return []
    return [each for each in _happenings(pod) if each.at.tzinfo is not None]


def last_happening(pod: Object, seen_at: datetime) -> list[Happening]:
    """Return what the disappearance of `pod`, last seen like this, adds: it has ended, at `seen_at` at the latest."""
    if not owner_uid(pod, "ReplicaSet"):
        return []
    at = _ended_at(pod) or _asked_at(pod)
    return [Happening("ended", at if at is not None and at.tzinfo is not None else seen_at)]


def _happenings(pod: Object) -> Iterator[Happening]:
    scheduled = _since(pod, "PodScheduled")
    if scheduled is not None and (pod.get("spec") or {}).get("resourceClaims"):
        yield Happening("card_found", scheduled)
    container = container_status(pod)
    state, before = container.get("state") or {}, (container.get("lastState") or {}).get("terminated") or {}
    running, terminated = state.get("running") or {}, state.get("terminated") or {}
    started = moment((running or terminated or before).get("startedAt"))
    if started is not None:
        yield Happening("started", started)
    ready = _since(pod, "Ready")
    if running and ready is not None:
        yield Happening("ready", ready)
    if node_lost(pod) and (at := moment((condition(pod, "Ready") or {}).get("lastTransitionTime"))):
        yield Happening("node_lost", at)
    yield from _endings(pod, terminated, before)


def _endings(pod: Object, terminated: Object, before: Object) -> Iterator[Happening]:
    if deleting(pod):
        # Somebody asked for it to end, and so it did: that is no crash.
        if (at := _ended_at(pod)) is not None:
            yield Happening("ended", at)
        terminated = {}
    elif status(pod).get("phase") == "Failed" and _word(status(pod).get("reason")):
        at = moment(terminated.get("finishedAt")) or moment(
            (condition(pod, "Ready") or {}).get("lastTransitionTime")
        )
        if at is not None:
            yield Happening("pod_failed", at, {"reason": _word(status(pod).get("reason"))})
        terminated = {}
    last = terminated or before
    at = moment(last.get("finishedAt"))
    if at is not None:
        code = last.get("exitCode")
        params = {"exit_code": code} if isinstance(code, int) else {}
        yield Happening("out_of_memory" if is_out_of_memory(last) else "crashed", at, params)


def _since(pod: Object, kind: str) -> datetime | None:
    found = condition(pod, kind) or {}
    return moment(found.get("lastTransitionTime")) if found.get("status") == "True" else None


def _ended_at(pod: Object) -> datetime | None:
    terminated = (container_status(pod).get("state") or {}).get("terminated") or {}
    return moment(terminated.get("finishedAt"))


def _asked_at(pod: Object) -> datetime | None:
    """When the deletion was asked for: the time in the object has the grace period added."""
    until = moment(pod["metadata"].get("deletionTimestamp"))
    grace = pod["metadata"].get("deletionGracePeriodSeconds")
    if until is None or not isinstance(grace, int):
        return until
    return until - timedelta(seconds=grace)


def _word(reason: object) -> str:
    return reason if isinstance(reason, str) and _REASON.fullmatch(reason) else ""
