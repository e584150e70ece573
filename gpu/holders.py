"""Who holds slices of a package in a project. A slice counts as held from the order until its ResourceClaim is gone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpu.facts import Object, ProjectFacts
from gpu.models import Entitlement, Package, Slice
from tenants.models import Project


@dataclass(frozen=True)
class Holder:
    """Somebody who holds a slice: a slice of the portal, or a claim the portal did not make (no public_id)."""

    name: str
    public_id: str | None
    has_card: bool


@dataclass(frozen=True)
class Holding:
    """Entitled slices of a package in a project, and who holds them."""

    package: Package
    entitled: int
    holders: tuple[Holder, ...]

    @property
    def used(self) -> int:
        """Slices held, those that wait for a card included."""
        return len(self.holders)

    @property
    def waiting(self) -> int:
        """Slices held that have no card yet."""
        return sum(not holder.has_card for holder in self.holders)

    @property
    def left(self) -> int:
        """Slices that can still be ordered; never below zero."""
        return max(0, self.entitled - self.used)


def holding(
    project: Project,
    packages: Iterable[Package],
    facts: ProjectFacts,
    *,
    without: Slice | None = None,
    rows: Sequence[Slice] | None = None,
) -> dict[int, Holding]:
    """Return per package id what the project is entitled to and who holds it; `without` leaves one slice out.

    Two queries; one for a caller that has the project's `rows` that have not ended. Claims of a DeviceClass that no
    slice of the portal accounts for count on the first package of that class: the cluster's quota charges them too.
    """
    if rows is None:
        alive = Slice.objects.filter(project=project, ended_at=None)
        rows = list(alive.only("public_id", "display_name", "app", "intent", "package_id"))
    entitled = dict(Entitlement.objects.filter(project=project).order_by().values_list("package_id", "count"))
    claims: dict[str, list[Object]] = {}
    for app, claim in facts.claims():
        claims.setdefault(app, []).append(claim)
    own_apps = {row.app for row in rows}
    foreign = [claim for app, items in claims.items() if app not in own_apps for claim in items]
    result: dict[int, Holding] = {}
    for package in packages:
        holders = [
            Holder(row.display_name, row.public_id, any(map(allocated, claims.get(row.app, ()))))
            for row in rows
            if row.package_id == package.pk
            and (without is None or row.pk != without.pk)
            and (row.intent == Slice.Intent.RUN or claims.get(row.app))
        ]
        counted = [claim for claim in foreign if device_class(claim) == package.device_class]
        foreign = [claim for claim in foreign if claim not in counted]
        holders += [Holder(claim["metadata"]["name"], None, allocated(claim)) for claim in counted]
        result[package.pk] = Holding(package, entitled.get(package.pk, 0) * package.shares, tuple(holders))
    return result


def allocated(claim: Object) -> bool:
    """Whether a ResourceClaim has a card."""
    return bool((claim.get("status") or {}).get("allocation"))


def device_class(claim: Object) -> str:
    """Return the DeviceClass of a claim's first request, empty where there is none."""
    requests: Sequence[Object] = ((claim.get("spec") or {}).get("devices") or {}).get("requests") or [{}]
    return str((requests[0].get("exactly") or {}).get("deviceClassName", ""))
