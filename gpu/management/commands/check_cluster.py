"""manage.py check_cluster: whether the cluster offers what the portal needs."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from gpu.cluster.check import check
from gpu.link import cluster
from gpu.models import Package
from gpu.wording import render
from tenants.models import Project

SIGNS = {True: "ok    ", False: "NOT OK", None: "open  "}


class Command(BaseCommand):
    """Print a line for each thing the portal needs; fails when one is missing."""

    help = "Check the cluster: version, interfaces, packages and the rights of the portal's account."

    def handle(self, *args: Any, **options: Any) -> None:
        """Raise CommandError when a line is not ok."""
        packages = [package.terms for package in Package.objects.filter(on_sale=True)]
        namespace = Project.objects.order_by("pk").values_list("namespace", flat=True).first()
        lines = check(cluster(), packages, namespace)
        for line in lines:
            self.stdout.write(f"{SIGNS[line.ok]}  {render(line.title)}")
            if line.mend is not None:
                self.stdout.write(f"        {render(line.mend)}")
        missing = sum(line.ok is False for line in lines)
        if missing:
            raise CommandError(f"{missing} of {len(lines)} lines are not ok.")
