"""What a page or the API says of a project and its slices: frozen, rendered in the reader's language.

Reads intent (Slice rows) and what was observed, and joins them with the diagnosis. Nothing here calls the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cache, cached_property
from typing import Any, cast

from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop, ngettext

from gpu import diagnosis, signs, wording
from gpu.capacity import Capacity, capacity
from gpu.cards import cards
from gpu.diagnosis import Degraded, Diagnosis, Intent, Seen, Step
from gpu.diagnosis.model import HELD_UP, LATE
from gpu.facts import Freshness, ProjectFacts, facts_of_projects, project_facts
from gpu.gpu_use import degraded
from gpu.headroom import Room, headroom, parse_quota
from gpu.holders import Holding, holding
from gpu.messages import Count, Text
from gpu.models import Order, Package, QuotaState, Slice
from gpu.quantities import percent
from gpu.shortages import resource_name
from gpu.status_lines import PackageLine, PoolLine
from tenants.models import Project

WHO = {
    "nobody": gettext_noop("Nobody needs to do anything"),
    "member": gettext_noop("You or a team mate"),
    "owner": gettext_noop("An owner of your tenant"),
    "operator": gettext_noop("The platform's operators"),
}
NOTHING_LEFT = {
    "cpu": gettext_noop("No CPU left in the project"),
    "memory": gettext_noop("No memory left in the project"),
    "storage": gettext_noop("No storage left in the project"),
    "persistentvolumeclaims": gettext_noop("No volumes left in the project"),
    "pods": gettext_noop("No pods left in the project"),
}
POOL_KEYS = (
    "requests.cpu",
    "limits.cpu",
    "requests.memory",
    "limits.memory",
    "requests.storage",
    "persistentvolumeclaims",
    "pods",
)
FIRST_SLICES = 25
AHEAD = (timedelta(minutes=5), timedelta(minutes=1), timedelta(seconds=10))
"""How far ahead is looked when it is asked how long time alone changes nothing of what is said."""
NEEDS_SOMEBODY = ("member", "owner", "operator")


@dataclass(frozen=True)
class SliceStatus:
    """One slice for a reader, in the language of whoever reads it. `allowed` holds the actions its state allows.

    `lasts`: so long it stays as it is while nothing else is seen; zero where nobody has looked ahead.
    """

    slice: Slice
    project: Project
    package: Package
    diagnosis: Diagnosis
    freshness: Freshness
    allowed: frozenset[str]
    lasts: timedelta = timedelta(0)

    @cached_property
    def state_label(self) -> str:
        """The state in words."""
        return _(state_label(self.diagnosis))

    @property
    def colour(self) -> str:
        """The state's colour; amber where the portal itself holds it up."""
        return "amber" if self._held_up else diagnosis.STATES[self.state].colour

    @property
    def icon(self) -> str:
        """The state's icon."""
        return "alert-triangle" if self._held_up else diagnosis.STATES[self.state].icon

    @property
    def _held_up(self) -> bool:
        return self.diagnosis.reason in HELD_UP

    @cached_property
    def sentence(self) -> str:
        """Why."""
        return wording.render(self.diagnosis.sentence)

    @cached_property
    def next_step(self) -> str:
        """What to do now."""
        return wording.render(self.diagnosis.next_step)

    @cached_property
    def causes(self) -> tuple[str, ...]:
        """Further causes."""
        return tuple(wording.render(cause) for cause in self.diagnosis.causes)

    @property
    def who_label(self) -> str:
        """Who can act, in words."""
        return _(WHO[self.diagnosis.who])

    @property
    def state(self) -> str:
        """The stable code of ux.md."""
        return self.diagnosis.state

    @property
    def steps(self) -> tuple[Step, ...]:
        """The stepper."""
        return self.diagnosis.steps

    @property
    def needs_somebody(self) -> bool:
        """Whether somebody has to act; a slice that was stopped on purpose waits for nobody."""
        return self.diagnosis.who in NEEDS_SOMEBODY and self.state != "stopped"


@dataclass(frozen=True)
class ProjectStatus:
    """The start page of a project, and its API twin."""

    project: Project
    answer: str
    packages: tuple[PackageLine, ...]
    pool: tuple[PoolLine, ...]
    slices: tuple[SliceStatus, ...]
    freshness: Freshness
    no_pool: str = ""
    """Where nothing is known to limit the project: why."""

    @property
    def first_slices(self) -> tuple[SliceStatus, ...]:
        """As many slices as the start page shows."""
        return self.slices[:FIRST_SLICES]


def intent_of(row: Slice, degraded: Degraded | None = None, idle: Callable[[], bool] = signs.idle) -> Intent:
    """Return the diagnosis' view of a row; `degraded` is what checks and its log have found.

    `idle` tells whether no worker gives a sign of life; it is asked only for a row that waits for long.
    """
    return Intent(
        slice_id=row.public_id,
        app=row.app,
        namespace=row.project.namespace,
        wanted=row.intent,
        action="released" if row.ended_at and row.intent == Slice.Intent.RELEASE else row.action,
        action_code=row.action_code,
        action_message=row.action_message,
        action_policy=row.action_policy,
        ordered_at=row.created_at,
        device_class=row.terms["device_class"],
        package_label=row.package.name,
        has_volume=bool(row.spec.get("volume")),
        has_port=row.spec.get("port") is not None,
        generation=row.generation,
        action_at=row.action_at,
        degraded=degraded,
        **_waiting(row, idle),
    )


def _waiting(row: Slice, idle: Callable[[], bool]) -> dict[str, Any]:
    """Since when the row waits for a worker, and what is known of that."""
    if row.action not in (Slice.Action.PENDING, Slice.Action.RETRYING) or row.ended_at is not None:
        return {}
    due_at = row.retry_at or max(row.changed_at, row.action_at or row.changed_at)
    late = timezone.now() - due_at > LATE
    return {"due_at": due_at, "begun": row.lost_runs > 0, "idle": late and idle()}


def slice_status(row: Slice, facts: ProjectFacts | None = None, *, ahead: bool = False) -> SliceStatus:
    """Return the status of one slice; `row` comes with its project and package. `ahead` works out `lasts`."""
    facts = facts or project_facts(row.project.namespace, [row.app])
    return _status(row, facts, degraded([row]).get(row.pk), signs.idle, ahead=ahead)


def _status(
    row: Slice, facts: ProjectFacts, limited: Degraded | None, idle: Callable[[], bool], *, ahead: bool
) -> SliceStatus:
    intent, seen, now = intent_of(row, limited, idle), facts.seen(row.app), timezone.now()
    found = diagnosis.explain(intent, seen, now)
    return SliceStatus(
        slice=row,
        project=row.project,
        package=row.package,
        diagnosis=found,
        freshness=facts.freshness,
        allowed=allowed_actions(row),
        lasts=_lasts(found, intent, seen, now) if ahead else timedelta(0),
    )


def _lasts(found: Diagnosis, intent: Intent, seen: Seen, now: datetime) -> timedelta:
    """Return for how long `found` is said if the cluster goes on to answer and shows nothing new."""
    if intent.due_at is not None:
        return timedelta(0)  # it waits for a worker, whose signs of life are told with it
    for span in AHEAD:
        later = replace(seen, as_of=seen.as_of + span) if seen.as_of and seen.reachable else seen
        if diagnosis.explain(intent, later, now + span) == found:
            return span
    return timedelta(0)


def state_label(found: Diagnosis) -> str:
    """Return the message id of a state's label; a quota's names what is used up."""
    exhausted = found.shortage.key.rpartition(".")[2] if found.shortage else ""
    if found.state == "blocked_by_quota" and exhausted in NOTHING_LEFT:
        return NOTHING_LEFT[exhausted]
    if found.state == "ordered" and found.reason in HELD_UP:
        return gettext_noop("Ordered, not begun yet")
    return diagnosis.STATES[found.state].label


def allowed_actions(row: Slice) -> frozenset[str]:
    """Return the actions a slice's intent allows."""
    if row.ended_at is not None or row.intent == Slice.Intent.RELEASE:
        return frozenset()
    if row.intent == Slice.Intent.STOP:
        return frozenset({"start", "change", "release"})
    return frozenset({"stop", "restart", "change", "release"})


def slice_statuses(rows: Iterable[Slice], *, ahead: bool = False) -> tuple[SliceStatus, ...]:
    """Return the statuses of slices of any projects, in the order given, with a fixed number of queries.

    The rows come with their project and package. `ahead` works out `lasts`.
    """
    found = list(rows)
    facts = facts_of_projects({row.project for row in found}, {row.app for row in found})
    limited, idle = degraded(found), cache(signs.idle)
    return tuple(
        _status(row, facts[row.project.namespace], limited.get(row.pk), idle, ahead=ahead) for row in found
    )


def slices_of(
    project: Project, rows: Iterable[Slice], packages: Iterable[Package] | None = None
) -> list[Slice]:
    """Return slices of one project with it and their packages, one object for all: two queries, or one."""
    by_pk = {package.pk: package for package in packages or Package.objects.all()}
    found = list(rows)
    for row in found:
        row.project, row.package = project, by_pk[row.package_id]
    return found


def with_orders(statuses: Iterable[SliceStatus]) -> None:
    """Read the orders of slices that are shown, and who placed them: one query."""
    rows = [status.slice for status in statuses]
    found = Order.objects.filter(slice__in=rows).select_related("user").defer("spec").in_bulk()
    for row in rows:
        row.order = found[row.order_id]


def project_status(project: Project, *, ahead: bool = False) -> ProjectStatus:
    """Return everything the start page of a project says. `ahead` works out `lasts` of its slices."""
    cluster = cast(int, project.cluster_id)
    facts = project_facts(project.namespace, cluster=cluster)
    all_packages = list(Package.objects.all())
    on_sale = [package for package in all_packages if package.on_sale]
    held = holding(project, on_sale, facts)
    counted = cards(project.namespace, cluster)
    rooms = headroom(parse_quota(item) for item in facts.quotas)
    packages = tuple(
        _package_line(held[package.pk], capacity(counted, package.terms, package.card_product))
        for package in on_sale
    )
    pool = tuple(_pool_line(key, rooms.get(key)) for key in POOL_KEYS)
    rows = slices_of(project, project.slices.filter(ended_at=None).defer("applied_spec"), all_packages)
    limited, idle = degraded(rows), cache(signs.idle)
    slices = sorted(
        (_status(row, facts, limited.get(row.pk), idle, ahead=ahead) for row in rows),
        key=lambda item: (not item.needs_somebody, -item.slice.pk),
    )
    with_orders(slices[:FIRST_SLICES])
    return ProjectStatus(
        project=project,
        answer=_answer(packages, pool),
        packages=packages,
        pool=pool,
        slices=tuple(slices),
        freshness=facts.freshness,
        no_pool="" if rooms else _no_pool(project, facts),
    )


def _no_pool(project: Project, facts: ProjectFacts) -> str:
    state = QuotaState.objects.filter(project=project).first()
    if facts.freshness.as_of is None:
        return _("The quotas of the cluster have not been seen yet.")
    if state is None or facts.quotas:
        return _("No quota of the cluster limits this project.")
    if state.action_code:
        return _(
            "The project's quota could not be set up yet; it is tried again by itself. An operator must look at it."
        )
    return _("The project's quota is being set up; what limits it is shown here in a moment.")


def _package_line(held: Holding, free: Capacity | None) -> PackageLine:
    if held.entitled == 0:
        reason = _("This project has no entitlement for this package. An owner can request one.")
    elif held.left == 0:
        reason = _("The entitlement is used up. Release or stop a slice, or let an owner request more.")
    else:
        reason = ""
    return PackageLine(
        package=held.package, holding=held, capacity=free, free_to_order=held.left, reason=reason
    )


def _pool_line(key: str, room: Room | None) -> PoolLine:
    return PoolLine(
        key=key,
        label=wording.render(resource_name(key)),
        room=room,
        used_percent=percent(room.used, room.hard) if room else None,
    )


def _answer(packages: Sequence[PackageLine], pool: Sequence[PoolLine]) -> str:
    """One line that answers: what have I got, can I have more, what is the limit."""
    entitled = sum(line.holding.entitled for line in packages)
    used = sum(line.holding.used for line in packages)
    waiting = sum(line.holding.waiting for line in packages)
    left = sum(line.free_to_order for line in packages)
    parts = [
        wording.render(
            Text(
                gettext_noop("%(used)s of %(entitled)s slices in use, %(waiting)s waiting."),
                {"used": Count(used - waiting), "entitled": Count(entitled), "waiting": Count(waiting)},
            )
        )
    ]
    full = [line for line in pool if line.room and line.room.left is not None and line.room.left <= 0]
    if entitled == 0:
        parts.append(_("This project has no entitlement yet. Ask an owner to request one."))
    elif left == 0:
        parts.append(_("Your entitlement is the limit: release a slice, or let an owner request more."))
    elif full:
        parts.append(_("A new one would wait: no %(what)s left in the project.") % {"what": full[0].label})
    elif any(line.starts_now for line in packages if line.free_to_order):
        parts.append(
            ngettext("You can order %(count)s more.", "You can order %(count)s more.", left)
            % {"count": wording.number(left)}
        )
    else:
        parts.append(
            ngettext(
                "You can order %(count)s more; it would wait for a card.",
                "You can order %(count)s more; they would wait for a card.",
                left,
            )
            % {"count": wording.number(left)}
        )
    return " ".join(parts)
