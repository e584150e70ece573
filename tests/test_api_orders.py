"""Orders by the REST API: what is refused, and a key that makes a repeated request one order."""

from __future__ import annotations

import hashlib
import json
import uuid
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from gpu.api.idempotency import lock_key
from gpu.locks import ANSWER_LOCK
from gpu.models import IdempotentAnswer, Order, Slice
from tests.api_kit import BODY, Api, api, made, no_throttle_left, problem, stranger
from tests.factories import World, claim, observe

__all__ = ["api", "made", "no_throttle_left", "stranger"]  # fixtures

pytestmark = pytest.mark.django_db

# Orders


def test_an_order_is_202_with_location_and_state(api: Api) -> None:
    answer = api("POST", "slices/", BODY)
    assert answer.status_code == 202
    found = answer.json()
    assert (found["state"], found["intent"], found["display_name"]) == ("ordered", "run", "Chat der Küche")
    assert answer["Location"].endswith(f"/api/v1/slices/{found['id']}/")
    assert answer["ETag"] == api("GET", f"slices/{found['id']}/")["ETag"]


def test_wrong_fields_are_422_each_with_its_pointer(api: Api) -> None:
    body = {**BODY, "package": "nope", "colour": "red", "workload": {"image": 7, "env": [{"name": "A"}]}}
    found = problem(api("POST", "slices/", body), 422, "invalid")
    assert "/workload/env/0/value" in {error["pointer"] for error in found["errors"]}
    found = problem(
        api("POST", "slices/", {**BODY, "package": "nope", "project": "birch-lab"}), 422, "invalid"
    )
    assert {error["pointer"] for error in found["errors"]} == {"/package", "/project"}
    found = problem(api("POST", "slices/", {**BODY, "colour": "red"}), 422, "invalid")
    assert [error["pointer"] for error in found["errors"]] == ["/colour"]


@pytest.mark.parametrize(
    ("field", "value"),
    [("image", "ollama/ollama:latest"), ("cpu_limit", "100m"), ("memory_request", "lots"), ("port", 70000)],
)
def test_what_can_never_work_is_422_at_its_pointer(api: Api, field: str, value: Any) -> None:
    body = {**BODY, "workload": {**BODY["workload"], field: value}}
    found = problem(api("POST", "slices/", body), 422, "invalid")
    assert f"/workload/{field}" in {error["pointer"] for error in found["errors"]}


def test_over_entitlement_is_409_with_the_holders(api: Api, made: World) -> None:
    for _ in range(3):
        made.order("holder")
    found = problem(api("POST", "slices/", BODY), 409, "entitlement_used_up")
    assert [holder["display_name"] for holder in found["holders"]] == ["holder"] * 3
    assert found["next_step"]


def test_a_busy_card_needs_allow_queue(api: Api) -> None:
    observe(claim("birch-lab", "big", 100))
    found = problem(api("POST", "slices/", BODY), 409, "queue_consent_needed")
    assert "allow_queue" in found["next_step"]
    assert api("POST", "slices/", {**BODY, "allow_queue": True}).status_code == 202


def test_the_preview_says_what_the_order_then_does(api: Api) -> None:
    found = api("POST", "slices/preview/", BODY).json()
    assert (found["verdict"], found["would_be_accepted"], found["refusal"]) == ("starts", True, None)
    assert (found["entitlement"]["used_before"], found["entitlement"]["used_after"]) == (0, 1)
    assert "kind: ResourceClaimTemplate" in found["manifest"]
    assert not Slice.objects.exists()
    assert api("POST", "slices/", BODY).status_code == 202
    observe(claim("birch-lab", "big", 100))
    found = api("POST", "slices/preview/", BODY).json()
    assert (found["verdict"], found["needs_allow_queue"], found["refusal"]["code"]) == (
        "waits_for_card",
        True,
        "queue_consent_needed",
    )


# Idempotency


def test_the_same_key_and_body_is_one_order_and_the_first_answer(api: Api) -> None:
    key = str(uuid.uuid4())
    first, again = (api("POST", "slices/", BODY, Idempotency_Key=key) for _ in range(2))
    assert first.status_code == again.status_code == 202
    assert first.json() == again.json()
    assert (first["ETag"], first["Location"]) == (again["ETag"], again["Location"])
    assert again["Idempotent-Replayed"] == "true"
    assert "Idempotent-Replayed" not in first
    assert Order.objects.count() == 1


def test_the_same_key_with_another_body_is_422(api: Api) -> None:
    api("POST", "slices/", BODY, Idempotency_Key="k")
    problem(
        api("POST", "slices/", {**BODY, "display_name": "Other"}, Idempotency_Key="k"),
        422,
        "idempotency_key_reused",
    )


def test_a_key_whose_first_request_still_runs_is_409(api: Api, made: World) -> None:
    other = connection.copy()
    with other.cursor() as cursor:
        key = [ANSWER_LOCK, lock_key(made.acme, "k") % 2**31]
        cursor.execute("SELECT pg_advisory_lock(%s, %s)", key)
        answer = api("POST", "slices/", BODY, Idempotency_Key="k")
        cursor.execute("SELECT pg_advisory_unlock(%s, %s)", key)
    other.close()
    problem(answer, 409, "idempotency_in_progress")
    assert answer["Retry-After"] == "1"
    assert not Order.objects.exists()
    assert api("POST", "slices/", BODY, Idempotency_Key="k").status_code == 202


def test_a_request_whose_process_died_in_an_earlier_version_is_taken_over(api: Api) -> None:
    body = json.dumps(BODY).encode()
    fingerprint = hashlib.sha256(b"\n".join((b"POST", b"/api/v1/slices/", body))).hexdigest()
    IdempotentAnswer.objects.create(tenant=api.row.tenant, key="k", fingerprint=fingerprint)
    first, again = (api("POST", "slices/", BODY, Idempotency_Key="k") for _ in range(2))
    assert first.status_code == 202
    assert again.json()["id"] == first.json()["id"]
    assert Order.objects.count() == 1


def test_the_answer_to_an_order_is_what_the_slice_says_of_itself(api: Api) -> None:
    ordered = api("POST", "slices/", BODY)
    read = api("GET", f"slices/{ordered.json()['id']}/")
    assert ordered["ETag"] == read["ETag"]
    assert {**ordered.json(), "observed": None} == {**read.json(), "observed": None}


def test_an_order_costs_few_statements_however_many_slices_there_are(api: Api, made: World) -> None:
    made.entitle(50)
    api("POST", "slices/", BODY, Idempotency_Key="warm")
    counts = []
    for number in range(2):
        for other in range(number * 10):
            made.order(f"Other {other}")
        with CaptureQueriesContext(connection) as captured:
            answer = api("POST", "slices/", {**BODY, "allow_queue": True}, Idempotency_Key=f"k{number}")
        assert answer.status_code == 202, answer.json()
        counts.append(len(captured))
    assert counts[0] == counts[1] <= 21


def test_a_slice_is_read_with_few_statements(api: Api) -> None:
    path = f"slices/{api('POST', 'slices/', BODY).json()['id']}/"
    with CaptureQueriesContext(connection) as captured:
        answer = api("GET", path)
    assert answer.status_code == 200
    rows = [each["sql"] for each in captured if 'FROM "gpu_slice"' in each["sql"]]
    assert len(rows) == 1
    assert len(captured) <= 7


def test_an_order_is_made_with_its_answer_or_not_at_all(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError

    with monkeypatch.context() as patch:
        patch.setattr("gpu.api.slices.SlicesView.answer", fail)
        problem(api("POST", "slices/", BODY, Idempotency_Key="k"), 500, "failed")
    assert not Order.objects.exists()
    assert api("POST", "slices/", BODY, Idempotency_Key="k").status_code == 202


def test_long_keys_that_differ_at_the_end_are_two_orders(api: Api) -> None:
    for end in "ab":
        assert api("POST", "slices/", BODY, Idempotency_Key="k" * 199 + end).status_code == 202
    assert Order.objects.count() == 2


def test_a_key_of_which_the_answer_was_forgotten_is_a_new_key(api: Api, made: World) -> None:
    made.entitle(1, 50)
    first = api("POST", "slices/", BODY, Idempotency_Key="k").json()
    IdempotentAnswer.objects.all().delete()
    other = api("POST", "slices/", {**BODY, "package": "v100-50"}, Idempotency_Key="k").json()
    assert (other["package"], other["id"] != first["id"]) == ("v100-50", True)


def test_a_refused_order_may_be_tried_again_with_its_key(api: Api, made: World) -> None:
    made.entitle(0)
    problem(api("POST", "slices/", BODY, Idempotency_Key="k"), 409, "not_entitled")
    made.entitle(1)
    assert api("POST", "slices/", BODY, Idempotency_Key="k").status_code == 202


def test_keys_are_per_tenant(api: Api, stranger: Api, made: World) -> None:
    made.entitle(1, project=made.other)
    assert api("POST", "slices/", BODY, Idempotency_Key="k").status_code == 202
    assert (
        stranger("POST", "slices/", {**BODY, "project": "birch-lab"}, Idempotency_Key="k").status_code == 202
    )
