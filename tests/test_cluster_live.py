"""The gateway against a whole API server, with the portal's own rights: the sandbox, and the real control plane."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from gpu.cluster import errors
from gpu.cluster.apply import apply_all, delete_all, remove_created
from gpu.cluster.check import check
from gpu.cluster.client import Cluster, ClusterSettings, connect
from gpu.cluster.logs import fetch_log
from gpu.cluster.watch import Watcher, WatchOptions
from gpu.manifests import PackageTerms, SliceSpec, VolumeSpec, WorkloadSpec, render
from tests.clusters import Target, eventually
from tests.factories import world
from tests.watch_helpers import View, until

pytestmark = pytest.mark.cluster

IMAGE = "registry.example.test/team/app@sha256:" + "a" * 64
PACKAGES = {
    "8g": PackageTerms("kube-dc-nvidia-v100-shared-8g", "nvidia-v100-hami", 8192, 25),
    "16g": PackageTerms("kube-dc-nvidia-v100-shared-16g", "nvidia-v100-hami-16g", 16384, 50),
    "wrong": PackageTerms("kube-dc-nvidia-v100-shared-8g", "nvidia-v100-hami", 4096, 25),
}
QUICK = WatchOptions(timeout_s=60, silence_s=75.0, first_pause_s=0.05, longest_pause_s=0.5)
KINDS = ("ResourceClaimTemplate", "PersistentVolumeClaim", "Deployment", "Service")


def reach(target: Target, who: str) -> Cluster:
    return connect(ClusterSettings(str(target.kubeconfig(who)), read_timeout_s=10.0))


@pytest.fixture
def portal(cluster: Target) -> Iterator[Cluster]:
    client = reach(cluster, "portal")
    yield client
    client.close()


@pytest.fixture
def admin(cluster: Target) -> Iterator[Cluster]:
    client = reach(cluster, "admin")
    yield client
    client.close()


def documents(
    namespace: str,
    package: str = "8g",
    *,
    app: str = "chat",
    port: int | None = 8000,
    size: str | None = "1Gi",
    image: str = IMAGE,
    slice_id: str = "sl-1",
) -> tuple[dict[str, Any], ...]:
    workload = WorkloadSpec(
        image=image,
        command=(),
        args=(),
        env=(),
        port=port,
        cpu_request="100m",
        cpu_limit="200m",
        memory_request="128Mi",
        memory_limit="256Mi",
        volume=VolumeSpec(size, "/data", None) if size else None,
        template="custom",
    )
    return render(
        SliceSpec(namespace, app, PACKAGES[package], workload, replicas=1, restart=0, slice_id=slice_id)
    )


def present(cluster: Cluster, namespace: str) -> list[str]:
    return [kind for kind in KINDS if cluster.list(kind, namespace)[0]]


def test_a_slice_comes_changes_and_goes(cluster: Target, portal: Cluster) -> None:
    namespace = cluster.make_namespace("live")
    apply_all(portal, documents(namespace), slice_id="sl-1")
    assert present(portal, namespace) == list(KINDS)
    first = {kind: portal.list(kind, namespace)[0][0]["metadata"] for kind in KINDS}

    apply_all(portal, documents(namespace), slice_id="sl-1")
    again = portal.get("Deployment", namespace, "chat")
    assert again is not None
    assert again["metadata"]["uid"] == first["Deployment"]["uid"]
    assert again["metadata"]["generation"] == first["Deployment"]["generation"]

    apply_all(portal, documents(namespace, "16g", port=None), slice_id="sl-1")
    template = portal.get("ResourceClaimTemplate", namespace, "chat-gpu")
    assert template is not None
    assert template["metadata"]["uid"] != first["ResourceClaimTemplate"]["uid"]
    (asked,) = template["spec"]["spec"]["devices"]["requests"]
    assert asked["exactly"]["capacity"]["requests"] == {"memory": "16Gi", "cores": "50"}
    assert present(portal, namespace) == [kind for kind in KINDS if kind != "Service"]

    delete_all(portal, documents(namespace, "16g"), slice_id="sl-1", volume=False)
    assert present(portal, namespace) == ["PersistentVolumeClaim"]
    delete_all(portal, documents(namespace, "16g"), slice_id="sl-1", volume=True)
    eventually(lambda: present(portal, namespace) == [], "the volume's end")


def test_what_is_no_longer_stated_is_taken_out(cluster: Target, portal: Cluster) -> None:
    namespace = cluster.make_namespace("live")
    with_command = documents(namespace)
    with_command[2]["spec"]["template"]["spec"]["containers"][0]["command"] = ["sleep", "60"]
    apply_all(portal, with_command, slice_id="sl-1")
    apply_all(portal, documents(namespace), slice_id="sl-1")
    found = portal.get("Deployment", namespace, "chat")
    assert found is not None
    assert "command" not in found["spec"]["template"]["spec"]["containers"][0]


@pytest.mark.parametrize("kind", KINDS)
def test_what_somebody_made_since_we_looked_is_given_back(
    kind: str, cluster: Target, portal: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is just like ours, so that no field conflicts."""
    namespace, admin = cluster.make_namespace("live"), cluster.client()
    [theirs] = [document for document in documents(namespace) if document["kind"] == kind]
    del theirs["metadata"]["annotations"]["gpu-portal/slice"]
    look = Cluster.get

    def slow(self: Cluster, *place: str) -> Any:
        found = look(self, *place)
        if place[0] == kind:
            assert admin.create(theirs).ok
        return found

    with monkeypatch.context() as patch:
        patch.setattr(Cluster, "get", slow)
        with pytest.raises(errors.Conflict) as caught:
            apply_all(portal, documents(namespace), slice_id="sl-1")
    assert caught.value.retry
    name = theirs["metadata"]["name"]
    found = admin.get(theirs["apiVersion"], kind, namespace, name).body
    assert "gpu-portal/slice" not in found["metadata"].get("annotations", {})
    assert found["metadata"]["labels"] == theirs["metadata"]["labels"]
    with pytest.raises(errors.NotOurs):
        apply_all(portal, documents(namespace), slice_id="sl-1")
    still = look(portal, kind, namespace, name)
    assert still is not None
    assert still["metadata"]["uid"] == found["metadata"]["uid"]


@pytest.mark.parametrize("kind", KINDS)
def test_what_we_made_ourselves_since_we_looked_stays(
    kind: str, cluster: Target, portal: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request whose answer was given up may still be carried out."""
    namespace = cluster.make_namespace("live")
    [ours] = [document for document in documents(namespace) if document["kind"] == kind]
    look = Cluster.get

    def slow(self: Cluster, *place: str) -> Any:
        found = look(self, *place)
        if place[0] == kind:
            self.apply(ours)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(Cluster, "get", slow)
        with pytest.raises(errors.Conflict):
            apply_all(portal, documents(namespace), slice_id="sl-1")
    apply_all(portal, documents(namespace), slice_id="sl-1")
    assert present(portal, namespace) == list(KINDS)


def test_a_foreign_name_is_left_alone(cluster: Target, portal: Cluster) -> None:
    namespace = cluster.make_namespace("live")
    apply_all(portal, documents(namespace), slice_id="sl-1")
    with pytest.raises(errors.NotOurs):
        apply_all(portal, documents(namespace, slice_id="sl-2"), slice_id="sl-2")
    with pytest.raises(errors.NotOurs):
        delete_all(portal, documents(namespace, slice_id="sl-2"), slice_id="sl-2", volume=True)
    assert present(portal, namespace) == list(KINDS)


def test_a_policy_refusal_has_name_and_sentence_and_leaves_nothing(cluster: Target, portal: Cluster) -> None:
    namespace = cluster.make_namespace("live")
    with pytest.raises(errors.PolicyRefused) as caught:
        apply_all(portal, documents(namespace, "wrong"), slice_id="sl-1")
    assert "must match the selected fixed product" in caught.value.platform_message
    assert caught.value.policy
    broken = list(documents(namespace))
    broken[2] = json.loads(json.dumps(broken[2]).replace("Recreate", "RollingUpdate"))
    with pytest.raises(errors.PolicyRefused):
        apply_all(portal, broken, slice_id="sl-1")
    remove_created(portal, broken, slice_id="sl-1")
    eventually(lambda: present(portal, namespace) == [], "the end of what was created")


def test_a_refused_change_of_package_keeps_the_old_template(cluster: Target, portal: Cluster) -> None:
    namespace = cluster.make_namespace("live")
    apply_all(portal, documents(namespace), slice_id="sl-1")
    before = portal.get("ResourceClaimTemplate", namespace, "chat-gpu")
    assert before is not None
    with pytest.raises(errors.PolicyRefused):
        apply_all(portal, documents(namespace, "wrong"), slice_id="sl-1")
    after = portal.get("ResourceClaimTemplate", namespace, "chat-gpu")
    assert after is not None
    assert after["metadata"]["uid"] == before["metadata"]["uid"]


def test_c06_an_older_rolling_deployment_becomes_recreate(cluster: Target, admin: Cluster) -> None:
    # Outside of projects, where the policies let such a Deployment be.
    namespace = cluster.make_namespace("older", labels={})
    older = json.loads(json.dumps(documents(namespace)[2]))
    older["spec"]["strategy"] = {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"},
    }
    admin.create(older)
    apply_all(admin, documents(namespace), slice_id="sl-1")
    found = admin.get("Deployment", namespace, "chat")
    assert found is not None
    assert found["spec"]["strategy"] == {"type": "Recreate"}


def test_refusals_have_their_kind(cluster: Target, portal: Cluster) -> None:
    namespace = cluster.make_namespace("live", quota={"requests.storage": "10Gi"})
    with pytest.raises(errors.QuotaExceeded) as caught:
        apply_all(portal, documents(namespace, size="20Gi"), slice_id="sl-1")
    assert caught.value.quota == "plan-quota"
    assert caught.value.requested == {"requests.storage": 20 * 2**30}
    with pytest.raises(errors.NamespaceMissing):
        apply_all(portal, documents("acme-none"), slice_id="sl-1")
    delete_all(portal, documents("acme-none"), slice_id="sl-1", volume=True)
    with pytest.raises(errors.Forbidden):
        portal.get("Secret", namespace, "any")
    with pytest.raises(errors.InvalidObject):
        portal.apply({**documents(namespace)[3], "spec": {"ports": [{"port": 700000}]}})


def test_a_volume_grows_at_most(cluster: Target, portal: Cluster) -> None:
    namespace = cluster.make_namespace("live")
    apply_all(portal, documents(namespace, size="2Gi"), slice_id="sl-1")
    with pytest.raises(errors.VolumeChange):
        apply_all(portal, documents(namespace, size="1Gi"), slice_id="sl-1")


def test_lists_come_in_pages(cluster: Target, portal: Cluster) -> None:
    namespace = cluster.make_namespace("live")
    for number in range(5):
        service = documents(namespace, app=f"s{number}")[3]
        portal.apply(service)
    pages = list(portal.pages("Service", namespace, limit=2))
    assert [len(items) for items, _ in pages] == [2, 2, 1]
    names = [item["metadata"]["name"] for items, _ in pages for item in items]
    assert sorted(names) == [f"s{number}" for number in range(5)]
    items, version = portal.list("Service", namespace, "app.kubernetes.io/name in (s1, s3)")
    assert [each["metadata"]["name"] for each in items] == ["s1", "s3"]
    assert version


class Following:
    """A watcher of Services in one namespace, in a thread of its own."""

    def __init__(self, client: Cluster, namespace: str) -> None:
        self.view = View()
        self.stop = threading.Event()
        watcher = Watcher(client, "Service", self.view, QUICK, namespace=namespace)
        self.thread = threading.Thread(target=watcher.run, args=(self.stop,), daemon=True)

    def __enter__(self) -> View:
        self.thread.start()
        return self.view

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self.thread.join(1.0)
        assert not self.thread.is_alive()


def test_a_watcher_follows_and_ends(cluster: Target, portal: Cluster) -> None:
    namespace = cluster.make_namespace("live")
    portal.apply(documents(namespace, app="a")[3])
    with Following(portal, namespace) as view:
        until(lambda: list(view.names) == ["a"])
        portal.apply(documents(namespace, app="b")[3])
        until(lambda: sorted(view.names) == ["a", "b"])
        portal.patch("Service", namespace, "a", {"metadata": {"annotations": {"x": "y"}}})
        until(lambda: view.calls.count("upsert a") == 1)
        portal.delete("Service", namespace, "a")
        until(lambda: list(view.names) == ["b"])
    assert view.errors == []
    assert len([call for call in view.calls if call.startswith("replace")]) == 1


def test_c12_a_forgotten_version_is_listed_again(cluster: Target, portal: Cluster) -> None:
    namespace = cluster.make_namespace("live")
    portal.apply(documents(namespace, app="a")[3])
    _, version = portal.list("Service", namespace)
    portal.apply(documents(namespace, app="b")[3])
    portal.delete("Service", namespace, "a")
    cluster.compact()
    view = View()
    watcher = Watcher(portal, "Service", view, QUICK, namespace=namespace)
    watcher._version = version
    view.names["a"] = version
    stop = threading.Event()
    thread = threading.Thread(target=watcher.run, args=(stop,), daemon=True)
    thread.start()
    try:
        until(lambda: list(view.names) == ["b"], 20)
        portal.apply(documents(namespace, app="c")[3])
        until(lambda: sorted(view.names) == ["b", "c"])
    finally:
        stop.set()
        thread.join(1.0)
    assert len([call for call in view.calls if call.startswith("replace")]) == 1
    assert view.errors == []


def test_a_watcher_survives_a_restart_of_the_api_server(cluster: Target, portal: Cluster) -> None:
    namespace = cluster.make_namespace("live")
    portal.apply(documents(namespace, app="a")[3])
    with Following(portal, namespace) as view:
        until(lambda: list(view.names) == ["a"])
        cluster.stop_api()
        try:
            with pytest.raises(errors.Unreachable):
                portal.version()
            until(lambda: view.errors)
        finally:
            cluster.start_api()
        eventually(lambda: _applied(portal, documents(namespace, app="b")[3]), "the API server's return", 60)
        until(lambda: sorted(view.names) == ["a", "b"], 30)


def _applied(client: Cluster, document: dict[str, Any]) -> bool:
    try:
        client.apply(document)
    except errors.ClusterError as error:
        if not error.retry:
            raise
        return False
    return True


def test_the_check_finds_a_cluster_that_is_well(cluster: Target, portal: Cluster) -> None:
    namespace = cluster.make_namespace("live")
    lines = check(portal, [PACKAGES["8g"], PACKAGES["16g"]], namespace)
    assert [(str(line.title), str(line.mend)) for line in lines if not line.ok] == []


def test_the_check_finds_a_package_the_cluster_does_not_know(cluster: Target, portal: Cluster) -> None:
    namespace = cluster.make_namespace("live")
    unknown = PackageTerms("no-such-class", "nvidia-v100-hami", 8192, 25)
    bad = [line for line in check(portal, [unknown], namespace) if not line.ok]
    assert [line.code for line in bad] == ["device_class", "capacity"]
    assert "must match the selected fixed product" in str(bad[1].mend)


@pytest.mark.django_db
def test_the_command_prints_every_line(
    cluster: Target, settings: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    made = world()
    made.project.namespace = cluster.make_namespace("live")
    made.project.save()
    settings.KUBECONFIG = str(cluster.kubeconfig("portal"))
    call_command("check_cluster")
    heading, *lines = capsys.readouterr().out.splitlines()
    assert heading == "Cluster (default)"
    assert len(lines) > 20
    assert {line[:8] for line in lines} == {"ok      "}
    made.packages[25].device_class = "no-such-class"
    made.packages[25].save()
    with pytest.raises(CommandError, match=r"^2 of"):
        call_command("check_cluster")
    assert "Make the DeviceClass no-such-class" in capsys.readouterr().out


def test_the_log_of_a_running_slice(cluster: Target, portal: Cluster) -> None:
    namespace = cluster.make_namespace("live")
    image = "registry.example.test/team/cuda-check@sha256:" + "a" * 64
    apply_all(portal, documents(namespace, image=image, size=None), slice_id="sl-1")

    def log() -> str:
        try:
            return fetch_log(portal, namespace, "chat")
        except errors.NoLogYet:
            return ""

    text = eventually(log, "the log", 30)
    assert "8192MiB" in text
    assert not re.search(r"GPU-[0-9a-f]{8}|[0-9A-F]{8}:[0-9A-F]{2}:", text)
    delete_all(portal, documents(namespace), slice_id="sl-1", volume=True)
