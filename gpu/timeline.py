"""What happened to a slice, newest first: actions of people and of the portal, what its pods did, events.

Rows hold a time, a code and figures; the sentences are made here, in the reader's language.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from gpu.diagnosis.milestones import CODES
from gpu.diagnosis.view import MAX_REDACTED, event_time
from gpu.facts import ProjectFacts
from gpu.messages import Moment, Text
from gpu.models import Milestone, Slice, TimelineEntry
from gpu.redact import redact
from gpu.wording import render

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

ACCEPTED = {
    "stop_asked": gettext_noop("Stop accepted by the cluster"),
    "start_asked": gettext_noop("Start accepted by the cluster"),
    "restart_asked": gettext_noop("Restart accepted by the cluster"),
    "change_asked": gettext_noop("Changed: the cluster has the new settings"),
    "change_refused": gettext_noop("The settings before the change are in the cluster again"),
}
"""What the cluster has accepted, by the entry before it that says what was sent."""

SENT = ("ordered", "release_asked", "send_asked", *ACCEPTED)

CHANGED = {
    "image": gettext_noop("Image"),
    "command": gettext_noop("Command"),
    "args": gettext_noop("Arguments"),
    "env": gettext_noop("Environment"),
    "port": gettext_noop("Port"),
    "cpu_request": gettext_noop("CPU"),
    "cpu_limit": gettext_noop("CPU"),
    "memory_request": gettext_noop("Memory"),
    "memory_limit": gettext_noop("Memory"),
}
"""What a change may name; anything else of a workload is a matter of the portal's."""

HAPPENED = {
    "card_found": (gettext_noop("Card found"), gettext_noop("Card found again")),
    "started": (gettext_noop("Started"), gettext_noop("Started again")),
    "ready": (gettext_noop("Ready"), gettext_noop("Ready again")),
}
"""The first time in a slice's life, and each time after it."""

TROUBLE = {
    "node_lost": gettext_noop("Its server stopped answering"),
    "out_of_memory": gettext_noop("Killed: out of memory (host)"),
    "crashed": gettext_noop("Ended by itself"),
    "pod_failed": gettext_noop("Ended by its server"),
}
ENDED = {
    "stop_asked": gettext_noop("Stopped"),
    "restart_asked": gettext_noop("Ended for the restart"),
    "change_asked": gettext_noop("Ended for the change"),
    "release_asked": gettext_noop("Ended: the slice is being given back"),
}
"""Why a container was ended from outside, by what was sent last."""

MAX_MILESTONES = 200
MAX_REASON = 128
"""Characters of an event's reason, which is one word; Kubernetes' own components write no more."""


@dataclass(frozen=True)
class TimelineLine:
    """One thing that happened. `code` is an action's or a milestone's, or an event's reason; `detail` adds to it."""

    at: datetime
    code: str
    sentence: str
    detail: str
    actor: str
    warning: bool
    count: int


def timeline(row: Slice, facts: ProjectFacts, *, limit: int = 100) -> tuple[TimelineLine, ...]:
    """Return the newest `limit` lines of everything, newest first."""
    return _newest_first((*_happened(row, limit), *_timed(events(row, facts)[::-1])), limit)


def happened(row: Slice, *, limit: int = 100) -> tuple[TimelineLine, ...]:
    """Return the newest `limit` of what people and the portal did and what became of it, newest first."""
    return _newest_first(_happened(row, limit), limit)


Timed = tuple[datetime, TimelineLine]


def _newest_first(lines: Iterable[Timed], limit: int) -> tuple[TimelineLine, ...]:
    ordered = sorted(lines, key=lambda each: (each[1].code == "released", each[0]))
    return tuple(line for _at, line in ordered[::-1][:limit])


def _happened(row: Slice, limit: int) -> list[Timed]:
    entries = list(row.timeline.select_related("actor").order_by("-at", "-id")[:limit])[::-1]
    sent = [(entry.at, entry.code) for entry in entries if entry.code in SENT]
    with timezone.override(ZoneInfo(row.project.tenant.time_zone)):
        seen = _milestones(row.milestones.order_by("-last_at", "-id")[:MAX_MILESTONES], sent)
    return [*((line.at, line) for line in _own(entries)), *_timed(seen)]


def _timed(lines: Iterable[TimelineLine]) -> list[Timed]:
    """Times of the cluster are whole seconds: what led to them was within that second, and not after them."""
    return [(_until(line.at), line) for line in lines]


def _until(at: datetime) -> datetime:
    """The end of the second that the cluster names."""
    return at if at.microsecond else at.replace(microsecond=999_999)


def _own(entries: Iterable[TimelineEntry]) -> list[TimelineLine]:
    lines, sent = [], ""
    for entry in entries:
        sent = entry.code if entry.code in SENT else sent
        sentence = SENTENCES.get(entry.code, entry.code)
        lines.append(
            TimelineLine(
                at=entry.at,
                code=entry.code,
                sentence=_(ACCEPTED.get(sent, sentence) if entry.code == "accepted" else sentence),
                detail=str(entry.params.get("message") or "") or _fields(entry.params.get("fields")),
                actor=(entry.actor.get_full_name() or entry.actor.get_username()) if entry.actor else "",
                warning=entry.code in WARNINGS,
                count=1,
            )
        )
    return lines


def _fields(names: object) -> str:
    known = [_(CHANGED[name]) for name in names if name in CHANGED] if isinstance(names, list) else []
    return ", ".join(dict.fromkeys(known))


def _milestones(rows: Iterable[Milestone], sent: Sequence[tuple[datetime, str]]) -> list[TimelineLine]:
    """Return the lines of milestones, oldest first, within a second in the order in which one leads to the other."""
    found = [row for row in rows if row.code in CODES]
    pods: dict[str, tuple[datetime, int]] = {}
    for row in found:
        pods[row.pod] = min(pods.get(row.pod, (row.at, row.pk)), (row.at, row.pk))
    # Within a second the older pod comes first: it ended, and so the next one could start.
    moments = sorted(
        (
            (at, pods[row.pod], CODES.index(row.code), again, row)
            for row in found
            for at, again in _times(row)
        ),
        key=lambda each: each[:4],
    )
    failed = {row.pod for *_rest, row in moments if row.code == "pod_failed"}
    before: set[str] = set()
    lines = []
    for at, *_rest, row in moments:
        if row.code == "ended" and row.pod in failed:
            continue
        lines.append(_milestone(at, row, row.code in before, sent))
        before.add(row.code)
    return lines


def _times(row: Milestone) -> list[tuple[datetime, bool]]:
    """When a row is a line: what went well the first and the last time, trouble once, at its last time."""
    if row.code not in HAPPENED or row.count == 1:
        return [(row.last_at, row.count > 1)]
    return [(row.at, False), (row.last_at, True)]


def _milestone(
    at: datetime, row: Milestone, again: bool, sent: Sequence[tuple[datetime, str]]
) -> TimelineLine:
    detail, trouble = "", row.code in TROUBLE
    if row.code in HAPPENED:
        sentence = _(HAPPENED[row.code][again])
    elif trouble:
        sentence, detail = _(TROUBLE[row.code]), _trouble(row)
    else:
        last = next((code for moment, code in reversed(sent) if moment <= _until(at)), "")
        sentence = _(ENDED.get(last, gettext_noop("Ended and replaced")))
    return TimelineLine(at, row.code, sentence, detail, "", trouble, row.count if trouble else 1)


def _trouble(row: Milestone) -> str:
    code, reason = row.params.get("exit_code"), row.params.get("reason")
    parts = []
    if code is not None:
        parts.append(render(Text(gettext_noop("exit code %(code)s"), {"code": code})))
    if reason:
        parts.append(str(reason))
    if row.count > 1:
        parts.append(render(Text(gettext_noop("for the first time on %(at)s"), {"at": Moment(row.at)})))
    return ", ".join(parts)


def events(row: Slice, facts: ProjectFacts) -> list[TimelineLine]:
    """Return the cluster's events of the slice's present objects, redacted, newest first."""
    found: Sequence[Mapping[str, Any]] = facts.seen(row.app).objects["Event"]
    lines = [
        TimelineLine(
            at=at,
            code=str(event.get("reason") or "")[:MAX_REASON],
            sentence=str(event.get("reason") or "")[:MAX_REASON],
            detail=redact(str(event.get("message") or "")[:MAX_REDACTED]),
            actor="",
            warning=event.get("type") == "Warning",
            count=int((event.get("series") or {}).get("count") or event.get("count") or 1),
        )
        for event in found
        if (at := event_time(event)) is not None
    ]
    return sorted(lines, key=lambda line: line.at, reverse=True)
