"""What an operator sees: /readyz, /metrics with its dashboard and alerts, the admin's start page, sweep --dry-run."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import redis
import yaml
from django.test import Client
from django.utils import timezone
from prometheus_client.parser import text_string_to_metric_families

from gpu import checking, enqueue, outcomes, signs
from gpu.cluster.check import Line
from gpu.message_json import from_json, to_json
from gpu.messages import Count, Cpu, Memory, Text
from gpu.models import ClusterReport, Sign, Slice, WatchState
from gpu.order_errors import OrderRefused
from portal import counters
from tenants.models import FIRST_CLUSTER, Cluster, User
from tests.factories import World, watched, world
from worker import tasks

pytestmark = pytest.mark.django_db
DEPLOY = Path(__file__).resolve().parent.parent / "deploy"
RULES = DEPLOY / "monitoring" / "alerts.yaml"
DASHBOARD = DEPLOY / "monitoring" / "dashboard.json"


@pytest.fixture(autouse=True)
def counters_of_its_own(monkeypatch: pytest.MonkeyPatch, settings: Any) -> Any:
    """Count into a key of this test."""
    monkeypatch.setattr(counters, "KEY", f"counters-test-{timezone.now().timestamp()}")
    client = redis.Redis.from_url(settings.REDIS_URL)
    yield
    client.delete(counters.KEY)
    client.close()


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> World:
    """Tenants; no task is sent."""
    monkeypatch.setattr(enqueue, "_send", lambda *_: None)
    return world(entitled=2)


def scraped(client: Client | None = None, **headers: str) -> dict[tuple[str, ...], float]:
    """Every sample of /metrics by name and label values."""
    answer = (client or Client()).get("/metrics", headers=headers)
    assert answer.status_code == 200
    found = {}
    for family in text_string_to_metric_families(answer.content.decode()):
        for sample in family.samples:
            found[(sample.name, *sample.labels.values())] = sample.value
    return found


# /readyz -----------------------------------------------------------------------------------------------------


def at_work(age_s: float = 1.0) -> None:
    """Let worker and sweep have given a sign of life so long ago."""
    for name in (signs.WORKER, signs.SWEEP):
        Sign.objects.update_or_create(name=name, defaults={"at": timezone.now() - timedelta(seconds=age_s)})


def test_ready_and_fresh() -> None:
    watched(age_s=3)
    at_work()
    answer = Client().get("/readyz")
    assert answer.status_code == 200
    body = answer.json()
    assert (body["status"], body["database"], body["broker"]) == ("ok", "ok", "ok")
    assert 3 <= body["watcher"]["default"]["age_s"] < 6
    assert 1 <= body["worker"]["age_s"] < 4
    assert (body["worker"]["fresh"], body["sweep"]["fresh"]) == (True, True)


@pytest.mark.parametrize("age_s", [None, 90.0])
def test_a_silent_worker_makes_it_degraded_but_not_unready(age_s: float | None) -> None:
    watched()
    if age_s is not None:
        at_work(age_s)
    answer = Client().get("/readyz")
    assert (answer.status_code, answer.json()["status"]) == (200, "degraded")
    assert answer.json()["worker"]["fresh"] is False


@pytest.mark.parametrize("age_s", [None, 90.0])
def test_an_old_watcher_makes_it_degraded_but_not_unready(age_s: float | None) -> None:
    if age_s is not None:
        watched(age_s=age_s)
    answer = Client().get("/readyz")
    assert answer.status_code == 200
    assert answer.json()["status"] == "degraded"
    assert answer.json()["watcher"]["default"]["fresh"] is False


def test_each_clusters_watcher_is_told() -> None:
    watched()
    at_work()
    west = Cluster.objects.create(slug="west", name="West", kubeconfig="/west")
    assert Client().get("/readyz").json()["status"] == "degraded"
    watched(cluster=west.pk)
    assert Client().get("/readyz").json()["status"] == "ok"


def test_without_the_broker_it_is_not_ready(settings: Any) -> None:
    watched()
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    answer = Client().get("/readyz")
    assert answer.status_code == 503
    assert (answer.json()["status"], answer.json()["broker"]) == ("not ready", "down")
    assert Client().get("/healthz").status_code == 200


# /metrics ----------------------------------------------------------------------------------------------------


def test_metrics_tell_orders_outcomes_and_refusals(made: World) -> None:
    row = made.order("one")
    made.order("two")
    with pytest.raises(OrderRefused):
        made.order("three")
    Slice.objects.filter(pk=row.pk).update(changed_at=timezone.now() - timedelta(seconds=4))
    row.refresh_from_db()
    outcomes.mark_applied(row)
    other = Slice.objects.get(display_name="two")
    outcomes.mark_retry(other, "unreachable", "", None)
    outcomes.mark_refused(other, "policy_refused", "", "p")
    found = scraped()
    assert found["portal_orders_total", "v100-25"] == 2
    assert found["portal_slices", "applied", "run", "v100-25"] == 1
    assert found["portal_slices_to_send",] == 0
    assert found["portal_refusals_total", "portal", "entitlement_used_up"] == 1
    assert found["portal_refusals_total", "cluster", "policy_refused"] == 1
    for outcome in ("accepted", "retrying", "refused"):
        assert found["portal_provision_outcomes_total", outcome] == 1
    assert found["portal_provision_duration_seconds_bucket", "2.5"] == 0
    assert found["portal_provision_duration_seconds_bucket", "5.0"] == 1
    assert found["portal_provision_duration_seconds_bucket", "+Inf"] == 1
    assert 4 <= found["portal_provision_duration_seconds_sum",] < 5


def test_metrics_tell_what_is_left_to_send(made: World) -> None:
    row = made.order()
    Slice.objects.filter(pk=row.pk).update(changed_at=timezone.now() - timedelta(seconds=100))
    found = scraped()
    assert found["portal_slices_to_send",] == 1
    assert 100 <= found["portal_slices_to_send_age_seconds",] < 105
    Slice.objects.filter(pk=row.pk).update(action=Slice.Action.NEEDS_OPERATOR)
    found = scraped()
    assert (found["portal_slices_to_send",], found["portal_slices_need_operator",]) == (0, 1)


def test_metrics_tell_the_watches_and_the_queue(settings: Any) -> None:
    watched(age_s=7)
    WatchState.objects.filter(kind="Pod").update(relists=3, failing_since=timezone.now())
    Cluster.objects.create(slug="west", name="West", kubeconfig="/west")
    found = scraped()
    assert 7 <= found["portal_watch_age_seconds", "default", "Pod"] < 9
    assert found["portal_watch_relists_total", "default", "Pod"] == 3
    assert found["portal_watch_failing", "default", "Pod"] == 1
    assert found["portal_watch_failing", "default", "Event"] == 0
    assert found["portal_watch_failing", "west", "Pod"] == 1
    assert ("portal_watch_age_seconds", "west", "Pod") not in found
    assert found["portal_queue_depth", "waiting"] >= 0
    assert found["portal_broker_up",] == 1
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    assert scraped()["portal_broker_up",] == 0


def test_counting_never_fails(settings: Any) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    counters.add("refusals", "portal", "x")
    counters.observe("provision", 1.0)


def test_two_processes_count_into_one() -> None:
    counters._client.cache_clear()
    counters.add("outcomes", "accepted")
    counters._client.cache_clear()
    counters.add("outcomes", "accepted")
    assert scraped()["portal_provision_outcomes_total", "accepted"] == 2


@pytest.mark.parametrize(
    ("address", "headers", "status"),
    [
        ("127.0.0.1", {}, 200),
        ("::1", {}, 200),
        ("10.1.2.3", {}, 404),
        ("", {}, 404),
        ("10.1.2.3", {"Authorization": "Bearer s3cret"}, 200),
        ("10.1.2.3", {"Authorization": "bearer s3cret"}, 200),
        ("10.1.2.3", {"Authorization": "Bearer wrong"}, 404),
        ("127.0.0.1", {"Authorization": "Bearer wrong"}, 404),
        ("127.0.0.1", {"X-Forwarded-For": "127.0.0.1"}, 404),
        ("127.0.0.1", {"X-Forwarded-For": "8.8.8.8", "Authorization": "Bearer s3cret"}, 200),
    ],
)
def test_metrics_are_for_the_token_or_a_trusted_network(
    settings: Any, address: str, headers: dict[str, str], status: int
) -> None:
    settings.METRICS_TOKEN = "s3cret"
    assert Client(REMOTE_ADDR=address).get("/metrics", headers=headers).status_code == status


def test_without_a_token_an_empty_one_opens_nothing(settings: Any) -> None:
    settings.METRICS_TOKEN = ""
    client = Client(REMOTE_ADDR="10.1.2.3")
    assert client.get("/metrics", headers={"Authorization": "Bearer "}).status_code == 404


def expressions() -> list[str]:
    """Every PromQL expression of the dashboard and the alert rules."""
    found: list[str] = []
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        found += [target["expr"] for target in panel.get("targets", [])]
    for group in yaml.safe_load(RULES.read_text())["spec"]["groups"]:
        found += [rule["expr"] for rule in group["rules"]]
    return found


def test_dashboard_and_alerts_use_names_that_metrics_gives(made: World) -> None:
    made.order()
    watched()
    checking.note_comparison(FIRST_CLUSTER)
    text = Client().get("/metrics").content.decode()
    given = set(re.findall(r"^# TYPE (\w+)", text, re.MULTILINE))
    given |= {f"{name}_{part}" for name in given for part in ("bucket", "sum", "count")}
    used = {name for expression in expressions() for name in re.findall(r"\bportal_\w+", expression)}
    assert used
    assert used - given == set()
    families = set(re.findall(r"^# TYPE (\w+)", text, re.MULTILINE))
    shown = {name.removesuffix("_bucket") for name in used}
    assert families - shown == set(), "every metric is on the dashboard or in an alert"


def test_labels_in_dashboard_and_alerts_exist(made: World) -> None:
    made.order()
    watched()
    counters.add("outcomes", "accepted")
    counters.add("refusals", "portal", "x")
    labels: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(Client().get("/metrics").content.decode()):
        for sample in family.samples:
            labels.setdefault(sample.name, set()).update(sample.labels)
    for expression in expressions():
        for name, selector in re.findall(r"\b(portal_\w+)\{([^}]*)\}", expression):
            assert set(re.findall(r"(\w+)\s*[=!]", selector)) <= labels[name], expression


def test_alert_rules_say_what_to_do() -> None:
    for group in yaml.safe_load(RULES.read_text())["spec"]["groups"]:
        for rule in group["rules"]:
            assert rule["annotations"]["summary"], rule["alert"]
            assert rule["annotations"]["action"], rule["alert"]
            assert rule["labels"]["severity"] in ("critical", "warning")


# Reports -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        Text("plain"),
        Text("%(a)s %(b)s", {"a": Cpu(__import__("decimal").Decimal("250")), "b": Memory(2**33, True)}),
        Text("%(a)s %(b)s %(c)s", {"a": Count(3), "b": "word", "c": Text("inner %(x)s", {"x": 1})}),
    ],
)
def test_a_kept_sentence_comes_back_as_it_was(text: Text) -> None:
    assert from_json(json.loads(json.dumps(to_json(text)))) == text


@pytest.fixture
def admin_client(made: World) -> Client:
    """A platform admin."""
    client = Client()
    client.force_login(User.objects.create_superuser("admin@portal.example", password="x"))
    return client


def test_the_admins_start_page_tells_what_was_checked(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "not checked yet" in admin_client.get("/admin/").content.decode()
    good = Line("version", True, Text("The cluster answers"))
    bad = Line(
        "right", False, Text("The account may work on %(what)s", {"what": "secrets"}), Text("Grant it.")
    )
    monkeypatch.setattr(checking, "check_cluster", lambda _row: [good])
    tasks.look_at_cluster(FIRST_CLUSTER)
    well_at = ClusterReport.objects.get().well_at
    assert well_at is not None
    page = admin_client.get("/admin/").content.decode()
    assert "well," in page
    assert "not well" not in page

    monkeypatch.setattr(checking, "check_cluster", lambda _row: [good, bad])
    checking.note_check(FIRST_CLUSTER)
    report = ClusterReport.objects.get()
    assert (report.well, report.well_at) == (False, well_at)
    page = admin_client.get("/admin/").content.decode()
    assert "not well" in page
    assert "last well" in page
    assert "The account may work on secrets – Grant it." in page
    page = admin_client.get(f"/admin/gpu/clusterreport/{report.pk}/change/").content.decode()
    assert page.index("Grant it.") < page.index("The cluster answers")


def test_the_start_page_without_the_right_to_see_it(made: World) -> None:
    client = Client()
    client.force_login(User.objects.create_user("staff@portal.example", is_staff=True))
    assert "not checked yet" not in client.get("/admin/").content.decode()


def test_the_admin_asks_the_worker_to_look_again(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch, django_capture_on_commit_callbacks: Any
) -> None:
    sent: list[tuple[str, int]] = []
    monkeypatch.setattr(enqueue, "_send", lambda *task: sent.append(task))
    report = ClusterReport.objects.create(cluster_id=FIRST_CLUSTER)
    with django_capture_on_commit_callbacks(execute=True):
        admin_client.post(
            "/admin/gpu/clusterreport/", {"action": "look_again", "_selected_action": [report.pk]}
        )
    assert sent == [(enqueue.LOOK_AT_CLUSTER, FIRST_CLUSTER)]


def test_each_cluster_is_looked_at_by_a_task_of_its_own(
    monkeypatch: pytest.MonkeyPatch, django_capture_on_commit_callbacks: Any
) -> None:
    west = Cluster.objects.create(slug="west", name="West", kubeconfig="/west")
    sent: list[tuple[str, int]] = []
    monkeypatch.setattr(enqueue, "_send", lambda *task: sent.append(task))
    with django_capture_on_commit_callbacks(execute=True):
        tasks.look_at_clusters()
    assert sent == [(enqueue.LOOK_AT_CLUSTER, FIRST_CLUSTER), (enqueue.LOOK_AT_CLUSTER, west.pk)]


def test_a_cluster_that_cannot_be_reached_is_reported_not_well() -> None:
    Cluster.objects.filter(pk=FIRST_CLUSTER).update(kubeconfig="/nowhere")
    checking.note_check(FIRST_CLUSTER)
    report = ClusterReport.objects.get()
    assert (report.well, report.well_at) == (False, None)
    assert [line["code"] for line in report.lines] == ["reachable"]
    checking.note_check(999)
    checking.note_comparison(999)
    assert ClusterReport.objects.count() == 1
