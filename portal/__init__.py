"""The Django project: settings, addresses, the Celery app."""

from portal.celery import app as celery_app

__all__ = ["celery_app"]
