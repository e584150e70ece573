"""Place an order, change, stop, start, restart, release a slice: the sole writer of intent.

Each function locks the project, checks, writes, in that order, in one transaction, and queues the work on commit. A
slice row is inserted or its intent changed only with the `Locked` that `lock_project` gives.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from django.db import connection, transaction
from django.db.models import F, Q, QuerySet
from django.utils import timezone

from gpu import enqueue, names, tokens
from gpu.assess import COLUMNS, Assessment, assess
from gpu.contract import Finding
from gpu.manifests import WorkloadSpec
from gpu.messages import Text, gettext_noop
from gpu.models import Order, Package, Slice, TimelineEntry
from gpu.order_errors import InvalidOrder, OrderRefused, StaleRow
from gpu.order_rules import (
    key_of_somebody_else,
    not_on_sale,
    refuse_assessment,
    wrong_state,
)
from portal import counters
from tenants.models import Project, User

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Locked:
    """Proof that the project's row is locked by the present transaction."""

    project: Project


@contextmanager
def lock_project(project_pk: int) -> Iterator[Locked]:
    """Open a transaction and lock the project; orders of one project are judged one after the other."""
    with transaction.atomic():
        yield Locked(_lock_row(project_pk))


def _lock_row(project_pk: int) -> Project:
    return Project.objects.select_for_update(of=("self",)).select_related("tenant").get(pk=project_pk)


def app_name(project: Project, display_name: str) -> str:
    """Return the object name a slice of this display name would get now.

    Raises InvalidOrder when the name cannot be used.
    """
    return _free_name(display_name, _named(project).values_list("app", flat=True))


def _named(project: Project) -> QuerySet[Slice]:
    """The slices whose object names are taken: alive, or ended with their volume kept."""
    return Slice.objects.filter(Q(ended_at=None) | Q(delete_volume=False), project=project).order_by()


def _free_name(display_name: str, taken: Iterable[str]) -> str:
    try:
        return names.object_name(display_name, set(taken))
    except names.NameRefused as error:
        raise InvalidOrder(
            "invalid",
            error.text,
            Text(gettext_noop("Choose another name.")),
            fields=[
                Finding(
                    rule="display-name",
                    place="display_name",
                    sentence=error.text,
                    mend=Text(""),
                    level="refused",
                )
            ],
        ) from error


@contextmanager
def _counted() -> Iterator[None]:
    """Count refusals by code for /metrics."""
    try:
        yield
    except OrderRefused as refusal:
        counters.add("refusals", "portal", refusal.code)
        raise


@_counted()
def place(
    user: User,
    project: Project,
    package: Package,
    display_name: str,
    workload: WorkloadSpec,
    *,
    operation_key: str | None,
    allow_queue: bool = False,
) -> tuple[Slice, Assessment | None]:
    """Order a slice; return it and how the order was judged, None where an earlier call has made it.

    The same `operation_key` again gives the slice of the first order, however often and however close together it
    comes; None is a key that nobody has used. Raises InvalidOrder for what can never work and OrderRefused for what the
    state forbids now.
    """
    with lock_project(project.pk) as locked:
        earlier = _ordered_before(project, operation_key, user) if operation_key else None
        if earlier:
            return earlier, None
        operation_key = operation_key or f"own:{uuid.uuid4().hex}"
        if not package.on_sale:
            raise not_on_sale(package)
        named = list(_named(locked.project).only(*COLUMNS, "ended_at"))
        app = _free_name(display_name, [row.app for row in named])
        alive = [row for row in named if row.ended_at is None]
        judged = assess(locked.project, package, workload, app, rows=alive)
        refuse_assessment(judged, allow_queue=allow_queue)
        row = _insert(locked, user, package, display_name.strip(), app, workload, operation_key, allow_queue)
        if workload.secret_env:
            tokens.make(row)
        _note(row, user, "ordered", {"package": package.name, "waits": judged.verdict})
        log.info("ordered", extra={"slice": row.public_id, "order": row.order.public_id})
        enqueue.provision(row.pk)
    return row, judged


def _ordered_before(project: Project, operation_key: str, user: User) -> Slice | None:
    order = (
        Order.objects.select_related("slice")
        .filter(tenant_id=project.tenant_id, operation_key=operation_key)
        .first()
    )
    if order is None:
        return None
    if order.user_id != user.pk or order.project_id != project.pk:
        raise key_of_somebody_else()
    return order.slice


def _insert(
    locked: Locked,
    user: User,
    package: Package,
    display_name: str,
    app: str,
    workload: WorkloadSpec,
    operation_key: str,
    allow_queue: bool,
) -> Slice:
    if not connection.in_atomic_block:
        raise RuntimeError("a slice is inserted only while its project is locked")
    order = Order.objects.create(
        project=locked.project,
        tenant=locked.project.tenant,
        package=package,
        user=user,
        operation_key=operation_key,
        price_per_hour=package.price_per_hour,
        currency=package.currency,
        spec=workload.to_json(),
        allow_queue=allow_queue,
    )
    terms = package.terms
    return Slice.objects.create(
        project=locked.project,
        package=package,
        order=order,
        display_name=display_name,
        app=app,
        spec=workload.to_json(),
        terms={
            "device_class": terms.device_class,
            "profile_id": terms.profile_id,
            "memory_mib": terms.memory_mib,
            "compute_percent": terms.compute_percent,
        },
    )


def stop(user: User, row: Slice, *, expected: int | None = None) -> Slice:
    """Stop a slice: its card goes back, its volume and settings stay. Stopped twice is stopped once."""

    def check(current: Slice) -> bool:
        _refuse_unless(current, Slice.Intent.RUN, Slice.Intent.STOP)
        return current.intent != Slice.Intent.STOP

    return _change(user, row, check, "stop_asked", expected, intent=Slice.Intent.STOP)


def start(user: User, row: Slice, *, allow_queue: bool = False, expected: int | None = None) -> Slice:
    """Start a stopped slice. It needs an entitlement again, as an order does.

    Raises OrderRefused when the entitlement is used up, or when it would wait and `allow_queue` is not given.
    """

    def check(current: Slice) -> bool:
        _refuse_unless(current, Slice.Intent.RUN, Slice.Intent.STOP)
        if current.intent == Slice.Intent.RUN:
            return False
        judged = assess(current.project, current.package, current.workload, current.app, current=current)
        refuse_assessment(judged, allow_queue=allow_queue)
        return True

    return _change(user, row, check, "start_asked", expected, intent=Slice.Intent.RUN)


def restart(user: User, row: Slice, *, expected: int | None = None) -> Slice:
    """Restart a slice. Its card is free for a moment and may be taken by somebody else."""

    def check(current: Slice) -> bool:
        _refuse_unless(current, Slice.Intent.RUN)
        return True

    return _change(user, row, check, "restart_asked", expected, restarts=F("restarts") + 1)


def release(
    user: User | None, row: Slice, *, delete_volume: bool = False, expected: int | None = None
) -> Slice:
    """Give a slice back: everything of it is deleted, the volume only with `delete_volume`.

    `user` is None when the platform releases it. Released twice is released once.
    """

    def check(current: Slice) -> bool:
        if current.ended_at is not None:
            raise wrong_state(current)
        return current.intent != Slice.Intent.RELEASE or (delete_volume and not current.delete_volume)

    return _change(
        user, row, check, "release_asked", expected, intent=Slice.Intent.RELEASE, delete_volume=delete_volume
    )


def change(
    user: User, row: Slice, workload: WorkloadSpec, *, allow_queue: bool = False, expected: int | None = None
) -> Slice:
    """Change image, command, environment, port, CPU and memory of a slice; a running one restarts with them.

    Raises InvalidOrder when the volume differs (it cannot be changed) or when the new workload can never work.
    """

    spec = workload.to_json()
    noted: dict[str, object] = {}

    def check(current: Slice) -> bool:
        _refuse_unless(current, Slice.Intent.RUN, Slice.Intent.STOP)
        noted["fields"] = [name for name, value in current.spec.items() if value != spec.get(name)]
        if workload == current.workload:
            return False
        if workload.volume != current.workload.volume:
            sentence = Text(gettext_noop("The volume of a slice cannot be changed."))
            mend = Text(gettext_noop("Order a new slice with the volume you need."))
            raise InvalidOrder(
                "invalid",
                sentence,
                mend,
                fields=[
                    Finding(
                        rule="volume-fixed", place="volume", sentence=sentence, mend=mend, level="refused"
                    )
                ],
            )
        judged = assess(current.project, current.package, workload, current.app, current=current)
        refuse_assessment(
            judged, allow_queue=allow_queue or current.intent == Slice.Intent.STOP, own_slice=True
        )
        return True

    return _change(user, row, check, "change_asked", expected, noted, spec=spec)


def send_again(user: User | None, row: Slice) -> Slice:
    """Send what the row says to the cluster once more, as an operator asks for it after a comparison."""

    def check(current: Slice) -> bool:
        if current.ended_at is not None:
            raise wrong_state(current)
        return True

    return _change(user, row, check, "send_asked", None)


def assess_change(row: Slice, workload: WorkloadSpec) -> Assessment:
    """Judge a change without making it."""
    return assess(row.project, row.package, workload, row.app, current=row)


def _refuse_unless(row: Slice, *intents: str) -> None:
    if row.ended_at is not None or row.intent not in intents:
        raise wrong_state(row)


@_counted()
def _change(
    user: User | None,
    row: Slice,
    check: Callable[[Slice], bool],
    code: str,
    expected: int | None,
    params: dict[str, object] | None = None,
    **values: object,
) -> Slice:
    """Lock, check, write. `expected` is the generation the person has seen (API: If-Match)."""
    with lock_project(row.project_id):
        current = (
            Slice.objects.select_for_update(of=("self",)).select_related("project", "package").get(pk=row.pk)
        )
        if expected is not None and current.generation != expected:
            raise StaleRow(
                "changed_meanwhile",
                Text(gettext_noop("The slice was changed since you looked at it.")),
                Text(gettext_noop("Load it again and repeat what you wanted to do.")),
            )
        if not check(current):
            return current
        Slice.objects.filter(pk=current.pk).update(
            generation=F("generation") + 1,
            action=Slice.Action.PENDING,
            action_code="",
            action_message="",
            action_policy="",
            attempts=0,
            lost_runs=0,
            retry_at=None,
            changed_at=timezone.now(),
            **values,
        )
        current.refresh_from_db()
        _note(current, user, code, params or {})
        log.info("%s", code, extra={"slice": current.public_id})
        enqueue.provision(current.pk)
    return current


def _note(row: Slice, user: User | None, code: str, params: dict[str, object]) -> None:
    TimelineEntry.objects.create(slice=row, actor=user, code=code, params=params)
