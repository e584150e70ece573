"""The outcome of our own action on a slice, written to its row by compare-and-set on the generation.

Times are the database's: a worker whose clock is wrong must not decide what is due, or what was seen since.
"""

from __future__ import annotations

import random
from datetime import timedelta

from django.db.models import F, QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from gpu import enqueue
from gpu.models import Slice, TimelineEntry
from portal import counters

MAX_LOST_RUNS = 3
"""Runs whose worker died, after which a slice needs an operator (case C-16)."""

LONGEST_PAUSE_S = 300.0
CHANGE_REFUSED = "change_refused"
REFUSALS = ("refused", CHANGE_REFUSED, "needs_operator")
WORKER_LOST = "worker_lost"


def pause_after(attempts: int, retry_after: float | None = None) -> float:
    """Return the seconds to the next try: twice as long with each failure, and no shorter than the cluster asks for."""
    pause = min(LONGEST_PAUSE_S, 2.0 ** min(attempts, 10))
    return max(pause * random.uniform(0.8, 1.2), retry_after or 0.0)  # noqa: S311  jitter, no secret


def begin(row: Slice) -> bool:
    """Note that a run begins. False when too many runs lost their worker: the slice then needs an operator."""
    if row.lost_runs >= MAX_LOST_RUNS:
        Slice.objects.filter(pk=row.pk, generation=row.generation).update(
            action=Slice.Action.NEEDS_OPERATOR,
            action_code=WORKER_LOST,
            action_message="",
            action_at=Now(),
        )
        _note(row, "needs_operator", {})
        return False
    Slice.objects.filter(pk=row.pk, generation=row.generation).update(lost_runs=F("lost_runs") + 1)
    return True


def mark_applied(row: Slice) -> bool:
    """Note that the cluster has accepted `row` as it was read; False when its intent has changed since."""
    rolled_back = row.action_code == CHANGE_REFUSED
    changed = Slice.objects.filter(pk=row.pk, generation=row.generation).update(
        applied_generation=row.generation,
        applied_spec=row.spec,
        action=Slice.Action.APPLIED,
        action_code=CHANGE_REFUSED if rolled_back else "",
        action_message=row.action_message if rolled_back else "",
        action_policy=row.action_policy if rolled_back else "",
        action_at=Now(),
        attempts=0,
        lost_runs=0,
        retry_at=None,
    )
    if changed:
        _note(row, "deleted" if row.intent == Slice.Intent.RELEASE else "accepted", {})
        counters.observe("provision", (timezone.now() - row.changed_at).total_seconds())
    return bool(changed)


def mark_retry(row: Slice, code: str, message: str, retry_after: float | None) -> float:
    """Note a failure that ends by itself; return the pause before the next try in seconds."""
    pause = pause_after(row.attempts, retry_after)
    Slice.objects.filter(pk=row.pk, generation=row.generation).update(
        action=Slice.Action.RETRYING,
        action_code=code,
        action_message=message,
        action_at=Now(),
        attempts=F("attempts") + 1,
        lost_runs=0,
        retry_at=Now() + timedelta(seconds=pause),
    )
    if row.attempts == 0:
        _note(row, "retrying", {"code": code})
    else:
        counters.add("outcomes", "retrying")
    return pause


def mark_refused(row: Slice, code: str, message: str, policy: str) -> bool:
    """Note a refusal that ends the order: what was created is removed already, the name is free again."""
    changed = Slice.objects.filter(pk=row.pk, generation=row.generation).update(
        action=Slice.Action.REFUSED,
        action_code=code,
        action_message=message,
        action_policy=policy,
        action_at=Now(),
        delete_volume=True,
        lost_runs=0,
        retry_at=None,
        ended_at=Now(),
    )
    if changed:
        _note(row, "refused", {"code": code, "message": message, "policy": policy})
    return bool(changed)


def roll_back(row: Slice, code: str, message: str, policy: str) -> bool:
    """Take back a change that the cluster refused: the workload it last accepted is intended again."""
    changed = Slice.objects.filter(pk=row.pk, generation=row.generation).update(
        spec=row.applied_spec,
        generation=F("generation") + 1,
        action=Slice.Action.PENDING,
        action_code=CHANGE_REFUSED,
        action_message=message,
        action_policy=policy,
        action_at=Now(),
        lost_runs=0,
        retry_at=None,
    )
    if changed:
        _note(row, "change_refused", {"code": code, "message": message, "policy": policy})
    return bool(changed)


def mark_stuck(row: Slice, code: str, message: str, policy: str) -> bool:
    """Note a refusal of what was accepted before, or of a deletion: an operator must look; nothing is removed."""
    changed = Slice.objects.filter(pk=row.pk, generation=row.generation).update(
        action=Slice.Action.NEEDS_OPERATOR,
        action_code=code,
        action_message=message,
        action_policy=policy,
        action_at=Now(),
        lost_runs=0,
        retry_at=None,
    )
    if changed:
        _note(row, "needs_operator", {"code": code, "message": message, "policy": policy})
    return bool(changed)


def mark_ended(row: Slice) -> bool:
    """Close a slice whose objects are gone from the cluster."""
    changed = Slice.objects.filter(
        pk=row.pk, generation=row.generation, intent=Slice.Intent.RELEASE, ended_at=None
    ).update(ended_at=Now())
    if changed:
        _note(row, "released", {})
    return bool(changed)


def delete_again(row: Slice) -> bool:
    """Have a release sent once more: something of the slice came into the cluster after it was deleted."""
    changed = Slice.objects.filter(
        pk=row.pk, generation=row.generation, intent=Slice.Intent.RELEASE, action=Slice.Action.APPLIED
    ).update(action=Slice.Action.PENDING, applied_generation=F("generation") - 1, action_at=Now())
    if changed:
        enqueue.provision(row.pk)
    return bool(changed)


def _note(row: Slice, code: str, params: dict[str, str]) -> None:
    TimelineEntry.objects.create(slice_id=row.pk, code=code, params=params)
    counters.add("outcomes", code)
    if code in REFUSALS and "code" in params:
        counters.add("refusals", "cluster", params["code"])


def try_again(rows: QuerySet[Slice]) -> int:
    """Take slices out of the hands of the operator and send them again; return how many."""
    count = 0
    for row in rows.filter(action=Slice.Action.NEEDS_OPERATOR, ended_at=None):
        changed = Slice.objects.filter(pk=row.pk, generation=row.generation).update(
            action=Slice.Action.PENDING,
            action_code="",
            action_message="",
            action_at=Now(),
            attempts=0,
            lost_runs=0,
            retry_at=None,
        )
        if changed:
            enqueue.provision(row.pk)
            count += 1
    return count
