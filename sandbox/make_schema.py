"""Cut the API description of a Kubernetes release down to the kinds the sandbox serves.

    python -m sandbox.make_schema swagger.json > sandbox/schema.json

The input is what a Kubernetes 1.36 API server answers under /openapi/v2 (``api/openapi-spec/swagger.json`` of its
sources). Descriptions are left out.
"""

import json
import sys
from typing import Any

from sandbox.kinds import KINDS


def _bare(node: Any) -> Any:
    if isinstance(node, dict):
        return {k: _bare(v) for k, v in node.items() if not (k == "description" and isinstance(v, str))}
    if isinstance(node, list):
        return [_bare(item) for item in node]
    return node


def _references(node: Any) -> set[str]:
    if isinstance(node, dict):
        found = {node["$ref"].rsplit("/", 1)[-1]} if isinstance(node.get("$ref"), str) else set()
        return found.union(*(_references(value) for value in node.values()))
    if isinstance(node, list):
        return set().union(*(_references(item) for item in node))
    return set()


def cut(swagger: dict[str, Any]) -> dict[str, Any]:
    """The definitions that the served kinds reach, by name."""
    kinds = {(kind.group, kind.version, kind.kind) for kind in KINDS}
    waiting = {
        name
        for name, definition in swagger["definitions"].items()
        for gvk in definition.get("x-kubernetes-group-version-kind", [])
        if (gvk["group"], gvk["version"], gvk["kind"]) in kinds
    }
    kept: dict[str, Any] = {}
    while waiting:
        name = waiting.pop()
        kept[name] = _bare(swagger["definitions"][name])
        waiting |= _references(kept[name]) - kept.keys()
    return kept


def main() -> None:
    """Read the file named by the first argument and print the shortened description, one definition a line."""
    with open(sys.argv[1], encoding="utf-8") as file:
        definitions = cut(json.load(file))
    lines = [
        f"{json.dumps(name)}: {json.dumps(definitions[name], sort_keys=True)}" for name in sorted(definitions)
    ]
    print("{" + ",\n".join(lines) + "}")


if __name__ == "__main__":
    main()
