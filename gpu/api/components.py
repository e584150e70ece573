"""The shapes of the API's answers as JSON Schema, referenced by name from the OpenAPI document.

tests/test_api_schema.py checks real answers against them.
"""

from __future__ import annotations

from typing import Any

from gpu.diagnosis import STATES

Schema = dict[str, Any]


def ref(name: str) -> Schema:
    """Return a reference to a component."""
    return {"$ref": f"#/components/schemas/{name}"}


def _object(description: str, properties: Schema, optional: tuple[str, ...] = ()) -> Schema:
    return {
        "type": "object",
        "description": description,
        "properties": properties,
        "required": [name for name in properties if name not in optional],
    }


def _nullable(schema: Schema) -> Schema:
    if "$ref" in schema:
        return {"anyOf": [schema, {"type": "null"}]}
    return {**schema, "type": [schema["type"], "null"]}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _one_of(*values: str, description: str = "") -> Schema:
    return {"type": "string", "enum": list(values), **({"description": description} if description else {})}


STRING: Schema = {"type": "string"}
INTEGER: Schema = {"type": "integer"}
BOOLEAN: Schema = {"type": "boolean"}
NUMBER: Schema = {"type": "number"}
TIME: Schema = {"type": "string", "format": "date-time"}
AMOUNT = _nullable(ref("Amount"))


def _page(name: str) -> Schema:
    return _object(
        "A page of a list, by cursor.",
        {
            "next": _nullable({"type": "string", "format": "uri"}),
            "previous": _nullable({"type": "string", "format": "uri"}),
            "results": _list(ref(name)),
        },
    )


COMPONENTS: dict[str, Schema] = {
    "Problem": _object(
        "An error (RFC 9457).",
        {
            "type": STRING,
            "title": STRING,
            "status": INTEGER,
            "detail": {
                "type": "string",
                "description": "A sentence for a person, in the language of Accept-Language.",
            },
            "instance": {"type": "string", "description": "The request's id, as in X-Request-Id."},
            "code": {"type": "string", "description": "Stable."},
            "errors": _list(
                _object(
                    "One wrong field.",
                    {
                        "pointer": {"type": "string", "format": "json-pointer"},
                        "code": STRING,
                        "detail": STRING,
                    },
                )
            ),
            "next_step": STRING,
            "holders": _list(ref("Holder")),
        },
        optional=("holders",),
    ),
    "Holder": _object(
        "Who holds a slice of the entitlement; without id it was not ordered here.",
        {"id": _nullable(STRING), "display_name": STRING},
    ),
    "Money": _object(
        "An amount of money.", {"amount": {"type": "string", "format": "decimal"}, "currency": STRING}
    ),
    "Amount": _object(
        "An amount of a resource: the Kubernetes quantity, and one plain number.",
        {"quantity": STRING, "cpu_millicores": INTEGER, "memory_bytes": INTEGER, "count": INTEGER},
        optional=("cpu_millicores", "memory_bytes", "count"),
    ),
    "Observed": _object(
        "How old what is said of the cluster is.",
        {
            "at": _nullable(TIME),
            "age_seconds": _nullable(NUMBER),
            "stale": BOOLEAN,
            "cluster_reachable": BOOLEAN,
        },
    ),
    "Root": _object(
        "Where things are.",
        {name: {"type": "string", "format": "uri"} for name in ("packages", "projects", "slices", "schema")},
    ),
    "Package": _object(
        "What is on sale.",
        {
            "id": STRING,
            "name": STRING,
            "gpu_model": STRING,
            "gpu_memory": STRING,
            "gpu_memory_bytes": INTEGER,
            "compute_percent": INTEGER,
            "shares": INTEGER,
            "price_per_hour": ref("Money"),
            "device_class": STRING,
            "on_sale": BOOLEAN,
        },
    ),
    "PackageList": _page("Package"),
    "Project": _object("A project.", {"id": STRING, "name": STRING, "namespace": STRING, "tenant": STRING}),
    "ProjectList": _page("Project"),
    "Room": _object(
        "What is left of one resource. Null is unknown, never zero.",
        {
            "resource": STRING,
            "limited": BOOLEAN,
            "hard": AMOUNT,
            "used": AMOUNT,
            "left": AMOUNT,
            "binding_quota": _nullable(STRING),
        },
        optional=("limited",),
    ),
    "PackageRoom": _object(
        "Entitlement, use and capacity of a package: three numbers.",
        {
            "package": STRING,
            "entitled": INTEGER,
            "in_use": INTEGER,
            "waiting": INTEGER,
            "free_to_order": INTEGER,
            "reason": STRING,
            "cards": _nullable(
                _object("Slices of this size on all cards.", {"total": INTEGER, "free": INTEGER})
            ),
        },
    ),
    "ProjectStatus": _object(
        "A project with entitlements and headroom.",
        {
            "id": STRING,
            "name": STRING,
            "namespace": STRING,
            "tenant": STRING,
            "answer": STRING,
            "packages": _list(ref("PackageRoom")),
            "headroom": _list(ref("Room")),
            "observed": ref("Observed"),
        },
    ),
    "EnvVar": _object("An environment variable.", {"name": STRING, "value": STRING}),
    "Volume": _object(
        "A volume.", {"size": STRING, "mount_path": STRING, "storage_class": _nullable(STRING)}
    ),
    "Workload": _object(
        "What runs on the slice.",
        {
            "image": STRING,
            "command": _list(STRING),
            "args": _list(STRING),
            "env": _list(ref("EnvVar")),
            "port": _nullable(INTEGER),
            "cpu_request": STRING,
            "cpu_limit": STRING,
            "memory_request": STRING,
            "memory_limit": STRING,
            "volume": _nullable(ref("Volume")),
        },
    ),
    "Step": _object(
        "A step on the way to a ready slice.",
        {"code": STRING, "state": _one_of("done", "current", "waiting", "failed"), "at": _nullable(TIME)},
    ),
    "Slice": _object(
        "A slice: intent, state, who can do what, and how old that is.",
        {
            "id": STRING,
            "display_name": STRING,
            "object_name": STRING,
            "project": ref("Project"),
            "package": STRING,
            "price_per_hour": ref("Money"),
            "order": STRING,
            "intent": _one_of("run", "stop", "release"),
            "state": _one_of(*STATES, description="Stable code; the words are in label and sentence."),
            "reason": STRING,
            "label": STRING,
            "sentence": STRING,
            "who": _one_of("nobody", "member", "owner", "operator"),
            "next_step": STRING,
            "causes": _list(STRING),
            "platform_term": STRING,
            "since": _nullable(TIME),
            "settled": BOOLEAN,
            "actions": _list(_one_of("stop", "start", "restart", "change", "release")),
            "steps": _list(ref("Step")),
            "workload": ref("Workload"),
            "generation": INTEGER,
            "applied_generation": INTEGER,
            "created_at": TIME,
            "ended_at": _nullable(TIME),
            "observed": ref("Observed"),
        },
    ),
    "SliceList": _page("Slice"),
    "Finding": _object(
        "What is wrong or worth knowing, where, and the mend.",
        {
            "rule": STRING,
            "place": STRING,
            "level": _one_of("refused", "warning"),
            "by": _one_of("policy", "platform", "advice"),
            "detail": STRING,
            "mend": STRING,
            "suggest": _nullable(STRING),
        },
    ),
    "Shortage": _object(
        "A resource the order does not fit into.",
        {
            "resource": STRING,
            "needed": AMOUNT,
            "left": AMOUNT,
            "short_by": AMOUNT,
            "binding_quota": _nullable(STRING),
        },
    ),
    "Preview": _object(
        "What an order would meet; it holds when the order follows at once.",
        {
            "verdict": _one_of(
                "starts", "waits_for_card", "waits_for_pool", "over_entitlement", "refused", "unknown"
            ),
            "would_be_accepted": BOOLEAN,
            "needs_allow_queue": BOOLEAN,
            "refusal": _nullable(
                _object("Why not.", {"code": STRING, "detail": STRING, "next_step": STRING})
            ),
            "price_per_hour": ref("Money"),
            "entitlement": _object(
                "Before and after.",
                {
                    "entitled": INTEGER,
                    "used_before": INTEGER,
                    "used_after": INTEGER,
                    "holders": _list(ref("Holder")),
                },
            ),
            "cards": _nullable(
                _object(
                    "Slices of this size on all cards.",
                    {"total": INTEGER, "free": INTEGER, "waiting": INTEGER},
                )
            ),
            "demand": _list(
                _object(
                    "What the order takes.",
                    {
                        "resource": STRING,
                        "quantity": STRING,
                        "cpu_millicores": INTEGER,
                        "memory_bytes": INTEGER,
                        "count": INTEGER,
                    },
                    optional=("cpu_millicores", "memory_bytes", "count"),
                )
            ),
            "headroom": _list(ref("Room")),
            "shortages": _list(ref("Shortage")),
            "findings": _list(ref("Finding")),
            "manifest": {
                "type": "string",
                "description": "YAML, as it would be applied but for the slice's id.",
            },
            "observed": ref("Observed"),
        },
    ),
    "Event": _object(
        "One thing that happened.",
        {
            "at": TIME,
            "code": STRING,
            "sentence": STRING,
            "detail": STRING,
            "actor": _nullable(STRING),
            "warning": BOOLEAN,
            "count": INTEGER,
        },
    ),
    "Events": _object("Newest first.", {"results": _list(ref("Event")), "observed": ref("Observed")}),
    "Log": _object(
        "A copy of the container's log.",
        {"text": STRING, "previous": BOOLEAN, "fetched_at": _nullable(TIME), "error_code": _nullable(STRING)},
    ),
    "Manifest": _object(
        "The documents, in the order in which they are applied.", {"documents": _list({"type": "object"})}
    ),
}
