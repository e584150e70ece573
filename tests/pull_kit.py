"""What the tests of model pulls share: an Ollama slice that runs, and lines as the agent prints them."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

from gpu import templates_catalogue
from gpu.models import ModelPull, Observed, Slice
from gpu.pull_lines import Model
from gpu.pull_outcomes import note_models
from tests.factories import World, observe, watched
from tests.live import row_of

RECORDED = Path(__file__).parent / "data" / "recorded" / "running.json"
GIB = 1024**3
AT = "2026-11-30T15:55:00Z"


def ollama_slice(made: World, name: str = "Chat", **values: Any) -> Slice:
    """Order an Ollama slice and let it be seen running."""
    template = templates_catalogue.TEMPLATES["ollama"]
    row = made.order(name, workload=values.pop("workload", template.first()), **values)
    Slice.objects.filter(pk=row.pk).update(applied_generation=row.generation, action="applied")
    seen_running(row)
    return row_of(row)


def seen_running(row: Slice) -> None:
    """Put a running pod of `row` into what was observed, taken from a recording."""
    lists = json.loads(RECORDED.read_text())
    namespace = row.project.namespace
    for kind in ("Deployment", "ReplicaSet", "Pod"):
        obj = copy.deepcopy(lists[f"{kind}List"][0])
        text = json.dumps({"kind": kind, **obj}).replace(obj["metadata"]["namespace"], namespace)
        app = lists["DeploymentList"][0]["metadata"]["name"]
        observe(json.loads(text.replace(app, row.app)))
    watched()


def not_seen(row: Slice) -> None:
    """Let the slice's pod be gone from what was observed."""
    Observed.objects.filter(
        namespace=row.project.namespace, app=row.app, kind__in=["Pod", "ReplicaSet"]
    ).delete()


def on_volume(row: Slice, **sizes: int) -> None:
    """Let models be on the volume: `llama3_2__3b=2 * GIB` is llama3.2:3b."""
    models = [
        Model(name.replace("__", ":").replace("_", "."), size, None, "d" * 64) for name, size in sizes.items()
    ]
    note_models(row.pk, models)


def job(pull: ModelPull, *, uid: str = "job-1", **status: Any) -> dict[str, Any]:
    """The Job of a pull as the cluster has it."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": pull.job_name,
            "namespace": pull.slice.project.namespace,
            "uid": uid,
            "labels": {"app.kubernetes.io/name": pull.job_name},
            "annotations": {"gpu-portal/pull": pull.public_id},
            "creationTimestamp": AT,
        },
        "status": status,
    }


def failed_create(pull: ModelPull, message: str, uid: str = "job-1") -> dict[str, Any]:
    """The event about a Job whose pod was refused."""
    return {
        "kind": "Event",
        "apiVersion": "v1",
        "metadata": {
            "name": f"{pull.job_name}.1",
            "namespace": pull.slice.project.namespace,
            "uid": "event-1",
            "creationTimestamp": AT,
        },
        "involvedObject": {"kind": "Job", "uid": uid, "name": pull.job_name},
        "type": "Warning",
        "reason": "FailedCreate",
        "message": message,
        "lastTimestamp": AT,
    }


def line(kind: str, **fields: Any) -> str:
    """A line of the agent."""
    return json.dumps({"v": 1, "at": AT, "kind": kind, **fields}) + "\n"


def verdict(outcome: str, **fields: Any) -> str:
    """The agent's last line."""
    told = {"cause": "", "detail": "", "completed": 0, "total": 0, "retry": False, "digest": "", **fields}
    return line("verdict", outcome=outcome, **told)


def progress(completed: int, total: int, percent: float, **fields: Any) -> str:
    """A line of progress."""
    told = {"step": "pulling", "layers": 1, "speed": 10_000_000, "eta_s": 100, "attempt": 1, **fields}
    return line("progress", completed=completed, total=total, percent=percent, **told)
