"""Answers kept so that a repeated POST with the same Idempotency-Key gives the first answer again."""

from __future__ import annotations

from django.db import models
from django.utils import timezone

from tenants.models import Tenant


class IdempotentAnswer(models.Model):
    """The first answer to a key; `status` is null while the first request is still running."""

    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="+")
    key = models.CharField(max_length=200)
    fingerprint = models.CharField(max_length=64)
    status = models.PositiveSmallIntegerField(null=True)
    headers = models.JSONField(default=dict)
    body = models.JSONField(null=True)
    created_at = models.DateTimeField(default=timezone.now, db_index=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant", "key"], name="one_answer_per_idempotency_key")
        ]

    def __str__(self) -> str:
        return self.key
