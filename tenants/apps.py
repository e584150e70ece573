"""App configuration."""

from typing import Any

from django.apps import AppConfig, apps
from django.apps.registry import Apps
from django.db.models.signals import post_migrate
from django.utils.translation import gettext_lazy as _


def first_cluster(using: str, apps: Apps = apps, **kwargs: Any) -> None:
    """Make the first cluster's row where there is none, as after a flush: rows refer to it by default."""
    from tenants.models import FIRST_CLUSTER

    try:
        model: Any = apps.get_model("tenants", "Cluster")
    except LookupError:  # an older state was migrated to
        return
    model.objects.using(using).get_or_create(
        pk=FIRST_CLUSTER, defaults={"slug": "default", "name": "Cluster", "is_default": True}
    )


class TenantsConfig(AppConfig):
    """Tenants, members, projects, tokens, clusters."""

    name = "tenants"
    verbose_name = _("Tenants")

    def ready(self) -> None:
        """Keep the first cluster's row."""
        post_migrate.connect(first_cluster, sender=self)
