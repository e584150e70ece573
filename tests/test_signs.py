"""A background work that stands still is said: on the slice's page, in lists, in the API, to the operator."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone, translation

from gpu import enqueue, orders, outcomes, pulls, signs
from gpu.models import ModelPull, Sign, Slice
from gpu.pull_status import pull_status
from gpu.status import SliceStatus, slice_status, slice_statuses
from gpu.wording import render
from tenants.models import ApiToken, User
from tests.factories import World, world
from tests.pull_kit import ollama_slice
from tests.view_kit import cluster_seen, signed_in
from worker import tasks

pytestmark = pytest.mark.django_db
STANDS_STILL = "The portal's background work stands still: nobody has taken this up yet. Nothing is lost."
LATE = "The portal's background work is late: nobody has taken this up yet. Nothing is lost."


@pytest.fixture(autouse=True)
def nothing_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test's process has noted nothing yet."""
    monkeypatch.setattr(signs, "_noted", {})


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> World:
    """acme is entitled to three slices; no worker takes a task."""
    monkeypatch.setattr(enqueue, "_send", lambda task, pk: None)
    cluster_seen()
    return world(entitled=3)


def aged(row: Slice, seconds: float, **values: Any) -> Slice:
    """The row as if its intent were so old."""
    Slice.objects.filter(pk=row.pk).update(changed_at=timezone.now() - timedelta(seconds=seconds), **values)
    return Slice.objects.select_related("project__tenant", "package", "order__user").get(pk=row.pk)


def sign(name: str, seconds: float) -> None:
    """Let a sign be so old."""
    Sign.objects.update_or_create(name=name, defaults={"at": timezone.now() - timedelta(seconds=seconds)})


def said(status: SliceStatus) -> tuple[str, str, str, str]:
    """What a reader sees of a state."""
    return status.state, status.diagnosis.reason, status.colour, status.diagnosis.who


def test_an_order_that_nobody_takes_up_is_amber_and_the_operators(made: World) -> None:
    row = made.order("chat")
    assert said(slice_status(aged(row, 20))) == ("ordered", "queued", "blue", "nobody")
    row = aged(row, 40)
    status = slice_status(row)
    assert said(status) == ("ordered", "work_stands_still", "amber", "operator")
    assert status.sentence == STANDS_STILL
    assert status.diagnosis.since == row.changed_at
    assert status.state_label == "Ordered, not begun yet"
    assert "goes on by itself" in status.next_step


def test_a_worker_that_is_only_busy_is_said_to_be_late(made: World) -> None:
    sign(signs.WORKER, 3)
    status = slice_status(aged(made.order("chat"), 40))
    assert said(status) == ("ordered", "not_taken_up", "amber", "operator")
    assert status.sentence == LATE


def test_an_order_that_a_worker_has_in_hand_is_not_late_unless_the_worker_is_gone(made: World) -> None:
    row = aged(made.order("chat"), 40)
    outcomes.begin(row)
    sign(signs.WORKER, 3)
    assert slice_status(aged(row, 40)).diagnosis.reason == "queued"
    sign(signs.WORKER, 60)
    assert slice_status(aged(row, 40)).diagnosis.reason == "work_stands_still"


def test_what_is_to_be_tried_again_later_does_not_wait_for_a_worker(made: World) -> None:
    row = made.order("chat")
    outcomes.mark_retry(row, "server_fault", "", 200.0)
    assert slice_status(aged(row, 400)).diagnosis.reason == "retry_server_fault"
    past = timezone.now() - timedelta(seconds=40)
    assert slice_status(aged(row, 400, retry_at=past)).diagnosis.reason == "work_stands_still"


def test_taken_out_of_the_operators_hands_it_waits_anew(made: World) -> None:
    row = aged(made.order("chat"), 400, action="needs_operator")
    outcomes.try_again(Slice.objects.all())
    assert slice_status(aged(row, 400)).diagnosis.reason == "queued"


def test_a_stop_and_a_release_that_nobody_takes_up(made: World) -> None:
    row = made.order("chat")
    outcomes.mark_applied(row)
    aged(row, 60, action_at=timezone.now() - timedelta(seconds=60))
    row = orders.stop(made.kim, row)
    assert said(slice_status(aged(row, 40))) == ("stopping", "work_stands_still", "amber", "operator")
    row = orders.release(made.kim, row)
    assert said(slice_status(aged(row, 40))) == ("releasing", "work_stands_still", "amber", "operator")


def test_the_page_the_list_and_the_api_say_it_and_in_german(made: World) -> None:
    row = aged(made.order("chat"), 40)
    kim = signed_in(made.kim)
    page = kim.get(f"/slices/{row.public_id}/").content.decode()
    assert "hero is-amber" in page
    assert "background work stands still" in page
    assert "background work stands still" in kim.get(reverse("slices", args=["acme-ai"])).content.decode()
    _row, token = ApiToken.issue(made.kim, made.acme, "test", "read")
    headers = {"Authorization": f"Bearer {token}"}
    found = Client().get(f"/api/v1/slices/{row.public_id}/", headers=headers).json()
    assert (found["reason"], found["who"]) == ("work_stands_still", "operator")
    with translation.override("de"):
        assert "Hintergrund" in slice_status(row).sentence


def test_many_that_wait_cost_one_look(made: World) -> None:
    made.entitle(8)
    for number in range(6):
        aged(made.order(f"chat {number}"), 40)
    rows = Slice.objects.select_related("project__tenant", "package", "order__user")
    with CaptureQueriesContext(connection) as asked:
        assert {status.diagnosis.reason for status in slice_statuses(rows)} == {"work_stands_still"}
    assert len([query for query in asked.captured_queries if "gpu_sign" in query["sql"]]) == 1


def test_a_model_that_nobody_looks_at(made: World) -> None:
    pull, _new = pulls.place(made.kim, ollama_slice(made), "llama3.2:3b")
    assert not pull_status(pull).causes
    ModelPull.objects.filter(pk=pull.pk).update(look_at=timezone.now() - timedelta(seconds=40))
    pull.refresh_from_db()
    status = pull_status(pull)
    assert render(status.causes[-1]).startswith("The portal's background work is late: nobody looks at this")
    assert "operator" in render(status.next_step)


class TestSigns:
    """Who writes them, and what the operator reads."""

    def test_a_sweep_writes_both_and_they_only_go_forward(self, made: World) -> None:
        tasks.sweep_once()
        assert set(Sign.objects.values_list("name", flat=True)) == {signs.WORKER, signs.SWEEP}
        before = Sign.objects.get(name=signs.WORKER).at
        with CaptureQueriesContext(connection) as asked:
            signs.note(signs.WORKER)
        assert not asked.captured_queries
        signs._noted.clear()
        signs.note(signs.WORKER)
        assert Sign.objects.get(name=signs.WORKER).at >= before
        assert not signs.idle()

    def test_a_task_of_an_order_is_a_sign_of_a_worker(self, made: World) -> None:
        tasks.provision_slice(0)
        assert list(Sign.objects.values_list("name", flat=True)) == [signs.WORKER]

    def test_a_rare_sweep_is_no_silence(self, settings: Any) -> None:
        sign(signs.WORKER, 100)
        assert signs.idle()
        settings.SWEEP_EVERY_S = 60.0
        assert not signs.idle()

    @pytest.mark.parametrize(
        ("worker", "sweep", "text"),
        [
            (None, None, "No worker has taken a task yet."),
            (50, 50, "The background work stands still."),
            (3, 50, "The sweep does not come round."),
            (3, 4, "It goes on; last sign of life of a worker:"),
        ],
    )
    def test_the_admins_start_page_tells(
        self, made: World, worker: float | None, sweep: float | None, text: str
    ) -> None:
        for name, age in ((signs.WORKER, worker), (signs.SWEEP, sweep)):
            if age is not None:
                sign(name, age)
        aged(made.order("chat"), 40)
        user = User.objects.create_superuser("admin@portal.example", password="correct horse battery")
        page = signed_in(user).get("/admin/").content.decode()
        assert text in page
        assert re.search(r"1 slice waits for a worker, since [^<]* \d\d:\d\d:\d\d UTC\.<", page)

    def test_metrics_tell_the_ages(self) -> None:
        assert 'portal_sign_age_seconds{sign="sweep"} +Inf' in Client().get("/metrics").content.decode()
        sign(signs.WORKER, 50)
        text = Client().get("/metrics").content.decode()
        line = next(
            line for line in text.splitlines() if line.startswith('portal_sign_age_seconds{sign="worker"}')
        )
        assert 50 <= float(line.split()[-1]) < 60
