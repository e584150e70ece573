"""Requests that mean harm get a plain answer, never a failure: names, bodies, headers, methods, a database away."""

from __future__ import annotations

import json
from typing import Any
from unittest.mock import patch

import pytest
from celery.exceptions import SoftTimeLimitExceeded
from django.core.cache import cache
from django.db import OperationalError
from django.test import Client

from gpu import pulls, receipt_rows
from gpu.logcopies import request_log, store_log
from gpu.models import LogCopy, SliceReceipt
from tenants.models import ApiToken
from tests.api_kit import BODY, Api, problem
from tests.factories import World, claim, observe, world
from tests.view_kit import cluster_seen, signed_in
from worker import tasks

pytestmark = pytest.mark.django_db
LONG = 2 * 1024 * 1024
DEEP = 100_000


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr("gpu.enqueue._send", lambda task, pk: None)
    cache.clear()
    cluster_seen()
    return world(entitled=2)


@pytest.fixture
def api(made: World) -> Api:
    return Api(made.kim, made.acme)


def too_late(*args: object) -> None:
    raise SoftTimeLimitExceeded


def test_a_log_that_takes_too_long_is_noted_and_keeps_the_old_text(
    made: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = made.order()
    request_log(row)
    store_log(row, "before")
    monkeypatch.setattr("gpu.loglines.fetch", too_late)
    tasks.fetch_log(row.pk)
    copy = LogCopy.objects.get(slice=row)
    assert (copy.text, copy.error_code) == ("before", "too_slow")


@pytest.mark.parametrize(
    "time", ["9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "2026-11-30T10:00:00", "2026-11-30T10:00:00Z"]
)
def test_an_event_of_any_time_and_length_fails_no_page(made: World, api: Api, time: str) -> None:
    """Whoever may make events in the namespace writes any time and text into one."""
    row = made.order("chat")
    claimed = claim("acme-ai", "chat")
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": "odd",
            "namespace": "acme-ai",
            "uid": "uid-odd",
            "creationTimestamp": "2026-11-30T09:00:00Z",
        },
        "involvedObject": {"kind": "ResourceClaim", "uid": claimed["metadata"]["uid"]},
        "lastTimestamp": time,
        "reason": "R" * 100_000,
        "message": "m" * 100_000,
    }
    observe(claimed, event)
    kim = signed_in(made.kim)
    page = kim.get(f"/slices/{row.public_id}/")
    assert page.status_code == 200
    assert b"R" * 100 in page.content
    assert len(page.content) < 100_000
    for part in ("", "events/", "timeline/"):
        answer = api("get", f"slices/{row.public_id}/{part}")
        assert answer.status_code == 200
        assert len(answer.content) < 50_000


def test_a_receipt_that_takes_too_long_is_not_asked_for_again(
    made: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = made.order()
    monkeypatch.setattr(receipt_rows, "pod_uid", lambda row: "pod-1")
    monkeypatch.setattr("gpu.receipt_rows.read", too_late)
    tasks.read_receipt(row.pk)
    found = SliceReceipt.objects.get(slice=row)
    assert (found.pod_uid, found.memory_mib, found.whole_card) == ("pod-1", None, False)


@pytest.mark.parametrize("path", ["/login/", "/admin/login/"])
@pytest.mark.parametrize("length", [151, 300, 70_000])
def test_a_sign_in_with_an_endless_name_fails_like_any_other(made: World, path: str, length: int) -> None:
    answer = Client(raise_request_exception=False).post(path, {"username": "x" * length, "password": "y"})
    assert answer.status_code == 200
    assert answer.context["form"].errors


@pytest.mark.parametrize("path", ["/login/", "/admin/login/"])
def test_the_right_people_can_sign_in_still(made: World, path: str) -> None:
    made.kim.is_staff = True
    made.kim.save()
    answer = Client().post(path, {"username": made.kim.username, "password": "correct horse battery"})
    assert answer.status_code == 302


@pytest.mark.parametrize("method", ["POST", "PATCH"])
def test_a_body_that_is_too_large_is_413(api: Api, made: World, method: str) -> None:
    path = "slices/" if method == "POST" else f"slices/{made.order().public_id}/"
    body = json.dumps({"display_name": "x" * LONG})
    problem(api(method, path, body, If_Match="*"), 413, "too_large")
    problem(api(method, path, body, If_Match="*", Idempotency_Key="k"), 413, "too_large")


@pytest.mark.parametrize("body", ["[" * DEEP, '{"a":' * DEEP, '{"a":' * 5000 + "1" + "}" * 5000])
def test_a_body_that_is_nested_too_deeply_is_refused(api: Api, made: World, body: str) -> None:
    assert api("POST", "slices/", body).status_code in (400, 422)
    answer = api("PATCH", f"slices/{made.order().public_id}/", f'{{"workload":{body}}}', If_Match="*")
    assert answer.status_code in (400, 422)
    problem(api("POST", "slices/", "[" * DEEP), 400, "malformed")


@pytest.mark.parametrize(
    "change",
    [{"\ud800": 1}, {"display_name": "\ud800"}, {"template": "ollama", "settings": {"\udfff": "1"}}],
    ids=["name", "text", "nested"],
)
def test_half_a_character_is_refused(api: Api, change: dict[str, Any]) -> None:
    for path in ("slices/", "slices/preview/"):
        problem(api("POST", path, json.dumps({**BODY, **change})), 400, "malformed")


@pytest.mark.parametrize("expected", ["9" * 5000, "-1", "٣", "x"])
def test_a_generation_that_is_none_restarts_nothing(made: World, expected: str) -> None:
    row = made.order()
    answer = signed_in(made.kim).post(f"/slices/{row.public_id}/restart/", {"expected": expected})
    assert (answer.status_code, answer["Location"]) == (302, f"/slices/{row.public_id}/")
    before = row.generation
    row.refresh_from_db()
    assert row.generation == before


def test_an_address_that_is_none_is_no_way_back(made: World) -> None:
    headers = {"HX-Request": "true", "HX-Current-URL": "http://["}
    assert Client().get("/projects/acme-ai/", headers=headers)["HX-Redirect"] == "/login/"


@pytest.mark.parametrize("method", ["OPTIONS", "POST", "DELETE"])
def test_the_documentation_is_read_only(method: str) -> None:
    answer = Client(raise_request_exception=False).generic(method, "/api/v1/docs/")
    problem(answer, 405, "method_not_allowed")
    assert answer["Allow"] == "GET, HEAD"


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
def test_probes_are_read_only(path: str) -> None:
    for method in ("POST", "DELETE"):
        answer = Client().generic(method, path)
        assert (answer.status_code, answer["Allow"]) == (405, "GET, HEAD")
    assert Client().get(path).status_code in (200, 503)


@pytest.mark.parametrize(
    ("language", "told"),
    [("en", "database does not answer"), ("de", "Die Datenbank des Portals antwortet nicht")],
)
def test_without_the_database_a_page_says_so(made: World, language: str, told: str) -> None:
    client = signed_in(made.kim)
    client.raise_request_exception = False
    away = OperationalError("connection refused")
    with patch("django.db.backends.base.base.BaseDatabaseWrapper.cursor", side_effect=away):
        answer = client.get("/projects/acme-ai/", headers={"accept-language": language})
        called = client.get("/api/v1/slices/", headers={"Authorization": "Bearer x"})
    assert (answer.status_code, answer["Retry-After"]) == (503, "5")
    assert told in answer.content.decode().replace("&#x27;", "'")
    assert (called.status_code, called.json()["code"]) == (503, "unavailable")


def test_a_tag_that_is_known_already_is_304(api: Api, made: World) -> None:
    path = f"slices/{made.order().public_id}/"
    tag = api("GET", path)["ETag"]
    for known in (tag, f"W/{tag}", "*", f'"other", W/{tag}'):
        assert api("GET", path, If_None_Match=known).status_code == 304
    for other in ('"other"', "nonsense", tag.strip('"')):
        assert api("GET", path, If_None_Match=other).status_code == 200


def test_a_change_needs_one_of_its_tags_to_match(api: Api, made: World) -> None:
    row = made.order()
    path = f"slices/{row.public_id}/"
    tag, body = api("GET", path)["ETag"], {"workload": {"cpu_limit": "2"}}
    for wrong in ('"999.x"', "nonsense", tag.strip('"'), '"999.x", "998.y"', '"' + "9" * 5000 + '"'):
        assert api("PATCH", path, body, If_Match=wrong).status_code == 412
    assert api("PATCH", path, body, If_Match=f'"999.x", {tag}').status_code == 202


@pytest.mark.parametrize("name", ["a\u202eb", "\u2066a", "a\x07b"])
def test_a_token_is_named_as_it_is_shown(made: World, name: str) -> None:
    client = signed_in(made.kim)
    before = ApiToken.objects.count()
    data = {"name": name, "scope": "read", "days": "90"}
    assert client.post("/projects/acme-ai/tokens/", data).status_code == 200
    assert ApiToken.objects.count() == before


@pytest.mark.parametrize("accept", ["application/problem+json", "", "application/problem+json;q=0.9"])
def test_who_asks_for_problems_gets_answers(api: Api, accept: str) -> None:
    answer = api("GET", "slices/", Accept=accept)
    assert (answer.status_code, answer["Content-Type"]) == (200, "application/json")
    problem(api("GET", "slices/none/", Accept=accept), 404, "not_found")
    problem(api("GET", "slices/", Accept="image/png"), 406, "not_acceptable")


@pytest.mark.parametrize(("text", "number"), [("9" * 5000, 1), ("0", 1), ("٣", 1), ("4", 4), (None, 1)])
def test_a_number_in_an_environment_variable(text: str | None, number: int) -> None:
    assert pulls._number(text, 1) == number
