"""What happened to a slice, newest first: somebody's actions, the portal's own, and the cluster's events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from gpu.diagnosis.view import event_time
from gpu.facts import ProjectFacts
from gpu.models import Slice
from gpu.redact import redact

SENTENCES = {
    "ordered": gettext_noop("Ordered"),
    "accepted": gettext_noop("Accepted by the cluster"),
    "deleted": gettext_noop("Deleted in the cluster"),
    "retrying": gettext_noop("The cluster could not take it; being tried again"),
    "refused": gettext_noop("Refused by the platform"),
    "change_refused": gettext_noop("Change refused by the platform; the settings before it hold again"),
    "needs_operator": gettext_noop("Handed to an operator"),
    "released": gettext_noop("Given back"),
    "stop_asked": gettext_noop("Stop asked for"),
    "start_asked": gettext_noop("Start asked for"),
    "restart_asked": gettext_noop("Restart asked for"),
    "release_asked": gettext_noop("Release asked for"),
    "change_asked": gettext_noop("Change asked for"),
    "send_asked": gettext_noop("Sent to the cluster once more"),
    "pull_asked": gettext_noop("Model ordered"),
    "pull_cancelled": gettext_noop("Fetching a model cancelled"),
    "pull_done": gettext_noop("Model fetched"),
    "pull_failed": gettext_noop("Fetching a model failed"),
    "delete_asked": gettext_noop("Deletion of a model asked for"),
    "delete_done": gettext_noop("Model deleted"),
    "delete_failed": gettext_noop("Deleting a model failed"),
    "check_asked": gettext_noop("Check of a model asked for"),
    "whole_card": gettext_noop("The whole card is visible in the slice; an operator has been told"),
}

WARNINGS = ("refused", "change_refused", "needs_operator", "pull_failed", "delete_failed", "whole_card")


@dataclass(frozen=True)
class TimelineLine:
    """One thing that happened. `code` is an own action's code or the event's reason; `detail` is the cluster's text."""

    at: datetime
    code: str
    sentence: str
    detail: str
    actor: str
    warning: bool
    count: int


def timeline(row: Slice, facts: ProjectFacts, *, limit: int = 100) -> tuple[TimelineLine, ...]:
    """Return the newest `limit` lines."""
    own = [
        TimelineLine(
            at=entry.at,
            code=entry.code,
            sentence=_(SENTENCES.get(entry.code, entry.code)),
            detail=str(entry.params.get("message") or ""),
            actor=(entry.actor.get_full_name() or entry.actor.get_username()) if entry.actor else "",
            warning=entry.code in WARNINGS,
            count=1,
        )
        for entry in row.timeline.select_related("actor").order_by("-at", "-id")[:limit]
    ]
    return tuple(sorted((*own, *events(row, facts)), key=lambda line: line.at, reverse=True)[:limit])


def events(row: Slice, facts: ProjectFacts) -> list[TimelineLine]:
    """Return the cluster's events of the slice's present objects, redacted, newest first."""
    found: Sequence[Mapping[str, Any]] = facts.seen(row.app).objects["Event"]
    lines = [
        TimelineLine(
            at=at,
            code=str(event.get("reason") or ""),
            sentence=str(event.get("reason") or ""),
            detail=redact(str(event.get("message") or "")),
            actor="",
            warning=event.get("type") == "Warning",
            count=int((event.get("series") or {}).get("count") or event.get("count") or 1),
        )
        for event in found
        if (at := event_time(event)) is not None
    ]
    return sorted(lines, key=lambda line: line.at, reverse=True)
