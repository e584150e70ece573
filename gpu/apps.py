"""App configuration."""

from django.apps import AppConfig, apps
from django.utils.translation import gettext_lazy as _


class GpuConfig(AppConfig):
    """Packages, orders, slices, quotas, and what was observed in the cluster."""

    name = "gpu"
    verbose_name = _("GPU slices")

    def ready(self) -> None:
        """Register the system checks, and call axes in the admin what it holds."""
        from gpu import checks  # noqa: F401

        apps.get_app_config("axes").verbose_name = _("Attempts to sign in")
