"""The outcome of our own action on a pull and what its agent reported, written by compare-and-set."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import F
from django.utils import timezone

from gpu.models import ModelCheck, ModelOnVolume, ModelPull, ModelShelf, TimelineEntry
from gpu.outcomes import MAX_LOST_RUNS, WORKER_LOST, pause_after
from gpu.pull_lines import GOOD, Check, Model, Progress
from gpu.redact import redact

NOTED = (ModelPull.Mode.PULL, ModelPull.Mode.DELETE)
KEPT_CHECKS = 20
MAX_NAME, MAX_DETAIL = 640, 400
MAX_BYTES, MAX_NUMBER = 2**62, 2**31 - 1
"""What the columns hold; an agent may say anything."""


def claim(pk: int, seconds: float) -> bool:
    """Take the next look at a pull; False while somebody else has taken it. It is due again in `seconds`."""
    now = timezone.now()
    due = ModelPull.objects.filter(pk=pk, finished_at=None, look_at__lte=now)
    return bool(due.update(look_at=now + timedelta(seconds=seconds)))


def begin(row: ModelPull) -> bool:
    """Note that a run begins that sends something; False when too many of them lost their worker."""
    same = ModelPull.objects.filter(pk=row.pk, generation=row.generation, finished_at=None)
    if row.lost_runs >= MAX_LOST_RUNS:
        finish(row, "failed", cause=WORKER_LOST)
        return False
    return bool(same.update(lost_runs=F("lost_runs") + 1))


def mark_applied(row: ModelPull) -> bool:
    """Note that the cluster has the Job; False when the intent has changed since."""
    return bool(
        ModelPull.objects.filter(pk=row.pk, generation=row.generation, finished_at=None).update(
            applied_generation=row.generation,
            action=ModelPull.Action.APPLIED,
            action_code="",
            action_message="",
            action_policy="",
            action_at=timezone.now(),
            attempts=0,
            lost_runs=0,
            retry_at=None,
        )
    )


def mark_retry(row: ModelPull, code: str, message: str, retry_after: float | None) -> float:
    """Note a failure that ends by itself; return the pause before the next try in seconds."""
    pause = pause_after(row.attempts, retry_after)
    again = timezone.now() + timedelta(seconds=pause)
    ModelPull.objects.filter(pk=row.pk, generation=row.generation, finished_at=None).update(
        action=ModelPull.Action.RETRYING,
        action_code=code,
        action_message=message,
        action_at=timezone.now(),
        attempts=F("attempts") + 1,
        lost_runs=0,
        retry_at=again,
        look_at=again,
    )
    return pause


def mark_refused(row: ModelPull, code: str, message: str, policy: str) -> bool:
    """Note that the platform does not take the Job: the pull has ended."""
    ModelPull.objects.filter(pk=row.pk, generation=row.generation, finished_at=None).update(
        action=ModelPull.Action.REFUSED,
        action_code=code,
        action_message=message,
        action_policy=policy,
        action_at=timezone.now(),
    )
    return finish(row, "refused", cause=code, detail=message)


def note_progress(row: ModelPull, progress: Progress, tries: int) -> None:
    """Keep where the pull stands. The percentage never goes back, whatever the agent says."""
    percent = max(row.percent, min(99.0, progress.percent))
    ModelPull.objects.filter(pk=row.pk, finished_at=None).update(
        step=_text(progress.step, 40),
        completed=min(progress.completed, MAX_BYTES),
        total=min(max(progress.total, progress.completed), MAX_BYTES),
        percent=percent,
        speed=min(progress.speed, MAX_BYTES),
        eta_s=None if progress.eta_s is None else min(progress.eta_s, MAX_NUMBER),
        stalled_s=min(progress.stalled_s, MAX_NUMBER),
        progress_at=progress.at,
        cause="",
        detail="",
        tries=tries,
        lost_at=None,
    )


def note_failed_try(row: ModelPull, outcome: str, detail: str, tries: int) -> None:
    """Keep why a try failed while the Job tries again."""
    ModelPull.objects.filter(pk=row.pk, finished_at=None).update(
        step="retrying",
        cause=outcome,
        detail=_text(redact(detail), MAX_DETAIL),
        speed=0,
        eta_s=None,
        stalled_s=0,
        tries=tries,
    )


def note_lost(row: ModelPull) -> datetime:
    """Note since when the Job is gone without its end having been seen (case C-13); return that."""
    lost_at = row.lost_at or timezone.now()
    ModelPull.objects.filter(pk=row.pk, lost_at=None).update(lost_at=lost_at)
    return lost_at


def finish(
    row: ModelPull,
    outcome: str,
    *,
    cause: str = "",
    detail: str = "",
    may_retry: bool = False,
    tries: int | None = None,
    sums: tuple[int, int] | None = None,
) -> bool:
    """End a pull, once: a second end changes nothing and gives False. `sums` are bytes there and bytes in all."""
    values: dict[str, object] = {
        "outcome": outcome,
        "cause": cause,
        "detail": _text(redact(detail), MAX_DETAIL),
        "may_retry": may_retry,
        "speed": 0,
        "eta_s": None,
        "stalled_s": 0,
        "finished_at": timezone.now(),
    }
    if tries is not None:
        values["tries"] = tries
    if sums is not None and sums[1]:
        values["completed"], values["total"] = (min(figure, MAX_BYTES) for figure in sums)
    if outcome in GOOD:
        values["percent"] = 100.0
    with transaction.atomic():
        changed = ModelPull.objects.filter(pk=row.pk, finished_at=None).update(**values)
        if changed and row.mode in NOTED and outcome != "cancelled":
            code = f"{row.mode}_{'done' if outcome in GOOD else 'failed'}"
            TimelineEntry.objects.create(slice_id=row.slice_id, code=code, params={"message": row.model})
    return bool(changed)


def note_models(slice_pk: int, models: Sequence[Model]) -> None:
    """Make what is known of a slice's volume exactly `models`, as of now: the agent's clock is another server's."""
    at = timezone.now()
    known = {_text(item.name, MAX_NAME).lower(): item for item in models if item.name}
    with transaction.atomic():
        ModelShelf.objects.update_or_create(slice_id=slice_pk, defaults={"listed_at": at})
        ModelOnVolume.objects.filter(slice_id=slice_pk).delete()
        ModelOnVolume.objects.bulk_create(
            ModelOnVolume(
                slice_id=slice_pk,
                name=_text(item.name, MAX_NAME),
                size=min(item.size, MAX_BYTES),
                digest=_text(item.digest, 80),
                modified_at=item.modified_at,
                seen_at=at,
            )
            for item in known.values()
        )


def note_check(slice_pk: int, found: Check) -> None:
    """Keep what a check found."""
    ModelCheck.objects.create(
        slice_id=slice_pk,
        model=_text(found.model, MAX_NAME),
        size=_bounded(found.size, MAX_BYTES),
        size_vram=_bounded(found.size_vram, MAX_BYTES),
        context_length=_bounded(found.context_length, MAX_NUMBER),
        tokens_per_second=found.tokens_per_second,
        load_seconds=found.load_seconds,
    )
    kept = ModelCheck.objects.filter(slice_id=slice_pk).values_list("pk", flat=True)[:KEPT_CHECKS]
    ModelCheck.objects.filter(slice_id=slice_pk).exclude(pk__in=list(kept)).delete()


def _text(value: str, limit: int) -> str:
    return value.replace("\x00", "�")[:limit]


def _bounded(value: int | None, most: int) -> int | None:
    return None if value is None else min(value, most)
