"""Ordering, cancelling, deleting and checking models: what is refused, and what two askers get (C-07, C-08)."""

from __future__ import annotations

from decimal import Decimal

import pytest
from django.db import IntegrityError

from gpu import orders, pulls
from gpu.models import HouseRegistry, ModelPull, Slice
from gpu.order_errors import InvalidOrder, OrderRefused
from gpu.pull_outcomes import finish
from tests.factories import World, observe, quota, world
from tests.pull_kit import GIB, not_seen, ollama_slice, on_volume

pytestmark = pytest.mark.django_db


@pytest.fixture
def made() -> World:
    return world(entitled=3)


@pytest.fixture
def row(made: World) -> Slice:
    return ollama_slice(made)


def test_an_order_is_a_row_to_be_sent_and_a_line_of_the_timeline(made: World, row: Slice) -> None:
    pull, new = pulls.place(made.kim, row, "llama3.2:3b")
    assert new
    assert pull.public_id.startswith("pl_")
    assert (pull.mode, pull.model, pull.generation, pull.applied_generation) == ("pull", "llama3.2:3b", 1, 0)
    assert pull.job_name.startswith("chat-pull-")
    assert len(pull.job_name) <= 63
    assert list(row.timeline.values_list("code", flat=True))[-1] == "pull_asked"


@pytest.mark.parametrize("second", ["llama3.2:3b", "LLAMA3.2:3B", "library/llama3.2:3b"])
def test_the_same_model_twice_is_one_pull(made: World, row: Slice, second: str) -> None:
    first, _new = pulls.place(made.kim, row, "llama3.2:3b")
    again, new = pulls.place(made.lee, row, second)
    assert (again.pk, new) == (first.pk, False)


def test_a_model_without_tag_and_its_latest_are_one_pull(made: World, row: Slice) -> None:
    first, _new = pulls.place(made.kim, row, "llama3.2")
    assert pulls.place(made.kim, row, "llama3.2:latest")[0].pk == first.pk


def test_the_database_refuses_a_second_unfinished_pull(made: World, row: Slice) -> None:
    first, _new = pulls.place(made.kim, row, "llama3.2")
    with pytest.raises(IntegrityError):
        ModelPull.objects.create(slice=row, mode="pull", model="x", model_key=first.model_key)


def test_the_same_operation_key_gives_the_first_pull_even_after_its_end(made: World, row: Slice) -> None:
    first, _new = pulls.place(made.kim, row, "llama3.2", operation_key="k")
    finish(first, "interrupted")
    assert pulls.place(made.kim, row, "llama3.2", operation_key="k") == (first, False)
    anew, new = pulls.place(made.kim, row, "llama3.2")
    assert new
    assert anew.job_name != first.job_name


@pytest.mark.parametrize(
    "typed",
    ["", "llama 3", "llama3.2:", ":3b", "name:tag:tag", "../etc/passwd", "a.b/model", "a/b/c/d", "m" * 81],
)
def test_a_name_that_cannot_be_is_refused_at_its_field_and_makes_no_row(
    made: World, row: Slice, typed: str
) -> None:
    with pytest.raises(InvalidOrder) as refused:
        pulls.place(made.kim, row, typed)
    assert (refused.value.code, refused.value.fields[0].place) == ("bad_model_name", "model")
    assert not ModelPull.objects.exists()


def test_a_name_of_80_characters_is_taken(made: World, row: Slice) -> None:
    assert pulls.place(made.kim, row, "m" * 80)[1]


def test_a_model_that_is_there_is_told_so_and_can_be_fetched_anew(made: World, row: Slice) -> None:
    on_volume(row, llama3_2__3b=2 * GIB)
    with pytest.raises(OrderRefused) as refused:
        pulls.place(made.kim, row, "LLAMA3.2:3B")
    assert refused.value.code == "already_there"
    assert pulls.place(made.kim, row, "llama3.2:3b", update=True)[1]


def test_a_slice_that_does_not_run_is_refused(made: World, row: Slice) -> None:
    not_seen(row)
    with pytest.raises(OrderRefused) as refused:
        pulls.place(made.kim, row, "llama3.2")
    assert refused.value.code == "slice_not_running"


def test_a_stopped_slice_is_refused_though_its_pod_is_still_seen(made: World, row: Slice) -> None:
    orders.stop(made.kim, row)
    with pytest.raises(OrderRefused) as refused:
        pulls.place(made.kim, row, "llama3.2")
    assert refused.value.code == "slice_not_running"


def test_a_slice_without_ollama_is_refused(made: World) -> None:
    other = made.order("Other")
    with pytest.raises(OrderRefused) as refused:
        pulls.place(made.kim, other, "llama3.2")
    assert refused.value.code == "not_ollama"


def test_plain_http_is_for_registries_of_the_house(made: World, row: Slice) -> None:
    with pytest.raises(InvalidOrder):
        pulls.place(made.kim, row, "http://registry.example.test:5000/team/chat")
    HouseRegistry.objects.create(host="registry.example.test:5000", insecure=True)
    pull, _new = pulls.place(made.kim, row, "registry.example.test:5000/team/chat:v1")
    assert pull.insecure
    assert not pulls.place(made.kim, row, "llama3.2")[0].insecure


def test_deleting_waits_for_the_pull_of_the_same_model(made: World, row: Slice) -> None:
    pulls.place(made.kim, row, "llama3.2")
    with pytest.raises(OrderRefused) as refused:
        pulls.delete_model(made.kim, row, "llama3.2:latest")
    assert refused.value.code == "busy"


def test_a_model_that_is_not_there_is_neither_deleted_nor_checked(made: World, row: Slice) -> None:
    on_volume(row, llama3_2__3b=2 * GIB)
    for act in (pulls.delete_model, pulls.check):
        with pytest.raises(OrderRefused) as refused:
            act(made.kim, row, "qwen3:4b")
        assert refused.value.code == "not_there"
    assert pulls.delete_model(made.kim, row, "Llama3.2:3b").mode == "delete"


def test_the_models_are_asked_for_once_at_a_time(made: World, row: Slice) -> None:
    assert pulls.refresh_list(made.kim, row) == pulls.refresh_list(made.lee, row)


def test_cancelling_is_an_intent_and_twice_is_once(made: World, row: Slice) -> None:
    pull, _new = pulls.place(made.kim, row, "llama3.2")
    assert pulls.cancel(made.kim, pull).generation == 2
    assert pulls.cancel(made.kim, pull).generation == 2
    assert row.timeline.filter(code="pull_cancelled").count() == 1


def test_what_has_ended_cannot_be_cancelled(made: World, row: Slice) -> None:
    pull, _new = pulls.place(made.kim, row, "llama3.2")
    assert finish(pull, "done")
    assert not finish(pull, "interrupted")
    with pytest.raises(OrderRefused) as refused:
        pulls.cancel(made.kim, pull)
    assert refused.value.code == "finished"


def test_advice_has_the_figures_and_forbids_nothing(made: World, row: Slice) -> None:
    observe(quota("acme-ai", {"requests.cpu": "8"}, {"requests.cpu": "8"}))
    on_volume(row, big=19 * GIB)
    advice = pulls.advise(row, pulls.read_name("llama3.2:3b"))
    assert advice.model is not None
    assert advice.missing == 19 * GIB + 2_019_377_376 - 20 * GIB
    assert [(item.key, item.short_by) for item in advice.shortages] == [("requests.cpu", Decimal("0.1"))]
    assert advice.fit is not None
    assert advice.fit.verdict == "fits"
    assert pulls.place(made.kim, row, "llama3.2:3b")[1]


def test_of_an_unknown_model_nothing_is_said(row: Slice) -> None:
    advice = pulls.advise(row, pulls.read_name("hf.co/acme/tiny-GGUF:Q4_K_M"))
    assert (advice.model, advice.fit, advice.missing) == (None, None, 0)
