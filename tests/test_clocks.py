"""A process whose clock is wrong does no harm: the database's clock decides, and the sweep goes on."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from celery.beat import Scheduler
from django.core.cache import cache
from django.utils import timezone

from gpu import locks, orders, outcomes, sweep
from gpu.models import Slice, WatchState
from gpu.observe import RowSink
from portal.celery import app, steady_now
from tests.factories import World, observe, watched, world

REAL_NOW = timezone.now


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> World:
    """Tenants and packages; nothing is sent."""
    monkeypatch.setattr("gpu.enqueue._send", lambda task, pk: None)
    return world(entitled=4)


@pytest.fixture(params=[-7200, 7200])
def wrong(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """This process's clock is two hours late, or early."""
    seconds: int = request.param
    monkeypatch.setattr(timezone, "now", lambda: REAL_NOW() + timedelta(seconds=seconds))
    return seconds


def close(moment: datetime | None) -> bool:
    """Whether a moment is now, by the right clock."""
    return moment is not None and abs((moment - REAL_NOW()).total_seconds()) < 60


@pytest.mark.django_db
def test_what_is_noted_of_an_action_is_by_the_databases_clock(made: World, wrong: int) -> None:
    row = made.order()
    outcomes.mark_retry(row, "unreachable", "", None)
    row.refresh_from_db()
    assert close(row.action_at)
    assert close(row.retry_at)
    Slice.objects.update(retry_at=REAL_NOW() + timedelta(minutes=10))
    assert sweep.sweep()["sent"] == 0
    Slice.objects.update(retry_at=REAL_NOW() - timedelta(seconds=1))
    assert sweep.sweep()["sent"] == 1
    outcomes.mark_applied(row)
    row.refresh_from_db()
    assert close(row.action_at)


@pytest.mark.django_db
def test_what_the_watcher_has_seen_is_by_the_databases_clock(made: World, wrong: int) -> None:
    sink = RowSink()
    sink.replace("Pod", [], "1")
    sink.progress("Pod", "2")
    assert close(WatchState.objects.get(kind="Pod").seen_at)


def test_beat_keeps_no_memory_and_goes_by_a_clock_that_is_never_set_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scheduler = Scheduler(app=app, lazy=True)
    assert app.conf.beat_scheduler == "celery.beat:Scheduler"
    scheduler.setup_schedule()
    entries = [entry for entry in scheduler.schedule.values() if entry.task.startswith("portal.")]
    assert len(entries) >= 3
    for entry in entries:
        assert entry.schedule.now.__self__.nowfun is steady_now
        assert "expires" not in entry.options


def test_periodic_tasks_that_piled_up_are_done_once() -> None:
    cache.delete("once:test")
    assert [locks.once_in("test", 5) for _ in range(3)] == [True, False, False]


@pytest.mark.django_db
def test_what_came_after_the_deletion_is_deleted_again(made: World) -> None:
    row = made.order()
    row = orders.release(made.kim, row)
    outcomes.mark_applied(row)
    late = {
        "kind": "Deployment",
        "metadata": {
            "name": row.app,
            "namespace": "acme-ai",
            "uid": "late",
            "labels": {"app.kubernetes.io/name": row.app},
            "annotations": {"gpu-portal/slice": row.public_id},
        },
    }
    observe(late)
    watched()
    sweep.sweep()
    row.refresh_from_db()
    assert (row.action, row.ended_at) == ("applied", None)  # it may be on its way out
    Slice.objects.update(action_at=REAL_NOW() - timedelta(seconds=30))
    sweep.sweep()
    row.refresh_from_db()
    assert (row.action, row.applied_generation) == ("pending", row.generation - 1)
    outcomes.mark_applied(row)
    Slice.objects.update(action_at=REAL_NOW() - timedelta(seconds=30))
    late["metadata"]["annotations"] = {"gpu-portal/slice": "sl_another"}
    observe(late)
    sweep.sweep()
    row.refresh_from_db()
    assert row.action == "applied"
