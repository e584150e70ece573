"""What a volume waits for. A volume that waits for its first user is no fault."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Literal

from gpu.diagnosis.model import Diagnosis, Object
from gpu.diagnosis.view import View, created, detail, event_message, event_time, status, uid
from gpu.messages import Memory, Text, gettext_noop
from gpu.quantities import parse

PATIENCE = timedelta(minutes=5)
"""How long a volume may take before an operator has to look (ux.md)."""

_OPERATOR = Text(gettext_noop("An operator of the platform must look at the storage."))
_SOON_OPERATOR = Text(
    gettext_noop("Nothing yet. If it lasts longer than five minutes, an operator must look at the storage.")
)
_TELLING = (
    "ProvisioningFailed",
    "FailedBinding",
    "WaitForFirstConsumer",
    "WaitForPodScheduled",
    "ProvisioningSucceeded",
)


@dataclass(frozen=True)
class Volume:
    """A volume for a person; `size` in bytes, what it has once it is ready and what was asked for before."""

    state: Literal["ready", "made_at_first_start", "waiting", "fault"]
    reason: str
    sentence: Text
    size: Decimal | None


def explain_volume(claim: Object, events: Iterable[Object]) -> Volume:
    """What a PersistentVolumeClaim waits for; `events` may hold those of other objects."""
    phase = status(claim).get("phase")
    requested = ((claim.get("spec") or {}).get("resources") or {}).get("requests") or {}
    text = ((status(claim).get("capacity") or {}) if phase == "Bound" else requested).get("storage")
    size = parse(text) if text is not None else None
    if phase == "Bound":
        sentence = Text(gettext_noop("The volume is ready."))
        if size is not None:
            sentence = Text(gettext_noop("The volume is ready: %(size)s."), {"size": Memory(int(size))})
        return Volume("ready", "bound", sentence, size)
    if phase == "Lost":
        return Volume(
            "fault",
            "volume_lost",
            Text(gettext_noop("The storage behind its volume is gone, and with it the data.")),
            size,
        )
    last = _last(claim, events)
    reason = "" if last is None else str(last.get("reason"))
    message = "" if last is None else event_message(last)
    if reason == "ProvisioningFailed":
        sentence = Text(
            gettext_noop("The storage cannot make its volume: %(detail)s"), {"detail": detail(message)}
        )
        return Volume("fault", "provisioning_failed", sentence, size)
    if reason == "FailedBinding":
        sentence = Text(
            gettext_noop("No storage can make its volume: the cluster has no default storage class.")
        )
        return Volume("fault", "no_storage_class", sentence, size)
    if reason == "WaitForFirstConsumer":
        return Volume(
            "made_at_first_start",
            "first_start",
            Text(gettext_noop("The volume is made at the first start.")),
            size,
        )
    return Volume("waiting", "volume_unbound", Text(gettext_noop("The volume is being made.")), size)


def _last(claim: Object, events: Iterable[Object]) -> Object | None:
    def order(event: Object) -> tuple[float, bool]:
        at = event_time(event)
        return (at.timestamp() if at else 0.0, event.get("type") == "Warning")

    found: Sequence[Object] = [
        event
        for event in events
        if (event.get("involvedObject") or {}).get("uid") == uid(claim)
        and event.get("reason") in _TELLING
        and (event.get("reason") != "FailedBinding" or "no storage class is set" in event_message(event))
    ]
    return max(found, key=order, default=None)


def fault(view: View, now: datetime, term: str) -> Diagnosis | None:
    """The first volume of the slice that has a fault."""
    for claim in view.volumes:
        volume = explain_volume(claim, view.events)
        if volume.state == "fault":
            sure = volume.reason != "provisioning_failed"
            return waiting(volume.reason, volume.sentence, created(claim), now, term, sure=sure)
    return None


def waiting(
    reason: str, sentence: Text, since: datetime | None, now: datetime, term: str, *, sure: bool = False
) -> Diagnosis:
    """Waiting for a volume: an operator's matter at once where that is `sure`, else after `PATIENCE`."""
    late = sure or since is None or now - since >= PATIENCE
    return Diagnosis(
        "waiting_for_volume",
        reason,
        sentence,
        "operator" if late else "nobody",
        _OPERATOR if late else _SOON_OPERATOR,
        term,
        since,
    )
