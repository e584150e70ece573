"""App configuration."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class TenantsConfig(AppConfig):
    """Tenants, members, projects, tokens."""

    name = "tenants"
    verbose_name = _("Tenants")
