"""The shapes of the API's answers as JSON Schema, referenced by name from the OpenAPI document.

tests/test_api_schema.py checks real answers against them.
"""

from __future__ import annotations

from gpu.api.model_components import MODEL_COMPONENTS
from gpu.api.shapes import (
    AMOUNT,
    BOOLEAN,
    INTEGER,
    NUMBER,
    STRING,
    TIME,
    Schema,
    list_of,
    nullable,
    one_of,
    page,
    record,
    ref,
)
from gpu.diagnosis import STATES

COMPONENTS: dict[str, Schema] = {
    "Problem": record(
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
            "errors": list_of(
                record(
                    "One wrong field.",
                    {
                        "pointer": {"type": "string", "format": "json-pointer"},
                        "code": STRING,
                        "detail": STRING,
                    },
                )
            ),
            "next_step": STRING,
            "holders": list_of(ref("Holder")),
        },
        optional=("holders",),
    ),
    "Holder": record(
        "Who holds a slice of the entitlement; without id it was not ordered here.",
        {"id": nullable(STRING), "display_name": STRING},
    ),
    "Money": record(
        "An amount of money.", {"amount": {"type": "string", "format": "decimal"}, "currency": STRING}
    ),
    "Amount": record(
        "An amount of a resource: the Kubernetes quantity, and one plain number.",
        {"quantity": STRING, "cpu_millicores": INTEGER, "memory_bytes": INTEGER, "count": INTEGER},
        optional=("cpu_millicores", "memory_bytes", "count"),
    ),
    "Observed": record(
        "How old what is said of the cluster is.",
        {
            "at": nullable(TIME),
            "age_seconds": nullable(NUMBER),
            "stale": BOOLEAN,
            "cluster_reachable": BOOLEAN,
        },
    ),
    "Root": record(
        "Where things are.",
        {name: {"type": "string", "format": "uri"} for name in ("packages", "projects", "slices", "schema")},
    ),
    "Package": record(
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
    "PackageList": page("Package"),
    "Project": record("A project.", {"id": STRING, "name": STRING, "namespace": STRING, "tenant": STRING}),
    "ProjectList": page("Project"),
    "Room": record(
        "What is left of one resource. Null is unknown, never zero.",
        {
            "resource": STRING,
            "limited": BOOLEAN,
            "hard": AMOUNT,
            "used": AMOUNT,
            "left": AMOUNT,
            "binding_quota": nullable(STRING),
        },
        optional=("limited",),
    ),
    "PackageRoom": record(
        "Entitlement, use and capacity of a package: three numbers.",
        {
            "package": STRING,
            "entitled": INTEGER,
            "in_use": INTEGER,
            "waiting": INTEGER,
            "free_to_order": INTEGER,
            "reason": STRING,
            "cards": nullable(
                record("Slices of this size on all cards.", {"total": INTEGER, "free": INTEGER})
            ),
        },
    ),
    "ProjectStatus": record(
        "A project with entitlements and headroom.",
        {
            "id": STRING,
            "name": STRING,
            "namespace": STRING,
            "tenant": STRING,
            "answer": STRING,
            "packages": list_of(ref("PackageRoom")),
            "headroom": list_of(ref("Room")),
            "observed": ref("Observed"),
        },
    ),
    "EnvVar": record("An environment variable.", {"name": STRING, "value": STRING}),
    "Volume": record("A volume.", {"size": STRING, "mount_path": STRING, "storage_class": nullable(STRING)}),
    "Workload": record(
        "What runs on the slice.",
        {
            "image": STRING,
            "command": list_of(STRING),
            "args": list_of(STRING),
            "env": list_of(ref("EnvVar")),
            "port": nullable(INTEGER),
            "cpu_request": STRING,
            "cpu_limit": STRING,
            "memory_request": STRING,
            "memory_limit": STRING,
            "volume": nullable(ref("Volume")),
        },
    ),
    "Step": record(
        "A step on the way to a ready slice.",
        {"code": STRING, "state": one_of("done", "current", "waiting", "failed"), "at": nullable(TIME)},
    ),
    "Slice": record(
        "A slice: intent, state, who can do what, and how old that is.",
        {
            "id": STRING,
            "display_name": STRING,
            "object_name": STRING,
            "project": ref("Project"),
            "package": STRING,
            "price_per_hour": ref("Money"),
            "order": STRING,
            "intent": one_of("run", "stop", "release"),
            "state": one_of(*STATES, description="Stable code; the words are in label and sentence."),
            "reason": STRING,
            "label": STRING,
            "sentence": STRING,
            "who": one_of("nobody", "member", "owner", "operator"),
            "next_step": STRING,
            "causes": list_of(STRING),
            "platform_term": STRING,
            "since": nullable(TIME),
            "settled": BOOLEAN,
            "actions": list_of(one_of("stop", "start", "restart", "change", "release")),
            "steps": list_of(ref("Step")),
            "template": {"type": "string", "description": "The workload template it was ordered with."},
            "workload": ref("Workload"),
            "generation": INTEGER,
            "applied_generation": INTEGER,
            "created_at": TIME,
            "ended_at": nullable(TIME),
            "observed": ref("Observed"),
        },
    ),
    "SliceList": page("Slice"),
    "Finding": record(
        "What is wrong or worth knowing, where, and the mend.",
        {
            "rule": STRING,
            "place": STRING,
            "level": one_of("refused", "warning"),
            "by": one_of("policy", "platform", "advice"),
            "detail": STRING,
            "mend": STRING,
            "suggest": nullable(STRING),
        },
    ),
    "Shortage": record(
        "A resource the order does not fit into.",
        {
            "resource": STRING,
            "needed": AMOUNT,
            "left": AMOUNT,
            "short_by": AMOUNT,
            "binding_quota": nullable(STRING),
        },
    ),
    "Preview": record(
        "What an order would meet; it holds when the order follows at once.",
        {
            "verdict": one_of(
                "starts", "waits_for_card", "waits_for_pool", "over_entitlement", "refused", "unknown"
            ),
            "would_be_accepted": BOOLEAN,
            "needs_allow_queue": BOOLEAN,
            "refusal": nullable(record("Why not.", {"code": STRING, "detail": STRING, "next_step": STRING})),
            "price_per_hour": ref("Money"),
            "entitlement": record(
                "Before and after.",
                {
                    "entitled": INTEGER,
                    "used_before": INTEGER,
                    "used_after": INTEGER,
                    "holders": list_of(ref("Holder")),
                },
            ),
            "cards": nullable(
                record(
                    "Slices of this size on all cards.",
                    {"total": INTEGER, "free": INTEGER, "waiting": INTEGER},
                )
            ),
            "demand": list_of(
                record(
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
            "headroom": list_of(ref("Room")),
            "shortages": list_of(ref("Shortage")),
            "findings": list_of(ref("Finding")),
            "manifest": {
                "type": "string",
                "description": "YAML, as it would be applied but for the slice's id.",
            },
            "observed": ref("Observed"),
        },
    ),
    "Event": record(
        "One thing that happened.",
        {
            "at": TIME,
            "code": STRING,
            "sentence": STRING,
            "detail": STRING,
            "actor": nullable(STRING),
            "warning": BOOLEAN,
            "count": INTEGER,
        },
    ),
    "Events": record("Newest first.", {"results": list_of(ref("Event")), "observed": ref("Observed")}),
    "Log": record(
        "A copy of the container's log.",
        {"text": STRING, "previous": BOOLEAN, "fetched_at": nullable(TIME), "error_code": nullable(STRING)},
    ),
    "Manifest": record(
        "The documents, in the order in which they are applied.", {"documents": list_of({"type": "object"})}
    ),
    **MODEL_COMPONENTS,
}
