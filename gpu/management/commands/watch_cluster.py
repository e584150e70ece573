"""manage.py watch_cluster: the watcher process."""

from __future__ import annotations

import signal
import threading
from typing import Any

from django.core.management.base import BaseCommand

from gpu.link import cluster
from gpu.watching import watch


class Command(BaseCommand):
    """Watch the cluster and keep the Observed rows; a second process waits as a stand-by."""

    help = "Watch the cluster. May run twice: one watches, the other waits."

    def handle(self, *args: Any, **options: Any) -> None:
        """Run until SIGTERM or SIGINT."""
        stop = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_args: stop.set())
        watch(cluster(), stop)
