"""Early pytest plugin (-p tests.env): the environment that settings read before any conftest is loaded.

Starts PostgreSQL and Valkey for the run where DATABASE_URL or REDIS_URL is not set. Workers of xdist inherit the
environment of the process that started the servers, and start none.
"""

from __future__ import annotations

import atexit
import os
import shutil
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from dev import services, throwaway

ROOT = Path(__file__).resolve().parent.parent


def _start_services() -> None:
    if os.environ.get("DATABASE_URL") and os.environ.get("REDIS_URL"):
        return
    folder = throwaway.make(ROOT / ".data" / "test")
    started = services.start(folder.path, throw_away=True)
    os.environ.update(started.environment())

    def end() -> None:
        started.stop()
        shutil.rmtree(folder.path, ignore_errors=True)

    atexit.register(end)


os.environ.setdefault("PORTAL_ENV", "test")
# Playwright's sync API runs an event loop in the thread of the test; Django would refuse the database there.
os.environ.setdefault("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
_start_services()


def _broker_of_this_worker() -> None:
    """Give each worker of xdist a database of its own in Valkey, as it has in PostgreSQL: some tests empty it."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    if worker:
        parts = urlsplit(os.environ["REDIS_URL"])
        os.environ["REDIS_URL"] = urlunsplit(parts._replace(path=f"/{int(worker.removeprefix('gw')) + 1}"))


_broker_of_this_worker()
