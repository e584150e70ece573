"""Orders and slices. A slice row holds intent and the outcome of our own action, never what the cluster does."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import F, Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from gpu.manifests import PackageTerms, SliceSpec, WorkloadSpec
from gpu.models.catalogue import Package
from gpu.models.sending import SentRow
from tenants.models import Project, Tenant, public_id


def new_slice_id() -> str:
    """Return a new slice id (`sl_...`)."""
    return public_id("sl")


def new_order_id() -> str:
    """Return a new order id (`or_...`)."""
    return public_id("or")


class Order(models.Model):
    """The immutable record that somebody ordered a package for a project at a price."""

    public_id = models.CharField(_("id"), max_length=24, unique=True, editable=False, default=new_order_id)
    project = models.ForeignKey(
        Project, on_delete=models.PROTECT, related_name="orders", verbose_name=_("project")
    )
    package = models.ForeignKey(
        Package, on_delete=models.PROTECT, related_name="orders", verbose_name=_("package")
    )
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.PROTECT,
        related_name="orders",
        verbose_name=_("ordered by"),
    )
    tenant = models.ForeignKey(
        Tenant, on_delete=models.PROTECT, related_name="+", editable=False, verbose_name=_("tenant")
    )
    operation_key = models.CharField(_("operation key"), max_length=200)
    price_per_hour = models.DecimalField(_("price per hour"), max_digits=10, decimal_places=4)
    currency = models.CharField(_("currency"), max_length=3)
    spec = models.JSONField(_("workload as ordered"))
    allow_queue = models.BooleanField(_("may wait in the queue"), default=False)
    created_at = models.DateTimeField(_("ordered"), default=timezone.now, editable=False)

    class Meta:
        verbose_name = _("order")
        verbose_name_plural = _("orders")
        ordering = ["-created_at", "-id"]
        constraints = [
            models.UniqueConstraint(fields=["tenant", "operation_key"], name="one_order_per_operation_key"),
        ]

    def __str__(self) -> str:
        return self.public_id


class Slice(SentRow):
    """The thing ordered: its workload and its intent."""

    class Intent(models.TextChoices):
        RUN = "run", _("run")
        STOP = "stop", _("stop")
        RELEASE = "release", _("release")

    public_id = models.CharField(_("id"), max_length=24, unique=True, editable=False, default=new_slice_id)
    project = models.ForeignKey(
        Project, on_delete=models.PROTECT, related_name="slices", verbose_name=_("project")
    )
    package = models.ForeignKey(
        Package, on_delete=models.PROTECT, related_name="slices", verbose_name=_("package")
    )
    order = models.OneToOneField(
        Order, on_delete=models.PROTECT, related_name="slice", verbose_name=_("order")
    )
    display_name = models.CharField(_("name"), max_length=63)
    app = models.CharField(_("object name"), max_length=63)
    terms = models.JSONField(_("package terms as ordered"))
    spec = models.JSONField(_("workload"))
    applied_spec = models.JSONField(_("workload last accepted"), null=True, blank=True)
    intent = models.CharField(_("intent"), max_length=10, choices=Intent, default=Intent.RUN)
    delete_volume = models.BooleanField(_("delete the volume at release"), default=False)
    restarts = models.PositiveIntegerField(_("restarts asked for"), default=0)
    created_at = models.DateTimeField(_("ordered"), default=timezone.now, editable=False)
    changed_at = models.DateTimeField(_("intent changed"), default=timezone.now)
    ended_at = models.DateTimeField(_("ended"), null=True, blank=True)

    class Meta:
        verbose_name = _("slice")
        verbose_name_plural = _("slices")
        ordering = ["-created_at", "-id"]
        constraints = [
            # The volume of an ended slice may stay, and keeps its name taken.
            models.UniqueConstraint(
                fields=["project", "app"],
                condition=Q(ended_at=None) | Q(delete_volume=False),
                name="object_name_once_per_project",
            ),
            models.CheckConstraint(
                condition=Q(applied_generation__lte=F("generation")), name="applied_not_ahead_of_intent"
            ),
        ]
        indexes = [
            models.Index(fields=["project", "-created_at", "-id"], name="slices_of_project"),
            models.Index(
                fields=["retry_at"],
                condition=Q(applied_generation__lt=F("generation"), ended_at=None),
                name="slices_to_send",
            ),
            models.Index(fields=["project"], condition=Q(ended_at=None), name="slices_alive"),
        ]

    def __str__(self) -> str:
        return self.display_name

    @property
    def workload(self) -> WorkloadSpec:
        """The workload as intended."""
        return WorkloadSpec.from_json(self.spec)

    @property
    def package_terms(self) -> PackageTerms:
        """The package's terms as they were when ordered."""
        return PackageTerms(**self.terms)

    def manifest_spec(self, namespace: str) -> SliceSpec:
        """Everything the renderer needs for this row; `namespace` is the project's."""
        return SliceSpec(
            namespace=namespace,
            app=self.app,
            terms=self.package_terms,
            workload=self.workload,
            replicas=1 if self.intent == self.Intent.RUN else 0,
            restart=self.restarts,
            slice_id=self.public_id,
        )


class TimelineEntry(models.Model):
    """What somebody or the portal did with a slice; never changed, never deleted."""

    slice = models.ForeignKey(
        Slice, on_delete=models.CASCADE, related_name="timeline", verbose_name=_("slice")
    )
    at = models.DateTimeField(_("when"), default=timezone.now)
    actor = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, related_name="+", verbose_name=_("who")
    )
    code = models.CharField(_("what"), max_length=40)
    params = models.JSONField(_("details"), default=dict)

    class Meta:
        verbose_name = _("what was done")
        verbose_name_plural = _("what was done")
        ordering = ["at", "id"]
        indexes = [models.Index(fields=["slice", "at"], name="timeline_of_slice")]

    def __str__(self) -> str:
        return self.code


class LogCopy(models.Model):
    """The last copy of a slice's log that the worker fetched, and when somebody last asked for one."""

    slice = models.OneToOneField(Slice, on_delete=models.CASCADE, related_name="log")
    wanted_at = models.DateTimeField(null=True)
    fetched_at = models.DateTimeField(null=True)
    text = models.TextField(blank=True)
    error_code = models.CharField(max_length=60, blank=True)
    previous = models.BooleanField(default=False)

    def __str__(self) -> str:
        return f"log of {self.slice_id}"
