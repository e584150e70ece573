"""Label and field selectors, as query strings and as objects."""

import re
from collections.abc import Callable, Mapping

from sandbox.api import Obj
from sandbox.kinds import Kind
from sandbox.refusals import bad_request

type Labels = Mapping[str, str]

_TERM = re.compile(
    r"\s*(!?)\s*([\w./-]+)\s*(?:(=|==|!=)\s*([\w.-]*)|(in|notin)\s*\(([^)]*)\)|([<>])\s*(\d+))?\s*"
)
_FIELDS: dict[str, tuple[str, ...]] = {
    "Pod": (
        "spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName",
        "spec.hostNetwork", "status.phase", "status.podIP", "status.nominatedNodeName",
    ),
    "Event": (
        "involvedObject.kind", "involvedObject.namespace", "involvedObject.name", "involvedObject.uid",
        "involvedObject.apiVersion", "involvedObject.resourceVersion", "involvedObject.fieldPath",
        "reason", "reportingComponent", "source", "type",
    ),
    "Secret": ("type",),
    "Namespace": ("status.phase",),
    "Node": ("spec.unschedulable",),
    "ReplicaSet": ("status.replicas",),
    "Job": ("status.successful",),
    "ResourceSlice": ("spec.nodeName", "spec.driver"),
}  # fmt: skip


def parse_labels(text: str) -> Callable[[Labels], bool]:
    """A predicate for a ``labelSelector`` parameter; 400 where it cannot be read."""
    tests: list[Callable[[Labels], bool]] = []
    position = 0
    while position < len(text):
        match = _TERM.match(text, position)
        if match is None or match.end() == position:
            raise bad_request(f"unable to parse requirement: found '{text[position:]}'")
        tests.append(_label_test(*match.groups()))
        position = match.end()
        if position < len(text):
            if text[position] != ",":
                raise bad_request(f"found '{text[position]}', expected: ',' or 'end of string'")
            position += 1
    return lambda labels: all(test(labels) for test in tests)


def _label_test(
    negated: str, key: str, equal: str, value: str, set_word: str, values: str, order: str, number: str
) -> Callable[[Labels], bool]:
    if equal in ("=", "=="):
        return lambda labels: labels.get(key) == value
    if equal == "!=":
        return lambda labels: labels.get(key) != value
    if set_word:
        wanted = {item.strip() for item in values.split(",")}
        if set_word == "in":
            return lambda labels: labels.get(key) in wanted
        return lambda labels: labels.get(key) not in wanted
    if order:
        sign = 1 if order == ">" else -1
        return lambda labels: labels.get(key, "").isdigit() and sign * (int(labels[key]) - int(number)) > 0
    if negated:
        return lambda labels: key not in labels
    return lambda labels: key in labels


def matches(selector: Obj | None, labels: Labels) -> bool:
    """Whether a LabelSelector object selects these labels; None selects nothing, an empty one everything."""
    if selector is None:
        return False
    if any(labels.get(key) != value for key, value in selector.get("matchLabels", {}).items()):
        return False
    for term in selector.get("matchExpressions", []):
        key, values = term["key"], term.get("values", [])
        holds = {
            "In": labels.get(key) in values,
            "NotIn": labels.get(key) not in values,
            "Exists": key in labels,
            "DoesNotExist": key not in labels,
        }
        if not holds.get(term["operator"], False):
            return False
    return True


def _field(kind: Kind, obj: Obj, path: str) -> str:
    if kind.kind == "Event" and path == "source":
        return str(obj.get("source", {}).get("component") or obj.get("reportingComponent", ""))
    value: object = obj
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


def parse_fields(kind: Kind, text: str) -> Callable[[Obj], bool]:
    """A predicate for a ``fieldSelector`` parameter; 400 for a field the API server does not index."""
    tests: list[tuple[str, bool, str]] = []
    for term in filter(None, text.split(",")):
        match = re.fullmatch(r"([\w.]+)(==?|!=)(.*)", term)
        if match is None:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{term}'")
        path, operator, value = match.groups()
        allowed = ("metadata.name", *(("metadata.namespace",) if kind.namespaced else ()))
        if path not in (*allowed, *_FIELDS.get(kind.kind, ())):
            if kind.kind in _FIELDS:
                raise bad_request(f"field label not supported: {path}")
            names = ", ".join(f'"{name}"' for name in allowed)
            raise bad_request(f'"{path}" is not a known field selector: only {names}')
        tests.append((path, operator != "!=", value))
    return lambda obj: all((_field(kind, obj, path) == value) is wanted for path, wanted, value in tests)
