"""Lines of a project's start page: a package, a dimension of the pool. Frozen, rendered in the reader's language."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from django.utils.translation import gettext as _

from gpu import wording
from gpu.capacity import Capacity
from gpu.headroom import Room
from gpu.holders import Holding
from gpu.models import Package


@dataclass(frozen=True)
class PackageLine:
    """A package in a project: entitlement, use and capacity are three numbers and are never mixed."""

    package: Package
    holding: Holding
    capacity: Capacity | None
    free_to_order: int
    reason: str
    """Why none can be ordered, empty where one can."""

    @property
    def starts_now(self) -> bool:
        """Whether one more would find a card at once, as far as is known."""
        return self.capacity is None or self.capacity.starts_now

    @property
    def in_use(self) -> int:
        """Slices that have a card."""
        return self.holding.used - self.holding.waiting


@dataclass(frozen=True)
class PoolLine:
    """One dimension of the project's pool; `hard` None is unlimited, `left` None is unknown. Base units."""

    key: str
    label: str
    room: Room | None
    used_percent: Decimal | None

    @property
    def unlimited(self) -> bool:
        """Whether no quota limits this dimension."""
        return self.room is None

    def shown(self, value: Decimal | None) -> str:
        """Return an amount of this dimension with its unit, `unknown` where it is."""
        if value is None:
            return _("unknown")
        if self.key.endswith(".cpu"):
            return wording.cpu(value)
        if self.key.endswith((".memory", ".storage")):
            return wording.memory(value)
        return wording.number(value)

    @property
    def used_text(self) -> str:
        """What is used, with its unit."""
        return self.shown(self.room.used if self.room else None)

    @property
    def hard_text(self) -> str:
        """What may be used, with its unit."""
        return self.shown(self.room.hard) if self.room else _("no limit")

    @property
    def left_text(self) -> str:
        """What is left, with its unit."""
        return self.shown(self.room.left) if self.room else _("no limit")

    @property
    def over_text(self) -> str:
        """By how much the quota is overdrawn, with its unit; empty where it is not."""
        return self.shown(self.room.over_by) if self.room and self.room.over else ""
