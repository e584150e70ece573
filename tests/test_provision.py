"""Provisioning on a live cluster: double delivery, crashes, refusals (C-14, C-16), lost answers, release."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection

from gpu import orders, outcomes, provision
from gpu.cluster import apply as gateway
from gpu.cluster.client import Cluster
from gpu.manifests import VolumeSpec
from gpu.models import Slice
from gpu.provision import Run
from tests.clusters import Target
from tests.factories import World, workload, world
from tests.live import entitle, namespace_of, order_and_send, portal_cluster, row_of

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.cluster]
KINDS = ("ResourceClaimTemplate", "PersistentVolumeClaim", "Deployment", "Service")


@pytest.fixture
def portal(cluster: Target) -> Cluster:
    """The cluster as the portal reaches it."""
    return portal_cluster(cluster)


@pytest.fixture
def made(cluster: Target) -> Iterator[World]:
    """Tenants whose project has a namespace of its own."""
    found = world(entitled=3)
    with namespace_of(cluster, found.project):
        yield found


def objects(portal: Cluster, made: World) -> dict[str, int]:
    """How many objects of each kind stand in the project's namespace and are not being deleted.

    A real cluster lets a volume go only when its controller has looked whether a pod uses it.
    """
    listed = {kind: portal.list(kind, made.project.namespace)[0] for kind in KINDS}
    return {
        kind: sum("deletionTimestamp" not in item["metadata"] for item in items)
        for kind, items in listed.items()
    }


def test_an_order_becomes_objects_in_the_cluster(portal: Cluster, made: World) -> None:
    spec = workload(port=8080, volume=VolumeSpec("1Gi", "/data"))
    row = order_and_send(made, portal, "chat", workload=spec)
    assert (row.action, row.applied_generation) == ("applied", 1)
    assert objects(portal, made) == dict.fromkeys(KINDS, 1)
    assert list(row.timeline.values_list("code", flat=True)) == ["ordered", "accepted"]


def test_delivered_twice_at_the_same_time_makes_one_of_each(portal: Cluster, made: World) -> None:
    row = made.order("chat")

    def run(_number: int) -> Run:
        try:
            return provision.provision(row.pk, portal)
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as pool:
        runs = list(pool.map(run, range(4)))
    assert Run() in runs
    assert {run.again_in for run in runs} <= {None, 1.0}
    assert objects(portal, made) == {
        "ResourceClaimTemplate": 1,
        "PersistentVolumeClaim": 0,
        "Deployment": 1,
        "Service": 0,
    }
    assert row.timeline.filter(code="accepted").count() == 1


def test_delivered_again_after_the_end_changes_nothing(portal: Cluster, made: World) -> None:
    row = order_and_send(made, portal)
    before = portal.get("Deployment", made.project.namespace, row.app)
    assert provision.provision(row.pk, portal) == Run()
    after = portal.get("Deployment", made.project.namespace, row.app)
    assert before is not None
    assert after is not None
    assert [found["metadata"]["uid"] for found in (before, after)] == [before["metadata"]["uid"]] * 2
    assert (before["spec"], before["metadata"]["generation"]) == (
        after["spec"],
        after["metadata"]["generation"],
    )
    assert row.timeline.count() == 2


class Died(BaseException):
    """The worker dies here."""


@pytest.mark.parametrize("survived", range(3))
def test_a_crash_after_any_write_ends_in_the_same_state(
    portal: Cluster, made: World, monkeypatch: pytest.MonkeyPatch, survived: int
) -> None:
    row = made.order("chat", workload=workload(port=8080))
    writes = iter(range(100))
    real = Cluster.make

    def dying(self: Cluster, *args: Any, **kwargs: Any) -> Any:
        answer = real(self, *args, **kwargs)
        if next(writes) == survived:
            raise Died
        return answer

    with monkeypatch.context() as patch:
        patch.setattr(Cluster, "make", dying)
        with pytest.raises(Died):
            provision.provision(row.pk, portal)
    assert row_of(row).applied_generation == 0
    assert provision.provision(row.pk, portal) == Run()
    assert row_of(row).action == "applied"
    assert objects(portal, made)["Deployment"] == 1


def test_after_three_lost_workers_an_operator_is_needed(
    portal: Cluster, made: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = made.order("chat")

    def dying(*args: Any, **kwargs: Any) -> None:
        raise Died

    with monkeypatch.context() as patch:
        patch.setattr(provision, "apply_all", dying)
        for _ in range(outcomes.MAX_LOST_RUNS):
            with pytest.raises(Died):
                provision.provision(row.pk, portal)
        assert provision.provision(row.pk, portal) == Run()
    assert (row_of(row).action, row_of(row).action_code) == ("needs_operator", "worker_lost")
    assert objects(portal, made)["Deployment"] == 0
    assert outcomes.try_again(Slice.objects.filter(pk=row.pk)) == 1
    assert provision.provision(row.pk, portal) == Run()
    assert row_of(row).action == "applied"


def test_a_policy_refusal_ends_the_order_with_the_platforms_sentence(portal: Cluster, made: World) -> None:
    package = made.packages[25]
    package.memory_mib = 9000
    package.save()
    row = order_and_send(made, portal, "chat", workload=workload(volume=VolumeSpec("1Gi", "/data")))
    assert (row.action, row.action_code) == ("refused", "policy_refused")
    assert row.action_policy == "kube-dc-dra-gpu-claim-templates"
    assert "must match the selected fixed product" in row.action_message
    assert row.ended_at is not None
    assert objects(portal, made) == dict.fromkeys(KINDS, 0)
    assert made.order("chat").app == row.app


def test_a_refusal_after_the_template_removes_what_was_created(
    portal: Cluster, made: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gpu import manifests

    real = manifests.render

    def rolling(spec: Any) -> Any:
        documents = real(spec)
        deployment = next(document for document in documents if document["kind"] == "Deployment")
        deployment["spec"]["strategy"] = {"type": "RollingUpdate"}
        return documents

    monkeypatch.setattr(provision, "render", rolling)
    row = order_and_send(made, portal, "chat", workload=workload(volume=VolumeSpec("1Gi", "/data")))
    assert row.action == "refused"
    assert "Recreate" in row.action_message
    assert objects(portal, made) == dict.fromkeys(KINDS, 0)


def test_a_refused_change_goes_back_to_what_ran(
    portal: Cluster, made: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = order_and_send(made, portal, "chat")
    orders.change(made.kim, row, workload(cpu_limit="3"))
    real = gateway.apply_all
    calls = iter(range(10))

    def refusing(*args: Any, **kwargs: Any) -> None:
        if next(calls) == 0:
            raise gateway.InvalidObject("spec: nonsense")
        real(*args, **kwargs)

    monkeypatch.setattr(provision, "apply_all", refusing)
    assert provision.provision(row.pk, portal) == Run()
    row = row_of(row)
    assert (row.workload, row.action, row.action_code) == (workload(), "applied", "change_refused")
    assert row.generation == row.applied_generation == 3
    assert "change_refused" in row.timeline.values_list("code", flat=True)


def test_a_namespace_that_is_missing_is_told_and_nothing_stays(portal: Cluster, made: World) -> None:
    made.project.namespace = "not-there"
    made.project.save()
    row = order_and_send(made, portal)
    assert row.action_code == "namespace_missing"


def test_an_object_of_somebody_else_is_never_taken_over(
    cluster: Target, portal: Cluster, made: World
) -> None:
    theirs = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "chat-data", "namespace": made.project.namespace},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    assert cluster.client().create(theirs).ok
    row = order_and_send(made, portal, "chat", workload=workload(volume=VolumeSpec("2Gi", "/data")))
    assert (row.action, row.action_code) == ("refused", "not_ours")
    assert objects(portal, made) == {
        "ResourceClaimTemplate": 0,
        "PersistentVolumeClaim": 1,
        "Deployment": 0,
        "Service": 0,
    }


def test_an_unreachable_cluster_is_tried_again_with_growing_pauses(
    cluster: Target, portal: Cluster, made: World
) -> None:
    row = made.order("chat")
    cluster.stop_api()
    try:
        pauses = []
        for _ in range(3):
            Slice.objects.filter(pk=row.pk).update(retry_at=None)
            run = provision.provision(row.pk, portal)
            assert run.again_in is not None
            pauses.append(run.again_in)
        assert pauses == sorted(pauses)
        assert (row_of(row).action, row_of(row).action_code) == ("retrying", "unreachable")
        assert provision.provision(row.pk, portal).again_in is not None
        assert row_of(row).attempts == 3
    finally:
        cluster.start_api()
    Slice.objects.filter(pk=row.pk).update(retry_at=None)
    assert provision.provision(row.pk, portal) == Run()
    assert row_of(row).action == "applied"


def test_an_answer_lost_after_the_write_is_no_second_object(
    portal: Cluster, made: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gpu.cluster.errors import Unreachable

    row = made.order("chat")
    real = Cluster.make

    def losing(self: Cluster, *args: Any, **kwargs: Any) -> Any:
        real(self, *args, **kwargs)
        raise Unreachable("answer lost")

    with monkeypatch.context() as patch:
        patch.setattr(Cluster, "make", losing)
        assert provision.provision(row.pk, portal).again_in is not None
    Slice.objects.filter(pk=row.pk).update(retry_at=None)
    assert provision.provision(row.pk, portal) == Run()
    assert objects(portal, made)["ResourceClaimTemplate"] == 1


def test_intent_that_changes_during_a_run_is_sent_in_the_same_run(
    portal: Cluster, made: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = made.order("chat")
    real = gateway.apply_all
    first = threading.Event()

    def meanwhile(*args: Any, **kwargs: Any) -> None:
        real(*args, **kwargs)
        if not first.is_set():
            first.set()
            orders.stop(made.kim, row_of(row))

    monkeypatch.setattr(provision, "apply_all", meanwhile)
    assert provision.provision(row.pk, portal) == Run()
    row = row_of(row)
    assert (row.applied_generation, row.intent) == (2, "stop")
    deployment = portal.get("Deployment", made.project.namespace, row.app)
    assert deployment is not None
    assert deployment["spec"]["replicas"] == 0


@pytest.mark.parametrize("delete_volume", [False, True])
def test_release_deletes_everything_and_the_volume_only_if_ticked(
    portal: Cluster, made: World, delete_volume: bool
) -> None:
    row = order_and_send(made, portal, "chat", workload=workload(port=80, volume=VolumeSpec("1Gi", "/data")))
    orders.release(made.kim, row, delete_volume=delete_volume)
    assert provision.provision(row.pk, portal) == Run()
    left = objects(portal, made)
    assert (left["Deployment"], left["ResourceClaimTemplate"], left["Service"]) == (0, 0, 0)
    if not delete_volume:
        assert left["PersistentVolumeClaim"] == 1
        # Its name stays taken: a new slice must not find another's data.
        assert made.order("chat").app != row.app


def test_the_quota_says_what_the_project_is_entitled_to(portal: Cluster, made: World) -> None:
    entitle(made, portal, 2)
    found = portal.get("ResourceQuota", made.project.namespace, "gpu-portal")
    assert found is not None
    assert found["spec"]["hard"] == {
        "kube-dc-nvidia-v100-shared-8g.deviceclass.resource.k8s.io/devices": "2",
        "kube-dc-nvidia-v100-shared-16g.deviceclass.resource.k8s.io/devices": "0",
        "kube-dc-nvidia-v100-shared-32g.deviceclass.resource.k8s.io/devices": "0",
    }


def test_a_first_order_does_not_overtake_its_quota(portal: Cluster, made: World) -> None:
    from gpu import entitlements
    from gpu.models import QuotaState
    from gpu.quota_writer import write_quota

    entitlements.ask_to_write(made.project)
    row = made.order("chat")
    assert provision.provision(row.pk, portal).again_in == 1.0
    assert objects(portal, made)["Deployment"] == 0
    write_quota(made.project.pk, portal)
    assert provision.provision(row.pk, portal) == Run()
    entitlements.ask_to_write(made.project)
    QuotaState.objects.update(attempts=1)
    assert provision.provision(made.order("second").pk, portal) == Run()
