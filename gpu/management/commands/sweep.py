"""manage.py sweep: one round of the sweep by hand, or what it would find."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from gpu.agreement import compare
from gpu.sweep import sweep
from gpu.wording import render
from tenants.models import Cluster


class Command(BaseCommand):
    """Re-send what was lost and close what is gone; or only tell what does not agree."""

    help = "Do one round of the sweep. With --dry-run change nothing: tell what does not agree, with a proposal each."

    def add_arguments(self, parser: CommandParser) -> None:
        """`--dry-run`, and `--cluster SLUG` to compare only some."""
        parser.add_argument("--dry-run", action="store_true", help="only compare, and print what differs")
        parser.add_argument(
            "--cluster", action="append", default=[], metavar="SLUG", help="compare only this one"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Print what was done or found. Raises CommandError for a cluster without a row."""
        if not options["dry_run"]:
            self.stdout.write(", ".join(f"{name}: {count}" for name, count in sweep().items()))
            return
        slugs = set(options["cluster"])
        rows = list(Cluster.objects.filter(slug__in=slugs) if slugs else Cluster.objects.all())
        unknown = slugs - {row.slug for row in rows}
        if unknown:
            raise CommandError(f"No cluster is called {', '.join(sorted(unknown))}.")
        count = 0
        for row in rows:
            for item in compare(row):
                count += 1
                place = "/".join(filter(None, (item.cluster, item.namespace, item.kind, item.name)))
                self.stdout.write(f"{item.code}  {place}  {item.slice_id}".rstrip())
                self.stdout.write(f"    {render(item.sentence)}")
                self.stdout.write(f"    -> {render(item.proposal)}")
        self.stdout.write(f"{count} disagreements; nothing was changed.")
