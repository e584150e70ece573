"""A slice's access token: made with the order, sent to its Secret, shown once to whoever ordered, then forgotten."""

from __future__ import annotations

from django.db.models import Q
from django.utils import timezone
from django.utils.crypto import get_random_string

from gpu.models import Slice, SliceSecret
from tenants.models import User

LENGTH = 40


def make(row: Slice) -> None:
    """Make the token of a new slice."""
    SliceSecret.objects.create(slice=row, value=get_random_string(LENGTH))


def to_send(row: Slice) -> str:
    """Return the token that the cluster does not have yet, "" where it has it."""
    kept = SliceSecret.objects.filter(slice=row, applied_at=None).first()
    return kept.value if kept is not None else ""


def note_sent(row: Slice, token: str) -> None:
    """Note that the cluster has the token."""
    SliceSecret.objects.filter(slice=row, value=token).update(applied_at=timezone.now())
    _forget(row)


def waits(row: Slice, user: User) -> bool:
    """Whether the token can still be shown to `user`: nobody has seen it, and it is of their order."""
    return row.order.user_id == user.pk and SliceSecret.objects.filter(_unseen(row)).exists()


def show_once(row: Slice, user: User) -> str | None:
    """Return the token, this one time; None where it was shown already or is of somebody else's order."""
    kept = SliceSecret.objects.filter(_unseen(row)).first() if row.order.user_id == user.pk else None
    if kept is None or not SliceSecret.objects.filter(_unseen(row)).update(shown_at=timezone.now()):
        return None
    _forget(row)
    return kept.value


def _unseen(row: Slice) -> Q:
    return Q(slice=row, shown_at=None) & ~Q(value="")


def _forget(row: Slice) -> None:
    """What the cluster has and the person has seen is kept nowhere here."""
    SliceSecret.objects.filter(slice=row, applied_at__isnull=False, shown_at__isnull=False).update(value="")
