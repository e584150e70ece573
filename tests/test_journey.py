"""The whole journey on a live cluster: order, run, card full, wait, release, run, quota raised, everything gone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gpu import entitlements, orders
from gpu.capacity import Capacity
from gpu.cluster.client import Cluster
from gpu.models import Observed, Slice
from gpu.order_errors import OrderRefused
from gpu.provision import provision
from gpu.quota_writer import write_quota
from gpu.status import project_status
from tests.clusters import Target, eventually
from tests.factories import World, workload, world
from tests.live import (
    entitle,
    namespace_of,
    order_and_send,
    portal_cluster,
    row_of,
    status_of,
    until,
    watching,
)

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.cluster]


@pytest.fixture
def portal(cluster: Target) -> Cluster:
    """The cluster as the portal reaches it."""
    return portal_cluster(cluster)


@pytest.fixture
def made(cluster: Target) -> Iterator[World]:
    """Two tenants whose projects have namespaces of their own."""
    found = world()
    with namespace_of(cluster, found.project), namespace_of(cluster, found.other):
        yield found


def gone(row: Slice, portal: Cluster) -> None:
    """Release a slice, and wait until it is given back and closed."""
    orders.release(None, row_of(row), delete_volume=True)
    provision(row.pk, portal)
    until(row, "released", cluster=portal)
    eventually(
        lambda: until(row, "released", cluster=portal) and row_of(row).ended_at, "the end of the slice"
    )


def test_from_entitlement_to_an_empty_namespace(cluster: Target, portal: Cluster, made: World) -> None:
    with watching(portal):
        entitle(made, portal, 1, 100)
        entitle(made, portal, 1, 100, made.other)
        eventually(lambda: Observed.objects.filter(kind="ResourceSlice").count() >= 2, "the cards")

        first = order_and_send(made, portal, "first", share=100, allow_queue=False)
        assert until(first, "running").diagnosis.reason == "ready"

        with pytest.raises(OrderRefused) as refusal:
            made.order("too many", share=100)
        assert refusal.value.code == "entitlement_used_up"

        second = order_and_send(made, portal, "second", share=100, project=made.other, user=made.robin)
        until(second, "running")
        entitle(made, portal, 1, 25, made.other)
        eventually(
            lambda: (
                [
                    line.capacity
                    for line in project_status(made.other).packages
                    if line.package.compute_percent == 25
                ]
                == [Capacity(total=8, free=0, waiting=0)]
            ),
            "cards that are all taken",
        )
        with pytest.raises(OrderRefused) as refusal:
            made.order("third", project=made.other, user=made.robin, allow_queue=False)
        assert refusal.value.code == "queue_consent_needed"
        third = order_and_send(made, portal, "third", project=made.other, user=made.robin, allow_queue=True)
        assert until(third, "waiting_for_card").diagnosis.who == "nobody"

        gone(first, portal)
        until(third, "running")

        gone(third, portal)
        gone(second, portal)
        for namespace in (made.project.namespace, made.other.namespace):
            for kind in ("Deployment", "ReplicaSet", "Pod", "ResourceClaim", "ResourceClaimTemplate"):
                eventually(
                    lambda ns=namespace, kd=kind: not portal.list(kd, ns)[0], f"no {kind} in {namespace}"
                )


def test_stop_gives_the_card_back_and_start_takes_it_again(portal: Cluster, made: World) -> None:
    with watching(portal):
        entitle(made, portal, 1)
        row = order_and_send(made, portal, "chat", workload=workload(port=8080))
        until(row, "running")
        orders.stop(made.kim, row_of(row))
        provision(row.pk, portal)
        until(row, "stopped")
        assert not portal.list("ResourceClaim", made.project.namespace)[0]
        orders.start(made.kim, row_of(row), allow_queue=True)
        provision(row.pk, portal)
        until(row, "running")
        before = portal.list("Pod", made.project.namespace)[0][0]["metadata"]["uid"]
        orders.restart(made.kim, row_of(row))
        provision(row.pk, portal)
        eventually(
            lambda: (
                [pod["metadata"]["uid"] for pod in portal.list("Pod", made.project.namespace)[0]]
                not in ([before], [])
            ),
            "another pod",
        )
        until(row, "running")


def test_a_raised_entitlement_wakes_what_waited(cluster: Target, portal: Cluster, made: World) -> None:
    """The claim controller is not woken by a raised quota; the portal wakes the waiting pod."""
    with watching(portal):
        entitle(made, portal, 1)
        first = order_and_send(made, portal, "first")
        until(first, "running")
        # The admin lowers what the cluster allows without the portal's form: the order passes here and is held there.
        made.entitle(2)
        second = order_and_send(made, portal, "second")
        found = until(second, "entitlement_used_up")
        assert found.diagnosis.who == "owner"
        assert found.slice.action == "applied"
        entitlements.ask_to_write(made.project)
        write_quota(made.project.pk, portal)
        until(second, "running", cluster=portal, seconds=30)


def test_a_pool_without_cpu_is_told_and_waited_for(cluster: Target, portal: Cluster, made: World) -> None:
    from gpu.models import ComputePool

    with watching(portal):
        pool = ComputePool.objects.create(
            project=made.project, cpu_requests="1", cpu_limits="8", memory_requests="8Gi"
        )
        entitle(made, portal, 2)
        order_and_send(made, portal, "first", workload=workload(cpu_request="600m", cpu_limit="1"))
        waiting = order_and_send(made, portal, "second", workload=workload(cpu_request="600m", cpu_limit="1"))
        found = until(waiting, "blocked_by_quota")
        assert "CPU" in found.sentence
        pool.cpu_requests = "2"
        pool.save()
        entitlements.ask_to_write(made.project)
        write_quota(made.project.pk, portal)
        until(waiting, "running", cluster=portal, seconds=40)


def test_the_api_server_dies_in_the_middle(cluster: Target, portal: Cluster, made: World) -> None:
    with watching(portal):
        entitle(made, portal, 1)
        row = order_and_send(made, portal, "chat")
        until(row, "running")
        cluster.stop_api()
        try:
            found = until(row, "cluster_unreachable", seconds=30)
            assert found.freshness.as_of is not None
            orders.stop(made.kim, row_of(row))
            assert provision(row.pk, portal).again_in is not None
        finally:
            cluster.start_api()
        Slice.objects.filter(pk=row.pk).update(retry_at=None)
        eventually(lambda: provision(row.pk, portal).again_in is None, "the order to go through")
        until(row, "stopped", seconds=40)


def test_history_compacted_under_the_watch(cluster: Target, portal: Cluster, made: World) -> None:
    with watching(portal):
        entitle(made, portal, 1)
        cluster.compact()
        row = order_and_send(made, portal, "chat")
        until(row, "running")
        assert status_of(row).freshness.reachable
