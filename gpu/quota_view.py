"""A project's quota as asked, as it is in the cluster, and as used, side by side."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from gpu.entitlements import QUOTA_NAME, device_key, quota_document
from gpu.models import Observed, Package
from gpu.quantities import QuantityError, parse
from gpu.refusals import device_class
from gpu.shortages import resource_name
from gpu.wording import render
from tenants.models import Project

UNKNOWN = "?"


@dataclass(frozen=True)
class QuotaLine:
    """One line: the names of its packages, quantities as Kubernetes writes them, `?` for what was not seen."""

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
    packages: dict[str, list[str]] = defaultdict(list)
    for name, wanted in Package.objects.values_list("name", "device_class"):
        packages[device_key(wanted)].append(name)
    places = {key: place for place, key in enumerate(packages)}
    return tuple(
        QuotaLine(
            key,
            ", ".join(packages[key]) if key in packages else render(resource_name(key)),
            value,
            present.get(key, UNKNOWN),
            used.get(key, UNKNOWN),
        )
        for key, value in sorted(asked.items(), key=lambda line: places.get(line[0], len(places)))
    )
