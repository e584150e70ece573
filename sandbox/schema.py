"""What fields the served kinds have: decoding as the API server does it, and how lists merge.

The description is ``schema.json``, cut out of Kubernetes' own by ``make_schema``.
"""

import base64
import json
import re
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

from sandbox import quantity
from sandbox.api import Obj
from sandbox.kinds import Kind

type Node = dict[str, Any]

# An empty string, false or 0 is as if not written, unless the field's Go type is a pointer. The description does
# not tell: these are the strings that are pointers, and the booleans and numbers that are not.
_KEEP_EMPTY = {
    "storageClassName", "runtimeClassName", "resourceClaimTemplateName", "resourceClaimName", "volumeMode", "string",
    "fsGroupChangePolicy",
}  # fmt: skip
_DROP_FALSE = {
    "hostNetwork", "hostPID", "hostIPC", "readOnly", "stdin", "stdinOnce", "tty", "paused", "unschedulable",
    "publishNotReadyAddresses", "ready",
}  # fmt: skip
_DROP_ZERO = {"count", "hostPort", "minReadySeconds", "nodePort", "observedGeneration", "initialDelaySeconds"}
# Required fields of these types are written even where the manifest leaves them out.
_PLAIN_ZEROS: dict[str, Any] = {"string": "", "integer": 0, "boolean": False}
_GO_TYPES = {"string": "string", "boolean": "bool", "array": "[]", "object": "map[string]"}


class DecodeError(ValueError):
    """A value of the wrong type. The text names the place as server-side apply does, ``json`` as other writes do."""

    def __init__(self, path: str, why: str, json_text: str) -> None:
        super().__init__(f"{path}: {why}")
        self.json = json_text


@dataclass
class Decoded:
    """An object as a typed decoder leaves it, and the fields it did not know."""

    obj: Obj
    unknown: list[str] = field(default_factory=list)


class Schema:
    """The definitions, with the look-ups that decoding, patches and server-side apply need."""

    def __init__(self) -> None:
        text = resources.files("sandbox").joinpath("schema.json").read_text(encoding="utf-8")
        self.definitions: dict[str, Node] = json.loads(text)
        self.names = {
            (gvk["group"], gvk["version"], gvk["kind"]): name
            for name, definition in self.definitions.items()
            for gvk in definition.get("x-kubernetes-group-version-kind", [])
        }
        self._go_names: dict[int, str] = {
            id(node): name.rsplit(".", 1)[-1] for name, node in self.definitions.items()
        }

    def of(self, kind: Kind) -> Node:
        """The definition of a kind."""
        return self.definitions[self.names[kind.group, kind.version, kind.kind]]

    def resolve(self, node: Node) -> Node:
        """Follow a reference; what is said beside it (merge keys) is kept."""
        if "$ref" not in node:
            return node
        target = self.definitions[node["$ref"].rsplit("/", 1)[-1]]
        return target if len(node) == 1 else target | {k: v for k, v in node.items() if k != "$ref"}

    def child(self, node: Node, name: str) -> Node | None:
        """The description of a field, or of any entry of a map; None where there is no such field."""
        properties = node.get("properties")
        if properties is not None:
            return self.resolve(properties[name]) if name in properties else None
        if "additionalProperties" in node:
            return self.resolve(node["additionalProperties"])
        return {}

    def item(self, node: Node) -> Node:
        """The description of a list's items."""
        return self.resolve(node.get("items", {}))

    def is_quantity(self, node: Node) -> bool:
        """Whether values are quantities, which are stored in canonical form."""
        return node is self.definitions["io.k8s.apimachinery.pkg.api.resource.Quantity"]

    def decode(self, kind: Kind, obj: Obj) -> Decoded:
        """Drop unknown fields, nulls and empty lists; canonical quantities. DecodeError on a wrong type."""
        unknown: list[str] = []
        decoded = self._value(self.of(kind), obj, "", kind.kind, unknown)
        return Decoded({"kind": kind.kind, "apiVersion": kind.api_version} | decoded, unknown)

    def _value(self, node: Node, value: Any, path: str, owner: str, unknown: list[str]) -> Any:
        if self.is_quantity(node):
            return _quantity(value, path)
        if node.get("format") == "int-or-string":
            if isinstance(value, bool) or not isinstance(value, int | str):
                raise _wrong(node, value, path, owner, "an integer or a string")
            return value
        match node.get("type"):
            case "array":
                if not isinstance(value, list):
                    raise _wrong(node, value, path, owner, "list")
                item = self.item(node)
                return [self._value(item, v, f"{path}[{i}]", owner, unknown) for i, v in enumerate(value)]
            case "string":
                if not isinstance(value, str):
                    raise _wrong(node, value, path, owner, "string")
                if node.get("format") == "byte":
                    _check_base64(value, path)
            case "integer":
                if isinstance(value, float) and value.is_integer():
                    return int(value)
                if isinstance(value, bool) or not isinstance(value, int):
                    raise _wrong(node, value, path, owner, "numeric (int or float)")
            case "boolean":
                if not isinstance(value, bool):
                    raise _wrong(node, value, path, owner, "boolean")
            case "object":
                if not isinstance(value, dict):
                    raise _wrong(node, value, path, owner, "map")
                return self._object(node, value, path, owner, unknown)
        return value

    def _object(self, node: Node, value: Obj, path: str, owner: str, unknown: list[str]) -> Obj:
        if "properties" not in node and "additionalProperties" not in node:
            return value
        required = node.get("required", ())
        is_map = "properties" not in node
        result: Obj = {}
        for key, entry in value.items():
            child = self.child(node, key)
            if child is None:
                unknown.append(f"{path}.{key}".removeprefix("."))
                continue
            if entry is None:
                if is_map:
                    result[key] = self._zero(child)
                continue
            inside = owner if is_map else self._struct(node, owner)
            decoded = self._value(child, entry, f"{path}.{key}", inside, unknown)
            if is_map or key in required or not _is_zero(child, key, decoded):
                result[key] = decoded
        for key in required:
            zero = _PLAIN_ZEROS.get((self.child(node, key) or {}).get("type", ""))
            if zero is not None:
                result.setdefault(key, zero)
        return result

    def _zero(self, node: Node) -> Any:
        """What null stands for in a map: the zero value of its entries' type."""
        if self.is_quantity(node):
            return "0"
        return (_PLAIN_ZEROS | {"object": {}, "array": []}).get(node.get("type", ""), "")

    def _struct(self, node: Node, otherwise: str) -> str:
        """The Go name of a definition, for error texts."""
        return self._go_names.get(id(node), otherwise)

    def list_keys(self, node: Node) -> tuple[str, ...] | None:
        """How server-side apply merges a list: names of its keys, () for a set, None for an atomic list."""
        match node.get("x-kubernetes-list-type"):
            case "map":
                return tuple(node["x-kubernetes-list-map-keys"])
            case "set":
                return ()
            case "atomic":
                return None
        if node.get("x-kubernetes-patch-strategy", "").startswith("merge"):
            key = node.get("x-kubernetes-patch-merge-key")
            return (key,) if key else ()
        return None

    def patch_key(self, node: Node) -> str | None:
        """How a strategic merge patch merges a list: the key, "" for plain values, None to replace it."""
        if "merge" not in node.get("x-kubernetes-patch-strategy", ""):
            return None
        return str(node.get("x-kubernetes-patch-merge-key", ""))

    def default_of_key(self, node: Node, key: str) -> Any:
        """The value a missing list key stands for (ports: protocol TCP)."""
        child = self.child(self.item(node), key)
        if key == "protocol":
            return "TCP"
        return (child or {}).get("default")


def _quantity(value: Any, path: str) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        text = f"quantities must match the regular expression '{quantity.PATTERN}'"
        raise DecodeError(path, text, text)
    try:
        return quantity.canonical(value)
    except ValueError as error:
        raise DecodeError(path, str(error), str(error)) from error


def _check_base64(text: str, path: str) -> None:
    try:
        base64.b64decode(text, validate=True)
    except ValueError as error:
        match = re.search("[^A-Za-z0-9+/=]", text)
        why = f"illegal base64 data at input byte {match.start() if match else max(0, len(text) - 1)}"
        raise DecodeError(path, why, why) from error


def _wrong(node: Node, value: Any, path: str, owner: str, expected: str) -> DecodeError:
    place = re.sub(r"\[\d+\]", "", path)
    go_type = node.get("format") or _GO_TYPES.get(node.get("type", ""), "")
    found = {"boolean": "bool", "map": "object", "list": "array"}.get(_type(value), _type(value))
    text = f"json: cannot unmarshal {found} into Go struct field {owner}{place} of type {go_type}"
    got = _type(value)
    if expected == "map" and isinstance(value, list):
        got = f"&{{[{' '.join(str(item) for item in value)}]}}"
    return DecodeError(path, f"expected {expected}, got {got}", text)


def _is_zero(node: Node, name: str, value: Any) -> bool:
    if value == "" and isinstance(value, str):
        return name not in _KEEP_EMPTY
    if value is False:
        return name in _DROP_FALSE
    if value == 0 and isinstance(value, int) and not isinstance(value, bool):
        return name in _DROP_ZERO
    if isinstance(value, list):
        return not value
    return isinstance(value, dict) and not value and "properties" not in node and "$ref" not in node


def _type(value: Any) -> str:
    match value:
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "string"
        case list():
            return "list"
        case dict():
            return "map"
    return "null"
