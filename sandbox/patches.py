"""JSON patch, merge patch and strategic merge patch."""

import copy
from typing import Any

from sandbox.refusals import bad_request, status
from sandbox.schema import Node, Schema

_ORDER = "$setElementOrder/"
_DELETE = "$deleteFromPrimitiveList/"


def merge_patch(target: Any, patch: Any) -> Any:
    """RFC 7386: null takes a field away, lists are replaced."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merge_patch(result.get(name), value)
    return result


def json_patch(target: Any, operations: Any) -> Any:
    """RFC 6902; 422 where an operation cannot be carried out, 400 where it cannot be read."""
    if not isinstance(operations, list):
        raise bad_request("json: cannot unmarshal object into Go value of type jsonpatch.Patch")
    result = copy.deepcopy(target)
    for operation in operations:
        try:
            result = _step(result, operation)
        except (KeyError, IndexError, ValueError, TypeError) as error:
            text = "the server rejected our request due to an error in our request"
            raise status(422, text, details={}) from error
    return result


def _parts(pointer: str) -> list[str]:
    if pointer and not pointer.startswith("/"):
        raise ValueError(f"{pointer!r} is not a JSON pointer")
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]


def _find(document: Any, parts: list[str]) -> Any:
    for part in parts:
        document = document[int(part)] if isinstance(document, list) else document[part]
    return document


def _step(document: Any, operation: dict[str, Any]) -> Any:
    name, parts = operation["op"], _parts(operation["path"])
    match name:
        case "test":
            if _find(document, parts) != operation["value"]:
                raise ValueError(f"testing value {operation['path']} failed")
        case "add":
            return _put(document, parts, operation["value"], insert=True)
        case "replace":
            _find(document, parts)
            return _put(document, parts, operation["value"], insert=False)
        case "remove":
            _remove(document, parts)
        case "copy" | "move":
            value = copy.deepcopy(_find(document, _parts(operation["from"])))
            if name == "move":
                _remove(document, _parts(operation["from"]))
            return _put(document, parts, value, insert=True)
        case _:
            raise ValueError(f"unexpected kind: {name}")
    return document


def _put(document: Any, parts: list[str], value: Any, insert: bool) -> Any:
    if not parts:
        return value
    parent, last = _find(document, parts[:-1]), parts[-1]
    if isinstance(parent, list):
        if insert:
            parent.insert(len(parent) if last == "-" else int(last), value)
        else:
            parent[int(last)] = value
    else:
        parent[last] = value
    return document


def _remove(document: Any, parts: list[str]) -> None:
    parent = _find(document, parts[:-1])
    del parent[int(parts[-1]) if isinstance(parent, list) else parts[-1]]


def strategic(schema: Schema, node: Node, target: Any, patch: Any) -> Any:
    """Kubernetes' strategic merge patch, as ``kubectl apply`` and ``kubectl edit`` send it."""
    if not isinstance(patch, dict):
        return patch
    directive = patch.get("$patch")
    plain = {name: value for name, value in patch.items() if not name.startswith("$")}
    if directive == "delete":
        return {}
    if directive == "replace":
        return plain
    result = dict(target) if isinstance(target, dict) else {}
    if "$retainKeys" in patch:
        result = {name: value for name, value in result.items() if name in patch["$retainKeys"]}
    for name, values in patch.items():
        if name.startswith(_DELETE):
            field = name.removeprefix(_DELETE)
            result[field] = [value for value in result.get(field, []) if value not in values]
    for name, value in plain.items():
        child = schema.child(node, name) or {}
        if value is None:
            result.pop(name, None)
        elif isinstance(value, list):
            result[name] = _merge_list(schema, child, result.get(name) or [], value)
        elif (
            isinstance(value, dict)
            and (merged := strategic(schema, child, result.get(name), value)) is not None
        ):
            result[name] = merged
        else:
            result[name] = value
    for name, items in result.items():
        wanted = patch.get(_ORDER + name, plain.get(name))
        key = schema.patch_key(schema.child(node, name) or {})
        if key and isinstance(wanted, list) and isinstance(items, list):
            before = _keys_before(target, name, key)
            result[name] = _ordered(key, items, [item.get(key) for item in wanted], before)
    return result


def _keys_before(target: Any, name: str, key: str) -> list[Any]:
    return [item.get(key) for item in (target or {}).get(name) or []]


def _merge_list(schema: Schema, node: Node, target: list[Any], patch: list[Any]) -> list[Any]:
    key = schema.patch_key(node)
    if key is None:
        return patch
    if key == "":
        return target + [value for value in patch if value not in target]
    if any(isinstance(item, dict) and item.get("$patch") == "replace" for item in patch):
        return [item for item in patch if "$patch" not in item]
    result = list(target)
    for item in patch:
        if not isinstance(item, dict) or key not in item:
            raise bad_request(f"map: {item} does not contain declared merge key: {key}")
        place = next((i for i, old in enumerate(result) if old.get(key) == item[key]), None)
        if item.get("$patch") == "delete":
            result = [old for old in result if old.get(key) != item[key]]
        elif place is None:
            result.append({name: value for name, value in item.items() if not name.startswith("$")})
        else:
            result[place] = strategic(schema, schema.item(node), result[place], item)
    return result


def _ordered(key: str, items: list[Any], wanted: list[Any], before: list[Any]) -> list[Any]:
    """The patch's items in the order of the patch; items only the server has keep their place before later ones."""
    ordered = sorted((i for i in items if i[key] in wanted), key=lambda item: wanted.index(item[key]))
    kept = [item for item in items if item[key] not in wanted]
    result: list[Any] = []
    while ordered and kept:
        mine, theirs = kept[0][key], ordered[0][key]
        first = mine in before and theirs in before and before.index(mine) < before.index(theirs)
        result.append(kept.pop(0) if first else ordered.pop(0))
    return result + ordered + kept
