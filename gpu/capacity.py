"""What the cards have free for one package. Pure. Capacity is neither entitlement nor use (design.md, Words)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from gpu.manifests import PackageTerms
from gpu.quantities import QuantityError, parse

MIB = Decimal(1024 * 1024)


@dataclass(frozen=True)
class Capacity:
    """Slices of one package: how many all cards hold, how many fit now, how many claims wait for a card."""

    total: int
    free: int
    waiting: int

    @property
    def in_use(self) -> int:
        """Slices of this size that the cards do not have free."""
        return self.total - self.free

    @property
    def starts_now(self) -> bool:
        """Whether one more claim would find a card at once, behind those that wait already."""
        return self.free > self.waiting


def capacity(
    resource_slices: Iterable[Mapping[str, Any]],
    claims: Iterable[Mapping[str, Any]],
    terms: PackageTerms,
    product: str,
) -> Capacity:
    """Count slices of `terms` on the cards whose productName is `product` (any card where it is empty).

    `resource_slices` and `claims` are objects of the whole cluster. A slice fits a card when both its memory and its
    compute share are free there (resource.k8s.io, consumable capacity).
    """
    used: dict[tuple[str, str, str], dict[str, Decimal]] = defaultdict(lambda: defaultdict(Decimal))
    waiting = 0
    for claim in claims:
        results = _path(claim, "status", "allocation", "devices").get("results") or []
        if not results and _device_class(claim) == terms.device_class and not _deleted(claim):
            waiting += 1
        for result in results:
            card = (result.get("driver", ""), result.get("pool", ""), result.get("device", ""))
            for key, amount in (result.get("consumedCapacity") or {}).items():
                used[card][key] += _amount(amount)
    total = free = 0
    need = {"memory": terms.memory_mib * MIB, "cores": Decimal(terms.compute_percent)}
    for resource_slice in resource_slices:
        spec = _path(resource_slice, "spec")
        for device in spec.get("devices") or []:
            if product and _product(device) != product:
                continue
            card = (spec.get("driver", ""), _path(spec, "pool").get("name", ""), device.get("name", ""))
            has = {key: _amount(_path(device, "capacity", key).get("value", 0)) for key in need}
            total += max(0, min(int(has[key] // need[key]) for key in need))
            free += max(0, min(int((has[key] - used[card][key]) // need[key]) for key in need))
    return Capacity(total=total, free=free, waiting=waiting)


def _path(item: Mapping[str, Any], *keys: str) -> Mapping[str, Any]:
    for key in keys:
        item = item.get(key) or {}
    return item


def _amount(text: object) -> Decimal:
    try:
        return parse(text if isinstance(text, str | int) else "0")
    except QuantityError:
        return Decimal(0)


def _product(device: Mapping[str, Any]) -> str:
    for name, value in (device.get("attributes") or {}).items():
        if name.rpartition("/")[2] == "productName":
            return str(value.get("string", ""))
    return ""


def _device_class(claim: Mapping[str, Any]) -> str:
    for request in _path(claim, "spec", "devices").get("requests") or []:
        return str(_path(request, "exactly").get("deviceClassName", ""))
    return ""


def _deleted(claim: Mapping[str, Any]) -> bool:
    return bool(_path(claim, "metadata").get("deletionTimestamp"))
