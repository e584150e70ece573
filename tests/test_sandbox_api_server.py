"""The sandbox's own side: persistence, faults on command, logs, tokens, load, and its command line."""

from __future__ import annotations

import http.client
import itertools
import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dev.controlplane.client import Client, path_for, path_of
from sandbox import quantity
from sandbox.auth import component
from sandbox.local import LocalApi
from sandbox.runner import Sandbox
from tests.controlplane.test_api import lines

ROOT = Path(__file__).resolve().parent.parent
DEPLOY = ROOT / "deploy"
MAPS = path_for("v1", "ConfigMap", "default")

type Doc = dict[str, Any]


def config_map(name: str = "one", **data: str) -> Doc:
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[Sandbox]:
    with Sandbox(tmp_path, DEPLOY, controllers=False, bookmark_seconds=0.2) as running:
        yield running


@pytest.fixture
def admin(sandbox: Sandbox) -> Client:
    return Client(sandbox.url, sandbox.admin_token)


def faults(admin: Client, *items: Doc) -> None:
    assert admin.call("POST", "/sandbox/faults", {"faults": list(items)}).ok


def single(client: Client, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
    """One request on a connection of its own, sent once."""
    address = urlsplit(client.server)
    connection = http.client.HTTPConnection(str(address.hostname), address.port, timeout=10)
    headers = {"Authorization": f"Bearer {client.token}", "Content-Type": "application/json"}
    connection.request(method, path, None if body is None else json.dumps(body), headers)
    answer = connection.getresponse()
    return answer.status, answer.read()


class TestPersistence:
    def test_next_start_finds_everything(self, tmp_path: Path) -> None:
        with Sandbox(tmp_path, DEPLOY, controllers=False) as first:
            client = Client(first.url, first.admin_token)
            assert client.create(config_map(a="1")).ok
            before = client.get("v1", "ConfigMap", "default", "one").body
            token = first.admin_token
        with Sandbox(tmp_path, DEPLOY, controllers=False) as second:
            client = Client(second.url, second.admin_token)
            assert second.admin_token == token
            assert client.get("v1", "ConfigMap", "default", "one").body == before
            later = client.create(config_map("two")).body["metadata"]["resourceVersion"]
            assert int(later) > int(before["metadata"]["resourceVersion"])
            # What changed before the start is not remembered: a watch from then has to list again.
            query = {"watch": "true", "resourceVersion": "1", "timeoutSeconds": "5"}
            line = client.call("GET", MAPS, query=query).body
            assert (line["type"], line["object"]["code"]) == ("ERROR", 410)

    def test_seeding_again_changes_nothing(self, tmp_path: Path) -> None:
        versions = []
        for _ in range(2):
            with Sandbox(tmp_path, DEPLOY, controllers=False) as running:
                listed = Client(running.url, running.admin_token).call("GET", "/api/v1/namespaces").body
                versions.append(listed["metadata"]["resourceVersion"])
        assert versions[0] == versions[1]

    def test_files_are_private(self, sandbox: Sandbox) -> None:
        for path in (sandbox.admin_kubeconfig, sandbox.portal_kubeconfig, sandbox.data_dir / "tokens.json"):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600

    def test_several_at_once(self, tmp_path: Path) -> None:
        with (
            Sandbox(tmp_path / "a", controllers=False) as one,
            Sandbox(tmp_path / "b", controllers=False) as two,
        ):
            assert Client(one.url, one.admin_token).create(config_map()).ok
            assert Client(two.url, two.admin_token).get("v1", "ConfigMap", "default", "one").status == 404
            assert Client(two.url, one.admin_token).call("GET", MAPS).status == 401


class TestFaults:
    def test_only_for_the_administrator(self, sandbox: Sandbox) -> None:
        portal = Client(sandbox.url, sandbox.portal_token)
        assert portal.call("POST", "/sandbox/faults", {"faults": []}).status == 403

    def test_unknown_kind(self, admin: Client) -> None:
        assert admin.call("POST", "/sandbox/faults", {"faults": [{"kind": "gremlin"}]}).status == 400

    def test_throttled_a_number_of_times(self, admin: Client) -> None:
        faults(admin, {"kind": "status", "code": 429, "retry_after": 3, "count": 2, "path": "configmaps"})
        assert admin.call("GET", "/api/v1/namespaces").status == 200
        answers = [admin.call("GET", MAPS) for _ in range(3)]
        assert [answer.status for answer in answers] == [429, 429, 200]
        assert answers[0].body["details"]["retryAfterSeconds"] == 3
        assert admin.call("GET", "/sandbox/faults").body["faults"][0]["hits"] == 2

    def test_ratio_is_repeatable(self, admin: Client) -> None:
        rounds = []
        for _ in range(2):
            faults(admin, {"kind": "status", "code": 500, "ratio": 0.5, "seed": 7})
            rounds.append([admin.call("GET", MAPS).status for _ in range(30)])
        assert rounds[0] == rounds[1]
        assert {200, 500} == set(rounds[0])

    def test_latency(self, admin: Client) -> None:
        faults(admin, {"kind": "latency", "seconds": 0.3, "count": 1})
        start = time.monotonic()
        assert admin.call("GET", MAPS).ok
        assert time.monotonic() - start >= 0.3

    def test_a_late_answer_comes_after_the_write(self, admin: Client) -> None:
        faults(admin, {"kind": "late", "seconds": 2.0, "count": 1, "method": "POST"})
        start = time.monotonic()
        thread = threading.Thread(target=admin.call, args=("POST", MAPS, config_map()))
        thread.start()
        while not admin.get("v1", "ConfigMap", "default", "one").ok:
            assert time.monotonic() - start < 10
        assert thread.is_alive()
        thread.join()
        assert time.monotonic() - start >= 2.0

    @pytest.mark.parametrize(("kind", "stored"), [("drop", False), ("lost", True)])
    def test_no_answer(self, admin: Client, kind: str, stored: bool) -> None:
        faults(admin, {"kind": kind, "count": 1, "method": "POST"})
        with pytest.raises((http.client.HTTPException, ConnectionError)):
            single(admin, "POST", MAPS, config_map())
        assert admin.get("v1", "ConfigMap", "default", "one").ok is stored

    def test_half_an_answer(self, admin: Client) -> None:
        faults(admin, {"kind": "half", "count": 1})
        with pytest.raises(http.client.IncompleteRead):
            single(admin, "GET", MAPS)
        assert single(admin, "GET", MAPS)[0] == 200

    def test_half_a_watch_line(self, admin: Client) -> None:
        assert admin.create(config_map()).ok
        faults(admin, {"kind": "half", "count": 1, "path": "watch"})
        with pytest.raises(http.client.IncompleteRead):
            single(admin, "GET", f"{MAPS}?watch=true&timeoutSeconds=5")

    def test_silent_watch(self, admin: Client) -> None:
        assert admin.create(config_map()).ok
        faults(admin, {"kind": "silent", "count": 1, "path": "watch"})
        query = {"watch": "true", "timeoutSeconds": "1", "allowWatchBookmarks": "true"}
        assert admin.call("GET", MAPS, query=query).body == ""
        assert admin.call("GET", MAPS, query=query).body.startswith('{"type":"ADDED"')

    def test_compaction(self, admin: Client) -> None:
        version = admin.create(config_map()).body["metadata"]["resourceVersion"]
        assert admin.create(config_map("two")).ok
        assert admin.call("POST", "/sandbox/faults", {"compact": True}).ok
        query = {"watch": "true", "resourceVersion": version}
        assert admin.call("GET", MAPS, query=query).body["object"]["code"] == 410


@pytest.mark.parametrize(
    "body", [[], "x", {"kind": 1}, {"apiVersion": 1}, {"metadata": []}, {"metadata": {"name": 1}}]
)
def test_nonsense_is_answered(admin: Client, body: Any) -> None:
    """Whatever is sent, the connection lives and gets a Status."""
    for method, path in (
        ("POST", MAPS),
        ("PUT", f"{MAPS}/a"),
        ("PATCH", f"{MAPS}/a"),
        ("DELETE", f"{MAPS}/a"),
    ):
        answer = admin.call(method, path, body)
        assert 400 <= answer.status < 500
        assert answer.body["kind"] == "Status"
    assert admin.call("GET", f"{MAPS}?limit=x").status == 400
    assert admin.call("GET", f"{MAPS}?continue=x").status == 400


class TestWatchBookmarks:
    def test_come_by_themselves(self, admin: Client) -> None:
        version = admin.call("GET", MAPS).body["metadata"]["resourceVersion"]
        query = {"watch": "1", "timeoutSeconds": "2", "allowWatchBookmarks": "1", "resourceVersion": version}
        lines = admin.call("GET", MAPS, query=query).body.splitlines()
        assert len(lines) >= 3
        assert {json.loads(line)["type"] for line in lines} == {"BOOKMARK"}


class TestLogs:
    @pytest.fixture
    def api(self, sandbox: Sandbox) -> LocalApi:
        return LocalApi(sandbox.registry, component("kubelet"))

    @pytest.fixture
    def pod(self, api: LocalApi) -> Doc:
        containers = [{"name": "main", "image": "a"}, {"name": "side", "image": "b"}]
        metadata = {"name": "p", "namespace": "default"}
        spec = {"nodeName": "n", "containers": containers}
        return api.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})

    def log(self, admin: Client, **query: str) -> Any:
        answer = admin.call("GET", path_for("v1", "Pod", "default", "p") + "/log", query=query)
        return answer.body if answer.ok else answer.message

    def test_parameters(self, admin: Client, api: LocalApi, pod: Doc) -> None:
        assert "choose one of: [main side]" in self.log(admin)
        assert self.log(admin, container="nope") == "container nope is not valid for pod p"
        api.append_log("default", "p", "main", "first\nsecond\nthird\n")
        assert self.log(admin, container="main") == "first\nsecond\nthird\n"
        assert self.log(admin, container="main", tailLines="1") == "third\n"
        assert self.log(admin, container="main", limitBytes="8") == "first\nse"
        assert self.log(admin, container="main", sinceSeconds="100") == "first\nsecond\nthird\n"
        stamped = self.log(admin, container="main", tailLines="1", timestamps="true")
        assert stamped.startswith("20")
        assert stamped.endswith(" third\n")

    def test_earlier_run(self, admin: Client, api: LocalApi, pod: Doc) -> None:
        assert 'previous terminated container "main" in pod "p" not found' in self.log(
            admin, container="main", previous="true"
        )
        api.append_log("default", "p", "main", "crashed\n")
        api.rotate_log("default", "p", "main")
        api.append_log("default", "p", "main", "again\n")
        assert self.log(admin, container="main", previous="true") == "crashed\n"
        assert self.log(admin, container="main") == "again\n"

    def test_waiting_container(self, admin: Client, api: LocalApi, pod: Doc) -> None:
        state = {
            "name": "main",
            "state": {"waiting": {"reason": "ImagePullBackOff"}},
            "image": "a",
            "imageID": "",
        }
        statuses = [state | {"ready": False, "restartCount": 0}]
        api.update_status(pod | {"status": {"phase": "Pending", "containerStatuses": statuses}})
        expected = 'container "main" in pod "p" is waiting to start: ImagePullBackOff'
        assert self.log(admin, container="main") == expected

    def test_follow_ends_with_the_pod(self, admin: Client, api: LocalApi, pod: Doc) -> None:
        api.append_log("default", "p", "main", "one\n")
        with ThreadPoolExecutor(1) as pool:
            following = pool.submit(self.log, admin, container="main", follow="true")
            time.sleep(0.4)
            api.append_log("default", "p", "main", "two\n")
            time.sleep(0.4)
            api.delete("Pod", "default", "p", grace_seconds=0)
            assert following.result(timeout=30) == "one\ntwo\n"


def test_many_watches_and_writers(sandbox: Sandbox, admin: Client) -> None:
    """50 watches each see all of 200 writes in order, made by 8 threads."""
    version = admin.call("GET", MAPS).body["metadata"]["resourceVersion"]

    def follow(_: int) -> list[Doc]:
        return list(itertools.islice(lines(admin, MAPS, 60.0, resourceVersion=version), 200))

    with ThreadPoolExecutor(58) as pool:
        watches = [pool.submit(follow, number) for number in range(50)]
        writes = list(pool.map(lambda number: admin.create(config_map(f"m-{number}")).status, range(200)))
        seen = [watch.result() for watch in watches]
    assert writes == [201] * 200
    for events in seen:
        versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
        assert len(versions) == 200
        assert versions == sorted(versions)


def test_stale_writers_lose(admin: Client) -> None:
    """Of writers that all read the same version, one wins."""
    first = admin.create(config_map(n="0")).body
    barrier = threading.Barrier(8)

    def write(number: int) -> int:
        barrier.wait()
        return admin.call("PUT", path_of(first), first | {"data": {"n": str(number)}}).status

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(write, range(1, 9))) == [200] + [409] * 7


def test_command_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sandbox", "--data", tmp_path / "data", "--deploy", DEPLOY]
    command += ["--kubeconfig-dir", tmp_path / "configs"]
    process = subprocess.Popen([str(part) for part in command], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("Sandbox cluster ready: http://127.0.0.1:")
        admin = Client.from_kubeconfig(tmp_path / "configs" / "admin.kubeconfig")
        nodes = {item["metadata"]["name"] for item in admin.items("v1", "Node")}
        assert nodes == {"gpu-node-1", "gpu-node-2"}
        with ThreadPoolExecutor(1) as pool:
            query = {"watch": "true", "timeoutSeconds": "60"}
            pool.submit(admin.call, "GET", MAPS, query=query)
            time.sleep(0.3)
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=30) == 0  # and not only when the watch is over
    finally:
        if process.poll() is None:
            process.kill()


def test_broken_policy_is_told(tmp_path: Path) -> None:
    deploy = tmp_path / "deploy"
    deploy.mkdir()
    policy = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "broken"},
        "spec": {"validations": [{"expression": "object.spec. =="}]},
    }
    (deploy / "policy.yaml").write_text(json.dumps(policy))
    command = [sys.executable, "-m", "sandbox", "--data", str(tmp_path / "data"), "--deploy", str(deploy)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, env=os.environ)
    assert done.returncode == 1
    assert "policy.yaml: broken: compilation failed" in done.stderr


numbers = st.decimals(min_value=0, max_value=10**12, places=3, allow_nan=False, allow_infinity=False)
suffixes = st.sampled_from(["", "m", "k", "M", "G", "T", "Ki", "Mi", "Gi", "Ti", "e3", "E3"])


@given(numbers, suffixes)
def test_canonical_quantity_keeps_the_value(number: Decimal, suffix: str) -> None:
    text = f"{number}{suffix}"
    canonical = quantity.canonical(text)
    assert quantity.parse(canonical) == quantity.parse(text)
    assert quantity.canonical(canonical) == canonical


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("8192Mi", "8Gi"), ("1000m", "1"), ("0.5", "500m"), ("1500m", "1500m"), ("1.5Gi", "1536Mi"),
        ("0.5Mi", "512Ki"), ("1024", "1024"), ("100", "100"), ("2000", "2k"), ("0", "0"), ("1e3", "1e3"),
        ("0.1Ki", "102400m"), ("20480Mi", "20Gi"), ("500Gi", "500Gi"), ("1000000k", "1G"), ("512", "512"),
    ],
)  # fmt: skip
def test_canonical_quantities(text: str, stored: str) -> None:
    assert quantity.canonical(text) == stored


@pytest.mark.parametrize("text", ["", "1x", "Mi", "1 Gi", "1.2.3", "--1", "1Gib", "0x10"])
def test_no_quantities(text: str) -> None:
    with pytest.raises(ValueError, match="quantities must match"):
        quantity.parse(text)
