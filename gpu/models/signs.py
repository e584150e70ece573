"""Signs of life of the background work, so that pages can tell without asking the broker."""

from __future__ import annotations

from django.db import models


class Sign(models.Model):
    """When something last went on: `sweep` is written by each sweep, `worker` by a worker that takes a task."""

    name = models.CharField(max_length=20, unique=True)
    at = models.DateTimeField()

    def __str__(self) -> str:
        return self.name
