"""Manifests gone wrong, from a seed: something dropped, changed or added anywhere in a good slice's documents.

Used to compare verdicts on the same document: gpu.contract, the admission policies in the sandbox, and those on a real
API server. `generate(seed, count)` gives the same mutants for the same arguments.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from gpu import templates_catalogue
from gpu.manifests import SliceSpec, VolumeSpec, render
from tests.specs import PACKAGES, PLAIN, slice_spec

Document = dict[str, Any]
Place = tuple[Any, Any]
"""A dict or list in a document, and the key or number of one of its entries."""


@dataclass(frozen=True)
class Mutant:
    """Changed documents, and what was done to them, for the message of a failing test."""

    documents: tuple[Document, ...]
    steps: tuple[str, ...]
    seed: int


_LABELS = (
    "app.kubernetes.io/name",
    "app.kubernetes.io/managed-by",
    "kube-dc.com/gpu-backend",
    "kube-dc.com/gpu-profile",
)
_ANNOTATIONS = ("kube-dc.com/gpu-workload-hash", "kube-dc.com/gpu-memory-mib", "kube-dc.com/gpu-core-percent")

# Values for a text, by what it is; the last are for any text.
_TEXTS = {
    "name": ("gpu", "chat", "chat-gpu", "other", "other-gpu", "workload", "3d", "a" * 64),
    "memory": ("8192Mi", "8Gi", "8589934592", "8388608Ki", "8191Mi", "16Gi", "32Gi", "8G", "0"),
    "cores": ("25", "50", "100", "26", "25000m", "0.025k", "101", "0"),
    "cpu": ("1", "500m", "0", "100"),
    "deviceClassName": (*(terms.device_class for terms in PACKAGES), "gpu.example.test"),
    "allocationMode": ("ExactCount", "All", ""),
    "type": ("Recreate", "RollingUpdate", "RuntimeDefault", "Unconfined"),
    "resourceClaimTemplateName": ("chat-gpu", "other-gpu", "chat", ""),
    "app.kubernetes.io/name": ("chat", "other", "", "A_b.c", "a" * 64),
    "app.kubernetes.io/managed-by": ("kube-dc", "helm", ""),
    "kube-dc.com/gpu-backend": ("dra", "device-plugin", ""),
    "kube-dc.com/gpu-profile": (*(terms.profile_id for terms in PACKAGES), "nvidia-a100", ""),
    "kube-dc.com/gpu-workload-hash": ("0" * 64, "f" * 64, "0" * 63, "0" * 65, "F" * 64, "g" * 64, ""),
    "kube-dc.com/gpu-memory-mib": ("8192", "16384", "32768", "08192", "8192Mi", "8191", ""),
    "kube-dc.com/gpu-core-percent": ("25", "50", "100", "025", "25%", ""),
    "image": ("a/b:1", "a/b", "Not An Image", ""),
}
_ANY_TEXT = ("x", "", "default-scheduler", "true")

# Fields that may be added, by where they belong: the key of the dict they go into.
_METADATA_EXTRAS: tuple[tuple[str, Any], ...] = (("finalizers", ["a.test/b"]), ("generateName", "x-"))
_REQUEST_EXTRAS: tuple[tuple[str, Any], ...] = (
    ("selectors", [{"cel": {"expression": "true"}}]),
    ("tolerations", [{"key": "a", "operator": "Exists"}]),
    ("adminAccess", True),
    ("adminAccess", False),
    ("count", 2),
    ("allocationMode", "All"),
)
_POD_EXTRAS: tuple[tuple[str, Any], ...] = (
    ("schedulerName", "mine"),
    ("schedulerName", "default-scheduler"),
    ("nodeName", "gpu-node-1"),
    ("nodeName", ""),
    ("nodeSelector", {"a": "b"}),
    ("nodeSelector", {}),
    ("affinity", {"nodeAffinity": {}}),
    ("affinity", {"podAntiAffinity": {}}),
    ("runtimeClassName", "nvidia"),
    ("hostNetwork", True),
    ("hostNetwork", False),
    ("hostPID", True),
    ("hostIPC", True),
    ("volumes", [{"name": "host", "hostPath": {"path": "/var"}}]),
    ("volumes", [{"name": "scratch", "emptyDir": {}}]),
    ("volumes", [{"name": "settings", "configMap": {"name": "a"}}]),
    ("initContainers", [{"name": "first", "image": "a/b:1"}]),
    (
        "initContainers",
        [{"name": "card", "image": "a/b:1", "resources": {"limits": {"nvidia.com/gpu": "1"}}}],
    ),
    ("initContainers", []),
    ("resourceClaims", []),
    ("resourceClaims", [{"name": "gpu", "resourceClaimName": "chat-gpu"}]),
    ("priorityClassName", "high"),
    ("terminationGracePeriodSeconds", 5),
)
_CONTAINER_EXTRAS: tuple[tuple[str, Any], ...] = (
    ("envFrom", [{"secretRef": {"name": "a"}}]),
    ("envFrom", []),
    ("env", [{"name": "A", "value": "b"}]),
    ("volumeDevices", [{"name": "data", "devicePath": "/dev/x"}]),
    ("securityContext", {"privileged": True}),
    ("securityContext", {"privileged": False}),
    ("securityContext", {"capabilities": {"add": ["NET_ADMIN"]}}),
    ("securityContext", {"capabilities": {"add": []}}),
    ("resources", {"claims": [{"name": "gpu"}]}),
    (
        "resources",
        {"limits": {"nvidia.com/gpu": "1"}, "requests": {"nvidia.com/gpu": "1"}, "claims": [{"name": "gpu"}]},
    ),
    ("resources", {"claims": [{"name": "gpu"}, {"name": "more"}]}),
    ("resources", {"claims": [{"name": "gpu", "request": "gpu"}]}),
    ("stdin", True),
)
_QUANTITY_EXTRAS: tuple[tuple[str, Any], ...] = (
    ("nvidia.com/gpu", "1"),
    ("deviceclass.resource.kubernetes.io/kube-dc-nvidia-v100-shared-8g", "1"),
    ("example.test/card", "1"),
    ("memory", "4Gi"),
    ("cores", "25"),
    ("shares", "1"),
)
_EXTRAS: dict[str, tuple[tuple[str, Any], ...]] = {
    "labels": (*((label, "x") for label in _LABELS), ("team", "blue")),
    "annotations": (*((name, "1") for name in _ANNOTATIONS), ("note", "x")),
    "metadata": _METADATA_EXTRAS,
    "devices": (
        ("constraints", [{"requests": ["gpu"], "matchAttribute": "a.test/b"}]),
        ("constraints", []),
        ("config", [{"opaque": {"driver": "a.test", "parameters": {"a": 1}}}]),
    ),
    "exactly": _REQUEST_EXTRAS,
    "pod": _POD_EXTRAS,
    "container": _CONTAINER_EXTRAS,
    "strategy": (("rollingUpdate", {"maxSurge": 1}), ("rollingUpdate", {})),
    "limits": _QUANTITY_EXTRAS,
    "requests": _QUANTITY_EXTRAS,
}


_OWNERS = (
    *[("ReplicaSet", "apps/v1")] * 6,
    ("Job", "batch/v1"),
    ("ReplicaSet", "example.test/v1"),
    (None, None),
)


def bases() -> list[SliceSpec]:
    """Return the good slices that mutants come from: all packages, with and without port and volume."""
    rich = replace(PLAIN, port=8080, volume=VolumeSpec("20Gi", "/data"))
    ollama = templates_catalogue.TEMPLATES["ollama"].first()
    return [
        slice_spec(workload, package=package) for workload in (PLAIN, rich, ollama) for package in (0, 1, 2)
    ]


def generate(seed: int, count: int) -> Iterator[Mutant]:
    """Yield `count` mutants; the first of them are the good slices themselves."""
    specs = bases()
    for number in range(count):
        if number < len(specs):
            yield Mutant(render(specs[number]), (), seed)
        else:
            yield mutate(specs[number % len(specs)], seed * 1_000_003 + number)


def pod_of(deployment: Document, seed: int) -> Document | None:
    """Return the pod that a Deployment's ReplicaSet would make, now and then with another owner or none."""
    spec = deployment.get("spec")
    template = spec.get("template") if isinstance(spec, dict) else None
    metadata = template.get("metadata", {}) if isinstance(template, dict) else None
    if not isinstance(template, dict) or not isinstance(metadata, dict) or not template.get("spec"):
        return None
    kind, version = random.Random(seed).choice(_OWNERS)  # noqa: S311
    pod: Document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**copy.deepcopy(metadata), "name": "chat-0123456789-01234", "namespace": "acme-ai"},
        "spec": copy.deepcopy(template["spec"]),
    }
    if kind is not None:
        owner = {
            "apiVersion": version,
            "kind": kind,
            "name": "chat",
            "uid": "u-1",
            "controller": seed % 11 > 0,
        }
        pod["metadata"]["ownerReferences"] = [owner]
    return pod


def mutate(spec: SliceSpec, seed: int) -> Mutant:
    """Return the slice's documents with one to three changes."""
    rng = random.Random(seed)  # noqa: S311
    documents = list(copy.deepcopy(render(spec)))
    steps = []
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        step = rng.choices((_drop, _change, _add, _both_sides, _another_size, _repeat), (3, 4, 5, 2, 2, 1))[0]
        steps.append(step(documents, rng))
    return Mutant(tuple(documents), tuple(steps), seed)


def _places(value: Any) -> Iterator[Place]:
    """Yield every entry of every dict and list below `value`."""
    entries = (
        list(value.items())
        if isinstance(value, dict)
        else list(enumerate(value))
        if isinstance(value, list)
        else []
    )
    for key, inner in entries:
        yield value, key
        yield from _places(inner)


def _pick(documents: list[Document], rng: random.Random, good: Callable[[Place], bool]) -> Place | None:
    document = rng.choice(documents)
    places = [p for p in _places(document) if p[1] not in ("kind", "apiVersion", "namespace") and good(p)]
    return rng.choice(places) if places else None


def _drop(documents: list[Document], rng: random.Random) -> str:
    place = _pick(documents, rng, lambda _: True)
    if place is None:
        return "nothing"
    holder, key = place
    del holder[key]
    return f"drop {key}"


def _change(documents: list[Document], rng: random.Random) -> str:
    place = _pick(documents, rng, lambda p: not isinstance(p[0][p[1]], dict | list))
    if place is None:
        return "nothing"
    holder, key = place
    before = holder[key]
    if isinstance(before, bool):
        holder[key] = not before
    elif isinstance(before, int):
        holder[key] = rng.choice((0, 1, 2, before + 1))
    else:
        holder[key] = rng.choice((*_TEXTS.get(str(key), ()), *_TEXTS.get(str(key), ()), *_ANY_TEXT))
    if rng.random() < 0.03:
        holder[key] = rng.choice((7, True, "text", ["list"], {"a": "map"}, None))
    return f"change {key} from {before!r} to {holder[key]!r}"


def _add(documents: list[Document], rng: random.Random) -> str:
    """Add a field that belongs where it is put, or now and then one that Kubernetes does not know."""
    targets: list[tuple[str, Document]] = []
    for document in documents:
        for holder, key in _places(document):
            inner = holder[key]
            if isinstance(inner, dict):
                name = "container" if "image" in inner and isinstance(holder, list) else str(key)
                name = "pod" if "containers" in inner else name
                targets.append((name, inner))
    name, target = rng.choice([t for t in targets if t[0] in _EXTRAS] or targets)
    key, value = rng.choice(_EXTRAS.get(name, (("unknownField", "x"),)))
    if rng.random() < 0.03:
        key, value = "unknownField", "x"
    target[key] = copy.deepcopy(value)
    return f"add {key}={value!r} to {name}"


def _both_sides(documents: list[Document], rng: random.Random) -> str:
    """Change a label or annotation alike on an object and on what it hands on."""
    kind, names = rng.choice((("labels", (*_LABELS, "team")), ("annotations", _ANNOTATIONS)))
    name = rng.choice(names)
    value = rng.choice((*_TEXTS.get(name, ()), None, "x"))
    document = rng.choice(documents)
    for holder, key in list(_places(document)):
        if key == kind and isinstance(holder[key], dict):
            if value is None:
                holder[key].pop(name, None)
            else:
                holder[key][name] = value
    return f"set {kind} {name}={value!r} on both sides"


def _another_size(documents: list[Document], rng: random.Random) -> str:
    """Take one or several facts of another package: profile, class, sizes, annotations."""
    terms = rng.choice(PACKAGES)
    facts = {
        "kube-dc.com/gpu-profile": terms.profile_id,
        "kube-dc.com/gpu-memory-mib": str(terms.memory_mib),
        "kube-dc.com/gpu-core-percent": str(terms.compute_percent),
        "deviceClassName": terms.device_class,
        "cores": str(terms.compute_percent),
    }
    taken = [fact for fact in facts if rng.random() < 0.7]
    targets = documents if rng.random() < 0.5 else [rng.choice(documents)]
    for document in targets:
        for holder, key in list(_places(document)):
            if key in taken:
                holder[key] = facts[key]
            elif key == "memory" and "cores" in holder and rng.random() < 0.7:
                holder[key] = f"{terms.memory_mib}Mi"
    return f"take {taken} of {terms.profile_id}"


def _repeat(documents: list[Document], rng: random.Random) -> str:
    place = _pick(documents, rng, lambda p: isinstance(p[0][p[1]], list) and bool(p[0][p[1]]))
    if place is None:
        return "nothing"
    holder, key = place
    again = copy.deepcopy(holder[key][0])
    if isinstance(again, dict) and "name" in again and rng.random() < 0.8:
        again["name"] = "second"
    holder[key].append(again)
    return f"repeat an item of {key}"
