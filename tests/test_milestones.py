"""What happened to a slice stays in its timeline when its pods are gone, and a crash loop does not fill it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import translation

from gpu import enqueue, orders, outcomes
from gpu.diagnosis.milestones import happenings
from gpu.diagnosis.view import moment
from gpu.milestones import KEEP, forget_beyond
from gpu.models import Milestone, Slice, TimelineEntry
from gpu.observe import RowSink
from gpu.sweep import tidy
from gpu.timeline import happened
from gpu.views.slices import steps
from tenants.models import ApiToken, Tenant, User
from tests.diagnosis_kit import judge, recorded
from tests.factories import World, workload, world
from tests.view_kit import cluster_seen, signed_in

BEGAN = datetime(2026, 11, 30, 15, 0, tzinfo=UTC)


@pytest.fixture
def made(db: None, monkeypatch: pytest.MonkeyPatch) -> World:
    """acme is entitled to three slices; no task is sent."""
    monkeypatch.setattr(enqueue, "_send", lambda task, pk: None)
    cluster_seen()
    return world(entitled=3)


@pytest.fixture
def row(made: World) -> Slice:
    """Kim's slice, ordered at BEGAN and accepted by the cluster."""
    row = made.order("chat")
    Slice.objects.filter(pk=row.pk).update(created_at=BEGAN)
    accepted(row, 0.7)
    row.timeline.filter(code="ordered").update(at=BEGAN + timedelta(seconds=0.2))
    return row


def text(seconds: float) -> str:
    """A time of the cluster so many seconds after BEGAN."""
    return (BEGAN + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def pod(
    name: str = "a", *, scheduled: float = 0, started: float = 0, ready: float | None = None
) -> dict[str, Any]:
    """A pod of the slice that runs."""
    conditions = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": text(scheduled)}]
    if ready is not None:
        conditions += [
            {"type": kind, "status": "True", "lastTransitionTime": text(ready)}
            for kind in ("Ready", "ContainersReady")
        ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"chat-{name}",
            "namespace": "acme-ai",
            "uid": f"uid-{name}",
            "labels": {"app.kubernetes.io/name": "chat"},
            "ownerReferences": [{"kind": "ReplicaSet", "controller": True, "uid": "uid-set"}],
        },
        "spec": {"resourceClaims": [{"name": "gpu"}]},
        "status": {
            "phase": "Running",
            "conditions": conditions,
            "containerStatuses": [
                {
                    "name": "workload",
                    "ready": ready is not None,
                    "state": {"running": {"startedAt": text(started)}},
                }
            ],
        },
    }


def crash(
    obj: dict[str, Any], started: float, finished: float, *, number: int, reason: str = "Error"
) -> None:
    """Let the pod's container have ended and wait to be started again."""
    obj["status"]["conditions"] = obj["status"]["conditions"][:1]
    obj["status"]["containerStatuses"] = [
        {
            "name": "workload",
            "ready": False,
            "restartCount": number,
            "state": {"waiting": {"reason": "CrashLoopBackOff"}},
            "lastState": {
                "terminated": {
                    "reason": reason,
                    "exitCode": 137 if reason == "OOMKilled" else 1,
                    "startedAt": text(started),
                    "finishedAt": text(finished),
                }
            },
        }
    ]


def ended(obj: dict[str, Any], at: float) -> dict[str, Any]:
    """The pod as it is while it is deleted, its container ended."""
    obj["metadata"] |= {"deletionTimestamp": text(at + 30), "deletionGracePeriodSeconds": 30}
    state = {"terminated": {"reason": "Error", "exitCode": 137, "finishedAt": text(at), "startedAt": text(0)}}
    obj["status"]["containerStatuses"] = [{"name": "workload", "ready": False, "state": state}]
    obj["status"]["conditions"] = obj["status"]["conditions"][:1]
    return obj


def accepted(row: Slice, seconds: float) -> None:
    """Let a worker have brought the row to the cluster then."""
    outcomes.mark_applied(Slice.objects.get(pk=row.pk))
    entry = row.timeline.filter(code="accepted").latest("id")
    TimelineEntry.objects.filter(pk=entry.pk).update(at=BEGAN + timedelta(seconds=seconds))


def asked(row: Slice, seconds: float) -> None:
    """Let the newest action have been asked for then, and be accepted."""
    entry = row.timeline.latest("id")
    TimelineEntry.objects.filter(pk=entry.pk).update(at=BEGAN + timedelta(seconds=seconds))
    accepted(row, seconds + 0.4)


def api(user: User, tenant: Tenant, row: Slice) -> Any:
    """The answer of the API to a user's token."""
    _row, token = ApiToken.issue(user, tenant, "test", "read")
    headers = {"Authorization": f"Bearer {token}"}
    return Client().get(f"/api/v1/slices/{row.public_id}/timeline/", headers=headers)


def told(row: Slice) -> list[str]:
    """The timeline's sentences, oldest first."""
    return [line.sentence for line in reversed(happened(row))]


START = ["Ordered", "Accepted by the cluster", "Card found", "Started", "Ready"]


def test_a_start_is_told_in_its_order_though_the_clusters_seconds_are_whole(row: Slice) -> None:
    RowSink().upsert("Pod", pod(ready=0))
    assert told(row) == START


def test_a_restart_keeps_what_was_before_it(made: World, row: Slice) -> None:
    sink = RowSink()
    sink.upsert("Pod", pod("a", ready=4))
    orders.restart(made.kim, row)
    asked(row, 100)
    sink.upsert("Pod", ended(pod("a", ready=4), 102))
    sink.remove("Pod", ended(pod("a", ready=4), 102))
    sink.upsert("Pod", pod("b", scheduled=103, started=105, ready=107))
    again = ["Restart asked for", "Restart accepted by the cluster", "Ended for the restart"]
    assert told(row) == [*START, *again, "Card found again", "Started again", "Ready again"]


def test_within_a_second_the_old_pod_ends_before_the_new_one_starts(made: World, row: Slice) -> None:
    sink = RowSink()
    sink.upsert("Pod", pod("a", ready=4))
    orders.restart(made.kim, row)
    asked(row, 100)
    sink.upsert("Pod", pod("b", scheduled=100, started=100, ready=100))
    sink.remove("Pod", ended(pod("a", ready=4), 100))
    again = ["Card found again", "Started again", "Ready again"]
    assert told(row)[-4:] == ["Ended for the restart", *again]
    codes = [line["code"] for line in api(made.kim, made.acme, row).json()["results"]]
    assert codes[:6] == ["ready", "started", "card_found", "ended", "accepted", "restart_asked"]


def test_a_stop_and_a_start_and_a_change(made: World, row: Slice) -> None:
    sink = RowSink()
    sink.upsert("Pod", pod("a", ready=4))
    row = orders.stop(made.kim, row)
    asked(row, 50)
    sink.remove("Pod", ended(pod("a", ready=4), 51))
    row = orders.start(made.kim, row, allow_queue=True)
    asked(row, 60)
    sink.upsert("Pod", pod("b", scheduled=61, started=61, ready=62))
    orders.change(made.kim, row, workload(memory_limit="3Gi", cpu_request="400m"), allow_queue=True)
    asked(row, 70)
    sink.remove("Pod", ended(pod("b"), 71))
    assert told(row)[5:] == [
        "Stop asked for",
        "Stop accepted by the cluster",
        "Stopped",
        "Start asked for",
        "Start accepted by the cluster",
        "Card found again",
        "Started again",
        "Ready again",
        "Change asked for",
        "Changed: the cluster has the new settings",
        "Ended for the change",
    ]
    change = next(line for line in happened(row) if line.code == "change_asked")
    assert (change.detail, change.actor) == ("CPU, Memory", "kim@acme.example")


def test_a_crash_loop_is_one_line_with_a_count(row: Slice) -> None:
    sink, loop = RowSink(), pod()
    sink.upsert("Pod", pod(started=1))
    for number in range(1, 201):
        crash(loop, number * 10, number * 10 + 5, number=number)
        sink.upsert("Pod", loop)
        sink.upsert("Pod", loop)
    assert Milestone.objects.filter(slice=row).count() == 3
    line = next(line for line in happened(row) if line.code == "crashed")
    assert (line.count, line.warning, line.at) == (200, True, BEGAN + timedelta(seconds=2005))
    assert line.detail == "exit code 1, for the first time on Nov. 30, 2026, 4 p.m."  # the tenant's time
    assert told(row) == [*START[:4], "Started again", "Ended by itself"]


def test_a_kill_for_memory_has_its_time_and_the_return_its_own(row: Slice) -> None:
    sink, obj = RowSink(), pod(ready=2)
    sink.upsert("Pod", obj)
    crash(obj, 0, 30, number=1, reason="OOMKilled")
    sink.upsert("Pod", obj)
    obj["status"]["containerStatuses"][0]["state"] = {"running": {"startedAt": text(40)}}
    obj["status"]["conditions"].append({"type": "Ready", "status": "True", "lastTransitionTime": text(41)})
    sink.upsert("Pod", obj)
    assert told(row) == [*START, "Killed: out of memory (host)", "Started again", "Ready again"]
    line = next(line for line in happened(row) if line.code == "out_of_memory")
    assert (line.at, line.detail) == (BEGAN + timedelta(seconds=30), "exit code 137")


def test_what_is_known_costs_nothing_and_a_new_watcher_counts_nothing_twice(row: Slice) -> None:
    sink, obj = RowSink(), pod(ready=2)
    crash(obj, 0, 30, number=1)
    sink.upsert("Pod", obj)
    rows = list(Milestone.objects.order_by("pk").values())
    with CaptureQueriesContext(
        connection,
    ) as asked_for:
        sink.upsert("Pod", obj)
    assert not [query for query in asked_for.captured_queries if "milestone" in query["sql"]]
    RowSink().replace("Pod", [obj], "9")
    RowSink().upsert("Pod", obj)
    assert list(Milestone.objects.order_by("pk").values()) == rows


def test_a_pod_that_went_while_nobody_watched_has_ended(row: Slice) -> None:
    RowSink().upsert("Pod", ended(pod(ready=3), 40))
    RowSink().replace("Pod", [], "9")
    assert told(row)[-1] == "Ended and replaced"
    assert happened(row)[0].at == BEGAN + timedelta(seconds=40)


def test_pods_that_fail_without_end_keep_the_newest(row: Slice) -> None:
    sink = RowSink()
    for number in range(KEEP + 20):
        obj = pod(f"p{number}", scheduled=number, started=number)
        obj["status"] |= {"phase": "Failed", "reason": "Evicted", "message": "The node was low on memory."}
        obj["status"]["containerStatuses"][0]["state"] = {
            "terminated": {"exitCode": 137, "startedAt": text(number), "finishedAt": text(number + 1)}
        }
        sink.upsert("Pod", obj)
    assert tidy()["milestones"] == 3 * 20
    kept = Milestone.objects.filter(slice=row, code="pod_failed")
    assert kept.count() == KEEP
    assert kept.earliest("at").at == BEGAN + timedelta(seconds=21)
    assert forget_beyond() == 0
    line = happened(row)[0]
    assert (line.sentence, line.detail) == ("Ended by its server", "Evicted")


def test_pods_of_others_and_of_jobs_leave_no_trace(made: World, row: Slice) -> None:
    job = pod("job", ready=1)
    job["metadata"]["ownerReferences"][0]["kind"] = "Job"
    foreign = pod("foreign", ready=1)
    foreign["metadata"]["labels"] = {"app.kubernetes.io/name": "not-ours"}
    elsewhere = pod("elsewhere", ready=1)
    elsewhere["metadata"]["namespace"] = "birch-lab"
    RowSink().replace("Pod", [job, foreign, elsewhere], "1")
    RowSink(99).upsert("Pod", pod(ready=1))
    assert not Milestone.objects.exists()


def test_a_recorded_pod_of_a_real_cluster_tells_its_times() -> None:
    found = {each.code: each.at for each in happenings(recorded("running")["Pod"][0])}
    assert set(found) == {"card_found", "started", "ready"}
    assert found["card_found"] <= found["started"] <= found["ready"]


def test_a_time_that_cannot_be_read_is_no_milestone(row: Slice) -> None:
    obj = pod(ready=1)
    obj["status"]["conditions"][0]["lastTransitionTime"] = "yesterday"
    obj["status"]["containerStatuses"][0]["state"]["running"]["startedAt"] = "2026-11-30T15:00:00"
    RowSink().upsert("Pod", obj)
    assert list(Milestone.objects.values_list("code", flat=True)) == ["ready"]


def test_it_is_told_in_the_readers_language_and_goes_with_the_slice(row: Slice) -> None:
    RowSink().upsert("Pod", pod(ready=0))
    with translation.override("de"):
        assert told(row)[-3:] == ["Karte gefunden", "Gestartet", "Bereit"]
    row.delete()
    assert not Milestone.objects.exists()


def test_the_page_and_the_api_tell_it_and_a_stranger_gets_404(made: World, row: Slice) -> None:
    obj = pod(ready=2)
    crash(obj, 0, 30, number=1)
    RowSink().upsert("Pod", obj)
    page = signed_in(made.kim).get(f"/slices/{row.public_id}/").content.decode()
    assert "Ended by itself" in page
    lines = api(made.kim, made.acme, row).json()["results"]
    assert lines[0]["code"] == "crashed"
    assert lines[0]["at"].startswith("2026-11-30T15:00:30")
    assert signed_in(made.robin).get(f"/slices/{row.public_id}/").status_code == 404
    assert api(made.robin, made.birch, row).status_code == 404


def test_no_step_is_before_the_one_that_led_to_it() -> None:
    objects = recorded("running")
    made_at = moment(objects["Deployment"][0]["metadata"]["creationTimestamp"])
    assert made_at is not None
    found = judge(objects, ordered_at=made_at + timedelta(seconds=0.8)).steps
    times = [step.at for step in found if step.at]
    assert len(times) == 7
    assert times == sorted(times)


def test_how_long_a_slice_ran_before_a_restart_is_not_how_long_its_claim_took() -> None:
    objects = recorded("running")
    found = judge(objects, ordered_at=moment(objects["Deployment"][0]["metadata"]["creationTimestamp"])).steps
    assert [line.took is None for line in steps(found)] == [True, *[False] * 6]
    assert [line.took is None for line in steps(found, again=True)] == [True, False, True, *[False] * 4]
