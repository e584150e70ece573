"""The Celery app: late acknowledgement, time limits, schedule. Task bodies live behind worker.tasks."""

from __future__ import annotations

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")

from django.conf import settings  # after the settings module is named

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
    beat_schedule={
        "sweep": {
            "task": "portal.sweep",
            "schedule": settings.SWEEP_EVERY_S,
            "options": {"expires": settings.SWEEP_EVERY_S},
        },
        "tidy": {"task": "portal.tidy", "schedule": 600.0, "options": {"expires": 600}},
    },
)
