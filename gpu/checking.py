"""Looks whether the clusters offer what the portal needs."""

from __future__ import annotations

from collections.abc import Sequence

from gpu import link
from gpu.cluster.check import Line, check
from gpu.models import Package
from tenants.models import Cluster


def check_cluster(row: Cluster) -> Sequence[Line]:
    """Ask a cluster for everything the portal needs, with the packages on sale and one of its projects."""
    packages = [package.terms for package in Package.objects.filter(on_sale=True)]
    namespace = row.projects.order_by("pk").values_list("namespace", flat=True).first()
    return check(link.cluster(row), packages, namespace)
