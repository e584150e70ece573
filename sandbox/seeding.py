"""What is there from the start: system namespaces, and the documents of the deploy folder."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from sandbox.api import ApiError, Obj
from sandbox.auth import ADMIN
from sandbox.cel import Cel, CelError
from sandbox.kinds import BY_KIND
from sandbox.registry import Registry
from sandbox.writes import Call

_SYSTEM = ("default", "kube-system", "kube-public", "kube-node-lease")
_TAKEN = (
    "Namespace",
    "StorageClass",
    "PriorityClass",
    "ServiceAccount",
    "ClusterRole",
    "ClusterRoleBinding",
    "Role",
    "RoleBinding",
    "DeviceClass",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
)


class SeedError(Exception):
    """A document of the deploy folder cannot be used; the text names the file."""


def documents(folder: Path) -> Iterator[tuple[Path, Obj]]:
    """The documents the sandbox takes from a folder or a file, namespaces first."""
    found: list[tuple[Path, Any]] = []
    for path in [folder] if folder.is_file() else sorted(folder.rglob("*.yaml")):
        if path.name == "kustomization.yaml":
            continue
        with path.open(encoding="utf-8") as file:
            found += [(path, document) for document in yaml.safe_load_all(file) if document]
    for kind in _TAKEN:
        for path, document in found:
            if isinstance(document, dict) and document.get("kind") == kind:
                yield path, document


def _check_policy(path: Path, policy: Obj, cel: Cel) -> None:
    spec = policy["spec"]
    if "paramKind" in spec:
        raise SeedError(f"{path}: policies with parameters are not supported by the sandbox")
    for rule in [*spec.get("matchConditions", []), *spec.get("variables", []), *spec.get("validations", [])]:
        try:
            cel.compile(rule["expression"])
        except CelError as error:
            raise SeedError(f"{path}: {policy['metadata']['name']}: {error}") from error


def seed(registry: Registry, folder: Path | None) -> None:
    """Write the system namespaces and the deploy documents by server-side apply."""
    for name in _SYSTEM:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        _apply(registry, namespace, "kube-apiserver")
    if folder is None:
        return
    cel = Cel()
    for path, document in documents(folder):
        if document["kind"] == "ValidatingAdmissionPolicy":
            _check_policy(path, document, cel)
        try:
            _apply(registry, document, "kubectl")
        except ApiError as error:
            raise SeedError(f"{path}: {error.message}") from error


def _apply(registry: Registry, document: Obj, manager: str) -> None:
    kind = BY_KIND[document["kind"]]
    metadata = document["metadata"]
    call = Call(ADMIN.info(), manager, force=True)
    namespace = metadata.get("namespace", "default") if kind.namespaced else ""
    content_type = "application/apply-patch+yaml"
    registry.patch(kind, namespace, metadata["name"], content_type, document, call)
