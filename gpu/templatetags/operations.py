"""What the admin's start page says of the background work and the clusters. Reads rows alone."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django import template

from gpu import signs
from gpu.facts import Freshness, freshness
from gpu.message_json import from_json
from gpu.models import ClusterReport
from gpu.wording import render
from tenants.models import Cluster

register = template.Library()


@dataclass(frozen=True)
class ClusterState:
    """One cluster for the start page; times are None before the first check."""

    cluster: Cluster
    report_pk: int | None
    checked_at: datetime | None
    well: bool
    well_at: datetime | None
    faults: tuple[tuple[str, str], ...]
    """Title and mend of every line that is not ok."""
    disagreements: int
    facts: Freshness


@register.simple_tag
def background_work() -> signs.Work:
    """Return how the background work goes on."""
    return signs.work()


@register.simple_tag
def cluster_states() -> tuple[ClusterState, ...]:
    """Return the state of every cluster."""
    reports = {report.cluster_id: report for report in ClusterReport.objects.all()}
    return tuple(_state(cluster, reports.get(cluster.pk)) for cluster in Cluster.objects.all())


def _state(cluster: Cluster, report: ClusterReport | None) -> ClusterState:
    lines = report.lines if report else []
    return ClusterState(
        cluster=cluster,
        report_pk=report.pk if report else None,
        checked_at=report.checked_at if report else None,
        well=bool(report and report.well),
        well_at=report.well_at if report else None,
        faults=tuple(
            (render(from_json(line["title"])), render(from_json(line["mend"])) if line["mend"] else "–")
            for line in lines
            if line["ok"] is False
        ),
        disagreements=report.disagreement_count if report else 0,
        facts=freshness(cluster=cluster.pk),
    )
