"""The Django project: settings, addresses, the Celery app."""
