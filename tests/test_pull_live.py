"""Pulls on a live cluster whose Ollama is the sandbox's stand-in: from order to done, and what goes wrong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from django.db.models import Max

from gpu import orders, pull_runner, pulls, receipt_rows
from gpu.cluster.client import Cluster
from gpu.models import ModelPull, Slice, SliceReceipt
from gpu.pull_status import pull_status
from gpu.templates_catalogue import TEMPLATES
from tests.clusters import Target, eventually
from tests.factories import World, world
from tests.live import entitle, namespace_of, order_and_send, portal_cluster, row_of, until, watching

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.cluster]


@pytest.fixture
def portal(cluster: Target) -> Cluster:
    """The cluster as the portal reaches it."""
    return portal_cluster(cluster)


@pytest.fixture
def made(cluster: Target) -> Iterator[World]:
    """Tenants whose project has a namespace of its own."""
    found = world(entitled=1)
    with namespace_of(cluster, found.project):
        yield found


@pytest.fixture
def row(made: World, portal: Cluster) -> Iterator[Slice]:
    """An Ollama slice that runs, watched."""
    with watching(portal):
        entitle(made, portal, 1)
        found = order_and_send(made, portal, "Chat", workload=TEMPLATES["ollama"].first())
        until(found, "running", seconds=60.0)
        yield row_of(found)
        orders.release(None, row_of(found), delete_volume=True)


def follow(pull: ModelPull, portal: Cluster, seconds: float = 60.0) -> ModelPull:
    """Look at a pull, and at what follows from it, until it has ended."""

    def look() -> bool:
        for pk in ModelPull.objects.filter(slice=pull.slice, finished_at=None).values_list("pk", flat=True):
            pull_runner.run(pk, portal)
        pull.refresh_from_db()
        return pull.finished

    eventually(look, f"the end of {pull}: {pull.state if hasattr(pull, 'state') else ''}", seconds, 0.3)
    return pull


def test_from_the_order_to_tokens_a_second(made: World, row: Slice, portal: Cluster) -> None:
    pull, _new = pulls.place(made.kim, row, "slow:2")
    shares = []

    def look() -> bool:
        pull_runner.run(pull.pk, portal)
        pull.refresh_from_db()
        shares.append(pull.percent)
        return pull.finished

    eventually(look, "the end of the pull", 60.0, 0.3)
    assert pull.outcome == "done"
    assert shares == sorted(shares)
    assert any(0 < share < 100 for share in shares)
    assert list(row.models.values_list("name", flat=True)) == ["slow:2"]

    check = ModelPull.objects.get(slice=row, mode="check")
    follow(check, portal)
    assert check.outcome == "done"
    found = row.checks.get()
    assert found.size == found.size_vram
    assert found.tokens_per_second
    assert until(row, "running").diagnosis.reason == "ready"

    receipt_rows.read(row.pk, portal)
    receipt = SliceReceipt.objects.get(slice=row)
    assert (receipt.memory_mib, receipt.whole_card, receipt.on_cpu) == (8192, False, False)
    assert "V100" in receipt.gpu_name

    again, _new = pulls.place(made.kim, row, "slow:2", update=True)
    assert follow(again, portal).outcome == "already_there"
    deleted = follow(pulls.delete_model(made.kim, row, "slow:2"), portal)
    assert deleted.outcome == "done"
    assert not row.models.exists()


@pytest.mark.parametrize(
    ("model", "outcome", "cause"),
    [("missing", "unknown_model", ""), ("diskfull", "volume_full", ""), ("secret", "no_access", "")],
)
def test_what_is_not_worth_a_second_try_ends_at_once(
    made: World, row: Slice, portal: Cluster, model: str, outcome: str, cause: str
) -> None:
    pull, _new = pulls.place(made.kim, row, model)
    follow(pull, portal)
    assert (pull.outcome, pull.cause, pull.may_retry, pull.tries) == (outcome, cause, False, 1)
    assert pull_status(pull).state == "failed"


def test_cancelling_takes_job_and_pod_away_and_a_new_try_goes_on(
    made: World, row: Slice, portal: Cluster
) -> None:
    namespace = made.project.namespace
    pull, _new = pulls.place(made.kim, row, "slow:30")

    def under_way() -> bool:
        pull_runner.run(pull.pk, portal)
        pull.refresh_from_db()
        return pull.completed > 0

    eventually(under_way, "progress", 30.0, 0.3)
    pulls.cancel(made.kim, pull)
    assert follow(pull, portal).outcome == "cancelled"
    selector = f"batch.kubernetes.io/job-name={pull.job_name}"
    eventually(lambda: not portal.list("Pod", namespace, selector)[0], "the end of the pod", 20.0)
    assert portal.get("Job", namespace, pull.job_name) is None


def test_a_job_that_is_gone_is_decided_by_the_list(made: World, row: Slice, portal: Cluster) -> None:
    pull, _new = pulls.place(made.kim, row, "slow:1")
    eventually(lambda: pull_runner.run(pull.pk, portal).again_in, "the Job")
    eventually(lambda: _listed_by_itself(portal, made, pull), "the end of the Job", 40.0)
    portal.delete("Job", made.project.namespace, pull.job_name)
    eventually(lambda: portal.get("Job", made.project.namespace, pull.job_name) is None, "no Job")
    assert follow(pull, portal).outcome == "done"
    assert ModelPull.objects.filter(slice=row, mode="list").count() == 1


def _listed_by_itself(portal: Cluster, made: World, pull: ModelPull) -> bool:
    job = portal.get("Job", made.project.namespace, pull.job_name) or {}
    return bool((job.get("status") or {}).get("succeeded"))


def test_stopping_the_slice_ends_the_pull(made: World, row: Slice, portal: Cluster) -> None:
    pull, _new = pulls.place(made.kim, row, "slow:60")
    eventually(lambda: pull_runner.run(pull.pk, portal).again_in, "the Job")
    orders.stop(made.kim, row_of(row))
    assert follow(pull, portal).cause == "slice_stopped"


def test_a_version_that_has_dropped_the_card_runs_on_the_cpu_and_says_so(
    made: World, portal: Cluster
) -> None:
    with watching(portal):
        entitle(made, portal, 1)
        spec = replace(TEMPLATES["ollama"].first(), image="ollama/ollama:0.30.5")
        row = order_and_send(made, portal, "New", workload=spec)
        until(row, "running", seconds=60.0)
        eventually(lambda: receipt_rows.read(row.pk, portal) or _seen(row), "the receipt", 20.0)
        status = until(row, "running_degraded")
        assert status.diagnosis.reason == "no_gpu"
        orders.release(None, row_of(row), delete_volume=True)


def _seen(row: Slice) -> bool:
    return SliceReceipt.objects.filter(slice=row, on_cpu=True).exists()


def test_without_room_for_the_job_it_waits_and_starts_by_itself(
    made: World, row: Slice, cluster: Target, portal: Cluster
) -> None:
    namespace, admin = made.project.namespace, cluster.client()
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "plan-quota", "namespace": namespace},
        "spec": {"hard": {"requests.cpu": "1"}},
    }
    assert admin.create(quota).ok
    eventually(
        lambda: (admin.get("v1", "ResourceQuota", namespace, "plan-quota").body.get("status") or {}).get(
            "used"
        ),
        "the quota's status",
    )
    pull, _new = pulls.place(made.kim, row, "slow:1")

    def blocked() -> bool:
        pull_runner.run(pull.pk, portal)
        pull.refresh_from_db()
        return pull_status(pull).state == "blocked_by_quota"

    eventually(blocked, "blocked by the quota", 30.0)
    shortage = pull_status(pull).shortage
    assert shortage is not None
    assert (shortage.key, str(shortage.short_by.normalize())) == ("requests.cpu", "0.1")
    assert admin.apply({**quota, "spec": {"hard": {"requests.cpu": "2"}}}).ok
    assert follow(pull, portal, 120.0).outcome == "done"
    assert ModelPull.objects.filter(pk=pull.pk).aggregate(tries=Max("tries"))["tries"] == 1
