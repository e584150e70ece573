"""The gateway over real HTTP: what it sends, what it makes of every kind of answer, and how long it waits."""

from __future__ import annotations

import os
import ssl
import stat
import subprocess
import sys
import threading
import time
import tracemalloc
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dev.controlplane.certificates import make as certificates_for_tests
from gpu.cluster import errors
from gpu.cluster.client import Cluster, ClusterSettings, connect
from gpu.cluster.stream import WatchStream
from tests.clusters import eventually
from tests.fake_api import TOKEN, Asked, FakeApi, Reply, as_json, listed, status_object, streamed

PODS = "/api/v1/namespaces/acme-ai/pods"


@pytest.fixture
def api() -> Iterator[FakeApi]:
    with FakeApi() as server:
        yield server


@pytest.fixture
def cluster(api: FakeApi, tmp_path: Path) -> Iterator[Cluster]:
    yield from connected(api, tmp_path)


def connected(api: FakeApi, folder: Path, **settings: Any) -> Iterator[Cluster]:
    path = folder / "kubeconfig"
    path.write_text(api.kubeconfig())
    client = connect(ClusterSettings(str(path), cache_dir=str(folder / "cache"), **settings))
    yield client
    client.close()


@pytest.fixture
def hasty(api: FakeApi, tmp_path: Path) -> Iterator[Cluster]:
    """A client that waits a quarter of a second for an answer."""
    yield from connected(api, tmp_path, read_timeout_s=0.25)


def pod(name: str, **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "acme-ai", **metadata}}


def test_no_request_but_the_one_asked_for(api: FakeApi, cluster: Cluster) -> None:
    api.on("GET", f"^{PODS}/a\\?", as_json(pod("a")))
    assert cluster.get("Pod", "acme-ai", "a") == pod("a")
    assert [each.path for each in api.asked] == [f"{PODS}/a"]
    assert api.asked[0].headers["authorization"] == f"Bearer {TOKEN}"


def test_absent_object_is_none_but_absent_api_is_an_error(api: FakeApi, cluster: Cluster) -> None:
    api.on("GET", "/pods/", status_object(404, "NotFound", 'pods "a" not found', name="a", kind="pods"))
    api.on("GET", "/resourceclaims/", Reply(404, b"404 page not found\n"))
    assert cluster.get("Pod", "acme-ai", "a") is None
    with pytest.raises(errors.NotServed):
        cluster.get("ResourceClaim", "acme-ai", "a")


def test_list_follows_pages_and_fills_in_the_kind(api: FakeApi, cluster: Cluster) -> None:
    api.on("GET", "continue=", listed("Pod", "7", [pod("b")]))
    api.on("GET", f"^{PODS}\\?", listed("Pod", "7", [pod("a")], token="next/+="))
    items, version = cluster.list("Pod", "acme-ai", label_selector="app in (a,b),x!=y")
    assert [(each["kind"], each["apiVersion"], each["metadata"]["name"]) for each in items] == [
        ("Pod", "v1", "a"),
        ("Pod", "v1", "b"),
    ]
    assert version == "7"
    first, second = api.asked
    assert first.query == {"limit": "500", "labelSelector": "app in (a,b),x!=y"}
    assert second.query["continue"] == "next/+="


def test_list_without_a_version_is_not_believed(api: FakeApi, cluster: Cluster) -> None:
    api.on("GET", PODS, as_json({"kind": "PodList", "metadata": {}, "items": []}))
    with pytest.raises(errors.Garbled):
        cluster.list("Pod", "acme-ai")


def test_apply_is_server_side_and_keeps_nulls(api: FakeApi, cluster: Cluster) -> None:
    document = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "a", "namespace": "acme-ai"},
        "spec": {"strategy": {"rollingUpdate": None}},
    }
    api.on("PATCH", "/apis/apps/v1/namespaces/acme-ai/deployments/a", as_json(document))
    cluster.apply(document, dry_run=True)
    cluster.apply(document, force=False)
    cluster.patch("Deployment", "acme-ai", "a", {"spec": {"strategy": {"rollingUpdate": None}}})
    dry, gentle, merge = api.asked
    assert dry.headers["content-type"] == "application/apply-patch+yaml"
    assert dry.query == {"fieldManager": "gpu-portal", "force": "true", "dryRun": "All"}
    assert dry.json == document
    assert gentle.query == {"fieldManager": "gpu-portal", "force": "false"}
    assert merge.headers["content-type"] == "application/merge-patch+json"
    assert merge.json == {"spec": {"strategy": {"rollingUpdate": None}}}


def test_delete_names_the_uid_and_tells_whether_it_was_there(api: FakeApi, cluster: Cluster) -> None:
    gone = status_object(404, "NotFound", "gone", name="a", kind="pods")
    api.on("DELETE", f"^{PODS}/a", as_json({"kind": "Status", "status": "Success"}), gone)
    assert cluster.delete("Pod", "acme-ai", "a", uid="u-1") is True
    assert cluster.delete("Pod", "acme-ai", "a") is False
    assert api.asked[0].json["preconditions"] == {"uid": "u-1"}
    assert api.asked[0].json["propagationPolicy"] == "Background"
    assert "preconditions" not in api.asked[1].json


def test_a_namespaced_object_is_never_asked_for_without_its_namespace(cluster: Cluster) -> None:
    with pytest.raises(ValueError, match="namespace"):
        cluster.get("Pod", None, "a")


def test_our_policy_is_the_only_one_that_tries_again(api: FakeApi, cluster: Cluster) -> None:
    throttled = status_object(429, "TooManyRequests", "wait")
    api.on("GET", "/pods/a", Reply(429, throttled.body, {"Retry-After": "9"}))
    api.on("GET", "/pods/b", Reply(503, b"no", {"Retry-After": "1"}))
    api.on("GET", "/pods/c", Reply(-1))
    api.on("GET", "/pods/d", Reply(302, b"", {"Location": f"{api.url}/elsewhere"}))
    with pytest.raises(errors.Throttled) as caught:
        cluster.get("Pod", "acme-ai", "a")
    assert caught.value.retry_after == 9
    with pytest.raises(errors.ServerFault):
        cluster.get("Pod", "acme-ai", "b")
    with pytest.raises(errors.Unreachable):
        cluster.get("Pod", "acme-ai", "c")
    with pytest.raises(errors.ServerFault):
        cluster.get("Pod", "acme-ai", "d")
    assert len(api.asked) == 4


def test_lost_answer_to_a_write_may_be_tried_again(api: FakeApi, hasty: Cluster) -> None:
    document = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a", "namespace": "acme-ai"}}
    api.on("PATCH", "/services/a", Reply(200, b"{}", before_s=30))
    began = time.monotonic()
    with pytest.raises(errors.Unreachable) as caught:
        hasty.apply(document)
    assert time.monotonic() - began < 20  # and not the 30 of the answer
    assert caught.value.retry
    assert len(api.asked) == 1
    assert caught.value.__cause__ is not None


def test_half_an_answer_is_noticed(api: FakeApi, cluster: Cluster) -> None:
    api.on("GET", "/pods/a", Reply(200, b'{"metadata":', {"Content-Length": "4000"}))
    api.on("GET", "/pods/b", Reply(200, b'{"metadata":'))
    api.on("GET", "/pods/c", Reply(200, b"[]"))
    api.on("GET", "/pods/d", Reply(pieces=[b'{"metadata":{}'], end="cut"))
    for name in "abcd":
        with pytest.raises(errors.Unreachable):
            cluster.get("Pod", "acme-ai", name)


def test_nobody_listening(tmp_path: Path) -> None:
    with FakeApi() as server:
        text = server.kubeconfig()
    (tmp_path / "kubeconfig").write_text(text)
    client = connect(ClusterSettings(str(tmp_path / "kubeconfig")))
    with pytest.raises(errors.Unreachable):
        client.version()


@pytest.mark.parametrize(
    "text",
    ["", "{", "current-context: x", "a: [", "kind: Config\nclusters: 3", "kind: Config\ncurrent-context: 1"],
)
def test_broken_kubeconfig_is_a_sentence_for_the_operator(text: str, tmp_path: Path) -> None:
    (tmp_path / "kubeconfig").write_text(text)
    for path in (tmp_path / "kubeconfig", tmp_path / "none"):
        with pytest.raises(errors.NotConfigured) as caught:
            connect(ClusterSettings(str(path))).version()
        assert caught.value.who == "operator"


def test_outside_a_pod_without_a_kubeconfig(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(errors.NotConfigured):
        connect(ClusterSettings()).version()


def test_an_unverified_connection_is_refused(api: FakeApi, tmp_path: Path) -> None:
    text = api.kubeconfig(**{"insecure-skip-tls-verify": True})
    (tmp_path / "kubeconfig").write_text(text)
    with pytest.raises(errors.NotConfigured):
        connect(ClusterSettings(str(tmp_path / "kubeconfig"))).version()


def test_renewed_token_is_read_after_401(api: FakeApi, tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(api.kubeconfig())
    client = connect(ClusterSettings(str(path)))

    def version(asked: Asked) -> Reply:
        if asked.headers["authorization"] == "Bearer fresh":
            return as_json({"major": "1"})
        return status_object(401, "Unauthorized", "Unauthorized")

    api.on("GET", "/version", version)
    with pytest.raises(errors.Unauthorized):
        client.version()
    path.write_text(api.kubeconfig().replace(TOKEN, "fresh"))
    assert client.version() == {"major": "1"}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    certificates_for_tests(folder / "right")
    certificates_for_tests(folder / "wrong")
    return folder


@pytest.fixture
def tls_api(certificates: Path) -> Iterator[FakeApi]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "right" / "server.crt", certificates / "right" / "server.key")
    with FakeApi(context) as server:
        server.on("GET", "/version", as_json({"major": "1"}))
        yield server


def over_tls(api: FakeApi, folder: Path, authority: Path | None) -> Cluster:
    data = (
        {}
        if authority is None
        else {"certificate-authority-data": b64encode(authority.read_bytes()).decode()}
    )
    (folder / "kubeconfig").write_text(api.kubeconfig(**data))
    return connect(ClusterSettings(str(folder / "kubeconfig"), cache_dir=str(folder / "cache")))


def test_the_certificate_is_verified(tls_api: FakeApi, certificates: Path, tmp_path: Path) -> None:
    assert over_tls(tls_api, tmp_path, certificates / "right" / "ca.crt").version() == {"major": "1"}
    for authority in (certificates / "wrong" / "ca.crt", None):
        with pytest.raises(errors.Untrusted) as caught:
            over_tls(tls_api, tmp_path, authority).version()
        assert caught.value.retry
    assert len(tls_api.asked) == 1


def test_a_waiting_watch_over_tls_ends_at_once(tls_api: FakeApi, certificates: Path, tmp_path: Path) -> None:
    tls_api.on("GET", "watch=true", streamed(event("ADDED", "a", "5"), end="hang"))
    stream = over_tls(tls_api, tmp_path, certificates / "right" / "ca.crt").watch("Pod", "4")
    ended_from_outside(stream)


def test_cache_folder_is_private(api: FakeApi, cluster: Cluster) -> None:
    api.on("GET", "/version", as_json({"major": "1"}))
    cluster.version()
    assert cluster.settings.cache_dir is not None
    assert stat.S_IMODE(os.stat(cluster.settings.cache_dir).st_mode) == 0o700


def test_served(api: FakeApi, cluster: Cluster) -> None:
    api.on("GET", "/apis/resource.k8s.io/v1", as_json({"kind": "APIResourceList"}))
    api.on("GET", "/apis/resource.k8s.io/v9", Reply(404, b"404 page not found\n"))
    assert cluster.served("resource.k8s.io/v1")
    assert not cluster.served("resource.k8s.io/v9")


# --- watch streams -----------------------------------------------------------------------------------------------


def event(kind: str, name: str, version: str) -> dict[str, Any]:
    return {"type": kind, "object": {"kind": "Pod", **pod(name, resourceVersion=version)}}


def test_watch_passes_every_line_on(api: FakeApi, cluster: Cluster) -> None:
    added, mark = (
        event("ADDED", "a", "5"),
        {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9"}}},
    )
    fault = {"type": "ERROR", "object": {"code": 410}}
    line = b'{"type":"DELETED","object":{"metadata":{"name":"\xc3\xa4"}}}\r\n'
    api.on("GET", "watch=true", streamed(added, line[:40], 0.05, line[40:], b"\n", mark, fault))
    got = list(cluster.watch("Pod", "4", 240))
    assert [kind for kind, _ in got] == ["ADDED", "DELETED", "BOOKMARK", "ERROR"]
    assert got[1][1]["metadata"]["name"] == "ä"
    query = api.asked[0].query
    assert query == {
        "watch": "true",
        "resourceVersion": "4",
        "allowWatchBookmarks": "true",
        "timeoutSeconds": "240",
    }


@pytest.mark.parametrize("version", ["", None])
def test_watch_is_never_without_a_version(version: Any, api: FakeApi, cluster: Cluster) -> None:
    with pytest.raises(ValueError, match="version"):
        cluster.watch("Pod", version)
    assert api.asked == []


def test_break_between_two_lines_is_an_end(api: FakeApi, cluster: Cluster) -> None:
    api.on("GET", "watch=true", streamed(event("ADDED", "a", "5"), end="cut"))
    assert len(list(cluster.watch("Pod", "4"))) == 1


@pytest.mark.parametrize(
    "reply",
    [
        streamed(event("ADDED", "a", "5"), b'{"type":"ADD', end="cut"),
        streamed(event("ADDED", "a", "5"), b'{"type":"ADD'),
        streamed(event("ADDED", "a", "5"), b"<html>\n"),
        streamed(event("ADDED", "a", "5"), b'["ADDED"]\n'),
        streamed(event("ADDED", "a", "5"), b'{"type":"ADDED"}\n'),
        streamed(event("ADDED", "a", "5"), b'{"type":"ADDED","object":{"a":"\xff"}}\n'),
        Reply(200, b'{"type":"ADDED","object":{}}\n{"type":'),
    ],
)
def test_a_damaged_line_is_told(reply: Reply, api: FakeApi, cluster: Cluster) -> None:
    api.on("GET", "watch=true", reply)
    got = []
    with pytest.raises(errors.Garbled):
        got.extend(cluster.watch("Pod", "4"))


def test_silence_is_noticed(api: FakeApi, cluster: Cluster) -> None:
    api.on("GET", "watch=true", streamed(event("ADDED", "a", "5"), end="hang"))
    began = time.monotonic()
    with pytest.raises(errors.Unreachable):
        list(cluster.watch("Pod", "4", silence_s=0.3))
    assert time.monotonic() - began < 20


def test_another_thread_ends_a_waiting_watch(api: FakeApi, cluster: Cluster) -> None:
    api.on("GET", "watch=true", streamed(event("ADDED", "a", "5"), end="hang"))
    ended_from_outside(cluster.watch("Pod", "4"))


def ended_from_outside(stream: WatchStream) -> None:
    got: list[Any] = []
    thread = threading.Thread(target=lambda: got.extend(stream))
    thread.start()
    eventually(lambda: got, "the first event")
    stream.close()
    thread.join(10)
    assert not thread.is_alive()
    assert len(got) == 1


# --- size ----------------------------------------------------------------------------------------------------------


def test_50_000_objects_cost_one_page_of_memory(api: FakeApi, cluster: Cluster) -> None:
    containers = [{"name": f"c{each}", "image": "i" * 60} for each in range(5)]
    items = [{**pod(f"p-{number}"), "spec": {"containers": containers}} for number in range(500)]
    last = listed("Pod", "1", items).body

    def page(asked: Asked) -> Reply:
        following = int(asked.query.get("continue", "0")) + int(asked.query["limit"])
        more = (
            b'"continue": "%d", "resourceVersion"' % following if following < 50_000 else b'"resourceVersion"'
        )
        return Reply(200, last.replace(b'"resourceVersion"', more, 1))

    api.on("GET", "^/api/v1/pods", page)
    count, peaks = 0, []
    tracemalloc.start()
    for items, _ in cluster.pages("Pod"):
        count += len(items)
        peaks.append(tracemalloc.get_traced_memory()[1])
    tracemalloc.stop()
    assert count == 50_000
    assert len(api.asked) == 100
    assert peaks[-1] < 2.5 * peaks[2]
    assert peaks[-1] < 32 * 2**20


def test_the_library_is_not_loaded_before_the_first_call() -> None:
    code = "import sys, gpu.cluster.client; sys.exit('kubernetes' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


def test_the_typed_models_stay_out(api: FakeApi, tmp_path: Path) -> None:
    api.on("GET", "/version", as_json({"major": "1"}))
    (tmp_path / "kubeconfig").write_text(api.kubeconfig())
    code = (
        "import sys; from gpu.cluster.client import *; connect(ClusterSettings(sys.argv[1])).version();"
        "sys.exit(sum(name.startswith('kubernetes.client.models.') for name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "kubeconfig")], check=False, timeout=60)
    assert done.returncode == 0
