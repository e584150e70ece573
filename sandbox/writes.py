"""The terms of a write, and the small rules about deletion and sameness."""

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sandbox import refusals
from sandbox.api import Obj
from sandbox.kinds import Kind

_NO_GRACE = (None, 0)


@dataclass(frozen=True)
class Call:
    """Who writes and how. ``warnings`` collects what the answer's Warning headers say."""

    user: Mapping[str, Any]
    manager: str = "unknown"
    dry_run: bool = False
    force: bool = False
    validation: str = "Warn"
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Deletion:
    """The options of a delete request."""

    uid: str | None = None
    version: str | None = None
    propagation: str | None = None
    grace_seconds: int | None = None


def now() -> str:
    """The time as Kubernetes writes it, to the second."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def settle_namespace(kind: Kind, metadata: Obj, namespace: str) -> None:
    """Write the namespace of the request into the object; 400 where the object names another."""
    if not kind.namespaced:
        metadata.pop("namespace", None)
    elif metadata.setdefault("namespace", namespace) != namespace:
        raise refusals.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )


def grace_of(kind: Kind, obj: Obj, asked: int | None) -> int:
    """Seconds a pod keeps running after its deletion; only the kubelet of a bound pod can end it."""
    if kind.kind != "Pod" or not obj["spec"].get("nodeName"):
        return 0
    if obj.get("status", {}).get("phase") in ("Succeeded", "Failed"):
        return 0
    present = obj["metadata"].get("deletionGracePeriodSeconds")
    wanted = obj["spec"].get("terminationGracePeriodSeconds", 30) if asked is None else asked
    return int(wanted if present is None else min(present, wanted))


def is_finished(obj: Obj) -> bool:
    """Whether nothing holds an object any more that was asked to go."""
    metadata = obj["metadata"]
    return (
        "deletionTimestamp" in metadata
        and not metadata.get("finalizers")
        and (metadata.get("deletionGracePeriodSeconds") in _NO_GRACE)
        and not (obj["kind"] == "Namespace" and obj["spec"].get("finalizers"))
    )


def _comparable(obj: Obj) -> Obj:
    metadata = {k: v for k, v in obj["metadata"].items() if k not in ("resourceVersion", "managedFields")}
    managed = [
        {k: v for k, v in entry.items() if k != "time"} for entry in obj["metadata"].get("managedFields", [])
    ]
    return obj | {"metadata": metadata, "managed": managed}


def is_same(old: Obj, new: Obj) -> bool:
    """Whether a write changes nothing: versions and the times of managed fields do not count."""
    return _comparable(old) == _comparable(new)
