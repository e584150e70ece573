"""One slice and lists of them by the REST API: ETags, merge patch, filters, pages (C-19), strangers."""

from __future__ import annotations

from typing import Any

import pytest

from gpu.models import Slice
from tests.api_kit import Api, api, made, no_throttle_left, problem, stranger
from tests.factories import World

__all__ = ["api", "made", "no_throttle_left", "stranger"]  # fixtures

pytestmark = pytest.mark.django_db

# One slice


def test_a_slice_of_another_tenant_is_404_everywhere(stranger: Api, made: World) -> None:
    row = made.order()
    for method, path in (
        ("GET", ""),
        ("PATCH", ""),
        ("POST", "stop/"),
        ("POST", "start/"),
        ("POST", "restart/"),
        ("POST", "release/"),
        ("GET", "manifest/"),
        ("GET", "events/"),
        ("GET", "timeline/"),
        ("GET", "log/"),
    ):
        problem(stranger(method, f"slices/{row.public_id}/{path}", {}), 404, "not_found")
    assert stranger("GET", "slices/").json()["results"] == []


def test_a_team_mate_may_act(made: World) -> None:
    mate = Api(made.lee, made.acme)
    row = made.order()
    for action, intent in (("restart", "run"), ("stop", "stop"), ("start", "run"), ("release", "release")):
        answer = mate(
            "POST", f"slices/{row.public_id}/{action}/", {} if action != "start" else {"allow_queue": True}
        )
        assert answer.status_code == 202, answer.content
        assert answer.json()["intent"] == intent
    problem(mate("POST", f"slices/{row.public_id}/stop/"), 409, "wrong_state")


def test_etag_304_412_428_and_merge_patch(api: Api, made: World) -> None:
    row = made.order()
    path = f"slices/{row.public_id}/"
    etag = api("GET", path)["ETag"]
    assert api("GET", path, If_None_Match=etag).status_code == 304
    change = {"workload": {"memory_limit": "3Gi", "port": 8080}}
    problem(api("PATCH", path, change), 428, "if_match_needed")
    changed = api("PATCH", path, change, If_Match=etag, Content_Type="application/merge-patch+json")
    assert changed.status_code == 202
    assert (changed.json()["workload"]["memory_limit"], changed.json()["workload"]["cpu_limit"]) == (
        "3Gi",
        "1",
    )
    assert api("GET", path, If_None_Match=etag).status_code == 200
    problem(api("PATCH", path, change, If_Match=etag), 412, "changed_meanwhile")
    gone = api("PATCH", path, {"workload": {"port": None}}, If_Match=changed["ETag"])
    assert gone.json()["workload"]["port"] is None


@pytest.mark.parametrize("field", ["package", "project", "display_name", "state"])
def test_a_field_that_cannot_change_is_422_and_says_why(api: Api, made: World, field: str) -> None:
    row = made.order()
    found = problem(api("PATCH", f"slices/{row.public_id}/", {field: "x"}, If_Match="*"), 422, "invalid")
    assert found["errors"][0]["pointer"] == f"/{field}"
    assert "cannot change" in found["errors"][0]["detail"]


def test_the_volume_cannot_change(api: Api, made: World) -> None:
    row = made.order()
    body = {"workload": {"volume": {"size": "1Gi"}}}
    found = problem(api("PATCH", f"slices/{row.public_id}/", body, If_Match="*"), 422, "invalid")
    assert found["errors"][0]["pointer"] == "/workload/volume"


def test_the_manifest_is_what_is_applied_byte_for_byte(api: Api, made: World) -> None:
    from gpu.manifests import render, to_yaml

    row = made.order()
    answer = api("GET", f"slices/{row.public_id}/manifest/", Accept="application/yaml")
    assert answer["Content-Type"].startswith("application/yaml")
    assert answer.content.decode() == to_yaml(render(row.manifest_spec("acme-ai")))
    assert api("GET", f"slices/{row.public_id}/manifest/", Accept="application/json").json()["documents"][0][
        "kind"
    ]


def test_the_log_is_the_copy_at_hand_and_asks_for_a_newer_one(api: Api, made: World) -> None:
    from gpu.logcopies import store_log

    row = made.order()
    assert api("GET", f"slices/{row.public_id}/log/").json()["text"] == ""
    store_log(row, "hello\n")
    assert api("GET", f"slices/{row.public_id}/log/").json()["text"] == "hello\n"
    problem(api("GET", f"slices/{row.public_id}/log/?previous=x"), 400, "bad_parameter")


# Lists


def test_filters_and_several_values(api: Api, made: World) -> None:
    made.entitle(3, 50)
    small, big = made.order("small"), made.order("big", share=50)
    ended = made.order("ended")
    Slice.objects.filter(pk=ended.pk).update(ended_at=ended.created_at)

    def ids(query: str) -> set[str]:
        return {row["id"] for row in api("GET", f"slices/?{query}").json()["results"]}

    assert ids("") == {small.public_id, big.public_id}
    assert ids("package=v100-50") == {big.public_id}
    assert ids("package=v100-50&package=v100-25") == {small.public_id, big.public_id}
    assert ids("ended=true") == {ended.public_id}
    assert ids("state=ordered&project=acme-ai") == {small.public_id, big.public_id}
    assert ids("state=running") == set()
    assert ids("project=birch-lab") == set()
    assert ids("intent=stop") == set()


@pytest.mark.parametrize("ordering", ["-created_at", "created_at", "display_name", "-display_name"])
def test_pages_neither_repeat_nor_drop_a_row(api: Api, made: World, ordering: str) -> None:
    made.entitle(100)
    rows = [made.order("same name") for _ in range(25)]
    Slice.objects.update(created_at=rows[0].created_at)

    def walk(between: Any = None) -> list[list[str]]:
        pages = []
        path = f"slices/?page_size=10&ordering={ordering}"
        while path:
            answer = api("GET", path).json()
            pages.append([row["id"] for row in answer["results"]])
            path = (answer["next"] or "").partition("/api/v1/")[2]
            if between is not None:
                between()
                between = None
        return pages

    first = walk()
    assert [len(page) for page in first] == [10, 10, 5]
    assert len({public_id for page in first for public_id in page}) == 25
    assert walk() == first
    with_insert = walk(lambda: made.order("same name"))
    assert not set(with_insert[0]) & set(with_insert[1])
