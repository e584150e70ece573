"""Model pulls and what they found: rows of intent and of what the agent reported, never of what the cluster does."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Lower
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from gpu.models.orders import Slice
from gpu.models.sending import SentRow
from tenants.models import public_id


def new_pull_id() -> str:
    """Return a new pull id (`pl_...`)."""
    return public_id("pl")


class ModelPull(SentRow):
    """One Job beside a slice: it fetches, deletes or checks a model, or lists what is on the volume.

    `model` is the name as typed, `model_key` the name as names are compared (lower case, host and tag written out).
    The progress is the agent's last line; `percent` never goes back. `outcome` is empty while the pull is unfinished.
    """

    class Mode(models.TextChoices):
        PULL = "pull", _("pull")
        LIST = "list", _("list")
        DELETE = "delete", _("delete")
        CHECK = "check", _("check")

    class Intent(models.TextChoices):
        RUN = "run", _("run")
        CANCEL = "cancel", _("cancel")

    public_id = models.CharField(_("id"), max_length=24, unique=True, editable=False, default=new_pull_id)
    slice = models.ForeignKey(Slice, on_delete=models.CASCADE, related_name="pulls", verbose_name=_("slice"))
    actor = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="+",
        verbose_name=_("ordered by"),
    )
    mode = models.CharField(_("mode"), max_length=8, choices=Mode, default=Mode.PULL)
    model = models.CharField(_("model"), max_length=640, blank=True)
    model_key = models.CharField(_("model as compared"), max_length=640, blank=True)
    insecure = models.BooleanField(_("over plain HTTP"), default=False)
    operation_key = models.CharField(_("operation key"), max_length=200, blank=True)
    intent = models.CharField(_("intent"), max_length=10, choices=Intent, default=Intent.RUN)
    job_name = models.CharField(_("Job"), max_length=63, blank=True)
    tries = models.PositiveSmallIntegerField(_("tries"), default=1)
    outcome = models.CharField(_("outcome"), max_length=24, blank=True)
    cause = models.CharField(_("cause"), max_length=40, blank=True)
    detail = models.CharField(_("detail"), max_length=400, blank=True)
    may_retry = models.BooleanField(_("may be tried again"), default=False)
    step = models.CharField(_("step"), max_length=40, blank=True)
    completed = models.BigIntegerField(_("bytes fetched"), default=0)
    total = models.BigIntegerField(_("bytes in all"), default=0)
    percent = models.FloatField(_("percent"), default=0.0)
    speed = models.BigIntegerField(_("speed (bytes a second)"), default=0)
    eta_s = models.PositiveIntegerField(_("seconds left"), null=True, blank=True)
    stalled_s = models.PositiveIntegerField(_("seconds without progress"), default=0)
    progress_at = models.DateTimeField(_("last progress"), null=True, blank=True)
    lost_at = models.DateTimeField(
        _("Job found gone"),
        null=True,
        blank=True,
        help_text=_("When the Job was found gone before its end was seen."),
    )
    look_at = models.DateTimeField(
        _("looked at again"), default=timezone.now, help_text=_("The worker looks at it again then.")
    )
    created_at = models.DateTimeField(_("ordered"), default=timezone.now, editable=False)
    finished_at = models.DateTimeField(_("finished"), null=True, blank=True)

    class Meta:
        verbose_name = _("model pull")
        verbose_name_plural = _("model pulls")
        ordering = ["-created_at", "-id"]
        constraints = [
            # Two spellings of a name are one model; deleting or checking what is being pulled waits its turn.
            models.UniqueConstraint(
                fields=["slice", "model_key"],
                condition=Q(finished_at=None),
                name="one_unfinished_pull_per_model",
            ),
            models.UniqueConstraint(
                fields=["slice", "operation_key"],
                condition=~Q(operation_key=""),
                name="one_pull_per_operation_key",
            ),
            models.CheckConstraint(
                condition=Q(applied_generation__lte=F("generation")), name="pull_applied_not_ahead"
            ),
        ]
        indexes = [
            models.Index(fields=["look_at"], condition=Q(finished_at=None), name="pulls_to_look_at"),
            models.Index(fields=["slice", "-created_at", "-id"], name="pulls_of_slice"),
        ]

    def __str__(self) -> str:
        return f"{self.mode} {self.model}".strip()

    @property
    def finished(self) -> bool:
        """Whether its outcome is known."""
        return self.finished_at is not None


class ModelOnVolume(models.Model):
    """A model on a slice's volume, as the last list of it said; `size` in bytes."""

    slice = models.ForeignKey(Slice, on_delete=models.CASCADE, related_name="models")
    name = models.CharField(max_length=640)
    size = models.BigIntegerField(default=0)
    digest = models.CharField(max_length=80, blank=True)
    modified_at = models.DateTimeField(null=True)
    seen_at = models.DateTimeField()

    class Meta:
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint("slice", Lower("name"), name="one_row_per_model_on_a_volume"),
        ]

    def __str__(self) -> str:
        return self.name


class ModelShelf(models.Model):
    """When a slice's models were listed last. Without it nothing is known, which is not the same as none."""

    slice = models.OneToOneField(Slice, on_delete=models.CASCADE, related_name="shelf")
    listed_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"models of {self.slice_id}"


class ModelCheck(models.Model):
    """What a check found: where the model runs, how fast, with how much context. Sizes in bytes."""

    slice = models.ForeignKey(Slice, on_delete=models.CASCADE, related_name="checks")
    model = models.CharField(max_length=640)
    size = models.BigIntegerField(null=True)
    size_vram = models.BigIntegerField(null=True)
    context_length = models.PositiveIntegerField(null=True)
    tokens_per_second = models.FloatField(null=True)
    load_seconds = models.FloatField(null=True)
    at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["-at", "-id"]
        indexes = [models.Index(fields=["slice", "-at"], name="checks_of_slice")]

    def __str__(self) -> str:
        return self.model


class SliceSecret(models.Model):
    """A slice's access token on its way: to the cluster, and once to the person who ordered. Then it is forgotten."""

    slice = models.OneToOneField(Slice, on_delete=models.CASCADE, related_name="secret")
    value = models.CharField(max_length=100, blank=True)
    applied_at = models.DateTimeField(null=True)
    shown_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"token of {self.slice_id}"


class SliceReceipt(models.Model):
    """What the container's log says of the GPU it got. Memory in MiB; no UUID, no bus address.

    `pod_uid` is the pod whose log was read; `notes` holds what else the log tells (gpu.receipt_rows.notes_of).
    """

    slice = models.OneToOneField(
        Slice, on_delete=models.CASCADE, related_name="receipt", verbose_name=_("slice")
    )
    pod_uid = models.CharField(_("uid of the pod"), max_length=64, blank=True)
    gpu_name = models.CharField(_("GPU"), max_length=120, blank=True)
    memory_mib = models.PositiveIntegerField(_("GPU memory (MiB)"), null=True)
    driver = models.CharField(_("driver"), max_length=40, blank=True)
    compute_capability = models.CharField(_("compute capability"), max_length=16, blank=True)
    on_cpu = models.BooleanField(_("runs on the CPU"), default=False)
    whole_card = models.BooleanField(_("whole card visible"), default=False)
    notes: models.JSONField[Any, Any] = models.JSONField(_("notes"), default=dict)
    read_at = models.DateTimeField(_("read"), default=timezone.now)

    class Meta:
        verbose_name = _("slice receipt")
        verbose_name_plural = _("slice receipts")

    def __str__(self) -> str:
        return self.gpu_name or "–"

    @property
    def driver_is_cuda(self) -> bool:
        """Whether `driver` is the version of CUDA, as Ollama says it (12.8), not of the driver (580.95.05)."""
        major = self.driver.partition(".")[0]
        return major.isdecimal() and int(major) < 100
