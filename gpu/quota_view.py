"""A project's quota as asked, as it is in the cluster, and as used, side by side."""

from __future__ import annotations

from dataclasses import dataclass

from gpu.entitlements import QUOTA_NAME, quota_document
from gpu.models import Observed
from gpu.quantities import QuantityError, parse
from gpu.refusals import device_class
from tenants.models import Project

UNKNOWN = "?"


@dataclass(frozen=True)
class QuotaLine:
    """One line: quantities as Kubernetes writes them, `?` for what was not seen."""

    key: str
    label: str
    asked: str
    present: str
    used: str

    @property
    def is_device(self) -> bool:
        """Whether the line counts devices."""
        return device_class(self.key) is not None

    @property
    def agrees(self) -> bool:
        """Whether the cluster has what was asked."""
        try:
            return parse(self.asked) == parse(self.present)
        except QuantityError:
            return False


def quota_lines(project: Project) -> tuple[QuotaLine, ...]:
    """Return the lines of the project's ResourceQuota."""
    asked = quota_document(project)["spec"]["hard"]
    row = Observed.objects.filter(
        cluster=project.cluster_id, kind="ResourceQuota", namespace=project.namespace, name=QUOTA_NAME
    ).first()
    data = row.data if row else {}
    present = (data.get("spec") or {}).get("hard") or {}
    used = (data.get("status") or {}).get("used") or {}
    return tuple(
        QuotaLine(key, device_class(key) or key, value, present.get(key, UNKNOWN), used.get(key, UNKNOWN))
        for key, value in asked.items()
    )
