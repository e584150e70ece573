"""The documents of a slice, and single changes to them."""

from __future__ import annotations

import copy
from typing import Any

from gpu.manifests import PackageTerms, SliceSpec, WorkloadSpec, render

PACKAGES = {
    "8g": PackageTerms("kube-dc-nvidia-v100-shared-8g", "nvidia-v100-hami", 8192, 25),
    "16g": PackageTerms("kube-dc-nvidia-v100-shared-16g", "nvidia-v100-hami-16g", 16384, 50),
    "32g": PackageTerms("kube-dc-nvidia-v100-shared-32g", "nvidia-v100-hami-32g", 32768, 100),
}
IMAGE = "registry.example.test/team/app@sha256:" + "a" * 64
GONE = object()
"""As a value: the field is left out."""

type Doc = dict[str, Any]


def slice_documents(
    namespace: str, app: str = "probe", package: str = "8g", **workload: Any
) -> tuple[Doc, ...]:
    """What the portal renders for a slice: claim template, volume claim?, Deployment, Service?."""
    spec = WorkloadSpec(**({"image": IMAGE} | workload))
    return render(SliceSpec(namespace, app, PACKAGES[package], spec, replicas=1, restart=0, slice_id="1"))


def claim_template(namespace: str, app: str = "probe", package: str = "8g") -> Doc:
    """The ResourceClaimTemplate of a slice."""
    return slice_documents(namespace, app, package)[0]


def deployment(namespace: str, app: str = "probe", package: str = "8g", **workload: Any) -> Doc:
    """The Deployment of a slice."""
    return next(
        doc for doc in slice_documents(namespace, app, package, **workload) if doc["kind"] == "Deployment"
    )


def pod(namespace: str, app: str = "probe", owner: str | None = "ReplicaSet") -> Doc:
    """The pod that a slice's ReplicaSet makes; `owner` is the kind of its controller, None for none."""
    template = deployment(namespace, app)["spec"]["template"]
    metadata = {"name": f"{app}-0", "namespace": namespace, **template["metadata"]}
    if owner is not None:
        group = {"ReplicaSet": "apps/v1", "StatefulSet": "apps/v1", "Job": "batch/v1"}[owner]
        metadata["ownerReferences"] = [
            {"apiVersion": group, "kind": owner, "name": f"{app}-5d9c", "uid": "0" * 8, "controller": True}
        ]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


def changed(document: Doc, *changes: tuple[str, Any]) -> Doc:
    """A copy in which each place (a JSON pointer) has another value; GONE takes it out.

    A list grows by the place `-`; objects on the way are made where they are missing.
    """
    copied = copy.deepcopy(document)
    for place, value in changes:
        *way, last = [part.replace("~1", "/").replace("~0", "~") for part in place.split("/")[1:]]
        target: Any = copied
        for part in way:
            target = target[int(part)] if isinstance(target, list) else target.setdefault(part, {})
        if isinstance(target, list):
            if last == "-":
                target.append(value)
            elif value is GONE:
                del target[int(last)]
            else:
                target[int(last)] = value
        elif value is GONE:
            del target[last]
        else:
            target[last] = value
    return copied
