"""What is on sale. Class names, profile ids and sizes are data of the operator, never of the code."""

from __future__ import annotations

from decimal import Decimal

from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models
from django.utils.translation import gettext_lazy as _

from gpu.manifests import PackageTerms

dns_name = RegexValidator(
    r"\A[a-z0-9]([-a-z0-9.]*[a-z0-9])?\Z", _("Small letters, digits, hyphens and dots only.")
)


class Package(models.Model):
    """A package: one DeviceClass and profile of one GPU model at a price an hour."""

    slug = models.SlugField(_("code"), max_length=40, unique=True)
    name = models.CharField(_("name"), max_length=60)
    gpu_model = models.CharField(_("GPU model"), max_length=60, default="NVIDIA Tesla V100 32 GB")
    card_product = models.CharField(
        _("card product"),
        max_length=80,
        default="Tesla V100-PCIE-32GB",
        help_text=_("The productName the cards carry in their ResourceSlices; used to count free cards."),
    )
    memory_mib = models.PositiveIntegerField(_("GPU memory (MiB)"), validators=[MinValueValidator(1)])
    compute_percent = models.PositiveSmallIntegerField(
        _("compute share (%)"), validators=[MinValueValidator(1), MaxValueValidator(100)]
    )
    shares = models.PositiveSmallIntegerField(
        _("shares"),
        default=1,
        validators=[MinValueValidator(1), MaxValueValidator(16)],
        help_text=_(
            "How many concurrent slices of this size the package holds. 2 × 8 GiB never holds one 16 GiB model."
        ),
    )
    price_per_hour = models.DecimalField(
        _("price per hour"), max_digits=10, decimal_places=4, validators=[MinValueValidator(Decimal(0))]
    )
    currency = models.CharField(_("currency"), max_length=3, default="EUR")
    device_class = models.CharField(_("DeviceClass"), max_length=63, validators=[dns_name])
    profile_id = models.CharField(_("profile id"), max_length=63, validators=[dns_name])
    on_sale = models.BooleanField(_("on sale"), default=True)
    position = models.PositiveSmallIntegerField(_("position"), default=0)

    class Meta:
        verbose_name = _("package")
        verbose_name_plural = _("packages")
        ordering = ["position", "memory_mib", "id"]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(compute_percent__gte=1, compute_percent__lte=100),
                name="compute_share_1_to_100",
            ),
            models.CheckConstraint(condition=models.Q(memory_mib__gte=1), name="package_has_memory"),
            models.CheckConstraint(condition=models.Q(price_per_hour__gte=0), name="price_not_negative"),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def terms(self) -> PackageTerms:
        """The part of the package that stands in manifests."""
        return PackageTerms(
            device_class=self.device_class,
            profile_id=self.profile_id,
            memory_mib=self.memory_mib,
            compute_percent=self.compute_percent,
        )
