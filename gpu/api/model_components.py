"""The shapes of what the API says of models and pulls."""

from __future__ import annotations

from gpu.api.shapes import (
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
from gpu.pull_status import STATES as PULL_STATES

MODEL_COMPONENTS: dict[str, Schema] = {
    "Model": record(
        "A model on a slice's volume.",
        {
            "name": STRING,
            "size": STRING,
            "size_bytes": INTEGER,
            "digest": STRING,
            "modified_at": nullable(TIME),
        },
    ),
    "Models": record(
        "The models of a slice as last listed; listed_at null: never, which is not the same as none.",
        {
            "slice": STRING,
            "results": list_of(ref("Model")),
            "listed_at": nullable(TIME),
            "taken_bytes": nullable(INTEGER),
            "volume_bytes": nullable(INTEGER),
            "under_way": list_of(STRING),
            "check": nullable(
                record(
                    "The last check. Null is unknown.",
                    {
                        "model": STRING,
                        "gpu_percent": nullable(INTEGER),
                        "size_bytes": nullable(INTEGER),
                        "size_vram_bytes": nullable(INTEGER),
                        "tokens_per_second": nullable(NUMBER),
                        "context_length": nullable(INTEGER),
                        "load_seconds": nullable(NUMBER),
                        "at": TIME,
                    },
                )
            ),
            "receipt": nullable(
                record(
                    "What the container's log says of the GPU. Null is unknown.",
                    {
                        "gpu_name": nullable(STRING),
                        "memory_mib": nullable(INTEGER),
                        "ordered_mib": INTEGER,
                        "driver": nullable(STRING),
                        "compute_capability": nullable(STRING),
                        "on_cpu": BOOLEAN,
                        "whole_card": BOOLEAN,
                        "read_at": TIME,
                    },
                )
            ),
            "warnings": list_of(
                record("What is wrong.", {"code": STRING, "detail": STRING, "mend": STRING, "alarm": BOOLEAN})
            ),
        },
    ),
    "Pull": record(
        "A pull, list, deletion or check of a model by one Job.",
        {
            "id": STRING,
            "slice": STRING,
            "mode": one_of("pull", "list", "delete", "check"),
            "model": STRING,
            "intent": one_of("run", "cancel"),
            "state": one_of(*PULL_STATES, description="Stable code; the words are in label and sentence."),
            "reason": {"type": "string", "description": "The outcome, or a finer code below the state."},
            "label": STRING,
            "sentence": STRING,
            "next_step": STRING,
            "causes": list_of(STRING),
            "tried_again": {"type": "boolean", "description": "By itself."},
            "settled": BOOLEAN,
            "outcome": nullable(STRING),
            "may_retry": {"type": "boolean", "description": "Whether the same order may end better."},
            "tries": INTEGER,
            "progress": record(
                "Over all layers known so far; percent never goes back.",
                {
                    "step": STRING,
                    "completed_bytes": INTEGER,
                    "total_bytes": INTEGER,
                    "percent": NUMBER,
                    "speed_bytes": {"type": "integer", "description": "Bytes a second."},
                    "seconds_left": nullable(INTEGER),
                    "stalled_seconds": INTEGER,
                    "at": nullable(TIME),
                },
            ),
            "created_at": TIME,
            "finished_at": nullable(TIME),
        },
    ),
    "PullList": page("Pull"),
    "Token": record("An access token, shown one time.", {"token": STRING}),
}
