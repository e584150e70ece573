"""What an object uses of a ResourceQuota, and what all objects of a namespace use together."""

from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any

from sandbox import quantity
from sandbox.api import Obj
from sandbox.kinds import BY_KIND

type Amount = tuple[Decimal, str]
"""A value and how it is written (BinarySI or DecimalSI)."""

_DEVICES = ".deviceclass.resource.k8s.io/devices"
_IMPLICIT = ("requests.deviceclass.resource.kubernetes.io/", "requests.deviceclass.resource.k8s.io/")
_LEGACY_COUNTS = {
    "ConfigMap": "configmaps",
    "PersistentVolumeClaim": "persistentvolumeclaims",
    "ResourceQuota": "resourcequotas",
    "Secret": "secrets",
    "Service": "services",
}
_ONE: Amount = (Decimal(1), "DecimalSI")


def amount(text: str | int) -> Amount:
    """Read a quantity with its style."""
    return quantity.parse(text), quantity.style(text)


def add(one: Amount, other: Amount) -> Amount:
    """The sum, written like the first that is not zero."""
    return one[0] + other[0], (one[1] if one[0] else other[1])


def _merge(total: dict[str, Amount], more: Mapping[str, Amount]) -> None:
    for key, value in more.items():
        total[key] = add(total[key], value) if key in total else value


def _resources(container: Obj, part: str) -> dict[str, Amount]:
    return {name: amount(text) for name, text in container.get("resources", {}).get(part, {}).items()}


def pod_resources(pod: Obj, part: str) -> dict[str, Amount]:
    """Sum of the containers' ``requests`` or ``limits``; an init container counts where it needs more."""
    spec = pod.get("spec", {})
    total: dict[str, Amount] = {}
    for container in spec.get("containers", []):
        _merge(total, _resources(container, part))
    for container in spec.get("initContainers", []):
        for name, value in _resources(container, part).items():
            if value[0] > total.get(name, (Decimal(0), ""))[0]:
                total[name] = value
    return total


def _pod(pod: Obj) -> dict[str, Amount]:
    if pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):
        return {}
    used = {"pods": _ONE}
    for name, value in pod_resources(pod, "requests").items():
        used[f"requests.{name}"] = value
        if name in ("cpu", "memory", "ephemeral-storage"):
            used[name] = value
    for name, value in pod_resources(pod, "limits").items():
        used[f"limits.{name}"] = value
    return used


def _volume_claim(claim: Obj) -> dict[str, Amount]:
    spec = claim["spec"]
    used: dict[str, Amount] = {}
    if storage := spec.get("resources", {}).get("requests", {}).get("storage"):
        used["requests.storage"] = amount(storage)
    if name := spec.get("storageClassName"):
        prefix = f"{name}.storageclass.storage.k8s.io"
        used[f"{prefix}/persistentvolumeclaims"] = _ONE
        if "requests.storage" in used:
            used[f"{prefix}/requests.storage"] = used["requests.storage"]
    return used


def _devices(request: Obj) -> tuple[str, Decimal]:
    # "All" is charged with the most devices one claim can ever get.
    count = request.get("count", 1) if request.get("allocationMode") != "All" else 32
    return request["deviceClassName"], Decimal(count)


def _resource_claim(claim: Obj) -> dict[str, Amount]:
    used: dict[str, Amount] = {}
    for request in claim["spec"].get("devices", {}).get("requests", []):
        if "exactly" in request:
            wanted = [_devices(request["exactly"])]
        else:
            worst: dict[str, Decimal] = {}
            for name, count in map(_devices, request.get("firstAvailable", [])):
                worst[name] = max(count, worst.get(name, Decimal(0)))
            wanted = list(worst.items())
        for name, count in wanted:
            for key in (f"{name}{_DEVICES}", *(f"{prefix}{name}" for prefix in _IMPLICIT)):
                _merge(used, {key: (count, "DecimalSI")})
    return used


def _service(service: Obj) -> dict[str, Amount]:
    kind = service["spec"].get("type")
    used: dict[str, Amount] = {}
    if kind in ("NodePort", "LoadBalancer"):
        used["services.nodeports"] = (Decimal(len(service["spec"].get("ports", []))), "DecimalSI")
    if kind == "LoadBalancer":
        used["services.loadbalancers"] = _ONE
    return used


_USAGE: dict[str, Callable[[Obj], dict[str, Amount]]] = {
    "Pod": _pod,
    "PersistentVolumeClaim": _volume_claim,
    "ResourceClaim": _resource_claim,
    "Service": _service,
}


def of(obj: Obj) -> dict[str, Amount]:
    """What one object uses, by quota key."""
    kind = obj["kind"]
    used: dict[str, Amount] = {f"count/{BY_KIND[kind].resource}": _ONE}
    if kind in _LEGACY_COUNTS:
        used[_LEGACY_COUNTS[kind]] = _ONE
    if kind in _USAGE:
        used |= _USAGE[kind](obj)
    return used


def kinds_of(keys: Iterable[str]) -> set[str]:
    """The kinds whose objects use any of these keys."""
    found = set()
    for key in keys:
        if key.startswith("count/"):
            found |= {kind.kind for kind in BY_KIND.values() if kind.resource == key.removeprefix("count/")}
        elif key.endswith(_DEVICES) or key.startswith(_IMPLICIT):
            found.add("ResourceClaim")
        elif "storageclass.storage.k8s.io" in key or key in ("requests.storage", "persistentvolumeclaims"):
            found.add("PersistentVolumeClaim")
        elif key.startswith("services"):
            found.add("Service")
        else:
            counts = {name: kind for kind, name in _LEGACY_COUNTS.items()}
            found.add(counts.get(key, "Pod"))
    return found


def _best_effort(pod: Obj) -> bool:
    return not pod_resources(pod, "requests") and not pod_resources(pod, "limits")


def _scope_holds(scope: str, operator: str, values: list[str], pod: Obj) -> bool:
    match scope:
        case "Terminating":
            return "activeDeadlineSeconds" in pod["spec"]
        case "NotTerminating":
            return "activeDeadlineSeconds" not in pod["spec"]
        case "BestEffort":
            return _best_effort(pod)
        case "NotBestEffort":
            return not _best_effort(pod)
        case "PriorityClass":
            name = pod["spec"].get("priorityClassName", "")
            match operator:
                case "In":
                    return name in values
                case "NotIn":
                    return name not in values
                case "Exists":
                    return bool(name)
            return not name
    return False


def applies(quota: Obj, obj: Obj) -> bool:
    """Whether the quota's scopes let it count the object; a scoped quota counts pods only."""
    spec = quota.get("spec", {})
    wanted: list[tuple[str, str, list[str]]] = [(scope, "Exists", []) for scope in spec.get("scopes", [])]
    for term in spec.get("scopeSelector", {}).get("matchExpressions", []):
        wanted.append((term["scopeName"], term["operator"], term.get("values", [])))
    if not wanted:
        return True
    return obj["kind"] == "Pod" and all(_scope_holds(*term, obj) for term in wanted)


def count(objects: Callable[[str, str], Iterable[Obj]], quota: Obj) -> dict[str, str]:
    """What the namespace of a quota uses of it: canonical quantities by key of ``spec.hard``.

    ``objects(kind, namespace)`` gives the present objects; they need their ``kind``.
    """
    hard: dict[str, Any] = quota.get("spec", {}).get("hard", {})
    total: dict[str, Amount] = dict.fromkeys(hard, (Decimal(0), "DecimalSI"))
    for kind in kinds_of(hard):
        for obj in objects(kind, quota["metadata"]["namespace"]):
            if applies(quota, obj):
                _merge(total, {key: value for key, value in of(obj).items() if key in hard})
    return {key: quantity.render(*value) for key, value in sorted(total.items())}
