"""What the cards have free for one package. Pure. Capacity is neither entitlement nor use (design.md, Words)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from typing import NamedTuple

from gpu.manifests import PackageTerms
from gpu.quantities import QuantityError, parse

MIB = Decimal(1024 * 1024)

Card = tuple[str, str, str]
"""Driver, pool and device."""


class Device(NamedTuple):
    """A card of a ResourceSlice; memory and cores are Kubernetes quantities, `product` its productName."""

    card: Card
    product: str
    memory: str
    cores: str


class Share(NamedTuple):
    """`claims` allocated claims of one size on one card; memory and cores are Kubernetes quantities."""

    card: Card
    memory: str
    cores: str
    claims: int


class Shape(NamedTuple):
    """What cards have in common: product, size and what of it is free, memory in bytes."""

    product: str
    memory: Decimal
    cores: Decimal
    free_memory: Decimal
    free_cores: Decimal


@dataclass(frozen=True)
class Cards:
    """All cards of a cluster, counted by shape, and the claims that wait for one, by DeviceClass."""

    shapes: Mapping[Shape, int] = field(default_factory=dict)
    waiting: Mapping[str, int] = field(default_factory=dict)


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


def count_cards(devices: Iterable[Device], shares: Iterable[Share], waiting: Mapping[str, int]) -> Cards:
    """Count cards by shape: what allocated claims consume of a card is not free on it."""
    used: dict[Card, tuple[Decimal, Decimal]] = defaultdict(lambda: (Decimal(0), Decimal(0)))
    for share in shares:
        memory, cores = used[share.card]
        used[share.card] = (
            memory + amount(share.memory) * share.claims,
            cores + amount(share.cores) * share.claims,
        )
    shapes: Counter[Shape] = Counter()
    for device in devices:
        has_memory, has_cores = amount(device.memory), amount(device.cores)
        memory, cores = used[device.card]
        shapes[Shape(device.product, has_memory, has_cores, has_memory - memory, has_cores - cores)] += 1
    return Cards(shapes, waiting)


def capacity(cards: Cards, terms: PackageTerms, product: str) -> Capacity | None:
    """Count slices of `terms` on the cards of `product` (any card where it is empty); None before cards were seen.

    A slice fits a card when both its memory and its compute share are free there (resource.k8s.io, consumable
    capacity).
    """
    if not cards.shapes:
        return None
    memory, cores = terms.memory_mib * MIB, Decimal(terms.compute_percent)
    total = free = 0
    for shape, count in cards.shapes.items():
        if product and shape.product != product:
            continue
        total += count * max(0, min(int(shape.memory // memory), int(shape.cores // cores)))
        free += count * max(0, min(int(shape.free_memory // memory), int(shape.free_cores // cores)))
    return Capacity(total=total, free=free, waiting=cards.waiting.get(terms.device_class, 0))


@lru_cache(maxsize=1024)
def amount(text: str) -> Decimal:
    """Return a quantity in base units; 0 for what is none."""
    try:
        return parse(text)
    except QuantityError:
        return Decimal(0)
