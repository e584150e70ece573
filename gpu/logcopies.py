"""Copies of a slice's log: asked for by a page, fetched by the worker, kept for minutes.

No request ever waits for the cluster.
"""

from __future__ import annotations

from datetime import timedelta

from django.db.models import Q
from django.utils import timezone

from gpu import enqueue
from gpu.models import LogCopy, Slice

FRESH = timedelta(seconds=2)
KEPT = timedelta(minutes=15)
MAX_CHARACTERS = 256 * 1024


def request_log(row: Slice, *, previous: bool = False) -> LogCopy:
    """Return the copy at hand, and ask the worker for a newer one when it is older than two seconds."""
    copy, _created = LogCopy.objects.get_or_create(slice=row)
    now = timezone.now()
    asked = LogCopy.objects.filter(
        Q(wanted_at=None) | Q(wanted_at__lt=now - FRESH) | ~Q(previous=previous), pk=copy.pk
    ).update(wanted_at=now, previous=previous)
    if asked:
        enqueue.fetch_log(row.pk)
    return copy


def store_log(row: Slice, text: str, error_code: str = "") -> None:
    """Keep a fetched log, or why there is none (then the text at hand stays, with its age)."""
    values: dict[str, object] = {"error_code": error_code}
    if not error_code:
        values["fetched_at"] = timezone.now()
        values["text"] = text[-MAX_CHARACTERS:].replace("\x00", "�")
    LogCopy.objects.filter(slice=row).update(**values)


def forget_old_logs() -> int:
    """Delete copies nobody has asked for lately; return how many."""
    count, _kinds = LogCopy.objects.filter(wanted_at__lt=timezone.now() - KEPT).delete()
    return count
