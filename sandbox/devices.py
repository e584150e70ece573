"""Which card can serve a claim: selectors, capacity and shares of the devices in ResourceSlices. Pure."""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from sandbox.api import Obj
from sandbox.cel import exact
from sandbox.device_selectors import meets
from sandbox.quantity import parse, render, style


@dataclass(frozen=True)
class Device:
    """One device of a ResourceSlice."""

    driver: str
    pool: str
    node: str
    spec: Mapping[str, Any]

    @property
    def id(self) -> tuple[str, str, str]:
        """What an allocation result names it by."""
        return self.driver, self.pool, str(self.spec["name"])

    @property
    def shared(self) -> bool:
        """Whether several claims may hold a share of it."""
        return bool(self.spec.get("allowMultipleAllocations"))


type Used = Mapping[tuple[str, str, str], Mapping[str, Decimal]]
"""What is taken of each device, by capacity name; a device that is not shared is taken whole."""


def devices_of(slices: Iterable[Obj]) -> dict[str, list[Device]]:
    """The devices by node."""
    found: dict[str, list[Device]] = {}
    for one in slices:
        spec = one["spec"]
        node = spec.get("nodeName", "")
        for device in spec.get("devices") or []:
            found.setdefault(node, []).append(Device(spec["driver"], spec["pool"]["name"], node, device))
    return found


def used_by(claims: Iterable[Obj]) -> dict[tuple[str, str, str], dict[str, Decimal]]:
    """What the allocated claims take."""
    used: dict[tuple[str, str, str], dict[str, Decimal]] = {}
    for claim in claims:
        allocation = (claim.get("status") or {}).get("allocation") or {}
        for result in (allocation.get("devices") or {}).get("results") or []:
            taken = used.setdefault((result["driver"], result["pool"], result["device"]), {})
            for name, amount in (result.get("consumedCapacity") or {}).items():
                taken[name] = taken.get(name, Decimal(0)) + parse(amount)
    return used


def allocate(
    claim: Obj, devices: Sequence[Device], classes: Mapping[str, Obj], used: Used
) -> list[Obj] | None:
    """Allocation results for a claim from one node's devices, None where they do not suffice."""
    taken = {key: dict(amounts) for key, amounts in used.items()}
    results: list[Obj] = []
    for request in claim["spec"]["devices"].get("requests") or []:
        exactly = request.get("exactly")
        device_class = exactly and classes.get(exactly["deviceClassName"])
        if not device_class:
            return None
        selectors = [
            selector["cel"]["expression"]
            for selector in [
                *((device_class.get("spec") or {}).get("selectors") or []),
                *(exactly.get("selectors") or []),
            ]
        ]
        picked: set[tuple[str, str, str]] = set()
        for _ in range(int(exactly.get("count", 1))):
            found = _pick(devices, selectors, exactly, taken, picked)
            if found is None:
                return None
            device, amounts = found
            picked.add(device.id)
            held = taken.setdefault(device.id, {})
            for name, amount in amounts.items():
                held[name] = held.get(name, Decimal(0)) + amount
            results.append(_result(request["name"], device, amounts))
    return results


def _pick(
    devices: Sequence[Device],
    selectors: Sequence[str],
    exactly: Obj,
    taken: Used,
    picked: set[tuple[str, str, str]],
) -> tuple[Device, dict[str, Decimal]] | None:
    wanted = (exactly.get("capacity") or {}).get("requests") or {}
    for device in devices:
        if device.id in picked or not all(matches(selector, device) for selector in selectors):
            continue
        if not device.shared:
            if device.id not in taken:
                return device, {}
            continue
        amounts = _consumed(device, wanted)
        held = taken.get(device.id, {})
        if amounts is not None and all(
            held.get(name, Decimal(0)) + amount <= parse(device.spec["capacity"][name]["value"])
            for name, amount in amounts.items()
        ):
            return device, amounts
    return None


def _consumed(device: Device, wanted: Mapping[str, str]) -> dict[str, Decimal] | None:
    """What a share takes of each capacity under its requestPolicy; None where the policy forbids it."""
    capacity = device.spec.get("capacity") or {}
    if not wanted.keys() <= capacity.keys():
        return None
    amounts: dict[str, Decimal] = {}
    for name, offered in capacity.items():
        value, policy = parse(offered["value"]), offered.get("requestPolicy") or {}
        if name not in wanted:
            amounts[name] = parse(policy["default"]) if "default" in policy else value
            continue
        amount = parse(wanted[name])
        if valid := policy.get("validRange"):
            low = parse(valid["min"])
            amount = max(amount, low)
            if "step" in valid:
                step = parse(valid["step"])
                amount = low + -((low - amount) // step) * step
            if "max" in valid and amount > parse(valid["max"]):
                return None
        elif choices := policy.get("validValues"):
            amount = min((v for v in map(parse, choices) if v >= amount), default=Decimal(-1))
            if amount < 0:
                return None
        amounts[name] = amount
    return amounts


def _result(request: str, device: Device, amounts: Mapping[str, Decimal]) -> Obj:
    result: Obj = {"request": request, "driver": device.driver, "pool": device.pool}
    result["device"] = device.spec["name"]
    if device.shared:
        capacity = device.spec["capacity"]
        result["shareID"] = str(uuid.uuid4())
        result["consumedCapacity"] = {
            name: render(amount, style(capacity[name]["value"])) for name, amount in amounts.items()
        }
    return result


def matches(expression: str, device: Device) -> bool:
    """Whether a device meets a selector."""
    attributes = _by_domain(
        device,
        {name: next(iter(value.values())) for name, value in (device.spec.get("attributes") or {}).items()},
    )
    capacity = _by_domain(
        device,
        {name: exact(offered["value"]) for name, offered in (device.spec.get("capacity") or {}).items()},
    )
    data = {
        "driver": device.driver,
        "allowMultipleAllocations": device.shared,
        "attributes": attributes,
        "capacity": capacity,
    }
    return meets(expression, data)


def _by_domain(device: Device, values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Values by the domain of their name, which is the driver's where the name has none."""
    found: dict[str, dict[str, Any]] = {}
    for name, value in values.items():
        domain, _, short = name.rpartition("/")
        found.setdefault(domain or device.driver, {})[short] = value
    return found
