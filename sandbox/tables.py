"""The columns of ``kubectl get``, computed by the server as Kubernetes does it."""

import datetime
from collections.abc import Callable, Iterable
from typing import Any

from sandbox.api import Obj
from sandbox.kinds import Kind


def _age(stamp: str | None) -> str:
    if not stamp:
        return "<unknown>"
    then = datetime.datetime.fromisoformat(stamp)
    seconds = max(0, int((datetime.datetime.now(datetime.UTC) - then).total_seconds()))
    for limit, unit, name in ((120, 1, "s"), (7200, 60, "m"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{seconds // unit}{name}"
    return f"{seconds // 86_400}d"


def _pod_status(pod: Obj) -> str:
    status = pod.get("status", {})
    if "deletionTimestamp" in pod["metadata"]:
        return "Terminating"
    for container in status.get("containerStatuses", []):
        state = container.get("state", {})
        reason = state.get("waiting", state.get("terminated", {})).get("reason")
        if reason:
            return str(reason)
    return str(status.get("reason") or status.get("phase", "Unknown"))


def _pod(pod: Obj) -> list[Any]:
    containers = pod.get("status", {}).get("containerStatuses", [])
    ready = sum(1 for container in containers if container.get("ready"))
    restarts = sum(container.get("restartCount", 0) for container in containers)
    return [f"{ready}/{len(pod['spec'].get('containers', []))}", _pod_status(pod), str(restarts)]


def _deployment(obj: Obj) -> list[Any]:
    status = obj.get("status", {})
    ready = f"{status.get('readyReplicas', 0)}/{obj['spec'].get('replicas', 0)}"
    return [ready, status.get("updatedReplicas", 0), status.get("availableReplicas", 0)]


def _replica_set(obj: Obj) -> list[Any]:
    status = obj.get("status", {})
    return [obj["spec"].get("replicas", 0), status.get("replicas", 0), status.get("readyReplicas", 0)]


def _job(obj: Obj) -> list[Any]:
    status = obj.get("status", {})
    conditions = {c["type"] for c in status.get("conditions", []) if c.get("status") == "True"}
    state = next((name for name in ("Complete", "Failed", "Suspended") if name in conditions), "Running")
    return [state, f"{status.get('succeeded', 0)}/{obj['spec'].get('completions', 1)}"]


def _service(obj: Obj) -> list[Any]:
    spec = obj["spec"]
    ports = ",".join(f"{port['port']}/{port['protocol']}" for port in spec.get("ports", []))
    return [spec["type"], spec.get("clusterIP", "<none>"), "<none>", ports or "<none>"]


def _volume_claim(obj: Obj) -> list[Any]:
    spec, status = obj["spec"], obj.get("status", {})
    modes = ",".join("".join(c for c in mode if c.isupper()) for mode in spec.get("accessModes", []))
    capacity = status.get("capacity", {}).get("storage", "")
    return [
        status.get("phase"),
        spec.get("volumeName", ""),
        capacity,
        modes,
        spec.get("storageClassName", ""),
    ]


def _resource_claim(obj: Obj) -> list[Any]:
    status = obj.get("status", {})
    states = ["allocated"] if "allocation" in status else ["pending"]
    return [",".join([*states, *(["reserved"] if status.get("reservedFor") else [])])]


def _quota(obj: Obj) -> list[Any]:
    status = obj.get("status", {})
    used = status.get("used", {})
    listed = [f"{key}: {used.get(key, '?')}/{hard}" for key, hard in sorted(status.get("hard", {}).items())]
    return [", ".join(listed)]


def _event(obj: Obj) -> list[Any]:
    involved = obj.get("involvedObject", {})
    seen = obj.get("lastTimestamp") or obj.get("eventTime") or obj["metadata"].get("creationTimestamp")
    name = f"{involved.get('kind', '').lower()}/{involved.get('name', '')}"
    return [_age(seen), obj.get("type", ""), obj.get("reason", ""), name, obj.get("message", "").strip()]


def _node(obj: Obj) -> list[Any]:
    conditions = {c["type"]: c["status"] for c in obj.get("status", {}).get("conditions", [])}
    ready = "Ready" if conditions.get("Ready") == "True" else "NotReady"
    version = obj.get("status", {}).get("nodeInfo", {}).get("kubeletVersion", "")
    return [ready, "<none>", version]


def _data(obj: Obj) -> list[Any]:
    return [len(obj.get("data", {}))]


_COLUMNS: dict[str, tuple[tuple[str, ...], Callable[[Obj], list[Any]]]] = {
    "ConfigMap": (("Data",), _data),
    "Deployment": (("Ready", "Up-to-date", "Available"), _deployment),
    "Job": (("Status", "Completions"), _job),
    "Namespace": (("Status",), lambda obj: [obj.get("status", {}).get("phase", "")]),
    "Node": (("Status", "Roles", "Version"), _node),
    "PersistentVolumeClaim": (
        ("Status", "Volume", "Capacity", "Access Modes", "StorageClass"),
        _volume_claim,
    ),
    "Pod": (("Ready", "Status", "Restarts"), _pod),
    "ReplicaSet": (("Desired", "Current", "Ready"), _replica_set),
    "ResourceClaim": (("State",), _resource_claim),
    "ResourceQuota": (("Used",), _quota),
    "Secret": (("Type", "Data"), lambda obj: [obj.get("type", ""), len(obj.get("data", {}))]),
    "Service": (("Type", "Cluster-IP", "External-IP", "Port(s)"), _service),
}


def partial(obj: Obj) -> Obj:
    """What is left of an object where only its metadata is asked for."""
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}


def _row(kind: Kind, obj: Obj, include: str) -> Obj:
    if kind.kind == "Event":
        cells = _event(obj)
    else:
        _, function = _COLUMNS.get(kind.kind, ((), lambda _: []))
        metadata = obj["metadata"]
        cells = [metadata["name"], *function(obj), _age(metadata.get("creationTimestamp"))]
    row: Obj = {"cells": cells}
    if include == "Object":
        row["object"] = obj
    elif include != "None":
        row["object"] = partial(obj)
    return row


def table(kind: Kind, objects: Iterable[Obj], metadata: Obj, include: str, columns: bool = True) -> Obj:
    """A ``Table`` of objects; ``include`` is the includeObject parameter (Metadata, Object, None)."""
    if kind.kind == "Event":
        names: tuple[str, ...] = ("Last Seen", "Type", "Reason", "Object", "Message")
    else:
        names = ("Name", *_COLUMNS.get(kind.kind, ((), None))[0], "Age")
    definitions = [
        {
            "name": name,
            "type": "string",
            "format": "name" if name == "Name" else "",
            "description": "",
            "priority": 0,
        }
        for name in names
    ]
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": definitions if columns else None,
        "rows": [_row(kind, obj, include) for obj in objects],
    }
