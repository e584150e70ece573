"""manage.py watch_cluster: the watcher process."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from gpu.watching import serve
from tenants.models import Cluster


class Command(BaseCommand):
    """Watch the clusters and keep the Observed rows; a second process waits as a stand-by."""

    help = "Watch all clusters or some. May run twice: for each cluster one watches, the other waits."

    def add_arguments(self, parser: CommandParser) -> None:
        """`--cluster SLUG` once for each cluster to watch."""
        parser.add_argument("--cluster", action="append", default=[], metavar="SLUG", help="only this one")

    def handle(self, *args: Any, **options: Any) -> None:
        """Run until SIGTERM or SIGINT. Raises CommandError for a cluster without a row.

        DATA_DIR/watcher-alive is touched every ten seconds, for a probe that costs nothing.
        """
        slugs = set(options["cluster"])
        unknown = slugs - set(Cluster.objects.filter(slug__in=slugs).values_list("slug", flat=True))
        if unknown:
            raise CommandError(f"No cluster is called {', '.join(sorted(unknown))}.")
        stop = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_args: stop.set())
        sign = Path(settings.DATA_DIR) / "watcher-alive"
        sign.parent.mkdir(parents=True, exist_ok=True)
        serve(stop, slugs, alive=sign.touch)
