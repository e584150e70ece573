"""What the watcher saw happen to slices. Written by gpu.milestones alone."""

from __future__ import annotations

from django.db import models

from gpu.models.orders import Slice


class Milestone(models.Model):
    """A thing that happened to a pod of a slice, at the cluster's own times; it stays when the pod is gone.

    What the same pod does again is the same row: `at` is the first time, `last_at` the last, `count` how often it was
    seen. So neither a crash loop nor a flapping check makes rows without end.
    """

    # No foreign key in the database: it would lock the slice's row, and the watcher must not wait for an order.
    slice = models.ForeignKey(
        Slice, on_delete=models.CASCADE, related_name="milestones", db_index=False, db_constraint=False
    )
    pod = models.CharField(max_length=64)
    code = models.CharField(max_length=40)
    at = models.DateTimeField()
    last_at = models.DateTimeField()
    count = models.PositiveIntegerField(default=1)
    params = models.JSONField(default=dict)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["slice", "pod", "code"], name="one_milestone_per_pod_and_code")
        ]
        indexes = [models.Index(fields=["slice", "code", "-last_at"], name="milestones_of_slice")]

    def __str__(self) -> str:
        return self.code
