"""ResourceQuota and LimitRange at admission, with the sentences of Kubernetes."""

from collections.abc import Iterable
from decimal import Decimal

from sandbox import quantity, usage
from sandbox.api import Obj
from sandbox.kinds import Kind
from sandbox.refusals import forbidden
from sandbox.usage import Amount

_COMPUTE = ("cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory")


def _missing(pod: Obj, keys: Iterable[str]) -> str:
    """Which containers lack which compute resource, as in "limits.cpu for: a,b; requests.cpu for: a"."""
    lacking: dict[str, list[str]] = {}
    for container in [*pod["spec"].get("containers", []), *pod["spec"].get("initContainers", [])]:
        resources = container.get("resources", {})
        given = {f"{part}.{name}" for part in ("requests", "limits") for name in resources.get(part, {})}
        given |= set(resources.get("requests", {}))
        for key in keys:
            if key in _COMPUTE and key not in given:
                lacking.setdefault(key, []).append(container["name"])
    return "; ".join(f"{key} for: {','.join(lacking[key])}" for key in sorted(lacking))


def _listed(values: dict[str, Amount], keys: list[str]) -> str:
    return ",".join(f"{key}={quantity.render(*values[key])}" for key in keys)


def check_quota(kind: Kind, new: Obj, old: Obj | None, quotas: list[tuple[Obj, dict[str, str]]]) -> list[Obj]:
    """Refuse with 403 what exceeds a quota; else the statuses to write, one for each quota that is charged.

    ``quotas`` pairs every quota of the namespace with what is used of it now, ``new`` not counted and ``old``
    counted.
    """
    wanted = usage.of(new)
    before = usage.of(old) if old else {}
    name = new["metadata"]["name"]
    charged: list[Obj] = []
    for quota, used_texts in quotas:
        hard = {key: usage.amount(text) for key, text in quota["spec"].get("hard", {}).items()}
        keys = sorted(key for key in wanted if key in hard)
        restricts = kind.kind in usage.kinds_of(hard) and usage.applies(quota, new)
        if not restricts:
            continue
        quota_name = quota["metadata"]["name"]
        if kind.kind == "Pod" and old is None and (text := _missing(new, hard)):
            raise forbidden(kind, name, f"failed quota: {quota_name}: must specify {text}")
        counted = before if old and usage.applies(quota, old) else {}
        delta = {
            key: (wanted[key][0] - counted.get(key, (Decimal(0), ""))[0], wanted[key][1]) for key in keys
        }
        delta = {key: value for key, value in delta.items() if value[0] > 0}
        if not delta:
            continue
        used = {key: usage.amount(text) for key, text in used_texts.items()}
        over = [key for key in delta if used[key][0] + delta[key][0] > hard[key][0]]
        if over:
            raise forbidden(
                kind,
                name,
                f"exceeded quota: {quota_name}, requested: {_listed(delta, over)}, "
                f"used: {_listed(used, over)}, limited: {_listed(hard, over)}",
            )
        after = used | {key: usage.add(used[key], value) for key, value in delta.items()}
        texts = {key: quantity.render(*value) for key, value in after.items()}
        charged.append(quota | {"status": {"hard": quota["spec"]["hard"], "used": texts}})
    return charged


def apply_limit_ranges(pod: Obj, ranges: list[Obj]) -> None:
    """Write the containers' defaults into a pod and note it in the annotation that Kubernetes uses."""
    limits: dict[str, str] = {}
    requests: dict[str, str] = {}
    for item in (item for found in ranges for item in found["spec"]["limits"] if item["type"] == "Container"):
        limits |= item.get("default", {})
        requests |= item.get("defaultRequest", {})
    notes: list[str] = []
    spec = pod["spec"]
    for prefix, containers in (
        ("container", spec.get("containers", [])),
        ("init container", spec.get("initContainers", [])),
    ):
        for container in containers:
            resources = container.setdefault("resources", {})
            for part, values in (("request", requests), ("limit", limits)):
                present = resources.get(f"{part}s", {})
                added = sorted(values.keys() - present.keys())
                if added:
                    resources[f"{part}s"] = values | present
                    notes.append(f"{', '.join(added)} {part} for {prefix} {container['name']}")
    if notes:
        annotations = pod["metadata"].setdefault("annotations", {})
        annotations["kubernetes.io/limit-ranger"] = "LimitRanger plugin set: " + "; ".join(notes)


def _violations(
    subject: str, item: Obj, requests: dict[str, Amount], limits: dict[str, Amount]
) -> Iterable[str]:
    for name, text in item.get("min", {}).items():
        least, given = quantity.parse(text), (requests.get(name), limits.get(name))
        head = f"minimum {name} usage per {subject} is {text}"
        if given[0] is None:
            yield f"{head}.  No request is specified"
        elif given[0][0] < least:
            yield f"{head}, but request is {quantity.render(*given[0])}"
        elif given[1] is not None and given[1][0] < least:
            yield f"{head}, but limit is {quantity.render(*given[1])}"
    for name, text in item.get("max", {}).items():
        most, request, limit = quantity.parse(text), requests.get(name), limits.get(name)
        head = f"maximum {name} usage per {subject} is {text}"
        if subject == "PersistentVolumeClaim":
            if request is not None and request[0] > most:
                yield f"{head}, but request is {quantity.render(*request)}"
        elif limit is None:
            yield f"{head}.  No limit is specified"
        elif limit[0] > most:
            yield f"{head}, but limit is {quantity.render(*limit)}"
        elif request is not None and request[0] > most:
            yield f"{head}, but request is {quantity.render(*request)}"
    for name, text in item.get("maxLimitRequestRatio", {}).items():
        request, limit = requests.get(name), limits.get(name)
        head = f"{name} max limit to request ratio per {subject} is {text}"
        if request is None or not request[0]:
            yield f"{head}, but no request is specified or request is 0"
        elif limit is None or not limit[0]:
            yield f"{head}, but no limit is specified or limit is 0"
        elif limit[0] / request[0] > quantity.parse(text):
            yield f"{head}, but provided ratio is {limit[0] / request[0]:.6f}"


def _container_amounts(container: Obj, part: str) -> dict[str, Amount]:
    return {name: usage.amount(text) for name, text in container.get("resources", {}).get(part, {}).items()}


def check_limit_ranges(kind: Kind, obj: Obj, ranges: list[Obj]) -> None:
    """Refuse with 403 a pod or volume claim outside the limits of its namespace."""
    problems: list[str] = []
    for item in (item for found in ranges for item in found["spec"]["limits"]):
        match kind.kind, item["type"]:
            case "Pod", "Container":
                for container in [*obj["spec"]["containers"], *obj["spec"].get("initContainers", [])]:
                    requests = _container_amounts(container, "requests")
                    problems += _violations(
                        "Container", item, requests, _container_amounts(container, "limits")
                    )
            case "Pod", "Pod":
                requests = usage.pod_resources(obj, "requests")
                problems += _violations("Pod", item, requests, usage.pod_resources(obj, "limits"))
            case "PersistentVolumeClaim", "PersistentVolumeClaim":
                requests = _container_amounts(obj["spec"], "requests")
                problems += _violations("PersistentVolumeClaim", item, requests, {})
    if problems:
        unique = list(dict.fromkeys(problems))
        text = unique[0] if len(unique) == 1 else f"[{', '.join(unique)}]"
        raise forbidden(kind, obj["metadata"]["name"], text)
