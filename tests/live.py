"""A portal's background side against a live cluster: tasks called directly, the watcher in a thread."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection

from gpu import entitlements
from gpu.cluster.client import Cluster, ClusterSettings, connect
from gpu.cluster.watch import WatchOptions
from gpu.facts import freshness
from gpu.models import Slice
from gpu.provision import provision
from gpu.quota_writer import write_quota
from gpu.status import SliceStatus, slice_status
from gpu.sweep import sweep
from gpu.watching import watch
from tenants.models import FIRST_CLUSTER, Project
from tests.clusters import Target, eventually
from tests.factories import World

QUICK = WatchOptions(timeout_s=20, silence_s=30.0, first_pause_s=0.1, longest_pause_s=1.0)


def portal_cluster(target: Target) -> Cluster:
    """The cluster as the portal's service account reaches it."""
    return connect(
        ClusterSettings(kubeconfig=str(target.kubeconfig("portal")), connect_timeout_s=2, read_timeout_s=5)
    )


@contextmanager
def namespace_of(target: Target, project: Project) -> Iterator[None]:
    """Give a project a namespace of its own, and leave the cards free afterwards."""
    project.namespace = target.make_namespace(project.namespace)
    project.save(update_fields=["namespace"])
    namespace = project.namespace
    yield
    target.drop_namespace(namespace)
    claims = "resource.k8s.io/v1"
    eventually(
        lambda: not target.client().items(claims, "ResourceClaim", namespace), f"no claims in {namespace}"
    )


@contextmanager
def watching(cluster: Cluster, key: int = FIRST_CLUSTER) -> Iterator[threading.Event]:
    """Run the watcher of one cluster (the key of its row) in a thread."""
    stop = threading.Event()

    def run() -> None:
        try:
            watch(cluster, stop, QUICK, key)
        finally:
            connection.close()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        eventually(lambda: freshness(cluster=key).as_of, "the first list of every kind")
        yield stop
    finally:
        stop.set()
        thread.join(10)


def row_of(row: Slice) -> Slice:
    """Read a slice anew."""
    return Slice.objects.select_related("project", "package", "order").get(pk=row.pk)


def status_of(row: Slice) -> SliceStatus:
    """Diagnose a slice anew."""
    return slice_status(row_of(row))


def until(row: Slice, *states: str, seconds: float = 20.0, cluster: Cluster | None = None) -> SliceStatus:
    """Wait until a slice is in one of `states`; with `cluster`, the sweep runs meanwhile."""

    def look() -> SliceStatus | None:
        if cluster is not None:
            sweep(cluster)
        found = status_of(row)
        return found if found.state in states else None

    found = eventually(look, f"{row.display_name} {states} (is {status_of(row).state})", seconds)
    assert isinstance(found, SliceStatus)
    return found


def entitle(
    made: World, cluster: Cluster, count: int, share: int = 25, project: Project | None = None
) -> None:
    """Set an entitlement and write the quota."""
    made.entitle(count, share, project)
    entitlements.ask_to_write(project or made.project)
    assert write_quota((project or made.project).pk, cluster).again_in is None


def order_and_send(made: World, cluster: Cluster, name: str = "", **values: object) -> Slice:
    """Place an order and bring it to the cluster."""
    row = made.order(name or f"s{uuid.uuid4().hex[:6]}", **values)  # type: ignore[arg-type]
    provision(row.pk, cluster)
    return row_of(row)
