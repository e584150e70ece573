"""What does not agree with the rows is found, each with a proposal; nothing foreign is touched or told of."""

from __future__ import annotations

import copy
from collections.abc import Callable
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone

from gpu import checking, enqueue, orders
from gpu.agreement import OWNED_KINDS, Disagreement, compare, differences
from gpu.entitlements import QUOTA_NAME, ask_to_write, quota_document
from gpu.manifests import VolumeSpec, render
from gpu.models import ClusterReport, Observed, QuotaState, Slice
from gpu.sweep import sweep
from tenants.models import FIRST_CLUSTER, Cluster, Project, User
from tests.factories import World, observe, watched, workload, world

pytestmark = pytest.mark.django_db
LONG_AGO = timedelta(hours=1)
DEPLOYMENT, TEMPLATE = "Deployment", "ResourceClaimTemplate"


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> World:
    """Tenants with fresh facts; no task is sent."""
    monkeypatch.setattr(enqueue, "_send", lambda *_: None)
    watched()
    return world(entitled=5)


def stored(
    document: dict[str, Any], change: Callable[[dict[str, Any]], None] | None = None
) -> dict[str, Any]:
    """A rendered document as the cluster keeps it: with defaults, its own spelling of quantities, and a uid."""
    found = copy.deepcopy(document)
    found["metadata"] |= {"uid": f"uid-{found['kind']}-{found['metadata']['name']}", "generation": 1}
    if found["kind"] == DEPLOYMENT:
        found["spec"]["progressDeadlineSeconds"] = 600
        found["spec"]["template"]["spec"]["containers"][0]["imagePullPolicy"] = "IfNotPresent"
        found["spec"]["template"]["spec"]["schedulerName"] = "default-scheduler"
        requests = found["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]
        requests["cpu"] = {"500m": "0.5", "1": "1000m"}.get(requests["cpu"], requests["cpu"])
    if change:
        change(found)
    return found


def applied(made: World, name: str = "chat", **values: Any) -> Slice:
    """A slice that the cluster accepted an hour ago, with its objects."""
    row = made.order(name, **values)
    settle(row)
    observe(*(stored(document) for document in documents(row)))
    return row


def settle(row: Slice) -> None:
    """Let what the row says have been accepted an hour ago."""
    row.refresh_from_db()
    Slice.objects.filter(pk=row.pk).update(
        action="applied",
        applied_generation=row.generation,
        action_at=timezone.now() - LONG_AGO,
        changed_at=timezone.now() - LONG_AGO,
    )
    row.refresh_from_db()


def documents(row: Slice) -> tuple[dict[str, Any], ...]:
    """What the row says."""
    return render(row.manifest_spec(row.project.namespace))


def change_object(row: Slice, kind: str, change: Callable[[dict[str, Any]], None]) -> None:
    """Let somebody change an object of the slice in the cluster."""
    (document,) = [item for item in documents(row) if item["kind"] == kind]
    observe(stored(document, change))


def found(cluster: int = FIRST_CLUSTER) -> list[Disagreement]:
    """Everything that does not agree."""
    return list(compare(Cluster.objects.get(pk=cluster)))


def codes() -> list[tuple[str, str]]:
    """Code and kind of everything that does not agree."""
    return [(item.code, item.kind) for item in found()]


FULL = {"workload": workload(port=8080, volume=VolumeSpec("1Gi", "/data"))}


def test_what_was_accepted_agrees(made: World) -> None:
    applied(made, **FULL)
    stopped = applied(made, "stopped")
    orders.stop(made.kim, stopped)
    settle(stopped)
    observe(*(stored(document) for document in documents(stopped)))
    assert found() == []


def test_foreign_objects_are_not_told_of(made: World) -> None:
    observe(
        {"kind": DEPLOYMENT, "metadata": {"name": "theirs", "namespace": "acme-ai", "uid": "1"}, "spec": {}},
        {
            "kind": DEPLOYMENT,
            "metadata": {"name": "x", "namespace": "kube-system", "uid": "2", "annotations": {"a": "b"}},
        },
        {"kind": "ResourceQuota", "metadata": {"name": "plan", "namespace": "acme-ai", "uid": "3"}},
        {"kind": "ResourceQuota", "metadata": {"name": QUOTA_NAME, "namespace": "other", "uid": "4"}},
    )
    assert found() == []


@pytest.mark.parametrize("kind", [DEPLOYMENT, TEMPLATE])
def test_drift_is_found_by_hash(made: World, kind: str) -> None:
    row = applied(made)

    def older(document: dict[str, Any]) -> None:
        document["metadata"]["annotations"]["kube-dc.com/gpu-workload-hash"] = "0" * 64

    change_object(row, kind, older)
    (item,) = found()
    assert (item.code, item.kind, item.slice_id) == ("drift", kind, row.public_id)
    assert "gpu-workload-hash" in str(item.sentence)
    assert "Send again" in str(item.proposal)


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (lambda spec: spec.update(replicas=0), "spec.replicas"),
        (
            lambda spec: spec["template"]["spec"]["containers"][0].update(image="other"),
            "spec.template.spec.containers[0].image",
        ),
        (
            lambda spec: spec["template"]["spec"]["containers"].append({"name": "sidecar"}),
            "spec.template.spec.containers",
        ),
        (
            lambda spec: spec["template"]["spec"]["containers"][0]["resources"]["limits"].update(
                memory="1Mi"
            ),
            "spec.template.spec.containers[0].resources.limits.memory",
        ),
    ],
)
def test_an_edit_by_hand_is_found_though_the_hash_stayed(
    made: World, change: Callable[[dict[str, Any]], None], where: str
) -> None:
    row = applied(made)
    change_object(row, DEPLOYMENT, lambda document: change(document["spec"]))
    (item,) = found()
    assert (item.code, item.sentence.params["where"]) == ("drift", where)


def test_an_object_that_is_gone(made: World) -> None:
    row = applied(made, **FULL)
    Observed.objects.filter(kind="Service").delete()
    assert codes() == [("object_missing", "Service")]
    Observed.objects.filter(name__startswith="chat").delete()
    (item,) = found()
    assert (item.code, item.slice_id) == ("no_objects", row.public_id)
    assert "release it" in str(item.proposal)


def test_an_object_the_row_has_no_more(made: World) -> None:
    row = applied(made, workload=workload(port=8080))
    service = next(item for item in documents(row) if item["kind"] == "Service")
    orders.change(made.kim, row, workload(), allow_queue=True)
    settle(row)
    observe(*(stored(document) for document in documents(row)), stored(service))
    assert codes() == [("left_over", "Service")]


def test_what_is_under_way_is_no_disagreement(made: World) -> None:
    row = made.order("young")
    assert found() == []
    Slice.objects.filter(pk=row.pk).update(changed_at=timezone.now() - LONG_AGO)
    assert codes() == [("not_sent", "")]
    # Accepted a moment ago: the watcher may not have seen the objects yet.
    Slice.objects.filter(pk=row.pk).update(applied_generation=1, action="applied", action_at=timezone.now())
    assert found() == []
    settle(row)
    orders.release(made.kim, row)
    settle(row)
    assert found() == []


def test_objects_of_an_ended_slice(made: World) -> None:
    row = applied(made, **FULL)
    Slice.objects.filter(pk=row.pk).update(ended_at=timezone.now())
    assert sorted(kind for _code, kind in codes()) == [DEPLOYMENT, TEMPLATE, "Service"]
    assert {code for code, _kind in codes()} == {"left_over"}
    Slice.objects.filter(pk=row.pk).update(delete_volume=True)
    assert ("left_over", "PersistentVolumeClaim") in codes()


@pytest.mark.parametrize("namespace", ["acme-ai", "elsewhere"])
def test_owned_objects_without_a_row(made: World, namespace: str) -> None:
    row = applied(made)
    for document in documents(row):
        document["metadata"]["namespace"] = namespace
        document["metadata"]["annotations"]["gpu-portal/slice"] = "sl_unknown"
        document["metadata"]["name"] = "later-" + document["metadata"]["name"]
        observe(stored(document))
    assert [(item.code, item.namespace, item.slice_id) for item in found()] == [
        ("no_row", namespace, "sl_unknown")
    ] * 2
    commands = {str(item.proposal).partition("hand: ")[2] for item in found()}
    assert f"kubectl -n {namespace} delete deployment later-chat. The portal leaves it alone." in commands


def test_a_copy_in_another_project_is_not_that_slices(made: World) -> None:
    row = applied(made)
    for document in documents(row):
        document["metadata"]["namespace"] = "birch-lab"
        observe(stored(document))
    assert {(item.code, item.namespace) for item in found()} == {("no_row", "birch-lab")}


def test_the_quota(made: World) -> None:
    ask_to_write(made.project)
    QuotaState.objects.update(applied_generation=1, changed_at=timezone.now() - LONG_AGO)
    assert codes() == [("quota_missing", "ResourceQuota")]
    document = quota_document(made.project)
    document["metadata"]["uid"] = "q"
    observe(document)
    assert found() == []

    key = next(iter(document["spec"]["hard"]))
    document["spec"]["hard"] = {**document["spec"]["hard"], key: "77", "pods": "1"}
    observe(document)
    assert [item.sentence.params for item in found()] == [
        {"key": key, "wanted": quota_document(made.project)["spec"]["hard"][key], "there": "77"},
        {"key": "pods", "wanted": "–", "there": "1"},
    ]
    document["metadata"]["annotations"] = {}
    observe(document)
    assert codes() == [("quota_not_ours", "ResourceQuota")]
    document["metadata"] |= {"annotations": {"gpu-portal/project": "pr_gone"}, "namespace": "gone"}
    observe(document)
    assert ("quota_no_row", "ResourceQuota") in codes()


def test_old_facts_say_nothing(made: World) -> None:
    applied(made)
    Observed.objects.all().delete()
    watched(age_s=120)
    assert codes() == [("not_seen", "")]


def test_each_cluster_is_compared_for_itself(made: World) -> None:
    row = applied(made)
    west = Cluster.objects.create(slug="west", name="West", kubeconfig="/west")
    watched(cluster=west.pk)
    assert found(west.pk) == []
    # The same objects in the other cluster belong to nobody there.
    observe(*(stored(document) for document in documents(row)), cluster=west.pk)
    assert {item.code for item in found(west.pk)} == {"no_row"}
    assert found() == []


@pytest.mark.parametrize(
    ("wanted", "there", "places"),
    [
        ({"a": 1}, {"a": 1, "b": 2}, []),
        ({"a": 1}, {}, ["spec.a"]),
        ({"a": {"b": "1Gi"}}, {"a": {"b": "1024Mi"}}, []),
        ({"a": ["x"]}, {"a": ["x", "y"]}, ["spec.a"]),
        ({"a": [{"b": 1}]}, {"a": [{"b": 2}]}, ["spec.a[0].b"]),
        ({"a": {}, "b": [], "c": None, "d": ""}, {}, []),
        ({"a": {"b": 1}}, None, ["spec.a.b"]),
        ({"a": False}, {"a": True}, ["spec.a"]),
    ],
)
def test_differences(wanted: Any, there: Any, places: list[str]) -> None:
    assert list(differences(wanted, there, "spec")) == places


def test_the_command_prints_and_changes_nothing(made: World) -> None:
    row = applied(made)
    Observed.objects.filter(kind=TEMPLATE).delete()
    before = list(Slice.objects.values())
    output = StringIO()
    call_command("sweep", dry_run=True, stdout=output)
    lines = output.getvalue().splitlines()
    assert lines[0] == f"object_missing  default/acme-ai/{TEMPLATE}/chat-gpu  {row.public_id}"
    assert lines[2].strip().startswith("-> Send the slice again")
    assert lines[-1] == "1 disagreements; nothing was changed."
    assert list(Slice.objects.values()) == before
    with pytest.raises(CommandError, match="No cluster is called east"):
        call_command("sweep", dry_run=True, cluster=["east"])
    output = StringIO()
    call_command("sweep", stdout=output)
    assert output.getvalue().startswith("sent: ")


def test_the_admins_page_tells_each_with_its_proposal(made: World) -> None:
    row = applied(made)
    Observed.objects.filter(kind=TEMPLATE).delete()
    checking.note_comparison(FIRST_CLUSTER)
    client = Client()
    client.force_login(User.objects.create_superuser("admin@portal.example", password="x"))
    report = ClusterReport.objects.get()
    page = client.get(f"/admin/gpu/clusterreport/{report.pk}/change/").content.decode()
    assert "The ResourceClaimTemplate of “chat” is missing." in page
    assert "1 thing does not agree with the rows." in client.get("/admin/").content.decode()

    client.post("/admin/gpu/slice/", {"action": "send_again", "_selected_action": [row.pk]})
    row.refresh_from_db()
    assert (row.generation, row.applied_generation, row.action) == (2, 1, "pending")
    assert row.timeline.last().code == "send_asked"  # type: ignore[union-attr]


def test_only_so_many_are_kept_for_the_page(made: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "SHOWN", 2)
    for name in ("a", "b", "c"):
        applied(made, name)
    Observed.objects.filter(kind__in=OWNED_KINDS).delete()
    checking.note_comparison(FIRST_CLUSTER)
    report = ClusterReport.objects.get()
    assert (report.disagreement_count, len(report.disagreements)) == (3, 2)


def test_a_round_of_the_sweep_leaves_disagreements_alone(
    made: World, monkeypatch: pytest.MonkeyPatch, django_capture_on_commit_callbacks: Any
) -> None:
    sent: list[str] = []
    monkeypatch.setattr(enqueue, "_send", lambda task, _pk: sent.append(task))
    applied(made)
    Observed.objects.filter(kind__in=OWNED_KINDS).delete()
    with django_capture_on_commit_callbacks(execute=True):
        assert sweep()["closed"] == 0
    assert enqueue.PROVISION not in sent
    assert Project.objects.get(pk=made.project.pk).slices.filter(ended_at=None).count() == 1
