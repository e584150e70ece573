"""Two clusters at once: each project in its own, and one that does not answer holds up no other."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.core.management import CommandError, call_command
from django.db import IntegrityError, connection

from gpu import enqueue, link
from gpu.capacity import Capacity
from gpu.cluster.errors import Unreachable
from gpu.facts import WATCHED_KINDS, freshness, project_facts
from gpu.link import cluster as connected
from gpu.link import reach
from gpu.models import Observed, Slice, WatchState
from gpu.observe import RowSink
from gpu.provision import Run, provision
from gpu.status import project_status
from gpu.sweep import sweep
from gpu.watching import serve
from tenants.models import FIRST_CLUSTER, Cluster, Project, default_cluster
from tests.clusters import SandboxTarget, Target, eventually
from tests.factories import card, claim, observe, watched, world
from tests.live import QUICK, row_of, status_of


@pytest.fixture(scope="module")
def second_sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SandboxTarget]:
    """Another cluster than the fixture `cluster`."""
    target = SandboxTarget(tmp_path_factory.mktemp("second"))
    yield target
    target.stop()


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Tasks that would have been sent: there is no worker here."""
    found: list[int] = []
    monkeypatch.setattr(enqueue, "_send", lambda _task, pk: found.append(pk))
    return found


@pytest.fixture
def cache_of_its_own(settings: Any) -> None:
    """What this test remembers of a cluster concerns no other test."""
    settings.CACHES = {"default": {**settings.CACHES["default"], "KEY_PREFIX": f"test-{time.monotonic_ns()}"}}


@contextmanager
def silent_server(folder: Path) -> Iterator[tuple[Path, list[float]]]:
    """A kubeconfig of a server that takes every connection and never answers, and when it was called."""
    calls: list[float] = []
    held: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:

        def accept() -> None:
            while True:
                try:
                    held.append(server.accept()[0])
                except OSError:
                    return
                calls.append(time.monotonic())

        threading.Thread(target=accept, daemon=True).start()
        path = folder / "silent.kubeconfig"
        path.write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "silent",
                    "contexts": [{"name": "silent", "context": {"cluster": "silent", "user": "u"}}],
                    "clusters": [
                        {
                            "name": "silent",
                            "cluster": {"server": f"http://127.0.0.1:{server.getsockname()[1]}"},
                        }
                    ],
                    "users": [{"name": "u", "user": {"token": "none"}}],
                }
            )
        )
        yield path, calls
        server.shutdown(socket.SHUT_RDWR)
    for one in held:
        one.close()


@contextmanager
def serving(*slugs: str) -> Iterator[None]:
    """Run the watcher process's loop in a thread."""
    stop = threading.Event()

    def run() -> None:
        try:
            serve(stop, slugs, QUICK, look_every_s=0.3)
        finally:
            connection.close()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(15)
        assert not thread.is_alive()


def in_namespace(target: Target, project: Project, row: Cluster | None = None) -> None:
    """Give a project a namespace of its own in a cluster."""
    project.namespace = target.make_namespace(project.namespace)
    project.cluster = row or project.cluster
    project.save()


# Rows --------------------------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_a_new_project_gets_the_cluster_for_new_projects() -> None:
    made = world()
    assert made.project.cluster_id == FIRST_CLUSTER == default_cluster()
    Cluster.objects.filter(pk=FIRST_CLUSTER).update(is_default=False)
    assert default_cluster() == FIRST_CLUSTER
    other = Cluster.objects.create(slug="west", name="West", kubeconfig="/west", is_default=True)
    assert Project.objects.create(tenant=made.acme, name="B", namespace="acme-b").cluster == other


@pytest.mark.django_db
@pytest.mark.parametrize(
    "values", [{"kubeconfig": "/west", "is_default": True}, {"kubeconfig": ""}, {"slug": "default"}]
)
def test_only_one_default_and_one_row_a_connection(values: dict[str, Any]) -> None:
    with pytest.raises(IntegrityError):
        Cluster.objects.create(**{"slug": "west", "name": "West", "kubeconfig": "/west", **values})


@pytest.mark.django_db
def test_what_was_seen_in_one_cluster_is_no_fact_of_another() -> None:
    made = world(entitled=2)
    west = Cluster.objects.create(slug="west", name="West", kubeconfig="/west")
    watched()
    watched(age_s=90, cluster=west.pk)
    observe(card(), claim("acme-ai", "chat"))
    observe(card("other"), card("third"), claim("acme-ai", "chat", node=None), cluster=west.pk)
    assert Observed.objects.filter(kind="ResourceClaim", name="chat-claim").count() == 2

    facts = project_facts("acme-ai")
    assert [item["status"] != {} for item in facts.of("chat", "ResourceClaim")] == [True]
    assert facts.freshness.reachable
    line = project_status(made.project).packages[0]
    assert line.capacity == Capacity(total=4, free=3, waiting=0)

    Project.objects.filter(pk=made.project.pk).update(cluster=west)
    made.project.refresh_from_db()
    facts = project_facts("acme-ai")
    assert [item["status"] for item in facts.of("chat", "ResourceClaim")] == [{}]
    assert facts.freshness.stale
    assert not facts.freshness.reachable
    line = project_status(made.project).packages[0]
    assert line.capacity == Capacity(total=8, free=8, waiting=1)


@pytest.mark.django_db
def test_a_sink_writes_only_its_own_clusters_rows() -> None:
    west = Cluster.objects.create(slug="west", name="West", kubeconfig="/west")
    here, there = RowSink(), RowSink(west.pk)
    for sink in (here, there):
        sink.replace("ResourceSlice", [card()], "1")
    there.remove("ResourceSlice", card())
    assert list(Observed.objects.values_list("cluster", flat=True)) == [FIRST_CLUSTER]
    there.failed("ResourceSlice", Unreachable())
    assert list(WatchState.objects.exclude(error_code="").values_list("cluster", flat=True)) == [west.pk]
    here.replace("ResourceSlice", [], "2")
    assert WatchState.objects.get(cluster=west).relists == 1


# Processes ---------------------------------------------------------------------------------------------------


@pytest.mark.cluster
@pytest.mark.django_db(transaction=True)
def test_each_project_runs_in_its_own_cluster(
    cluster: Target, second_sandbox: SandboxTarget, settings: Any, sent: list[int]
) -> None:
    settings.KUBECONFIG = str(cluster.kubeconfig("portal"))
    west = Cluster.objects.create(
        slug="west", name="West", kubeconfig=str(second_sandbox.kubeconfig("portal"))
    )
    made = world(entitled=2)
    made.entitle(1, project=made.other)
    in_namespace(cluster, made.project)
    in_namespace(second_sandbox, made.other, west)
    with serving():
        here = made.order("here")
        there = made.order("there", project=made.other, user=made.robin)
        for row in (here, there):
            assert provision(row.pk) == Run()
            eventually(lambda row=row: status_of(row).state == "running", f"{row} running", 40)
        assert cluster.client().get("apps/v1", "Deployment", made.project.namespace, here.app).ok
        assert not cluster.client().get("apps/v1", "Deployment", made.other.namespace, there.app).ok
        assert second_sandbox.client().get("apps/v1", "Deployment", made.other.namespace, there.app).ok

        output = StringIO()
        call_command("check_cluster", cluster=["west"], stdout=output)
        assert output.getvalue().startswith("West (west)\nok ")
        with pytest.raises(CommandError, match="No cluster is called east"):
            call_command("check_cluster", cluster=["east"])

        # The second one dies without a word; the first goes on as before.
        second_sandbox.stop_api()
        try:
            eventually(lambda: not freshness(cluster=west.pk).reachable, "the loss noticed", 15)
            eventually(lambda: status_of(there).state == "cluster_unreachable", "said", 15)
            later = made.order("later", allow_queue=True)
            began = time.monotonic()
            assert provision(later.pk) == Run()
            eventually(
                lambda: project_facts(made.project.namespace).of(later.app, "Deployment"), "the Deployment"
            )
            assert time.monotonic() - began < 20
            assert freshness().reachable
            assert status_of(here).state == "running"
        finally:
            second_sandbox.start_api()
        eventually(lambda: freshness(cluster=west.pk).reachable, "the cluster back", 30)
        eventually(lambda: status_of(there).state == "running", "running again", 30)


@pytest.mark.cluster
@pytest.mark.django_db(transaction=True)
def test_the_watcher_notices_rows_that_come_and_go(
    cluster: Target, second_sandbox: SandboxTarget, settings: Any
) -> None:
    settings.KUBECONFIG = str(cluster.kubeconfig("portal"))
    with serving():
        eventually(lambda: freshness().as_of, "the first cluster")
        west = Cluster.objects.create(slug="west", name="West", kubeconfig="/nowhere")
        eventually(
            lambda: WatchState.objects.filter(cluster=west, error_code="not_configured").exists(),
            "the failure noted",
        )
        Cluster.objects.filter(pk=west.pk).update(kubeconfig=str(second_sandbox.kubeconfig("portal")))
        eventually(lambda: freshness(cluster=west.pk).as_of, "the second cluster")
        assert freshness().reachable


@pytest.mark.django_db(transaction=True)
def test_a_cluster_that_cannot_be_followed_keeps_two_connections(settings: Any) -> None:
    """One a kind, for each of a few clusters that are away, would leave none to the pages."""
    settings.KUBECONFIG = "/nowhere"

    def held() -> int:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            return int(cursor.fetchone()[0])

    before = held()
    failing = WatchState.objects.filter(cluster=FIRST_CLUSTER, error_code="not_configured")
    with serving():
        eventually(lambda: failing.count() == len(WATCHED_KINDS), "all failures noted")
        # The place of the watcher, its heartbeat and the look for clusters; now and then a failure that is noted.
        eventually(lambda: held() - before <= 3, "the others are given back", 10)


@pytest.mark.cluster
@pytest.mark.django_db(transaction=True)
def test_one_watcher_may_serve_one_cluster(
    cluster: Target, second_sandbox: SandboxTarget, settings: Any
) -> None:
    settings.KUBECONFIG = str(cluster.kubeconfig("portal"))
    west = Cluster.objects.create(
        slug="west", name="West", kubeconfig=str(second_sandbox.kubeconfig("portal"))
    )
    with serving("west"):
        eventually(lambda: freshness(cluster=west.pk).as_of, "the second cluster")
        assert freshness().as_of is None
        with serving("default"):
            eventually(lambda: freshness().as_of, "the first cluster")
    with pytest.raises(CommandError, match="No cluster is called east"):
        call_command("watch_cluster", cluster=["east"])


@pytest.mark.django_db
def test_tasks_for_a_silent_cluster_do_not_keep_the_workers(
    settings: Any, tmp_path: Path, sent: list[int], cache_of_its_own: None
) -> None:
    settings.CLUSTER_READ_TIMEOUT = 1.5
    with silent_server(tmp_path) as (kubeconfig, calls):
        west = Cluster.objects.create(slug="west", name="West", kubeconfig=str(kubeconfig))
        made = world(entitled=9)
        Project.objects.filter(pk=made.project.pk).update(cluster=west)
        rows = [made.order(f"s{number}") for number in range(8)]
        began = time.monotonic()
        for row in rows:
            assert provision(row.pk).again_in is not None
        took = time.monotonic() - began
        assert max(calls) - min(calls) < 1.0, "the first task's requests are sent at once, and no others are"
        assert took < 8 * 1.5, "only the first task waits for the timeout"
    for row in rows:
        found = row_of(row)
        assert (found.action, found.action_code, found.lost_runs) == ("retrying", "unreachable", 0)
    assert Slice.objects.filter(action="refused").count() == 0
    assert sweep()["closed"] == 0


@pytest.mark.cluster
@pytest.mark.django_db
def test_a_cluster_that_answers_again_is_used_after_one_try(
    cluster: Target, settings: Any, tmp_path: Path, cache_of_its_own: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "PROBE_EVERY_S", 1)
    settings.CLUSTER_READ_TIMEOUT = 1.2
    row = Cluster.objects.get(pk=FIRST_CLUSTER)
    with silent_server(tmp_path) as (kubeconfig, _calls):
        row.kubeconfig = str(kubeconfig)
        with pytest.raises(Unreachable), reach(row) as reached:
            reached.version()
        with pytest.raises(Unreachable), reach(row):
            pytest.fail("reached")
    row.kubeconfig = str(cluster.kubeconfig("portal"))
    time.sleep(1.1)
    for _time in range(3):  # the first is the try, the others are let through by its success
        with reach(row) as reached:
            assert reached.version()["major"] == "1"


@pytest.mark.django_db
def test_what_fails_quickly_or_is_refused_is_no_reason_to_hold_back(
    tmp_path: Path, cache_of_its_own: None
) -> None:
    row = Cluster(pk=FIRST_CLUSTER, kubeconfig=str(tmp_path / "none"))
    for _time in range(3):
        with pytest.raises(Unreachable), reach(row):
            raise Unreachable
    given = connected(row)
    with reach(row, given) as reached:
        assert reached is given
