"""What the watcher last saw. Written by gpu.observe alone."""

from __future__ import annotations

from django.db import models
from django.db.models.fields.json import KT


class Observed(models.Model):
    """A cluster object as last seen, pruned, with Kubernetes' own field names in `data`."""

    kind = models.CharField(max_length=40)
    namespace = models.CharField(max_length=63, blank=True)
    name = models.CharField(max_length=253)
    uid = models.CharField(max_length=64)
    app = models.CharField(max_length=63, blank=True)
    involved_uid = models.CharField(max_length=64, blank=True)
    data = models.JSONField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["kind", "namespace", "name"], name="observed_key")]
        indexes = [
            models.Index(fields=["namespace", "app"], name="observed_of_app"),
            models.Index(
                fields=["involved_uid"], condition=~models.Q(involved_uid=""), name="observed_events"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


class WatchState(models.Model):
    """How far and how fresh the watch of one kind is."""

    kind = models.CharField(max_length=40, unique=True)
    resource_version = models.CharField(max_length=64, blank=True)
    listed_at = models.DateTimeField(null=True)
    seen_at = models.DateTimeField(null=True)
    failing_since = models.DateTimeField(null=True)
    error_code = models.CharField(max_length=60, blank=True)
    relists = models.PositiveIntegerField(default=0)

    def __str__(self) -> str:
        return self.kind
