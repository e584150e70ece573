"""What the platform's admins set for images and registries."""

from __future__ import annotations

from django.core.exceptions import ValidationError
from django.core.validators import RegexValidator
from django.db import models
from django.utils.translation import gettext_lazy as _

from gpu import images

digest = RegexValidator(r"\Asha256:[0-9a-f]{64}\Z", _("sha256: and 64 digits 0-9 and a-f."))
host_and_port = RegexValidator(
    r"\A[a-z0-9]([-a-z0-9.]*[a-z0-9])?(:[0-9]{1,5})?\Z", _("host or host:port, in small letters.")
)


def validate_version(text: str) -> None:
    """Refuse what does not begin with numbers."""
    if images.parse_version(text) is None:
        raise ValidationError(_("A version begins with numbers, such as 0.24.0."))


class ImageRule(models.Model):
    """A line of the image matrix: what is known of one image on one GPU generation."""

    path = models.CharField(
        _("repository"),
        max_length=200,
        help_text=_("Without its host, so that mirrors count too: ollama/ollama."),
    )
    card = models.CharField(_("GPU generation"), max_length=40, default="V100")
    known_good = models.CharField(
        _("newest version known to work"), max_length=40, blank=True, validators=[validate_version]
    )
    bad_from = models.CharField(
        _("does not work from"), max_length=40, blank=True, validators=[validate_version]
    )
    pin = models.CharField(_("image to propose"), max_length=300, blank=True)
    digest = models.CharField(
        _("digest of the proposed image"), max_length=71, blank=True, validators=[digest]
    )
    reason = models.CharField(_("reason"), max_length=300, blank=True)

    class Meta:
        verbose_name = _("image rule")
        verbose_name_plural = _("image rules")
        ordering = ["path", "card"]
        constraints = [models.UniqueConstraint(fields=["path", "card"], name="one_rule_per_image_and_card")]

    def __str__(self) -> str:
        return f"{self.path} · {self.card}"

    def clean(self) -> None:
        """Refuse a proposal that is no image."""
        try:
            if self.pin:
                images.parse(self.pin)
        except images.ImageRefused as error:
            raise ValidationError({"pin": str(error.text)}) from error

    @property
    def proposal(self) -> str:
        """The image to propose, by digest where one is entered."""
        return f"{self.pin}@{self.digest}" if self.pin and self.digest and "@" not in self.pin else self.pin

    @property
    def ceiling(self) -> images.Ceiling:
        """The line as `gpu.images` reads it."""
        return images.Ceiling(
            self.path, self.card, self.known_good, self.bad_from or None, self.proposal, self.reason
        )


class HouseRegistry(models.Model):
    """A registry of the house from which models are pulled; `insecure` is reached over plain HTTP."""

    host = models.CharField(_("host:port"), max_length=200, unique=True, validators=[host_and_port])
    insecure = models.BooleanField(_("over plain HTTP"), default=False)
    note = models.CharField(_("note"), max_length=200, blank=True)

    class Meta:
        verbose_name = _("registry of the house")
        verbose_name_plural = _("registries of the house")
        ordering = ["host"]

    def __str__(self) -> str:
        return self.host


class OrderPolicy(models.Model):
    """Rules for every order; one row."""

    demand_digest = models.BooleanField(
        _("demand a digest"), default=False, help_text=_("Images without a digest are refused.")
    )

    class Meta:
        verbose_name = _("rules for orders")
        verbose_name_plural = _("rules for orders")

    def __str__(self) -> str:
        return str(_("rules for orders"))
