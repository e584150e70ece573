"""What an order would meet: the same judgement for the preview and, under the lock, for the order itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Literal

from gpu import contract, matrix
from gpu.capacity import Capacity, capacity
from gpu.cards import cards
from gpu.contract import Finding
from gpu.facts import Freshness, ProjectFacts, project_facts
from gpu.headroom import (
    Asked,
    Limits,
    Objection,
    Refused,
    Room,
    Shortage,
    effective_request,
    fits,
    headroom,
    parse_limit_ranges,
    parse_quota,
)
from gpu.holders import Holding, holding
from gpu.manifests import SliceSpec, WorkloadSpec, render
from gpu.models import Package, Slice
from gpu.quantities import QuantityError, parse
from tenants.models import Project

COLUMNS = ("public_id", "display_name", "app", "intent", "package_id", "spec", "terms")
"""What a judgement reads of the project's slices."""

Verdict = Literal["starts", "waits_for_card", "waits_for_pool", "over_entitlement", "refused", "unknown"]


@dataclass(frozen=True)
class Assessment:
    """What would happen to an order.

    `rooms` is the project's headroom before the order (what its waiting orders will take is taken off), `demand` what
    the order asks of it, both by ResourceQuota key in base units. What a changed slice has now is no part of `rooms`
    but in `given_back`. `capacity` is None before the cards were seen.
    """

    package: Package
    documents: tuple[dict[str, object], ...]
    findings: tuple[Finding, ...]
    holding: Holding
    rooms: Mapping[str, Room]
    demand: Mapping[str, Decimal]
    given_back: Mapping[str, Decimal]
    shortages: tuple[Shortage, ...]
    objections: tuple[Objection, ...]
    never_fits: tuple[Shortage, ...]
    capacity: Capacity | None
    facts: ProjectFacts

    @property
    def freshness(self) -> Freshness:
        """How old the facts are."""
        return self.facts.freshness

    @property
    def refused(self) -> tuple[Finding, ...]:
        """The findings that forbid the order."""
        return tuple(finding for finding in self.findings if finding.level == "refused")

    @property
    def verdict(self) -> Verdict:
        """The one answer, the worst first."""
        if self.refused or self.objections or self.never_fits:
            return "refused"
        if self.holding.left < 1:
            return "over_entitlement"
        if self.shortages:
            return "waits_for_pool"
        if self.capacity is None or self.freshness.as_of is None:
            return "unknown"
        return "starts" if self.capacity.starts_now else "waits_for_card"

    @property
    def needs_consent(self) -> bool:
        """Whether the person must agree to wait before the order is sent."""
        return self.verdict in ("waits_for_card", "waits_for_pool")


def assess(
    project: Project,
    package: Package,
    workload: WorkloadSpec,
    app: str,
    *,
    current: Slice | None = None,
    facts: ProjectFacts | None = None,
    rows: Sequence[Slice] | None = None,
) -> Assessment:
    """Judge an order of `workload` on `package`, or a change or start of the slice `current`.

    `facts` and `rows`, the project's slices that have not ended, are read where the caller has not.
    `current` and what it holds are left out of what is used: its old pod goes before the new one comes (Recreate).
    """
    facts = facts or project_facts(project.namespace, events=False, cluster=project.cluster_id)
    if rows is None:
        rows = list(Slice.objects.filter(project=project, ended_at=None).only(*COLUMNS))
    held = holding(project, [package], facts, without=current, rows=rows)[package.pk]
    spec = SliceSpec(
        namespace=project.namespace,
        app=app,
        terms=current.package_terms if current else package.terms,
        workload=workload,
        replicas=1,
        restart=0,
        slice_id=current.public_id if current else "sl_preview",
    )
    findings = contract.check_workload(
        workload,
        ceilings=matrix.ceilings(package),
        # An image that has a digest, or a malformed one, is not asked for it.
        require_digest="@" not in workload.image and matrix.demands_digest(),
    )
    documents: tuple[dict[str, object], ...] = ()
    demand: dict[str, Decimal] = {}
    objections: tuple[Objection, ...] = ()
    limits = parse_limit_ranges(facts.limit_ranges)
    if not any(finding.level == "refused" for finding in findings):
        documents = render(spec)
        findings += contract.check(documents, [spec.terms])
        demand, objections = demand_of(workload, spec.terms.device_class, limits)
    if current is not None and facts.of(app, "PersistentVolumeClaim"):
        demand = {key: needed for key, needed in demand.items() if not _is_storage_key(key)}
    given_back = _given_back(facts, limits, current)
    rooms = _rooms(rows, facts, limits, current, given_back)
    shortages = tuple(item for item in fits(demand, rooms) if not _is_device_key(item.key))
    never = tuple(
        item for item in shortages if (hard := rooms[item.key].hard) is not None and item.needed > hard
    )
    return Assessment(
        package=package,
        documents=documents,
        findings=findings,
        holding=held,
        rooms=rooms,
        demand=demand,
        given_back=given_back,
        shortages=shortages,
        objections=objections,
        never_fits=never,
        capacity=capacity(cards(project.namespace, project.cluster_id), package.terms, package.card_product),
        facts=facts,
    )


def demand_of(
    workload: WorkloadSpec, device_class: str, limits: Limits
) -> tuple[dict[str, Decimal], tuple[Objection, ...]]:
    """Return what a workload takes from a project by quota key (base units), and what a LimitRange refuses."""
    asked = Asked(
        _quantity(workload.cpu_request),
        _quantity(workload.cpu_limit),
        _quantity(workload.memory_request),
        _quantity(workload.memory_limit),
    )
    outcome = effective_request(asked, limits)
    if isinstance(outcome, Refused):
        return {}, outcome.objections
    volume = workload.volume
    return outcome.as_quota(
        device_classes={device_class: 1},
        storage=parse(volume.size) if volume else None,
        storage_class=(volume.storage_class or "") if volume else "",
    ), ()


def _given_back(facts: ProjectFacts, limits: Limits, current: Slice | None) -> Mapping[str, Decimal]:
    """What `current` has now and a change gives back first: its old pod goes before the new one comes."""
    if current is None or current.intent != Slice.Intent.RUN or not _has_pod(facts, current.app):
        return {}
    taken, _objections = demand_of(current.workload, current.package_terms.device_class, limits)
    return {key: needed for key, needed in taken.items() if not _is_storage_key(key)}


def _rooms(
    rows: Iterable[Slice],
    facts: ProjectFacts,
    limits: Limits,
    current: Slice | None,
    given_back: Mapping[str, Decimal],
) -> Mapping[str, Room]:
    """The project's headroom, less what orders will take whose objects the cluster has not charged yet.

    What `current` gives back counts as free.
    """
    pending = {key: -amount for key, amount in given_back.items()}
    for row in rows:
        if row.intent != Slice.Intent.RUN or (current is not None and row.pk == current.pk):
            continue
        # Once a ReplicaSet wants its pod the cluster has decided: the pod is charged, or was refused and takes nothing.
        if _has_pod(facts, row.app) or _wants_pod(facts, row.app):
            continue
        stored = bool(facts.of(row.app, "PersistentVolumeClaim"))
        for key, needed in demand_of(row.workload, row.package_terms.device_class, limits)[0].items():
            if not (stored and _is_storage_key(key)):
                pending[key] = pending.get(key, Decimal(0)) + needed
    rooms = headroom(parse_quota(item) for item in facts.quotas)
    return {key: _less(room, pending.get(key, Decimal(0))) for key, room in rooms.items()}


def _has_pod(facts: ProjectFacts, app: str) -> bool:
    return any(not pod["metadata"].get("deletionTimestamp") for pod in facts.of(app, "Pod"))


def _wants_pod(facts: ProjectFacts, app: str) -> bool:
    return any((item.get("spec") or {}).get("replicas") for item in facts.of(app, "ReplicaSet"))


def _less(room: Room, taken: Decimal) -> Room:
    if room.left is None or room.used is None or not taken:
        return room
    real = room.left - room.over_by - taken
    return replace(room, used=room.used + taken, left=max(real, Decimal(0)), over_by=max(-real, Decimal(0)))


def _is_storage_key(key: str) -> bool:
    return key.endswith(("requests.storage", "persistentvolumeclaims"))


def _quantity(text: str) -> Decimal | None:
    try:
        return parse(text) if text else None
    except QuantityError:
        return None


def _is_device_key(key: str) -> bool:
    return "deviceclass.resource.k8s.io" in key
