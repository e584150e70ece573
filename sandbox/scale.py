"""The ``scale`` subresource of Deployments and ReplicaSets."""

from typing import Any

from sandbox import patches, refusals
from sandbox.api import Obj


def of(obj: Obj) -> Obj:
    """The ``Scale`` of an object."""
    metadata = obj["metadata"]
    replicas = obj["spec"].get("replicas", 0)
    labels = obj["spec"].get("selector", {}).get("matchLabels", {})
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {
            name: metadata[name]
            for name in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
        },
        "spec": {"replicas": replicas} if replicas else {},
        "status": {
            "replicas": obj.get("status", {}).get("replicas", 0),
            "selector": ",".join(f"{key}={value}" for key, value in sorted(labels.items())),
        },
    }


def wanted(obj: Obj, method: str, content_type: str, body: Any) -> int:
    """The number of replicas a write to the subresource asks for; 400 or 422 where it names none."""
    if method == "PUT":
        scale = body
    elif content_type == "application/json-patch+json":
        scale = patches.json_patch(of(obj), body)
    else:
        scale = patches.merge_patch(of(obj), body)
    replicas = scale.get("spec", {}).get("replicas", 0) if isinstance(scale, dict) else None
    if isinstance(replicas, bool) or not isinstance(replicas, int):
        raise refusals.bad_request("a Scale needs a whole number under spec.replicas")
    return replicas
