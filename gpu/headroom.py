"""What still fits into a project: quotas and limit ranges read as the API server applies them.

Figures are exact `Decimal` in base units. Keys are those of ResourceQuota, each in one spelling (see
`gpu.refusals.dimension`). A key without an entry is unlimited; None is "unknown" and never the same as zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from gpu.limits import (
    COMPUTE,
    Asked,
    Demand,
    Limits,
    Objection,
    Refused,
    amount,
    effective_request,
    parse_limit_range,
    parse_limit_ranges,
)
from gpu.quantities import EXACT, parse
from gpu.refusals import device_class, dimension

__all__ = [
    "Asked",
    "Demand",
    "Limits",
    "Objection",
    "Quota",
    "Refused",
    "Room",
    "Shortage",
    "amount",
    "devices",
    "effective_request",
    "fits",
    "headroom",
    "left_after",
    "parse_limit_range",
    "parse_limit_ranges",
    "parse_quota",
    "undecided",
    "unspecified",
]


@dataclass(frozen=True)
class Quota:
    """One ResourceQuota. `used` is None until the cluster has counted; `applies` is whether its scopes match."""

    name: str
    hard: Mapping[str, Decimal]
    used: Mapping[str, Decimal] | None
    applies: bool = True


@dataclass(frozen=True)
class Room:
    """What is left of one dimension.

    `hard` is the lowest of all quotas; `used` and `left` are those of the quota with the least left, `binding` its
    name. `left` is never below zero; `over_by` tells by how much the quota is overdrawn. None is unknown.
    """

    hard: Decimal | None
    used: Decimal | None
    left: Decimal | None
    binding: str | None
    over_by: Decimal = Decimal(0)

    @property
    def over(self) -> bool:
        """Whether more is in use than allowed."""
        return self.over_by > 0


@dataclass(frozen=True)
class Shortage:
    """A dimension a demand does not fit into."""

    key: str
    needed: Decimal
    left: Decimal
    short_by: Decimal
    binding: str | None


def _amounts(
    raw: Mapping[str, Any] | None, pick: Callable[[Decimal, Decimal], Decimal]
) -> dict[str, Decimal]:
    found: dict[str, Decimal] = {}
    for key, text in (raw or {}).items():
        name, value = dimension(key), parse(text)
        found[name] = pick(found[name], value) if name in found else value
    return found


def parse_quota(
    obj: Mapping[str, Any], *, best_effort: bool = False, terminating: bool = False, priority_class: str = ""
) -> Quota:
    """Read a ResourceQuota. What its status says is enforced; a line that is only in its spec is not counted yet.

    The keywords describe the pods in question and decide whether a scoped quota applies: neither requests nor limits
    at all, `activeDeadlineSeconds` set on the pod, and the priority class. A slice's pods are none of these.
    Raises QuantityError for a quantity the API server would not have stored.
    """
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    hard = _amounts(spec.get("hard"), min) | _amounts(status.get("hard"), min)
    if spec.get("hard") is not None:
        hard = {key: value for key, value in hard.items() if key in _amounts(spec["hard"], min)}
    used = _amounts(status["used"], max) if status.get("used") is not None else None
    return Quota(
        obj["metadata"]["name"], hard, used, _scopes_match(spec, best_effort, terminating, priority_class)
    )


def _scopes_match(spec: Mapping[str, Any], best_effort: bool, terminating: bool, priority_class: str) -> bool:
    plain = {
        "BestEffort": best_effort,
        "NotBestEffort": not best_effort,
        "Terminating": terminating,
        "NotTerminating": not terminating,
    }
    if not all(plain.get(scope, False) for scope in spec.get("scopes") or ()):
        return False
    for expression in (spec.get("scopeSelector") or {}).get("matchExpressions") or ():
        scope, operator = expression.get("scopeName"), expression.get("operator")
        if scope == "PriorityClass":
            values = expression.get("values") or ()
            matches = {
                "In": priority_class in values,
                "NotIn": priority_class not in values,
                "Exists": bool(priority_class),
                "DoesNotExist": not priority_class,
            }.get(operator, False)
        else:
            matches = plain.get(scope, False) if operator == "Exists" else False
        if not matches:
            return False
    return True


def headroom(quotas: Iterable[Quota]) -> dict[str, Room]:
    """What is left of every dimension that any applying quota limits: the tightest decides.

    While one quota has not been counted, what is left is unknown, unless another one has nothing left already.
    """
    lines: dict[str, list[tuple[str, Decimal, Decimal | None]]] = {}
    for quota in quotas:
        if quota.applies:
            for key, hard in quota.hard.items():
                used = None if quota.used is None else quota.used.get(key)
                lines.setdefault(key, []).append((quota.name, hard, used))
    return {key: _room(found) for key, found in lines.items()}


def _room(lines: list[tuple[str, Decimal, Decimal | None]]) -> Room:
    hard = min(line[1] for line in lines)
    counted = [(EXACT.subtract(limit, used), name, used) for name, limit, used in lines if used is not None]
    tightest = min(counted, key=lambda line: line[0], default=None)
    if tightest is None or (len(counted) < len(lines) and tightest[0] > 0):
        return Room(hard, None, None, None)
    left, name, used = tightest
    return Room(hard, used, max(left, Decimal(0)), name, max(-left, Decimal(0)))


def fits(demand: Mapping[str, Decimal], rooms: Mapping[str, Room]) -> tuple[Shortage, ...]:
    """The dimensions that `demand` does not fit into; exactly full is allowed, unknown is not a shortage."""
    found = []
    for key, needed in demand.items():
        room = rooms.get(key)
        # The API server lets a request through that adds nothing, even where the quota is overdrawn.
        if room is None or room.left is None or needed <= 0:
            continue
        short_by = EXACT.add(EXACT.subtract(needed, room.left), room.over_by)
        if short_by > 0:
            found.append(Shortage(key, needed, room.left, short_by, room.binding))
    return tuple(found)


def undecided(demand: Mapping[str, Decimal], rooms: Mapping[str, Room]) -> tuple[str, ...]:
    """The dimensions `demand` needs something of and for which it is unknown what is left."""
    return tuple(
        key for key, needed in demand.items() if needed > 0 and key in rooms and rooms[key].left is None
    )


def unspecified(demand: Mapping[str, Decimal], rooms: Mapping[str, Room]) -> tuple[str, ...]:
    """The compute dimensions a quota limits and `demand` says nothing about: the API server refuses such a pod."""
    return tuple(key for key in COMPUTE if key in rooms and key not in demand)


def left_after(demand: Mapping[str, Decimal], rooms: Mapping[str, Room]) -> dict[str, Decimal | None]:
    """What is left of every limited dimension once `demand` is taken; below zero where it does not fit."""
    after: dict[str, Decimal | None] = {}
    for key, room in rooms.items():
        real = None if room.left is None else EXACT.subtract(room.left, room.over_by)
        after[key] = None if real is None else EXACT.subtract(real, demand.get(key, Decimal(0)))
    return after


def devices(rooms: Mapping[str, Room]) -> dict[str, Room]:
    """The rooms that count devices, by DeviceClass."""
    return {name: room for key, room in rooms.items() if (name := device_class(key)) is not None}
