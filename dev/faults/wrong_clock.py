"""Runs a module with a clock that is wrong: `python -m dev.faults.wrong_clock SECONDS MODULE [ARGUMENT...]`.

`time.time`, and Django's and Celery's now, are SECONDS late (negative) or early. Nothing in the product knows.
"""

from __future__ import annotations

import runpy
import sys
import time
from datetime import datetime, timedelta
from typing import Any


def main(seconds: float, arguments: list[str]) -> None:
    """Set the clock of this process (and what it forks), then become the module."""
    real_time = time.time
    time.time = lambda: real_time() + seconds

    from django.utils import timezone

    real_now = timezone.now
    timezone.now = lambda: real_now() + timedelta(seconds=seconds)

    from celery import Celery

    real_celery_now = Celery.now

    def celery_now(app: Any) -> datetime:
        now: datetime = real_celery_now(app)
        return now + timedelta(seconds=seconds)

    Celery.now = celery_now
    sys.argv = arguments
    if arguments[0].endswith(".py"):
        runpy.run_path(arguments[0], run_name="__main__")
    else:
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(float(sys.argv[1]), sys.argv[2:])
