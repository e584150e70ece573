"""kubectl and the official Python client against the sandbox (and a real API server where that takes part)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.clusters import Target, eventually
from tests.controlplane.documents import slice_documents

pytestmark = pytest.mark.cluster

KUBECTL = Path(sys.executable).parent / "kubectl"

type Doc = dict[str, Any]
type Kubectl = Callable[..., str]


@pytest.fixture
def namespace(cluster: Target) -> Iterator[str]:
    name = cluster.make_namespace("kubectl")
    yield name
    cluster.drop_namespace(name)


@pytest.fixture
def kubectl(cluster: Target, namespace: str, tmp_path: Path) -> Kubectl:
    environment = os.environ | {"KUBECONFIG": str(cluster.kubeconfig()), "HOME": str(tmp_path)}

    def run(*arguments: str, stdin: str | None = None, fails: bool = False) -> str:
        done = subprocess.run(
            [str(KUBECTL), "-n", namespace, *arguments],
            input=stdin,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (done.returncode != 0) is fails, done.stdout + done.stderr
        return done.stderr if fails else done.stdout

    return run


@pytest.fixture
def manifests(namespace: str) -> str:
    documents = slice_documents(namespace, "chat", command=("serve",), port=8080)
    return yaml.safe_dump_all(documents)


def test_versions_and_resources(kubectl: Kubectl) -> None:
    assert json.loads(kubectl("version", "-o", "json"))["serverVersion"]["minor"].startswith("36")
    names = kubectl("api-resources", "--verbs", "list", "-o", "name").split()
    assert {"pods", "deployments.apps", "resourceclaimtemplates.resource.k8s.io", "jobs.batch"} <= set(names)


def test_a_slice_from_apply_to_delete(kubectl: Kubectl, manifests: str) -> None:
    created = kubectl("apply", "-f", "-", stdin=manifests).splitlines()
    assert "deployment.apps/chat created" in created
    assert "deployment.apps/chat unchanged" in kubectl("apply", "-f", "-", stdin=manifests).splitlines()
    assert "successfully rolled out" in kubectl("rollout", "status", "deploy/chat", "--timeout", "40s")
    table = kubectl("get", "deploy,pod,resourceclaim")
    assert "deployment.apps/chat   1/1" in table
    assert "Running" in table
    assert "allocated,reserved" in table
    described = kubectl("describe", "deploy/chat")
    assert "StrategyType:       Recreate" in described
    assert "ScalingReplicaSet" in described
    assert "Running" in kubectl("describe", "pod", "-l", "app.kubernetes.io/name=chat")
    eventually(lambda: kubectl("logs", "deploy/chat", "--tail", "1").strip(), "the first log line")
    assert kubectl("delete", "-f", "-", stdin=manifests).count("deleted") == manifests.count("\nkind: ")
    kubectl("wait", "--for=delete", "pod", "-l", "app.kubernetes.io/name=chat", "--timeout", "40s")
    assert kubectl("get", "deploy,rs,pod,resourceclaim", "-o", "name") == ""


def test_server_side_apply(kubectl: Kubectl, manifests: str) -> None:
    arguments = ("apply", "--server-side", "-f", "-")
    assert kubectl(*arguments, stdin=manifests).count("serverside-applied") >= 2
    assert kubectl(*arguments, "--dry-run=server", stdin=manifests).count("(server dry run)") >= 2
    changed = manifests.replace("replicas: 1", "replicas: 0")
    conflict = kubectl(*arguments, "--field-manager", "other", stdin=changed, fails=True)
    assert "Apply failed with" in conflict
    assert ".spec.replicas" in conflict
    assert "serverside-applied" in kubectl(
        *arguments, "--field-manager", "other", "--force-conflicts", stdin=changed
    )


def test_unknown_field_is_told(kubectl: Kubectl) -> None:
    document = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\nnonsense: 1\n"
    assert 'unknown field "nonsense"' in kubectl("apply", "-f", "-", stdin=document, fails=True)


def test_edits(kubectl: Kubectl) -> None:
    document = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {x: '1', y: '2'}\n"
    kubectl("apply", "-f", "-", stdin=document)
    kubectl("label", "configmap", "a", "team=blue")
    kubectl("patch", "configmap", "a", "-p", '{"data":{"z":"3"}}')
    # Client-side apply takes away what its own last manifest held and leaves what others wrote.
    kubectl("apply", "-f", "-", stdin=document.replace(", y: '2'", ""))
    found = json.loads(kubectl("get", "configmap", "a", "-o", "json"))
    assert found["data"] == {"x": "1", "z": "3"}
    assert found["metadata"]["labels"] == {"team": "blue"}
    assert "NAME" in kubectl("get", "configmap", "-l", "team=blue")


def test_watch(kubectl: Kubectl, cluster: Target, namespace: str, tmp_path: Path) -> None:
    labelled = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, labels: {a: b}}\n"
    kubectl("apply", "-f", "-", stdin=labelled)
    environment = os.environ | {"KUBECONFIG": str(cluster.kubeconfig()), "HOME": str(tmp_path)}
    command = [str(KUBECTL), "-n", namespace, "get", "configmap", "-w", "--output-watch-events", "-l", "a=b"]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        lines = [process.stdout.readline().split() for _ in range(2)]  # it has listed, and follows from there
        kubectl("patch", "configmap", "a", "-p", '{"data":{"z":"3"}}')
        kubectl("delete", "configmap", "a")
        lines += [process.stdout.readline().split() for _ in range(2)]
        assert [line[0] for line in lines] == ["EVENT", "ADDED", "MODIFIED", "DELETED"]
    finally:
        process.kill()
        process.wait()


def test_dynamic_client(cluster: Target, namespace: str, tmp_path: Path) -> None:
    """Apply and watch, as the portal's gateway does it, with the portal's rights."""
    from kubernetes import config, dynamic

    api_client = config.new_client_from_config(str(cluster.kubeconfig("portal")))
    client = dynamic.DynamicClient(api_client, cache_file=str(tmp_path / "discovery.json"))
    deployments = client.resources.get(api_version="apps/v1", kind="Deployment")
    documents = slice_documents(namespace, "dyn")
    seen: list[tuple[str, str]] = []
    version = deployments.get(namespace=namespace).metadata.resourceVersion

    def follow() -> None:
        for event in deployments.watch(namespace=namespace, resource_version=version, timeout=6):
            seen.append((event["type"], event["object"].metadata.name))
            if event["type"] == "DELETED":
                return

    follower = threading.Thread(target=follow)
    follower.start()
    for document in documents:
        resource = client.resources.get(api_version=document["apiVersion"], kind=document["kind"])
        applied = client.server_side_apply(
            resource, body=document, name=document["metadata"]["name"], namespace=namespace,
            field_manager="gpu-portal", force_conflicts=True,
        )  # fmt: skip
        assert applied.metadata.uid
    deployments.delete(name="dyn", namespace=namespace)
    follower.join(20)
    assert not follower.is_alive()
    assert seen[0] == ("ADDED", "dyn")
    assert seen[-1] == ("DELETED", "dyn")
