"""manage.py check_cluster: whether the cluster offers what the portal needs."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from gpu.checking import check_cluster
from gpu.cluster.check import Line
from gpu.wording import render
from tenants.models import Cluster

SIGNS = {True: "ok    ", False: "NOT OK", None: "open  "}


class Command(BaseCommand):
    """Print a line for each thing the portal needs; fails when one is missing."""

    help = "Check the cluster: version, interfaces, packages and the rights of the portal's account."

    def add_arguments(self, parser: CommandParser) -> None:
        """`--cluster SLUG` once for each cluster to check."""
        parser.add_argument("--cluster", action="append", default=[], metavar="SLUG", help="only this one")

    def handle(self, *args: Any, **options: Any) -> None:
        """Raise CommandError when a line is not ok, or for a cluster without a row."""
        slugs = set(options["cluster"])
        rows = list(Cluster.objects.filter(slug__in=slugs) if slugs else Cluster.objects.all())
        unknown = slugs - {row.slug for row in rows}
        if unknown:
            raise CommandError(f"No cluster is called {', '.join(sorted(unknown))}.")
        found: list[Line] = []
        for row in rows:
            self.stdout.write(f"{row} ({row.slug})")
            lines = check_cluster(row)
            for line in lines:
                self.stdout.write(f"{SIGNS[line.ok]}  {render(line.title)}")
                if line.mend is not None:
                    self.stdout.write(f"        {render(line.mend)}")
            found += lines
        missing = sum(line.ok is False for line in found)
        if missing:
            raise CommandError(f"{missing} of {len(found)} lines are not ok.")
