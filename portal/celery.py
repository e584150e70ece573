"""The Celery app: late acknowledgement, time limits, schedule. Task bodies live behind worker.tasks."""

from __future__ import annotations

import os
import time
from contextvars import Token
from datetime import UTC, datetime, timedelta
from typing import Any

from celery import Celery, signals
from celery.schedules import schedule

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")

from django.conf import settings  # after the settings module is named

from portal import logs

_BEGAN = datetime.now(UTC) - timedelta(seconds=time.monotonic())


def steady_now() -> datetime:
    """Return a time that only goes forward, whatever is done to the machine's clock."""
    return _BEGAN + timedelta(seconds=time.monotonic())


def every(seconds: float) -> schedule:
    """Return a schedule by the steady clock: a clock that is set back must not stop the sweep."""
    return schedule(timedelta(seconds=seconds), nowfun=steady_now)


app = Celery("portal", broker=settings.REDIS_URL, include=["worker.tasks"])
app.conf.update(
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    task_ignore_result=True,
    task_soft_time_limit=settings.TASK_SOFT_LIMIT,
    task_time_limit=settings.TASK_HARD_LIMIT,
    task_serializer="json",
    accept_content=["json"],
    worker_prefetch_multiplier=1,
    worker_max_tasks_per_child=500,
    worker_hijack_root_logger=False,
    broker_connection_retry_on_startup=True,
    broker_transport_options={
        "visibility_timeout": settings.BROKER_VISIBILITY_TIMEOUT,
        "socket_connect_timeout": 2,
        "socket_timeout": 5,
    },
    timezone="UTC",
    # In memory: a beat that once had a wrong clock must not remember that it is hours too early.
    beat_scheduler="celery.beat:Scheduler",
    beat_schedule={
        "sweep": {"task": "portal.sweep", "schedule": every(settings.SWEEP_EVERY_S)},
        "look": {"task": "portal.look_at_clusters", "schedule": every(settings.LOOK_AT_CLUSTERS_EVERY_S)},
        "tidy": {"task": "portal.tidy", "schedule": every(600.0)},
    },
)


_bound: dict[str, Token[dict[str, str]]] = {}


def _keep_djangos_logging(**kwargs: Any) -> None:
    """A receiver keeps Celery from configuring logging; Django has done it."""


def _send_request_id(headers: dict[str, Any], **kwargs: Any) -> None:
    """Let a task know the request that sent it."""
    if "request" in logs.context():
        headers["portal_request"] = logs.context()["request"]


def _bind(task_id: str, task: Any, **kwargs: Any) -> None:
    """Write the ids of task and request on every log record of a task; what it works on is bound by its function."""
    request = task.request.get("portal_request")
    _bound[task_id] = logs.bind(task=task_id, **({"request": request} if request else {}))


def _unbind(task_id: str, **kwargs: Any) -> None:
    """Forget them."""
    token = _bound.pop(task_id, None)
    if token is not None:
        logs.unbind(token)


def _look_soon(**kwargs: Any) -> None:
    """Have what waits taken up when a worker starts, and the clusters looked at, once the watcher has listed them."""
    app.send_task("portal.sweep", retry=False)
    app.send_task("portal.look_at_clusters", countdown=30, expires=120, retry=False)


signals.worker_ready.connect(_look_soon)
signals.setup_logging.connect(_keep_djangos_logging)
signals.before_task_publish.connect(_send_request_id)
signals.task_prerun.connect(_bind)
signals.task_postrun.connect(_unbind)
