"""deploy/portal on the real control plane: taken without a warning, and its pods are let in by pod security."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clusters import Target, eventually
from tests.portal_overlays import KUBECTL, build, checkout, pod_of

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.real,
    # The sandbox serves what slices are made of, not what the portal is.
    pytest.mark.parametrize("cluster", ["controlplane"], indirect=True, scope="session"),
]
RESTRICTED = {
    "pod-security.kubernetes.io/enforce": "restricted",
    "pod-security.kubernetes.io/warn": "restricted",
}


@pytest.fixture
def namespace(cluster: Target) -> Iterator[str]:
    """A namespace with pod security `restricted`, and the account's name in it."""
    name = cluster.make_namespace("portal", labels=RESTRICTED)
    account = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": "gpu-portal", "namespace": name},
    }
    assert cluster.client().create(account).ok
    yield name
    cluster.drop_namespace(name)


def test_the_portals_own_namespace_is_restricted(cluster: Target) -> None:
    found = cluster.client().get("v1", "Namespace", None, "gpu-portal").body
    assert RESTRICTED.items() <= found["metadata"]["labels"].items()


@pytest.mark.parametrize("overlay", ["production", "evaluation"])
def test_an_overlay_is_accepted(cluster: Target, namespace: str, tmp_path: Path, overlay: str) -> None:
    folder = checkout(tmp_path) / "portal" / "overlays" / overlay
    documents = build(folder)
    for path in folder.parent.parent.rglob("kustomization.yaml"):
        path.write_text(path.read_text().replace("namespace: gpu-portal", f"namespace: {namespace}"))
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "KUBECONFIG": str(cluster.kubeconfig("admin"))}
    answer = subprocess.run(
        [KUBECTL, "apply", "-k", folder], env=env, capture_output=True, text=True, check=False
    )
    assert answer.returncode == 0, answer.stderr
    assert answer.stderr == "", "a warning of the API server"
    assert len(answer.stdout.splitlines()) == len(documents)

    names = {item["metadata"]["name"] for item in documents if pod_of(item) is not None}

    def with_pods() -> bool:
        pods = cluster.client().items("v1", "Pod", namespace)
        labels = {pod["metadata"]["labels"].get("app.kubernetes.io/name") for pod in pods}
        return names <= labels

    eventually(with_pods, f"pods of {sorted(names)}", 30)
