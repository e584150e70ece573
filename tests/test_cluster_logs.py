"""The log of a slice: the newest pod's, its newest part, without what a tenant must not learn."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpu.cluster import errors
from gpu.cluster.client import Cluster, ClusterSettings, connect
from gpu.cluster.logs import LIMIT_BYTES, fetch_log
from tests.fake_api import Asked, FakeApi, Reply, listed, status_object

PODS = "/api/v1/namespaces/acme-ai/pods"


@pytest.fixture
def api() -> Iterator[FakeApi]:
    with FakeApi() as server:
        yield server


@pytest.fixture
def cluster(api: FakeApi, tmp_path: Path) -> Iterator[Cluster]:
    path = tmp_path / "kubeconfig"
    path.write_text(api.kubeconfig())
    client = connect(ClusterSettings(str(path)))
    yield client
    client.close()


def pod(name: str, born: str, node: str = "worker-a") -> dict[str, Any]:
    return {"metadata": {"name": name, "creationTimestamp": born}, "spec": {"nodeName": node}}


OLD, NEW = pod("chat-1", "2026-11-30T10:00:00Z"), pod("chat-2", "2026-11-30T11:00:00Z")


def test_the_newest_pod_of_the_workload_is_read(api: FakeApi, cluster: Cluster) -> None:
    api.on("GET", f"{PODS}/chat-2/log", Reply(200, "läuft\n".encode()))
    api.on("GET", f"{PODS}\\?", listed("Pod", "1", [OLD, NEW]))
    assert fetch_log(cluster, "acme-ai", "chat", previous=True) == "läuft\n"
    pods, log = api.asked
    assert pods.query["labelSelector"] == "app.kubernetes.io/name=chat,kube-dc.com/gpu-backend=dra"
    assert log.query == {
        "container": "workload",
        "tailLines": "1000",
        "limitBytes": str(LIMIT_BYTES),
        "previous": "true",
    }


@pytest.mark.parametrize(
    "answer",
    [
        status_object(
            400, "BadRequest", 'container "workload" in pod "chat-2" is waiting to start: ContainerCreating'
        ),
        status_object(
            400, "BadRequest", 'previous terminated container "workload" in pod "chat-2" not found'
        ),
        status_object(404, "NotFound", 'pods "chat-2" not found', name="chat-2", kind="pods"),
    ],
)
def test_no_container_yet_is_no_fault(answer: Reply, api: FakeApi, cluster: Cluster) -> None:
    api.on("GET", "/log", answer)
    api.on("GET", PODS, listed("Pod", "1", [NEW]))
    with pytest.raises(errors.NoLogYet):
        fetch_log(cluster, "acme-ai", "chat")


def test_no_pod_yet(api: FakeApi, cluster: Cluster) -> None:
    api.on("GET", PODS, listed("Pod", "1", []))
    with pytest.raises(errors.NoLogYet):
        fetch_log(cluster, "acme-ai", "chat")


def test_other_refusals_keep_their_name(api: FakeApi, cluster: Cluster) -> None:
    api.on("GET", "/log", status_object(403, "Forbidden", "cannot get resource pods/log"))
    api.on("GET", PODS, listed("Pod", "1", [NEW]))
    with pytest.raises(errors.Forbidden):
        fetch_log(cluster, "acme-ai", "chat")


def test_servers_and_cards_are_not_told(api: FakeApi, cluster: Cluster) -> None:
    text = "on worker-a: GPU 0 (GPU-1d3c2b1a-0000-1111-2222-333344445555) at 0000:3B:00.0, 8192 MiB\n"
    api.on("GET", "/log", Reply(200, text.encode()))
    api.on("GET", PODS, listed("Pod", "1", [NEW]))
    shown = fetch_log(cluster, "acme-ai", "chat")
    assert not [secret for secret in ("worker-a", "1d3c2b1a", "3B:00") if secret in shown]
    assert "8192 MiB" in shown


def test_the_newest_lines_survive_the_limit(api: FakeApi, cluster: Cluster) -> None:
    lines = [f"{number:04} {'x' * 95}\n" for number in range(1000)]

    def log(asked: Asked) -> Reply:
        tail = "".join(lines[-int(asked.query["tailLines"]) :]).encode()
        return Reply(200, tail[: int(asked.query["limitBytes"])])

    api.on("GET", "/log", log)
    api.on("GET", PODS, listed("Pod", "1", [NEW]))
    text = fetch_log(cluster, "acme-ai", "chat", limit_bytes=10_000)
    assert text.endswith(lines[-1])
    assert len(text) <= 10_000


def test_a_server_that_ignores_the_limit_is_cut_off(api: FakeApi, cluster: Cluster) -> None:
    api.on("GET", "/log", Reply(pieces=[b"y" * 5000] * 100))
    api.on("GET", PODS, listed("Pod", "1", [NEW]))
    assert len(fetch_log(cluster, "acme-ai", "chat", limit_bytes=7000, tail_lines=2)) == 7000


def test_bytes_that_are_no_text_do_not_break_the_page(api: FakeApi, cluster: Cluster) -> None:
    api.on("GET", "/log", Reply(200, b"a\xff\x00b\n"))
    api.on("GET", PODS, listed("Pod", "1", [NEW]))
    assert fetch_log(cluster, "acme-ai", "chat") == "a�\x00b\n"
