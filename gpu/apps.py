"""App configuration."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class GpuConfig(AppConfig):
    """Packages, orders, slices, quotas, and what was observed in the cluster."""

    name = "gpu"
    verbose_name = _("GPU slices")

    def ready(self) -> None:
        """Register the system checks."""
        from gpu import checks  # noqa: F401
