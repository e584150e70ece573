"""The Job of a model pull: a frozen description in, one document out. Pure.

The Job stands beside the slice and speaks to its Service; it carries no claim and no GPU label, because the platform
refuses those in a Job, and says what CPU and memory it needs, because a quota refuses pods that do not (case C-03).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from gpu import names
from gpu.manifests import ANNOTATION_SLICE, UNPRIVILEGED, Document

ANNOTATION_PULL = "gpu-portal/pull"
LABEL_COMPONENT = "app.kubernetes.io/component"
LABEL_PART_OF = "app.kubernetes.io/part-of"
COMPONENT = "model-pull"
CONTAINER = "agent"
NO_RETRY = 2
"""The agent's exit code when another try would end the same way."""

TTL_S = 600
"""Kubernetes deletes a finished Job after this; the portal looks every second, and the sweep every few seconds."""

CPU_REQUEST, CPU_LIMIT = "100m", "250m"
MEMORY_REQUEST, MEMORY_LIMIT = "64Mi", "128Mi"
STALL_S = 60
STALL_LIMIT_S = 600
# Seconds a Job may take, by mode, and how often its pod may fail: a check loads the model first.
DEADLINES: Mapping[str, int] = MappingProxyType({"pull": 21_600, "list": 180, "delete": 180, "check": 1200})
BACKOFF: Mapping[str, int] = MappingProxyType({"pull": 3, "list": 2, "delete": 2, "check": 1})
GRACE_S = 30
"""The agent ends this much before its Job does, so that it can still say why."""


@dataclass(frozen=True)
class PullSpec:
    """What the Job needs to know. `source` is the agent's program, handed over with `python -c`."""

    namespace: str
    app: str
    port: int
    slice_id: str
    pull_id: str
    job_name: str
    mode: str
    model: str
    image: str
    source: str
    insecure: bool = False


def render(spec: PullSpec) -> Document:
    """Return the Job. No proxy variable stands in it: its only call stays in the namespace (case C-07)."""
    deadline = DEADLINES[spec.mode]
    labels = {
        **names.plain_labels(spec.job_name),
        LABEL_COMPONENT: COMPONENT,
        LABEL_PART_OF: spec.app,
    }
    annotations = {ANNOTATION_SLICE: spec.slice_id, ANNOTATION_PULL: spec.pull_id}
    environment = {
        "AGENT_MODE": spec.mode,
        "OLLAMA_URL": f"http://{names.service_name(spec.app)}:{spec.port}",
        "MODEL": spec.model,
        "INSECURE": "1" if spec.insecure else "0",
        "STALL_SECONDS": str(STALL_S),
        "STALL_LIMIT_SECONDS": str(STALL_LIMIT_S),
        "DEADLINE_SECONDS": str(deadline - GRACE_S),
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": spec.job_name,
            "namespace": spec.namespace,
            "labels": labels,
            "annotations": annotations,
        },
        "spec": {
            "backoffLimit": BACKOFF[spec.mode],
            "activeDeadlineSeconds": deadline,
            "ttlSecondsAfterFinished": TTL_S,
            "podFailurePolicy": {
                "rules": [
                    {
                        "action": "FailJob",
                        "onExitCodes": {
                            "containerName": CONTAINER,
                            "operator": "In",
                            "values": [NO_RETRY],
                        },
                    },
                    # A pod that its server lost is not the model's fault.
                    {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                ]
            },
            "template": {
                "metadata": {"labels": labels, "annotations": annotations},
                "spec": _pod(spec, environment),
            },
        },
    }


def _pod(spec: PullSpec, environment: Mapping[str, str]) -> dict[str, Any]:
    return {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": UNPRIVILEGED,
            "runAsGroup": UNPRIVILEGED,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [
            {
                "name": CONTAINER,
                "image": spec.image,
                "command": ["python", "-c", spec.source],
                "env": [{"name": name, "value": value} for name, value in environment.items()],
                "resources": {
                    "requests": {"cpu": CPU_REQUEST, "memory": MEMORY_REQUEST},
                    "limits": {"cpu": CPU_LIMIT, "memory": MEMORY_LIMIT},
                },
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                },
            }
        ],
    }
