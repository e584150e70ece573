"""What a pod is counted with: requests and limits after the API server's defaults, and what a LimitRange refuses.

The API server works in this order: a limit without a request becomes the request; each LimitRange fills in its
default request and default limit; then requests are compared with limits, and both with the LimitRange's bounds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from decimal import ROUND_CEILING, Decimal
from typing import Any

from gpu.messages import Count, Cpu, Memory, Text, gettext_noop
from gpu.quantities import EXACT, parse
from gpu.refusals import dimension

COMPUTE = ("requests.cpu", "limits.cpu", "requests.memory", "limits.memory")
_RESOURCES = ("cpu", "memory")


def amount(key: str, value: Decimal, *, round_up: bool = False) -> Cpu | Memory | Count:
    """`value` of the dimension `key` with its unit, for a sentence."""
    name = dimension(key)
    if name.endswith("cpu"):
        return Cpu(EXACT.multiply(value, Decimal(1000)))
    if name.endswith(("memory", "storage")):
        return Memory(int(value.to_integral_value(rounding=ROUND_CEILING)), round_up=round_up)
    return Count(int(value))


@dataclass(frozen=True)
class Asked:
    """What a person asks for one container, in cores and bytes; None where the field is empty."""

    cpu_request: Decimal | None = None
    cpu_limit: Decimal | None = None
    memory_request: Decimal | None = None
    memory_limit: Decimal | None = None


@dataclass(frozen=True)
class Demand:
    """What a pod is counted with, in cores and bytes; None where nothing is set and nothing defaulted."""

    cpu_request: Decimal | None = None
    cpu_limit: Decimal | None = None
    memory_request: Decimal | None = None
    memory_limit: Decimal | None = None

    def as_quota(
        self,
        *,
        device_classes: Mapping[str, int] | None = None,
        storage: Decimal | None = None,
        storage_class: str = "",
        pods: int = 1,
    ) -> dict[str, Decimal]:
        """The demand as quota keys: `pods` such pods, devices per DeviceClass, one volume of `storage` bytes."""
        compute = (self.cpu_request, self.cpu_limit, self.memory_request, self.memory_limit)
        found = {
            key: EXACT.multiply(value, Decimal(pods))
            for key, value in zip(COMPUTE, compute, strict=True)
            if value is not None
        }
        found |= {key: Decimal(pods) for key in ("pods", "count/pods")}
        for name, count in (device_classes or {}).items():
            found[f"{name}.deviceclass.resource.k8s.io/devices"] = Decimal(count)
            claims = "count/resourceclaims.resource.k8s.io"
            found[claims] = found.get(claims, Decimal(0)) + count
        if storage is not None:
            for prefix in ("", f"{storage_class}.storageclass.storage.k8s.io/" if storage_class else ""):
                found[f"{prefix}requests.storage"] = storage
                found[f"{prefix}persistentvolumeclaims"] = Decimal(1)
            found["count/persistentvolumeclaims"] = Decimal(1)
        return found


Amounts = Mapping[str, Decimal]


@dataclass(frozen=True)
class Limits:
    """The LimitRanges of a namespace for one container: by "cpu" and "memory", in base units.

    `minimum` and `maximum` hold the tighter of the container's and the pod's bounds, since a slice's pod has one
    container; `storage_minimum` and `storage_maximum` hold for a PersistentVolumeClaim.
    """

    default: Amounts = field(default_factory=dict)
    default_request: Amounts = field(default_factory=dict)
    minimum: Amounts = field(default_factory=dict)
    maximum: Amounts = field(default_factory=dict)
    ratio: Amounts = field(default_factory=dict)
    storage_minimum: Decimal | None = None
    storage_maximum: Decimal | None = None


@dataclass(frozen=True)
class Objection:
    """Why the API server would refuse; `field` is the name of a field of `Asked`."""

    field: str
    rule: str
    sentence: Text
    mend: Text


@dataclass(frozen=True)
class Refused:
    """The API server would refuse the pod, for every one of these."""

    objections: tuple[Objection, ...]


def parse_limit_ranges(objects: Iterable[Mapping[str, Any]]) -> Limits:
    """The LimitRanges of a namespace as one: the first default holds, the tightest bound binds."""
    found = Limits()
    for obj in objects:
        found = _merge(found, parse_limit_range(obj))
    return found


def parse_limit_range(obj: Mapping[str, Any]) -> Limits:
    """Read one LimitRange. Raises QuantityError for a quantity the API server would not have stored."""
    found = Limits()
    for item in (obj.get("spec") or {}).get("limits") or ():
        amounts = {
            name: {key: parse(text) for key, text in (item.get(name) or {}).items()}
            for name in ("default", "defaultRequest", "min", "max", "maxLimitRequestRatio")
        }
        if item.get("type") == "PersistentVolumeClaim":
            bounds = Limits(
                storage_minimum=amounts["min"].get("storage"), storage_maximum=amounts["max"].get("storage")
            )
        elif item.get("type") == "Pod":
            bounds = Limits(
                minimum=amounts["min"], maximum=amounts["max"], ratio=amounts["maxLimitRequestRatio"]
            )
        elif item.get("type") == "Container":
            # As the API server completes an item: max is the default limit, that the default request, then min.
            default = amounts["max"] | amounts["default"]
            bounds = Limits(
                default,
                amounts["min"] | default | amounts["defaultRequest"],
                amounts["min"],
                amounts["max"],
                amounts["maxLimitRequestRatio"],
            )
        else:
            continue
        found = _merge(found, bounds)
    return found


def _merge(first: Limits, second: Limits) -> Limits:
    return Limits(
        default={**second.default, **first.default},
        default_request={**second.default_request, **first.default_request},
        minimum=_tightest(first.minimum, second.minimum, highest=True),
        maximum=_tightest(first.maximum, second.maximum, highest=False),
        ratio=_tightest(first.ratio, second.ratio, highest=False),
        storage_minimum=max(_known(first.storage_minimum, second.storage_minimum), default=None),
        storage_maximum=min(_known(first.storage_maximum, second.storage_maximum), default=None),
    )


def _tightest(first: Amounts, second: Amounts, *, highest: bool) -> dict[str, Decimal]:
    pick = max if highest else min
    return {key: pick(_known(first.get(key), second.get(key))) for key in dict.fromkeys((*first, *second))}


def _known(*values: Decimal | None) -> list[Decimal]:
    return [value for value in values if value is not None]


def effective_request(asked: Asked, limits: Limits) -> Demand | Refused:
    """What the API server would count a container of a slice with, or every reason why it would refuse the pod."""
    demand, objections = Demand(), []
    for resource in _RESOURCES:
        wanted_limit: Decimal | None = getattr(asked, f"{resource}_limit")
        request: Decimal | None = getattr(asked, f"{resource}_request")
        if request is None:
            request = wanted_limit if wanted_limit is not None else limits.default_request.get(resource)
        limit = wanted_limit if wanted_limit is not None else limits.default.get(resource)
        objections += _object(resource, request, limit, limits, defaulted=wanted_limit is None)
        demand = replace(demand, **{f"{resource}_request": request, f"{resource}_limit": limit})
    return Refused(tuple(objections)) if objections else demand


def _object(
    resource: str, request: Decimal | None, limit: Decimal | None, limits: Limits, *, defaulted: bool
) -> list[Objection]:
    """Every rule that request and limit of one resource break, as a sentence with the mend."""
    found: list[Objection] = []

    def object_to(field_name: str, rule: str, msgid: str, mend: str, **values: Decimal) -> None:
        params: dict[str, object] = {name: amount(resource, value) for name, value in values.items()}
        found.append(Objection(f"{resource}_{field_name}", rule, Text(msgid, params), Text(mend, params)))

    if request is not None and limit is not None and request > limit:
        object_to(
            "limit",
            "limit-below-request",
            gettext_noop("The project sets a limit of %(limit)s, which is below the request of %(request)s.")
            if defaulted
            else gettext_noop("The limit of %(limit)s is below the request of %(request)s."),
            gettext_noop("Set the limit to at least %(request)s."),
            request=request,
            limit=limit,
        )
    least, most, ratio = (each.get(resource) for each in (limits.minimum, limits.maximum, limits.ratio))
    for name, value, needed in (
        ("request", request, least is not None or ratio is not None),
        ("limit", limit, most is not None or ratio is not None),
    ):
        if value is None:
            if needed:
                object_to(
                    name,
                    "value-missing",
                    gettext_noop("This project asks for a value here."),
                    gettext_noop("Enter an amount."),
                )
            continue
        if least is not None and value < least:
            object_to(
                name,
                "below-minimum",
                gettext_noop("%(value)s is below the %(least)s that a container in this project must have."),
                gettext_noop("Set at least %(least)s."),
                value=value,
                least=least,
            )
        if most is not None and value > most:
            object_to(
                name,
                "above-maximum",
                gettext_noop("%(value)s is above the %(most)s that a container in this project may have."),
                gettext_noop("Set at most %(most)s."),
                value=value,
                most=most,
            )
    if ratio is not None and request is not None and limit is not None:
        allowed = EXACT.multiply(request, ratio)
        if limit > allowed:
            object_to(
                "limit",
                "above-ratio",
                gettext_noop(
                    "A limit of %(limit)s is too far above the request: this project allows %(most)s."
                ),
                gettext_noop("Set the limit to at most %(most)s, or raise the request."),
                limit=limit,
                most=allowed,
            )
    return found
