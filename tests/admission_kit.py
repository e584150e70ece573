"""What tests of a cluster's refusals share: recorded ones, and objects to be refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dev.controlplane.client import Answer
from tests.sandbox_api_kit import Doc, admin, namespace

RECORDED = Path(__file__).parent / "data" / "recorded"
DEVICES = "kube-dc-nvidia-v100-shared-8g.deviceclass.resource.k8s.io/devices"

__all__ = ["Doc", "admin", "namespace"]  # as the other tests of a cluster have them


def recorded(name: str) -> Doc:
    found: Doc = json.loads((RECORDED / f"{name}.json").read_text())
    return found


def assert_as_recorded(answer: Answer, name: str, *phrases: str) -> None:
    """Status code, reason, the object named and fixed phrases are those of a recorded refusal."""
    wanted = recorded(name)
    body = wanted["body"]
    assert answer.status == wanted["http_status"], answer.body
    assert answer.body["reason"] == body["reason"]
    assert {k: v for k, v in answer.body["details"].items() if k in ("group", "kind")} == {
        k: v for k, v in body["details"].items() if k in ("group", "kind")
    }
    for phrase in phrases:
        assert phrase in body["message"], "the phrase is not in the recording"
        assert phrase in answer.message
    causes, wanted_causes = answer.body["details"].get("causes", []), body["details"].get("causes", [])
    assert [(c.get("reason"), c.get("field")) for c in causes] == [
        (c.get("reason"), c.get("field")) for c in wanted_causes
    ]


def pod(namespace: str, name: str = "p", cpu: str | None = "1", **spec: Any) -> Doc:
    security = {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}}
    container: Doc = {
        "name": "main",
        "image": "registry.example.test/app:1",
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    if cpu is not None:
        amounts = {"cpu": cpu, "memory": "64Mi"}
        container["resources"] = {"requests": amounts, "limits": amounts}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        # No node has this label: the pod stays as it is.
        "spec": {
            "nodeSelector": {"nowhere": "1"},
            "automountServiceAccountToken": False,
            "securityContext": security,
            "containers": [container],
        }
        | spec,
    }


def volume_claim(namespace: str, storage: str, name: str = "huge") -> Doc:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "none",
            "resources": {"requests": {"storage": storage}},
        },
    }


def config_map(namespace: str, name: str, **data: str) -> Doc:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
