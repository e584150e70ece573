"""Orders: entitlement, queue, double clicks (C-17), commit order (C-16), changes of intent."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection, transaction

from gpu import enqueue, orders
from gpu.models import Order, Slice
from gpu.order_errors import InvalidOrder, OrderRefused, StaleRow
from tests.factories import card, claim, observe, quota, watched, workload, world

pytestmark = pytest.mark.django_db


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The tasks that were really sent, instead of the broker."""
    calls: list[tuple[str, int]] = []
    monkeypatch.setattr(enqueue, "_send", lambda task, pk: calls.append((task, pk)))
    return calls


def test_an_order_is_a_row_with_its_price_and_terms() -> None:
    made = world(entitled=1)
    row = made.order("Mein Modell (Test)")
    assert row.display_name == "Mein Modell (Test)"
    assert row.app == "mein-modell-test"
    assert (row.order.price_per_hour, row.order.currency) == (made.packages[25].price_per_hour, "EUR")
    assert row.package_terms == made.packages[25].terms
    assert (row.generation, row.applied_generation, row.action) == (1, 0, "pending")


def test_the_same_name_twice_gets_two_object_names() -> None:
    made = world(entitled=2)
    assert made.order("chat").app != made.order("chat").app


def test_over_entitlement_is_refused_with_the_holders_named() -> None:
    made = world(entitled=1)
    made.order("Chat der Küche")
    with pytest.raises(OrderRefused) as refusal:
        made.order("second")
    assert refusal.value.code == "entitlement_used_up"
    assert "Chat der Küche" in str(refusal.value.sentence)
    assert [holder.name for holder in refusal.value.holders] == ["Chat der Küche"]


def test_no_entitlement_is_another_refusal() -> None:
    with pytest.raises(OrderRefused) as refusal:
        world().order()
    assert refusal.value.code == "not_entitled"


def test_a_claim_the_portal_did_not_make_uses_entitlement_too() -> None:
    made = world(entitled=1)
    observe(claim("acme-ai", "by-hand"))
    with pytest.raises(OrderRefused) as refusal:
        made.order()
    assert refusal.value.code == "entitlement_used_up"


def test_another_namespaces_claims_use_no_entitlement() -> None:
    made = world(entitled=1)
    observe(claim("birch-lab", "theirs"))
    assert made.order().pk


def test_waiting_for_a_card_needs_consent() -> None:
    made = world(entitled=2)
    observe(card(), claim("birch-lab", "big", 100))
    watched()
    with pytest.raises(OrderRefused) as refusal:
        made.order(allow_queue=False)
    assert refusal.value.code == "queue_consent_needed"
    assert made.order(allow_queue=True).pk


def test_a_free_card_needs_no_consent() -> None:
    made = world(entitled=1)
    observe(card(), claim("birch-lab", "half", 50))
    watched()
    assert made.order(allow_queue=False).pk


def test_a_short_pool_is_refused_with_the_figures_unless_it_may_wait() -> None:
    made = world(entitled=2)
    observe(card(), quota("acme-ai", {"requests.cpu": "8"}, {"requests.cpu": "7300m"}))
    watched()
    with pytest.raises(OrderRefused) as refusal:
        made.order(workload=workload(cpu_request="1", cpu_limit="1"), allow_queue=False)
    assert refusal.value.code == "pool_short"
    assert refusal.value.figures == {"key": "requests.cpu", "needed": Decimal(1), "left": Decimal("0.7")}
    assert made.order(workload=workload(cpu_request="1", cpu_limit="1"), allow_queue=True).pk


def test_orders_the_cluster_has_not_charged_yet_count_on_the_pool() -> None:
    made = world(entitled=3)
    observe(card(), quota("acme-ai", {"requests.cpu": "2"}, {"requests.cpu": "0"}))
    watched()
    big = workload(cpu_request="1500m", cpu_limit="2")
    made.order("first", workload=big, allow_queue=False)
    with pytest.raises(OrderRefused) as refusal:
        made.order("second", workload=big, allow_queue=False)
    assert refusal.value.code == "pool_short"


def test_an_order_the_cluster_holds_for_want_of_cpu_takes_nothing_from_the_pool() -> None:
    made = world(entitled=3)
    observe(card(), quota("acme-ai", {"requests.cpu": "2"}, {"requests.cpu": "1"}))
    watched()
    held = made.order("held", workload=workload(cpu_request="1500m", cpu_limit="2"))
    labels = {"app.kubernetes.io/name": held.app}
    observe(
        {
            "kind": "ReplicaSet",
            "metadata": {"name": held.app, "namespace": "acme-ai", "uid": "rs", "labels": labels},
            "spec": {"replicas": 1},
        }
    )
    assert made.order("small", workload=workload(cpu_request="1", cpu_limit="1"), allow_queue=False).pk


def test_more_than_the_whole_pool_can_never_work() -> None:
    made = world(entitled=1)
    observe(quota("acme-ai", {"requests.cpu": "2"}, {"requests.cpu": "0"}))
    with pytest.raises(InvalidOrder) as refusal:
        made.order(workload=workload(cpu_request="3", cpu_limit="3"))
    assert refusal.value.code == "larger_than_pool"


@pytest.mark.parametrize(
    ("values", "place"),
    [
        ({"image": "ollama/ollama:latest"}, "image"),
        ({"cpu_request": "2", "cpu_limit": "1"}, "cpu_limit"),
        ({"memory_request": "lots"}, "memory_request"),
        ({"port": 70000}, "port"),
    ],
)
def test_what_can_never_work_is_told_at_its_field(values: dict[str, Any], place: str) -> None:
    with pytest.raises(InvalidOrder) as refusal:
        world(entitled=1).order(workload=workload(**values))
    assert place in {finding.place for finding in refusal.value.fields}


@pytest.mark.parametrize("name", ["", "   ", "a" * 64])
def test_a_name_that_cannot_be_used_is_told_at_its_field(name: str) -> None:
    made = world(entitled=1)
    with pytest.raises(InvalidOrder) as refusal:
        made.order(name)
    assert [finding.place for finding in refusal.value.fields] == ["display_name"]
    assert not Slice.objects.exists()


# C-17


def test_the_same_key_again_is_the_same_order(
    sent: list[tuple[str, int]], django_capture_on_commit_callbacks: Any
) -> None:
    made = world(entitled=3)
    with django_capture_on_commit_callbacks(execute=True):
        first = made.order(key="k1")
        assert made.order(key="k1") == first
        assert made.order("another name", key="k1") == first
    assert Order.objects.count() == 1
    assert sent == [(enqueue.PROVISION, first.pk)]
    assert made.order(key="k2") != first


def test_a_key_of_somebody_else_is_refused() -> None:
    made = world(entitled=3)
    made.order(key="k1")
    with pytest.raises(OrderRefused) as refusal:
        made.order(key="k1", user=made.lee)
    assert refusal.value.code == "operation_key_taken"


def race(count: int, call: Callable[[int], object]) -> list[object]:
    """Run `call` in `count` threads at once, each with its own connection; return results and refusals."""
    barrier = threading.Barrier(count)

    def run(number: int) -> object:
        try:
            barrier.wait(10)
            return call(number)
        except OrderRefused as refusal:
            return refusal.code
        finally:
            connection.close()

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


@pytest.mark.django_db(transaction=True)
def test_twenty_orders_for_one_slice_left_make_one() -> None:
    made = world(entitled=1)
    results = race(20, lambda number: made.order(f"n{number}"))
    assert Slice.objects.count() == Order.objects.count() == 1
    assert results.count("entitlement_used_up") == 19


@pytest.mark.django_db(transaction=True)
def test_without_the_lock_more_than_one_gets_through(monkeypatch: pytest.MonkeyPatch) -> None:
    from tenants.models import Project

    made = world(entitled=1)
    together = threading.Barrier(20)
    judge = orders.assess

    def judge_together(*args: Any, **kwargs: Any) -> Any:
        judged = judge(*args, **kwargs)
        together.wait(10)
        return judged

    monkeypatch.setattr(orders, "_lock_row", lambda pk: Project.objects.select_related("tenant").get(pk=pk))
    monkeypatch.setattr(orders, "assess", judge_together)
    race(20, lambda number: made.order(f"n{number}"))
    assert Slice.objects.count() > 1


@pytest.mark.django_db(transaction=True)
def test_a_double_click_on_two_workers_is_one_order(sent: list[tuple[str, int]]) -> None:
    made = world(entitled=3)
    results = race(2, lambda _number: made.order(key="one form"))
    assert results[0] == results[1]
    assert Order.objects.count() == 1
    assert len(sent) == 1


def test_a_slice_is_inserted_only_under_the_lock(transactional_db: None) -> None:
    made = world(entitled=1)
    with pytest.raises(RuntimeError):
        orders._insert(
            orders.Locked(made.project), made.kim, made.packages[25], "x", "x", workload(), "k", False
        )


# C-16


@pytest.mark.django_db(transaction=True)
def test_no_task_is_sent_when_the_transaction_is_rolled_back(sent: list[tuple[str, int]]) -> None:
    made = world(entitled=2)
    with transaction.atomic():
        made.order()
        transaction.set_rollback(True)
    assert sent == []
    row = made.order()
    assert sent == [(enqueue.PROVISION, row.pk)]


@pytest.mark.django_db(transaction=True)
def test_an_order_goes_through_while_the_broker_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*args: Any, **kwargs: Any) -> None:
        raise ConnectionError

    monkeypatch.setattr(enqueue.app, "send_task", away)
    assert world(entitled=1).order().pk


# Changes of intent


def test_stop_gives_the_entitlement_back_once_the_claim_is_gone() -> None:
    made = world(entitled=1)
    row = made.order()
    observe(claim("acme-ai", row.app))
    row = orders.stop(made.kim, row)
    assert (row.intent, row.generation) == ("stop", 2)
    with pytest.raises(OrderRefused):
        made.order("second")
    from gpu.models import Observed

    Observed.objects.all().delete()
    assert made.order("second").pk


def test_stopping_twice_is_stopping_once() -> None:
    made = world(entitled=1)
    row = orders.stop(made.kim, made.order())
    assert orders.stop(made.kim, row).generation == row.generation


def test_start_asks_for_the_entitlement_again() -> None:
    made = world(entitled=1)
    first = orders.stop(made.kim, made.order("first"))
    made.order("second")
    with pytest.raises(OrderRefused) as refusal:
        orders.start(made.kim, first)
    assert refusal.value.code == "entitlement_used_up"


def test_restart_counts_up_and_needs_a_running_slice() -> None:
    made = world(entitled=1)
    row = orders.restart(made.kim, made.order())
    assert (row.restarts, row.generation) == (1, 2)
    with pytest.raises(OrderRefused) as refusal:
        orders.restart(made.kim, orders.stop(made.kim, row))
    assert refusal.value.code == "wrong_state"


def test_release_keeps_the_volume_unless_ticked() -> None:
    made = world(entitled=2)
    assert not orders.release(made.kim, made.order("one")).delete_volume
    assert orders.release(made.kim, made.order("two"), delete_volume=True).delete_volume


def test_a_released_slice_takes_no_other_action() -> None:
    made = world(entitled=1)
    row = orders.release(made.kim, made.order())
    assert orders.release(made.kim, row).generation == row.generation
    for act in (orders.stop, orders.start, orders.restart):
        with pytest.raises(OrderRefused):
            act(made.kim, row)


def test_change_keeps_the_volume_and_counts_a_generation() -> None:
    made = world(entitled=1)
    row = made.order()
    changed = orders.change(made.kim, row, workload(cpu_limit="2"))
    assert (changed.workload.cpu_limit, changed.generation, changed.action) == ("2", 2, "pending")
    assert orders.change(made.kim, changed, workload(cpu_limit="2")).generation == 2
    from gpu.manifests import VolumeSpec

    with pytest.raises(InvalidOrder) as refusal:
        orders.change(made.kim, row, workload(volume=VolumeSpec("1Gi", "/data")))
    assert [finding.place for finding in refusal.value.fields] == ["volume"]


def test_a_change_of_a_row_that_moved_on_is_refused() -> None:
    made = world(entitled=1)
    row = made.order()
    orders.restart(made.lee, row)
    with pytest.raises(StaleRow):
        orders.stop(made.kim, row, expected=1)


def test_every_action_stands_in_the_timeline() -> None:
    made = world(entitled=1)
    row = made.order()
    orders.stop(made.lee, row)
    assert list(row.timeline.values_list("code", "actor__username")) == [
        ("ordered", "kim@acme.example"),
        ("stop_asked", "lee@acme.example"),
    ]
