"""The controllers over HTTP, and the kubelet that runs alone beside a control plane."""

import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.api import ApiError
from sandbox.controllers import run_all
from sandbox.http_api import HttpApi
from sandbox.options import NodeSpec, Options
from sandbox.runner import Sandbox
from tests.sandbox_world import DEPLOY, World, condition, until


class Remote(World):
    """The controllers on an API that is reached over HTTP only."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.api = HttpApi(sandbox.url, sandbox.admin_token)
        self.stop = threading.Event()


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[Sandbox]:
    sandbox = Sandbox(tmp_path, DEPLOY / "deviceclasses", controllers=False, bookmark_seconds=0.5)
    sandbox.start()
    yield sandbox
    sandbox.stop()


@pytest.fixture
def remote(sandbox: Sandbox) -> Iterator[Remote]:
    remote = Remote(sandbox)
    threads = run_all(remote.api, remote.stop, Options(nodes=(NodeSpec("gpu-node-1"),), pull_seconds=0.02))
    yield remote
    remote.stop.set()
    for thread in threads:
        thread.join(5.0)


def test_a_slice_from_order_to_release(remote: Remote) -> None:
    remote.namespace()
    remote.slice("chat")
    remote.running("chat")
    remote.api.delete("Deployment", "acme-ai", "chat")
    for kind in ("ReplicaSet", "Pod", "ResourceClaim"):
        until(lambda kind=kind: not remote.api.list(kind))


def test_history_lost_is_listed_again(remote: Remote, sandbox: Sandbox) -> None:
    """After a compaction and a restart of the server the watches begin anew and miss nothing."""
    remote.namespace()
    remote.slice("chat")
    remote.running("chat")
    sandbox.stop()
    time.sleep(1.0)
    sandbox.start()
    sandbox.compact()
    remote.slice("second")
    remote.running("second", seconds=10.0)
    remote.api.delete("Deployment", "acme-ai", "chat")
    until(lambda: not remote.pods("chat"), 10.0)


def test_refusals_keep_their_body(sandbox: Sandbox) -> None:
    api = HttpApi(sandbox.url, sandbox.admin_token)
    assert api.get("Pod", "nowhere", "x") is None
    assert api.delete("Pod", "nowhere", "x") is False
    with pytest.raises(ApiError) as refused:
        api.create(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "namespace": "nowhere"}}
        )
    assert (refused.value.status, refused.value.reason) == (404, "NotFound")
    assert 'namespaces "nowhere" not found' in refused.value.message
    with pytest.raises(ApiError) as refused:
        HttpApi(sandbox.url, "no-such-token").list("Pod")
    assert refused.value.status == 401


def test_server_away_is_an_error_of_the_server() -> None:
    with pytest.raises(ApiError) as refused:
        HttpApi("http://127.0.0.1:9", "token").list("Pod")
    assert refused.value.status == 503


def fetch(url: str) -> str:
    context = ssl._create_unverified_context()  # noqa: S323  the kubelet's certificate is its own
    with urllib.request.urlopen(url, context=context, timeout=10) as answer:
        return str(answer.read().decode())


def test_kubelet_alone(sandbox: Sandbox) -> None:
    """The command registers its node, runs a pod that is bound to it, and serves its log."""
    command = [
        sys.executable,
        "-m",
        "sandbox.kubelet",
        "--server",
        sandbox.url,
        "--token",
        sandbox.admin_token,
    ]
    with subprocess.Popen([*command, "--node", "lonely"], stdout=subprocess.PIPE, text=True) as kubelet:
        try:
            line = kubelet.stdout.readline() if kubelet.stdout else ""
            address = line.rsplit(" ", 1)[-1].strip()
            api = HttpApi(sandbox.url, sandbox.admin_token)
            node = api.get("Node", None, "lonely")
            assert condition(node, "Ready")["status"] == "True"
            assert node is not None
            port = node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"]
            assert address == f"https://127.0.0.1:{port}"
            assert api.get("ResourceSlice", None, "lonely-hami")
            assert api.get("Lease", "kube-node-lease", "lonely")
            container = {"name": "main", "image": "registry.example.test/team/app:1"}
            metadata = {"name": "bare", "namespace": "default"}
            spec = {"nodeName": "lonely", "containers": [container]}
            api.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
            until(lambda: condition(api.get("Pod", "default", "bare"), "Ready").get("status") == "True", 10.0)
            logs = f"{address}/containerLogs/default/bare/main"
            assert fetch(logs).startswith("starting registry.example.test/team/app:1\nready\n")
            assert fetch(f"{logs}?tailLines=0") == ""
            assert fetch(f"{logs}?limitBytes=8") == "starting"
            assert fetch(f"{logs}?tailLines=1&timestamps=true").startswith("20")
            with pytest.raises(urllib.error.HTTPError):
                fetch(f"{address}/containerLogs/default/bare/other")
            api.delete("Pod", "default", "bare")
            until(lambda: api.get("Pod", "default", "bare") is None)
        finally:
            kubelet.terminate()
    assert kubelet.returncode == 0
