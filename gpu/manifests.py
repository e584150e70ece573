"""A frozen description of a slice in, Kubernetes documents out. Pure and byte-stable: same spec, same bytes.

The shape of the documents is contract.md, "Objects of one slice".
"""

from __future__ import annotations

import base64
import copy
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from gpu import names
from gpu.manifest_spec import (
    EnvVar,
    PackageTerms,
    Probe,
    Probes,
    SliceSpec,
    SpecError,
    VolumeSpec,
    WorkloadSpec,
    shallow,
)
from gpu.manifest_yaml import to_yaml

__all__ = [
    "EnvVar",
    "PackageTerms",
    "Probe",
    "Probes",
    "SliceSpec",
    "SpecError",
    "VolumeSpec",
    "WorkloadSpec",
    "render",
    "secret_document",
    "to_yaml",
    "workload_hash",
]

Document = dict[str, Any]

ANNOTATION_HASH = "kube-dc.com/gpu-workload-hash"
ANNOTATION_MEMORY = "kube-dc.com/gpu-memory-mib"
ANNOTATION_CORES = "kube-dc.com/gpu-core-percent"
ANNOTATION_SLICE = "gpu-portal/slice"
ANNOTATION_RESTART = "gpu-portal/restart"
CONTAINER = "workload"
CLAIM = "gpu"
SECRET_KEY = "token"  # noqa: S105  the key inside the Secret
PORT_NAME = "http"
DATA_VOLUME = "data"
UNPRIVILEGED = 65532
"""User and group of every workload: pod security `restricted` holds in project namespaces."""


def render(spec: SliceSpec) -> tuple[Document, ...]:
    """Return the documents of a slice in the order in which they are applied.

    ResourceClaimTemplate, PersistentVolumeClaim with a volume, Deployment, Service with a port.
    """
    template = _claim_template(spec)
    _set_hash(template, workload_hash([template]))
    documents = [template]
    if spec.workload.volume is not None:
        documents.append(_volume_claim(spec, spec.workload.volume))
    deployment = _deployment(spec)
    documents.append(deployment)
    if spec.workload.port is not None:
        documents.append(_service(spec, spec.workload.port))
    _set_hash(deployment, workload_hash(documents))
    return tuple(documents)


def secret_document(spec: SliceSpec, token: str) -> Document:
    """Return the Secret with the slice's access token. It is no part of `render`: nobody is shown its value again."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": _plain_metadata(spec, names.secret_name(spec.app)),
        "type": "Opaque",
        "data": {SECRET_KEY: base64.b64encode(token.encode()).decode("ascii")},
    }


def workload_hash(documents: Sequence[Mapping[str, Any]]) -> str:
    """Return the SHA-256, in hex, of the canonical JSON of `documents` without their hash annotations.

    render puts the hash of the claim template alone on the claim template, whose spec is immutable, and the
    hash of all documents on the Deployment; so drift is one comparison.
    """
    bare = [copy.deepcopy(dict(document)) for document in documents]
    for document in bare:
        for metadata in _metadata_places(document):
            annotations = metadata.get("annotations")
            if isinstance(annotations, dict):
                annotations.pop(ANNOTATION_HASH, None)
    text = json.dumps(bare, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _claim_template(spec: SliceSpec) -> Document:
    terms = spec.terms
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {
            "name": names.claim_template_name(spec.app),
            "namespace": spec.namespace,
            "labels": _labels(spec),
            "annotations": {ANNOTATION_SLICE: spec.slice_id, **_terms_annotations(terms)},
        },
        "spec": {
            "metadata": {"labels": _labels(spec), "annotations": _terms_annotations(terms)},
            "spec": {
                "devices": {
                    "requests": [
                        {
                            "name": CLAIM,
                            "exactly": {
                                "deviceClassName": terms.device_class,
                                "allocationMode": "ExactCount",
                                "count": 1,
                                "capacity": {
                                    "requests": {
                                        "memory": f"{terms.memory_mib}Mi",
                                        "cores": str(terms.compute_percent),
                                    }
                                },
                            },
                        }
                    ]
                }
            },
        },
    }


def _deployment(spec: SliceSpec) -> Document:
    pod_annotations = _terms_annotations(spec.terms)
    if spec.restart > 0:
        pod_annotations[ANNOTATION_RESTART] = str(spec.restart)
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": spec.app,
            "namespace": spec.namespace,
            "labels": _labels(spec),
            "annotations": {ANNOTATION_SLICE: spec.slice_id, **_terms_annotations(spec.terms)},
        },
        "spec": {
            "replicas": spec.replicas,
            "revisionHistoryLimit": 2,
            # The old pod must let go of slice and volume before the new one asks for them (C-06).
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": {names.LABEL_NAME: spec.app}},
            "template": {
                "metadata": {"labels": _labels(spec), "annotations": pod_annotations},
                "spec": _pod(spec),
            },
        },
    }


def _pod(spec: SliceSpec) -> Document:
    security: Document = {
        "runAsNonRoot": True,
        "runAsUser": UNPRIVILEGED,
        "runAsGroup": UNPRIVILEGED,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    pod: Document = {
        "automountServiceAccountToken": False,
        # Service links add variables such as VLLM_PORT=tcp://..., which vLLM reads as its own.
        "enableServiceLinks": False,
        "securityContext": security,
        "resourceClaims": [
            {"name": CLAIM, "resourceClaimTemplateName": names.claim_template_name(spec.app)},
        ],
        "containers": [_container(spec.app, spec.workload)],
    }
    if spec.workload.volume is not None:
        security["fsGroup"] = UNPRIVILEGED
        # Without this the kubelet walks over every model file at each start.
        security["fsGroupChangePolicy"] = "OnRootMismatch"
        pod["volumes"] = [
            {"name": DATA_VOLUME, "persistentVolumeClaim": {"claimName": names.volume_name(spec.app)}}
        ]
    return pod


def _container(app: str, workload: WorkloadSpec) -> Document:
    container: Document = {"name": CONTAINER, "image": workload.image}
    if workload.command:
        container["command"] = list(workload.command)
    if workload.args:
        container["args"] = list(workload.args)
    env: list[Document] = [{"name": item.name, "value": item.value} for item in workload.env]
    if workload.secret_env:
        key = {"name": names.secret_name(app), "key": SECRET_KEY}
        env.append({"name": workload.secret_env, "valueFrom": {"secretKeyRef": key}})
    if env:
        container["env"] = env
    if workload.port is not None:
        container["ports"] = [{"name": PORT_NAME, "containerPort": workload.port, "protocol": "TCP"}]
    container["resources"] = {
        "requests": {"cpu": workload.cpu_request, "memory": workload.memory_request},
        "limits": {"cpu": workload.cpu_limit, "memory": workload.memory_limit},
        "claims": [{"name": CLAIM}],
    }
    for kind, probe in shallow(workload.probes).items():
        if probe is not None:
            container[f"{kind}Probe"] = _probe(probe, workload.port)
    if workload.volume is not None:
        container["volumeMounts"] = [{"name": DATA_VOLUME, "mountPath": workload.volume.mount_path}]
    container["securityContext"] = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    return container


def _probe(probe: Probe, port: int | None) -> Document:
    asked: Document
    if probe.command:
        asked = {"exec": {"command": list(probe.command)}}
    else:
        number = probe.port if probe.port is not None else port
        if number is None:
            raise SpecError("a probe without a command needs a port")
        asked = {"tcpSocket": {"port": number}}
        if probe.path is not None:
            asked = {"httpGet": {"path": probe.path, "port": number, "scheme": "HTTP"}}
    return {
        **asked,
        "periodSeconds": probe.period,
        "failureThreshold": probe.failures,
        "timeoutSeconds": probe.timeout,
    }


def _volume_claim(spec: SliceSpec, volume: VolumeSpec) -> Document:
    claim: Document = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": volume.size}},
    }
    if volume.storage_class is not None:
        claim["storageClassName"] = volume.storage_class
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": _plain_metadata(spec, names.volume_name(spec.app)),
        "spec": claim,
    }


def _service(spec: SliceSpec, port: int) -> Document:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _plain_metadata(spec, names.service_name(spec.app)),
        "spec": {
            "type": "ClusterIP",
            "selector": {names.LABEL_NAME: spec.app},
            "ports": [{"name": PORT_NAME, "port": port, "targetPort": port, "protocol": "TCP"}],
        },
    }


def _plain_metadata(spec: SliceSpec, name: str) -> Document:
    return {
        "name": name,
        "namespace": spec.namespace,
        "labels": names.plain_labels(spec.app),
        "annotations": {ANNOTATION_SLICE: spec.slice_id},
    }


def _labels(spec: SliceSpec) -> dict[str, str]:
    return names.labels(spec.app, spec.terms.profile_id)


def _terms_annotations(terms: PackageTerms) -> dict[str, str]:
    return {ANNOTATION_MEMORY: str(terms.memory_mib), ANNOTATION_CORES: str(terms.compute_percent)}


def _metadata_places(document: Document) -> list[Document]:
    """Return the object's metadata and the one it hands on: to the claim, or to the pod."""
    spec = document.get("spec")
    inner = spec.get("metadata") if isinstance(spec, dict) else None
    template = spec.get("template") if isinstance(spec, dict) else None
    pod = template.get("metadata") if isinstance(template, dict) else None
    return [place for place in (document.get("metadata"), inner, pod) if isinstance(place, dict)]


def _set_hash(document: Document, value: str) -> None:
    for metadata in _metadata_places(document):
        metadata["annotations"][ANNOTATION_HASH] = value
