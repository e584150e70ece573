"""What the watcher last saw. Written by gpu.observe alone."""

from __future__ import annotations

from django.db import models

from tenants.models import FIRST_CLUSTER, Cluster


class Observed(models.Model):
    """A cluster object as last seen, pruned, with Kubernetes' own field names in `data`."""

    # No foreign key in the database: rows come by the thousand, and a lost cluster's rows are worth nothing.
    cluster = models.ForeignKey(
        Cluster,
        on_delete=models.CASCADE,
        related_name="+",
        db_default=models.Value(FIRST_CLUSTER),
        db_constraint=False,
        db_index=False,
    )
    kind = models.CharField(max_length=40)
    namespace = models.CharField(max_length=63, blank=True)
    name = models.CharField(max_length=253)
    uid = models.CharField(max_length=64)
    app = models.CharField(max_length=63, blank=True)
    involved_uid = models.CharField(max_length=64, blank=True)
    data = models.JSONField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "kind", "namespace", "name"], name="observed_in_cluster"
            )
        ]
        indexes = [
            models.Index(fields=["namespace", "app"], name="observed_of_app"),
            models.Index(
                fields=["involved_uid"], condition=~models.Q(involved_uid=""), name="observed_events"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


class WatchState(models.Model):
    """How far and how fresh the watch of one kind in one cluster is."""

    cluster = models.ForeignKey(
        Cluster,
        on_delete=models.CASCADE,
        related_name="watches",
        db_default=models.Value(FIRST_CLUSTER),
        db_index=False,
    )
    kind = models.CharField(max_length=40)
    resource_version = models.CharField(max_length=64, blank=True)
    listed_at = models.DateTimeField(null=True)
    seen_at = models.DateTimeField(null=True)
    failing_since = models.DateTimeField(null=True)
    error_code = models.CharField(max_length=60, blank=True)
    relists = models.PositiveIntegerField(default=0)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["cluster", "kind"], name="one_watch_per_kind")]

    def __str__(self) -> str:
        return self.kind
