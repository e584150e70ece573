"""A quota that is overdrawn is said in one sentence whose figures add up; one that is being written is no freedom."""

from __future__ import annotations

from decimal import Decimal

import pytest
from django.utils import translation

from gpu import enqueue
from gpu.diagnosis import creation
from gpu.entitlements import ask_to_write
from gpu.models import QuotaState
from gpu.order_errors import OrderRefused
from gpu.shortages import overdrawn
from gpu.wording import render
from tests.factories import World, observe, quota, workload, world
from tests.view_kit import cluster_seen, signed_in

OVER = {"requests.cpu": "8"}, {"requests.cpu": "8600m"}


@pytest.fixture
def made(db: None, monkeypatch: pytest.MonkeyPatch) -> World:
    """acme is entitled to three slices; no task is sent."""
    monkeypatch.setattr(enqueue, "_send", lambda task, pk: None)
    cluster_seen()
    return world(entitled=3)


def test_what_is_over_and_what_is_needed_add_up_to_what_is_short() -> None:
    text = overdrawn("requests.cpu", Decimal(1), Decimal("1.6"))
    assert text is not None
    assert render(text) == (
        "With what runs and waits, the project is 0.6 CPU over its quota of CPU requests already. "
        "This needs 1 CPU more, so 1.6 CPU must become free first."
    )
    with translation.override("de"):
        assert "schon um 0,6 CPU über seiner Quota" in render(text)


@pytest.mark.parametrize("short_by", ["0.4", "1"])
def test_a_quota_that_is_not_overdrawn_is_told_by_what_is_left(short_by: str) -> None:
    assert overdrawn("requests.cpu", Decimal(1), Decimal(short_by)) is None


def test_an_order_into_an_overdrawn_quota(made: World) -> None:
    observe(quota("acme-ai", *OVER))
    with pytest.raises(OrderRefused) as refusal:
        made.order(workload=workload(cpu_request="1"), allow_queue=False)
    assert refusal.value.code == "pool_short"
    assert render(refusal.value.sentence).startswith(
        "With what runs and waits, the project is 0.6 CPU over its"
    )


def test_a_refusal_of_the_cluster_that_tells_of_an_overdrawn_quota() -> None:
    message = "exceeded quota: plan-quota, requested: requests.cpu=1, used: requests.cpu=8600m, limited: requests.cpu=8"
    found = creation.refusals.read(f'pods "chat-x" is forbidden: {message}')
    assert isinstance(found, creation.refusals.QuotaExceeded)
    assert "0.6 CPU over its quota" in render(creation._short(found.shortfalls[0])[1])


def test_the_projects_page_says_by_how_much(made: World) -> None:
    observe(quota("acme-ai", *OVER))
    html = signed_in(made.kim).get("/projects/acme-ai/").content.decode()
    assert '0.6 CPU</b> <span class="quiet">over 8 CPU</span>' in html


def test_a_quota_on_its_way_is_no_freedom(made: World) -> None:
    kim = signed_in(made.kim)
    assert "No quota of the cluster limits this project." in kim.get("/projects/acme-ai/").content.decode()
    ask_to_write(made.project)
    coming = "is being set up; what limits it is shown here in a moment."
    assert coming in kim.get("/projects/acme-ai/").content.decode()
    QuotaState.objects.update(applied_generation=1)
    assert coming in kim.get("/projects/acme-ai/").content.decode()  # written, not seen yet
    QuotaState.objects.update(action_code="forbidden", attempts=1)
    assert "could not be set up yet" in kim.get("/projects/acme-ai/").content.decode()
    observe(quota("acme-ai", {"requests.cpu": "8"}, {"requests.cpu": "1"}))
    html = kim.get("/projects/acme-ai/").content.decode()
    assert coming not in html
    assert "left of 8 CPU" in html
