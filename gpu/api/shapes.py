"""The parts that the components of the OpenAPI document are built from."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]


def ref(name: str) -> Schema:
    """Return a reference to a component."""
    return {"$ref": f"#/components/schemas/{name}"}


def record(description: str, properties: Schema, optional: tuple[str, ...] = ()) -> Schema:
    """Return an object with these properties, all required but the `optional` ones."""
    return {
        "type": "object",
        "description": description,
        "properties": properties,
        "required": [name for name in properties if name not in optional],
    }


def nullable(schema: Schema) -> Schema:
    """Return a schema that allows null too."""
    if "$ref" in schema:
        return {"anyOf": [schema, {"type": "null"}]}
    return {**schema, "type": [schema["type"], "null"]}


def list_of(items: Schema) -> Schema:
    """Return an array of items."""
    return {"type": "array", "items": items}


def one_of(*values: str, description: str = "") -> Schema:
    """Return a string with fixed values."""
    return {"type": "string", "enum": list(values), **({"description": description} if description else {})}


STRING: Schema = {"type": "string"}
INTEGER: Schema = {"type": "integer"}
BOOLEAN: Schema = {"type": "boolean"}
NUMBER: Schema = {"type": "number"}
TIME: Schema = {"type": "string", "format": "date-time"}
AMOUNT = nullable(ref("Amount"))


def page(name: str) -> Schema:
    """Return a page of a list of components."""
    return record(
        "A page of a list, by cursor.",
        {
            "next": nullable({"type": "string", "format": "uri"}),
            "previous": nullable({"type": "string", "format": "uri"}),
            "results": list_of(ref(name)),
        },
    )
