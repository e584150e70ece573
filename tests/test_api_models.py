"""Models by the API: order, follow, cancel, list, delete, check; shapes, rights, idempotency."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from gpu.models import ModelCheck, ModelPull, Slice, SliceReceipt
from gpu.pull_outcomes import finish
from tests.api_kit import Api, problem
from tests.factories import World, world
from tests.pull_kit import GIB, not_seen, ollama_slice, on_volume
from tests.test_api_schema import check

pytestmark = pytest.mark.django_db


@pytest.fixture
def made() -> World:
    return world(entitled=3)


@pytest.fixture
def row(made: World) -> Slice:
    return ollama_slice(made)


@pytest.fixture
def api(made: World) -> Api:
    return Api(made.kim, made.acme)


@pytest.fixture
def stranger(made: World) -> Api:
    return Api(made.robin, made.birch)


def order(api: Api, row: Slice, name: str = "llama3.2:3b", **headers: str) -> Any:
    return api("POST", f"slices/{row.public_id}/models/", {"model": name}, **headers)


def test_a_pull_is_accepted_and_followed_at_its_address(api: Api, row: Slice) -> None:
    answer = order(api, row)
    assert answer.status_code == 202
    found = answer.json()
    check("Pull", found)
    assert (found["mode"], found["state"], found["settled"]) == ("pull", "queued", False)
    assert answer["Location"].endswith(f"/api/v1/pulls/{found['id']}/")
    ModelPull.objects.update(completed=1, total=2, percent=50.04, speed=10, eta_s=3)
    again = api("GET", f"pulls/{found['id']}/").json()
    check("Pull", again)
    assert again["progress"]["percent"] == 50.0


def test_the_same_key_gives_the_first_answer_and_one_pull(api: Api, row: Slice) -> None:
    first, second = (order(api, row, Idempotency_Key="k1") for _ in range(2))
    assert first.json() == second.json()
    assert second["Idempotent-Replayed"] == "true"
    assert ModelPull.objects.count() == 1


@pytest.mark.parametrize("name", ["", "llama 3", "a/b/c/d"])
def test_a_wrong_name_is_422_at_its_field(api: Api, row: Slice, name: str) -> None:
    found = problem(order(api, row, name), 422, "bad_model_name")
    assert found["errors"][0]["pointer"] == "/model"


def test_the_state_forbids(api: Api, row: Slice, made: World) -> None:
    on_volume(row, llama3_2__3b=2 * GIB)
    problem(order(api, row), 409, "already_there")
    anew = api("POST", f"slices/{row.public_id}/models/", {"model": "llama3.2:3b", "anew": True})
    assert anew.status_code == 202
    not_seen(row)
    problem(order(api, row, "qwen3:4b"), 409, "slice_not_running")
    other = made.order("Other")
    problem(order(api, other), 409, "not_ollama")
    problem(api("GET", f"slices/{other.public_id}/models/"), 409, "not_ollama")


def test_the_models_with_check_receipt_and_warnings(api: Api, row: Slice) -> None:
    address = f"slices/{row.public_id}/models/"
    empty = api("GET", address).json()
    check("Models", empty)
    assert (empty["results"], empty["listed_at"], empty["taken_bytes"]) == ([], None, None)
    on_volume(row, qwen3__4b=3 * GIB)
    ModelCheck.objects.create(slice=row, model="qwen3:4b", size=100, size_vram=0, context_length=4096)
    SliceReceipt.objects.create(slice=row, gpu_name="Tesla V100-PCIE-32GB", memory_mib=8192)
    found = api("GET", address).json()
    check("Models", found)
    assert found["results"][0]["size_bytes"] == 3 * GIB
    assert found["check"]["gpu_percent"] == 0
    assert [item["code"] for item in found["warnings"]] == ["cpu"]
    assert api("GET", f"slices/{row.public_id}/").json()["state"] == "running_degraded"


@pytest.mark.parametrize(("action", "mode"), [("list", "list"), ("delete", "delete"), ("check", "check")])
def test_list_delete_and_check_are_accepted(api: Api, row: Slice, action: str, mode: str) -> None:
    on_volume(row, qwen3__4b=3 * GIB)
    body = None if action == "list" else {"model": "QWEN3:4b"}
    answer = api("POST", f"slices/{row.public_id}/models/{action}/", body)
    assert (answer.status_code, answer.json()["mode"]) == (202, mode)
    check("Pull", answer.json())


def test_cancelling_and_its_refusal(api: Api, row: Slice) -> None:
    found = order(api, row).json()
    cancelled = api("POST", f"pulls/{found['id']}/cancel/")
    assert (cancelled.status_code, cancelled.json()["state"]) == (202, "cancelling")
    finish(ModelPull.objects.get(), "cancelled")
    problem(api("POST", f"pulls/{found['id']}/cancel/"), 409, "finished")


def test_the_pulls_of_a_slice_by_cursor(api: Api, row: Slice) -> None:
    for name in ("a", "b", "c"):
        order(api, row, name)
    first = api("GET", f"slices/{row.public_id}/pulls/?page_size=2").json()
    check("PullList", first)
    assert [item["model"] for item in first["results"]] == ["c", "b"]
    rest = api("GET", first["next"].partition("/api/v1/")[2]).json()
    assert [item["model"] for item in rest["results"]] == ["a"]


def test_strangers_readers_and_nobody(made: World, api: Api, stranger: Api, row: Slice) -> None:
    found = order(api, row).json()["id"]
    for method, path, body in (
        ("GET", f"slices/{row.public_id}/models/", None),
        ("POST", f"slices/{row.public_id}/models/", {"model": "x"}),
        ("GET", f"slices/{row.public_id}/pulls/", None),
        ("GET", f"pulls/{found}/", None),
        ("POST", f"pulls/{found}/cancel/", None),
    ):
        problem(stranger(method, path, body), 404, "not_found")
        assert Client().generic(method, f"/api/v1/{path}").status_code == 401
    reader = Api(made.kim, made.acme, "read")
    assert reader("GET", f"pulls/{found}/").status_code == 200
    problem(reader("POST", f"slices/{row.public_id}/models/", {"model": "x"}), 403, "not_allowed")
    problem(reader("POST", f"pulls/{found}/cancel/"), 403, "not_allowed")
    team_mate = Api(made.lee, made.acme)
    assert team_mate("POST", f"pulls/{found}/cancel/").status_code == 202


# Ordering by template


def place(api: Api, **values: Any) -> Any:
    body = {"project": "acme-ai", "package": "v100-25", "display_name": "Chat", "allow_queue": True, **values}
    return api("POST", "slices/", body)


def test_an_ollama_slice_needs_no_more_than_the_templates_name(api: Api, made: World) -> None:
    answer = place(api, template="ollama", workload={}, settings={"context_length": "16384", "parallel": ""})
    assert answer.status_code == 202, answer.json()
    check("Slice", answer.json())
    assert answer.json()["template"] == "ollama"
    row = Slice.objects.get(display_name="Chat")
    env = {item.name: item.value for item in row.workload.env}
    assert env["OLLAMA_CONTEXT_LENGTH"] == "16384"
    assert "OLLAMA_NUM_PARALLEL" not in env
    assert env["OLLAMA_MODELS"] == "/data/models"
    assert row.workload.image == "ollama/ollama:0.24.0"
    assert row.workload.probes.startup is not None


def test_what_is_given_goes_before_the_templates_defaults(api: Api, made: World) -> None:
    place(api, template="ollama", workload={"memory_limit": "6Gi", "volume": None, "image": ""})
    row = Slice.objects.get(display_name="Chat")
    assert (row.workload.memory_limit, row.workload.volume) == ("6Gi", None)
    assert row.workload.image == "ollama/ollama:0.24.0"


@pytest.mark.parametrize(
    ("settings", "pointer"),
    [({"context_length": "16.384"}, "/settings/context_length"), ({"colour": "red"}, "/settings/colour")],
)
def test_a_setting_that_is_not_possible_is_422_at_its_place(
    api: Api, made: World, settings: dict[str, str], pointer: str
) -> None:
    found = problem(place(api, template="ollama", workload={}, settings=settings), 422, "invalid")
    assert found["errors"][0]["pointer"] == pointer


@pytest.mark.parametrize("template", ["none", 7, None, ["ollama"]])
def test_an_unknown_template_is_422(api: Api, made: World, template: Any) -> None:
    problem(place(api, template=template, workload={"image": "a:1"}), 422, "invalid")
