"""Looks whether the clusters offer what the portal needs and agree with the rows, and notes it for the admin."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from django.utils import timezone

from gpu import enqueue
from gpu.agreement import Disagreement, compare
from gpu.cluster import errors
from gpu.cluster.check import Line, check, unreachable
from gpu.link import reach
from gpu.message_json import to_json
from gpu.models import ClusterReport, Package
from tenants.models import Cluster

SHOWN = 200
"""Disagreements kept for the admin page; `sweep --dry-run` prints all."""


def check_cluster(row: Cluster) -> Sequence[Line]:
    """Ask a cluster for everything the portal needs, with the packages on sale and one of its projects."""
    packages = [package.terms for package in Package.objects.filter(on_sale=True)]
    namespace = row.projects.order_by("pk").values_list("namespace", flat=True).first()
    try:
        with reach(row) as reached:
            return check(reached, packages, namespace)
    except errors.Unreachable as error:
        return (unreachable(error),)


def note_check(cluster_pk: int) -> None:
    """Check a cluster and note the outcome."""
    row = Cluster.objects.filter(pk=cluster_pk).first()
    if row is None:
        return
    lines = check_cluster(row)
    now = timezone.now()
    well = all(line.ok is not False for line in lines)
    packed = [
        {
            "code": line.code,
            "ok": line.ok,
            "title": to_json(line.title),
            "mend": to_json(line.mend) if line.mend is not None else None,
        }
        for line in lines
    ]
    values = {"checked_at": now, "well": well, "lines": packed}
    ClusterReport.objects.update_or_create(cluster=row, defaults=values | ({"well_at": now} if well else {}))


def note_comparison(cluster_pk: int) -> None:
    """Compare a cluster with the rows and note what does not agree."""
    row = Cluster.objects.filter(pk=cluster_pk).first()
    if row is None:
        return
    found = compare(row)
    shown = list(islice(found, SHOWN))
    count = len(shown) + sum(1 for _more in found)
    ClusterReport.objects.update_or_create(
        cluster=row,
        defaults={
            "compared_at": timezone.now(),
            "disagreement_count": count,
            "disagreements": [packed(item) for item in shown],
        },
    )


def packed(item: Disagreement) -> dict[str, object]:
    """Return a disagreement as JSON values."""
    return {
        **{name: getattr(item, name) for name in ("code", "namespace", "kind", "name", "slice_id")},
        "sentence": to_json(item.sentence),
        "proposal": to_json(item.proposal),
    }


def look_at_all() -> None:
    """Have every cluster looked at, each by a task of its own: one that does not answer holds up no other."""
    for pk in Cluster.objects.values_list("pk", flat=True):
        enqueue.look_at_cluster(pk)
