"""What a project may hold: entitlements, its compute pool, and the state of the ResourceQuota the portal writes."""

from __future__ import annotations

from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator
from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from gpu.models.catalogue import Package
from gpu.quantities import QuantityError, parse
from tenants.models import Project


def validate_quantity(value: str) -> None:
    """Refuse what is no Kubernetes quantity above zero, with a sentence."""
    try:
        amount = parse(value)
    except QuantityError as error:
        raise ValidationError(str(error)) from error
    if amount <= 0:
        raise ValidationError(_("The amount must be above zero."))


class Entitlement(models.Model):
    """How many slices of a package a project may hold at once."""

    project = models.ForeignKey(
        Project, on_delete=models.CASCADE, related_name="entitlements", verbose_name=_("project")
    )
    package = models.ForeignKey(
        Package, on_delete=models.PROTECT, related_name="entitlements", verbose_name=_("package")
    )
    count = models.PositiveSmallIntegerField(_("slices"), validators=[MaxValueValidator(1000)])

    class Meta:
        verbose_name = _("entitlement")
        verbose_name_plural = _("entitlements")
        ordering = ["project", "package__position"]
        constraints = [
            models.UniqueConstraint(fields=["project", "package"], name="one_entitlement_per_package")
        ]

    def __str__(self) -> str:
        return f"{self.project} · {self.package} · {self.count}"


class ComputePool(models.Model):
    """CPU, memory, storage and pods a project may use; empty means the portal writes no limit for it."""

    project = models.OneToOneField(
        Project, on_delete=models.CASCADE, related_name="pool", verbose_name=_("project")
    )
    cpu_requests = models.CharField(
        _("CPU requests"), max_length=24, blank=True, validators=[validate_quantity]
    )
    cpu_limits = models.CharField(_("CPU limits"), max_length=24, blank=True, validators=[validate_quantity])
    memory_requests = models.CharField(
        _("memory requests"), max_length=24, blank=True, validators=[validate_quantity]
    )
    memory_limits = models.CharField(
        _("memory limits"), max_length=24, blank=True, validators=[validate_quantity]
    )
    storage = models.CharField(_("storage"), max_length=24, blank=True, validators=[validate_quantity])
    pods = models.PositiveIntegerField(_("pods"), null=True, blank=True)

    class Meta:
        verbose_name = _("compute pool")
        verbose_name_plural = _("compute pools")

    def __str__(self) -> str:
        return f"{self.project}"

    def hard(self) -> dict[str, str]:
        """Return the pool as ResourceQuota keys and quantities as typed."""
        lines = {
            "requests.cpu": self.cpu_requests,
            "limits.cpu": self.cpu_limits,
            "requests.memory": self.memory_requests,
            "limits.memory": self.memory_limits,
            "requests.storage": self.storage,
            "pods": "" if self.pods is None else str(self.pods),
        }
        return {key: value for key, value in lines.items() if value}


class QuotaState(models.Model):
    """The outcome of writing a project's ResourceQuota: intent and own action, as with a slice."""

    project = models.OneToOneField(Project, on_delete=models.CASCADE, related_name="quota_state")
    generation = models.PositiveIntegerField(default=1)
    applied_generation = models.PositiveIntegerField(default=0)
    action_code = models.CharField(max_length=60, blank=True)
    action_message = models.TextField(blank=True)
    attempts = models.PositiveIntegerField(default=0)
    retry_at = models.DateTimeField(null=True, blank=True)
    changed_at = models.DateTimeField(default=timezone.now)

    class Meta:
        verbose_name = _("quota in the cluster")
        verbose_name_plural = _("quotas in the cluster")

    def __str__(self) -> str:
        return f"{self.project}"
