"""Who owns which field: server-side apply and the ``managedFields`` of other writes.

A field is named by a path, a tuple of the names FieldsV1 uses: ``f:spec``, ``k:{"name":"a"}``, ``v:"x"``.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from sandbox.api import Obj
from sandbox.kinds import Kind
from sandbox.refusals import apply_conflict
from sandbox.schema import Node, Schema

type Path = tuple[str, ...]

_ITEM = object()
_NEVER_OWNED = {
    ("f:apiVersion",),
    ("f:kind",),
    *(
        ("f:metadata", f"f:{name}")
        for name in (
            "name", "namespace", "creationTimestamp", "uid", "generation", "resourceVersion", "managedFields",
            "selfLink", "deletionTimestamp", "deletionGracePeriodSeconds",
        )
    ),
}  # fmt: skip


@dataclass
class Manager:
    """One entry of ``managedFields``."""

    name: str
    operation: str
    subresource: str
    api_version: str
    time: str
    fields: set[Path] = field(default_factory=set)

    def is_like(self, other: "Manager") -> bool:
        """Whether the other entry is the same manager doing the same kind of write."""
        return (self.name, self.operation, self.subresource) == (
            other.name,
            other.operation,
            other.subresource,
        )


def read(entries: Iterable[Obj]) -> list[Manager]:
    """The managers of an object's ``metadata.managedFields``."""
    return [
        Manager(
            entry["manager"],
            entry["operation"],
            entry.get("subresource", ""),
            entry["apiVersion"],
            entry["time"],
            set(_paths_of_tree(entry["fieldsV1"], ())),
        )
        for entry in entries
    ]


def write(managers: Iterable[Manager]) -> list[Obj]:
    """``metadata.managedFields`` of these managers; those without fields are left out."""
    entries = []
    for manager in managers:
        if not manager.fields:
            continue
        entry: Obj = {
            "manager": manager.name,
            "operation": manager.operation,
            "apiVersion": manager.api_version,
            "time": manager.time,
            "fieldsType": "FieldsV1",
            "fieldsV1": _tree(manager.fields),
        }
        if manager.subresource:
            entry["subresource"] = manager.subresource
        entries.append(entry)
    return sorted(entries, key=lambda e: (e["operation"] != "Apply", e["time"], e["manager"]))


def _tree(paths: set[Path]) -> Obj:
    root: Obj = {}
    for path in sorted(paths):
        node = root
        for part in path:
            node = node.setdefault(part, {})
    for path in paths:
        node = root
        for part in path:
            node = node[part]
        if node and "." not in node:
            node["."] = {}
    return root


def _paths_of_tree(tree: Obj, prefix: Path) -> Iterator[Path]:
    for part, below in tree.items():
        if part == ".":
            yield prefix
        elif below:
            yield from _paths_of_tree(below, (*prefix, part))
        else:
            yield (*prefix, part)


def key_of(schema: Schema, node: Node, keys: tuple[str, ...], item: Any) -> str:
    """The path part of a list item: its keys, or its value in a set."""
    if not keys:
        return "v:" + json.dumps(item, separators=(",", ":"))
    values = {key: item.get(key, schema.default_of_key(node, key)) for key in keys if isinstance(item, dict)}
    present = {key: value for key, value in sorted(values.items()) if value is not None}
    return "k:" + json.dumps(present, separators=(",", ":"))


def _is_granular(node: Node) -> bool:
    return node.get("x-kubernetes-map-type") != "atomic" and (
        "properties" in node or "additionalProperties" in node
    )


def leaves(schema: Schema, node: Node, value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every field with its value; maps and keyed lists are walked into, atomic ones are one field."""
    if isinstance(value, dict) and value and _is_granular(node):
        for name, entry in value.items():
            child = schema.child(node, name) or {}
            yield from leaves(schema, child, entry, (*path, f"f:{name}"))
        return
    keys = schema.list_keys(node) if isinstance(value, list) else None
    if keys is None or not value:
        yield path, value
        return
    item_node = schema.item(node)
    for item in value:
        below = (*path, key_of(schema, node, keys, item))
        yield below, _ITEM if keys else item
        if keys:
            yield from leaves(schema, item_node, item, below)


def duplicate(schema: Schema, node: Node, value: Any, path: Path = ()) -> str | None:
    """The first keyed list with two items of one key, as server-side apply refuses it; None where all is well."""
    if isinstance(value, dict) and _is_granular(node):
        places = ((schema.child(node, name) or {}, entry, f"f:{name}") for name, entry in value.items())
    elif isinstance(value, list) and (keys := schema.list_keys(node)) is not None:
        names = [key_of(schema, node, keys, item) for item in value]
        for index, name in enumerate(names):
            if name in names[:index]:
                return f"{_dotted(path)}: duplicate entries for key {_dotted((name,))}"
        places = ((schema.item(node), item, name) for item, name in zip(value, names, strict=True))
    else:
        return None
    found = (duplicate(schema, below, entry, (*path, part)) for below, entry, part in places)
    return next((text for text in found if text), None)


def _owned(kind: Kind, path: Path, subresource: str) -> bool:
    if path[:1] in _NEVER_OWNED or path[:2] in _NEVER_OWNED:
        return False
    if subresource == "status":
        return path[0] == "f:status"
    return path[0] != "f:status" or not kind.status


def _flat(schema: Schema, kind: Kind, obj: Obj | None, subresource: str) -> dict[Path, Any]:
    if obj is None:
        return {}
    return {
        path: value
        for path, value in leaves(schema, schema.of(kind), obj)
        if path and _owned(kind, path, subresource)
    }


def _changes(old: dict[Path, Any], new: dict[Path, Any]) -> tuple[set[Path], set[Path]]:
    """Paths set or changed, and paths taken away."""
    missing = object()
    changed = {path for path, value in new.items() if old.get(path, missing) != value}
    return changed, old.keys() - new.keys()


def track(schema: Schema, kind: Kind, old: Obj | None, new: Obj, who: Manager) -> None:
    """Note an ordinary write in ``new``'s managedFields: what it changed is the writer's from now on."""
    managers = read((old or {}).get("metadata", {}).get("managedFields", []))
    before = _flat(schema, kind, old, who.subresource)
    changed, removed = _changes(before, _flat(schema, kind, new, who.subresource))
    own = next((manager for manager in managers if manager.is_like(who)), None)
    if changed or removed:
        for manager in managers:
            manager.fields -= removed if manager is own else removed | changed
        if changed:
            if own is None:
                managers.append(who)
                own = who
            own.fields |= changed
            own.time = who.time
            own.api_version = who.api_version
    new["metadata"]["managedFields"] = write(managers)


def _dotted(path: Path) -> str:
    text = ""
    for part in path:
        if part.startswith("f:"):
            text += f".{part[2:]}"
        elif part.startswith("k:"):
            keys = json.loads(part[2:])
            text += "[" + ",".join(f"{name}={json.dumps(value)}" for name, value in keys.items()) + "]"
        else:
            text += f"[={part[2:]}]"
    return text


def merge(schema: Schema, node: Node, live: Any, applied: Any) -> Any:
    """The live value with the applied one laid over it."""
    if isinstance(live, dict) and isinstance(applied, dict) and _is_granular(node):
        result = dict(live)
        for name, value in applied.items():
            child = schema.child(node, name) or {}
            result[name] = merge(schema, child, live[name], value) if name in live else value
        return result
    if applied is None and isinstance(live, dict) and _is_granular(node):
        # Null says nothing about a map: what others or the defaults put there stays.
        return live
    keys = schema.list_keys(node) if isinstance(live, list) and isinstance(applied, list) else None
    if keys is None:
        return applied
    item_node = schema.item(node)
    wanted = {key_of(schema, node, keys, item): item for item in applied}
    present = {key_of(schema, node, keys, item): item for item in live}
    waiting = list(wanted)
    result_list: list[Any] = []

    def emit(key: str) -> None:
        both = key in present and key in wanted
        item = (
            merge(schema, item_node, present[key], wanted[key]) if both else wanted.get(key, present.get(key))
        )
        result_list.append(item)

    for key in present:
        if key not in wanted:
            emit(key)
        while key in waiting:
            emit(waiting.pop(0))
    for key in waiting:
        emit(key)
    return result_list


def _prune(schema: Schema, node: Node, value: Any, gone: set[Path], kept: set[Path], path: Path) -> Any:
    """Take the fields ``gone`` out of a value; whatever contains a path of ``kept`` stays."""
    if isinstance(value, dict) and _is_granular(node):
        for name in list(value):
            below = (*path, f"f:{name}")
            if not any(lost[: len(below)] == below for lost in gone):
                continue
            if below in gone and below not in kept:
                del value[name]
                continue
            value[name] = _prune(schema, schema.child(node, name) or {}, value[name], gone, kept, below)
            if value[name] in ({}, []) and below not in kept:
                del value[name]
    elif isinstance(value, list) and (keys := schema.list_keys(node)) is not None:
        result = []
        for item in value:
            below = (*path, key_of(schema, node, keys, item))
            needed = any(other[: len(below)] == below for other in kept)
            if below in gone and not needed:
                continue
            result.append(_prune(schema, schema.item(node), item, gone, kept, below) if keys else item)
        return result
    return value


def apply(schema: Schema, kind: Kind, live: Obj | None, patch: Obj, who: Manager, force: bool) -> Obj:
    """Server-side apply: the new object, not yet defaulted, with its managedFields. 409 on conflicts."""
    node = schema.of(kind)
    managers = read((live or {}).get("metadata", {}).get("managedFields", []))
    own = next((manager for manager in managers if manager.is_like(who)), None)
    others = [manager for manager in managers if manager is not own]
    merged: Obj = json.loads(json.dumps(merge(schema, node, live or {}, patch)))
    applied = set(_flat(schema, kind, patch, who.subresource))
    before = _flat(schema, kind, live, who.subresource)
    changed, _ = _changes(before, _flat(schema, kind, merged, who.subresource))
    conflicts = [(other, sorted(other.fields & changed & applied)) for other in others]
    found = [(_title(other), _dotted(path)) for other, paths in conflicts for path in paths]
    if found and not force:
        raise apply_conflict(found)
    for other, paths in conflicts:
        other.fields -= set(paths)
    if own is not None:
        kept = applied.union(*(other.fields for other in others))
        merged = _prune(schema, node, merged, own.fields - applied, kept, ())
    current = own or who
    if current.fields != applied:
        current.time = who.time
    current.fields = applied
    current.api_version = who.api_version
    merged["metadata"]["managedFields"] = write([*others, current])
    return merged


def _title(manager: Manager) -> str:
    title = f'"{manager.name}"'
    if manager.subresource:
        title += f' with subresource "{manager.subresource}"'
    return title if manager.operation == "Apply" else f"{title} using {manager.api_version}"
