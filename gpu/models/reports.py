"""What the worker found out about a cluster as a whole."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from tenants.models import Cluster


class ClusterReport(models.Model):
    """The last check of a cluster (`check_cluster`) and the last comparison with the rows (`sweep --dry-run`).

    `lines` and `disagreements` hold sentences as gpu.message_json packs them; the list is cut, the count is not.
    """

    cluster = models.OneToOneField(
        Cluster, on_delete=models.CASCADE, related_name="report", verbose_name=_("cluster")
    )
    checked_at = models.DateTimeField(_("checked"), null=True)
    well = models.BooleanField(_("well"), default=False)
    well_at = models.DateTimeField(_("last time well"), null=True)
    lines = models.JSONField(_("what was checked"), default=list)
    compared_at = models.DateTimeField(_("compared with the rows"), null=True)
    disagreement_count = models.PositiveIntegerField(_("disagreements"), default=0)
    disagreements = models.JSONField(_("what does not agree"), default=list)

    class Meta:
        verbose_name = _("state of a cluster")
        verbose_name_plural = _("state of the clusters")
        ordering = ["cluster__slug"]

    def __str__(self) -> str:
        return str(self.cluster)
