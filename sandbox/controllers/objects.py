"""Small questions about Kubernetes objects, asked by every controller."""

import copy
import hashlib
import json
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from sandbox.api import Obj

# The letters of Kubernetes' generated names: no vowels, so that no words come out.
ALPHABET = "bcdfghjklmnpqrstvwxz2456789"


def now() -> str:
    """The present time as metav1.Time writes it (whole seconds, UTC)."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def now_micro() -> str:
    """The present time as metav1.MicroTime writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def moment(text: str) -> float:
    """A Kubernetes time as seconds since the epoch."""
    return datetime.fromisoformat(text).timestamp()


def stamp(seconds: float) -> str:
    """Seconds since the epoch as metav1.Time writes them."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def changed_copy(obj: Obj) -> Obj:
    """A copy that may be changed; what the cache holds may not."""
    return copy.deepcopy(obj)


def name_of(obj: Obj) -> str:
    """The object's name."""
    return str(obj["metadata"]["name"])


def namespace_of(obj: Obj) -> str | None:
    """The object's namespace, None for cluster-wide kinds."""
    found: str | None = obj["metadata"].get("namespace") or None
    return found


def uid_of(obj: Obj) -> str:
    """The object's uid."""
    return str(obj["metadata"]["uid"])


def is_going(obj: Obj) -> bool:
    """Whether deletion was asked for."""
    return bool(obj["metadata"].get("deletionTimestamp"))


def is_finished(pod: Obj) -> bool:
    """Whether every container of the pod has ended for good."""
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def is_active(pod: Obj) -> bool:
    """Whether the pod counts as a replica: neither finished nor going."""
    return not is_finished(pod) and not is_going(pod)


def controller_of(obj: Obj) -> Obj | None:
    """The owner reference with ``controller: true``, or None."""
    for reference in obj["metadata"].get("ownerReferences") or []:
        if reference.get("controller"):
            found: Obj = reference
            return found
    return None


def owner_reference(owner: Obj, block: bool = True) -> Obj:
    """The controlling owner reference to ``owner``."""
    reference: Obj = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": name_of(owner),
        "uid": uid_of(owner),
        "controller": True,
    }
    if block:
        reference["blockOwnerDeletion"] = True
    return reference


def condition(conditions: Iterable[Obj], type_: str) -> Obj | None:
    """The condition of that type, or None."""
    for found in conditions:
        if found.get("type") == type_:
            return found
    return None


def is_ready(pod: Obj) -> bool:
    """Whether the pod's Ready condition is True."""
    ready = condition(pod.get("status", {}).get("conditions") or [], "Ready")
    return ready is not None and ready.get("status") == "True"


def without_zeros(status: dict[str, Any], keep: Iterable[str] = ()) -> dict[str, Any]:
    """``status`` without members that are 0 or None, as Kubernetes' omitempty leaves them out."""
    kept = set(keep)
    return {key: value for key, value in status.items() if value not in (None, 0) or key in kept}


def template_hash(template: Obj) -> str:
    """Ten letters for a pod template. Not Kubernetes' own hash, which depends on Go's memory layout."""
    digest = hashlib.sha256(json.dumps(template, sort_keys=True).encode()).digest()
    return "".join(ALPHABET[byte % len(ALPHABET)] for byte in digest[:10])
