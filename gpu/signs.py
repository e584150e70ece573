"""Signs of life of the background work, written by workers and read by pages: facts in the database, no call."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.db import connection
from django.db.models import Count, F, Min, Q
from django.db.models.functions import Coalesce, Greatest, Now
from django.utils import timezone

from gpu.diagnosis.model import LATE
from gpu.models import Sign, Slice

WORKER = "worker"
"""A worker has taken a task."""

SWEEP = "sweep"
"""A sweep has ended, so that beat, broker and worker go on."""

EVERY_S = 5.0

_NOTE = """
INSERT INTO gpu_sign (name, at) VALUES (%s, now())
ON CONFLICT (name) DO UPDATE SET at = excluded.at WHERE gpu_sign.at < excluded.at
"""

_noted: dict[str, float] = {}


def note(name: str) -> None:
    """Note a sign of life, at most every EVERY_S seconds a process."""
    now = time.monotonic()
    if now - _noted.get(name, -EVERY_S) >= EVERY_S:
        with connection.cursor() as cursor:
            cursor.execute(_NOTE, [name])
        _noted[name] = now


def patience() -> timedelta:
    """How old a sign may be: a sweep that was set to be rare is no worker that is away."""
    return max(LATE, timedelta(seconds=3 * settings.SWEEP_EVERY_S))


def idle(now: datetime | None = None) -> bool:
    """Whether no worker has taken any task for longer than it takes as a rule."""
    return not Sign.objects.filter(name=WORKER, at__gte=(now or timezone.now()) - patience()).exists()


@dataclass(frozen=True)
class Work:
    """How the background work goes on: its last signs (None where there was none), and what waits for a worker."""

    worker_at: datetime | None
    sweep_at: datetime | None
    waiting: int
    oldest_at: datetime | None
    now: datetime

    @property
    def worker_silent(self) -> bool:
        """Whether no worker gives a sign of life."""
        return self.worker_at is None or self.now - self.worker_at > patience()

    @property
    def sweep_silent(self) -> bool:
        """Whether the sweep does not come round."""
        return self.sweep_at is None or self.now - self.sweep_at > patience()

    @property
    def late(self) -> bool:
        """Whether something waits for longer than it takes as a rule."""
        return self.oldest_at is not None and self.now - self.oldest_at > LATE


def work() -> Work:
    """Return how the background work goes on. Two queries."""
    now = timezone.now()
    at = dict(Sign.objects.values_list("name", "at"))
    unsent = Q(retry_at=None) | Q(retry_at__lte=Now())
    rows = Slice.objects.filter(unsent, ended_at=None, applied_generation__lt=F("generation"), lost_runs=0)
    due = Coalesce("retry_at", Greatest("changed_at", "action_at"))
    found = rows.exclude(action__in=Slice.SETTLED).aggregate(waiting=Count("pk"), oldest=Min(due))
    return Work(at.get(WORKER), at.get(SWEEP), found["waiting"], found["oldest"], now)
