"""The way of an order to a ready slice, with the time of each step where the cluster tells it."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from gpu.diagnosis.model import Intent, Step
from gpu.diagnosis.view import (
    View,
    condition,
    container_status,
    created,
    deleting,
    event_time,
    holds,
    moment,
    status,
)

CODES = ("ordered", "accepted", "claim_made", "card_found", "image_pulled", "started", "ready")

_FAILING = (
    "refused",
    "missing",
    "blocked_by_policy",
    "blocked_by_quota",
    "entitlement_used_up",
    "image_failed",
    "crashing",
    "out_of_memory",
    "node_lost",
)
"""States in which the step a slice stands at has failed instead of going on by itself."""


def steps(intent: Intent, view: View, state: str) -> tuple[Step, ...]:
    """Every step in order: done with its time, the one it stands at, and those that come after."""
    done = _in_order(_done(intent, view))
    reached = 0
    while reached < len(CODES) and CODES[reached] in done:
        reached += 1
    if state in ("crashing", "out_of_memory", "node_lost", "starting"):
        reached = min(reached, CODES.index("ready"))
    here: Literal["current", "failed"] = "failed" if state in _FAILING else "current"
    return tuple(
        Step(code, "done", done[code])
        if index < reached
        else Step(code, here if index == reached else "waiting")
        for index, code in enumerate(CODES)
    )


def _in_order(done: dict[str, datetime | None]) -> dict[str, datetime | None]:
    """No step before the one that led to it: the cluster's times are whole seconds, and by a clock of its own."""
    times: dict[str, datetime | None] = {}
    latest: datetime | None = None
    for code in CODES:
        if code in done:
            at = done[code]
            latest = max(at, latest) if at and latest else at or latest
            times[code] = None if at is None else latest
    return times


def _done(intent: Intent, view: View) -> dict[str, datetime | None]:
    """The steps that are facts, with their time; a later fact proves the earlier ones."""
    found: dict[str, datetime | None] = {"ordered": intent.ordered_at}
    if view.deployment is not None:
        found["accepted"] = created(view.deployment)
    pod = view.pod
    if pod is None or view.deployment is None or deleting(pod):
        return found
    claims = view.claims_of(pod)
    scheduled = condition(pod, "PodScheduled") or {}
    container = container_status(pod)
    state = container.get("state") or {}
    running, ended = state.get("running") or {}, state.get("terminated") or {}
    before = (container.get("lastState") or {}).get("terminated") or {}
    if claims:
        found["claim_made"] = created(claims[0])
    if holds(pod, "PodScheduled") or container:
        allocation = (status(claims[0]).get("allocation") or {}) if claims else {}
        found.setdefault("claim_made", None)
        found["card_found"] = moment(allocation.get("allocationTimestamp")) or moment(
            scheduled.get("lastTransitionTime")
        )
    started = moment((running or ended or before).get("startedAt"))
    pulled = view.last_reason(pod, "Pulled")
    if running or ended or before or pulled is not None or container.get("imageID"):
        found["image_pulled"] = event_time(pulled) if pulled is not None and not before else started
    if running or ended or before:
        found["started"] = started
    if running and holds(pod, "Ready"):
        found["ready"] = moment((condition(pod, "Ready") or {}).get("lastTransitionTime"))
    return found
