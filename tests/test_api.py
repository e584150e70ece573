"""The REST API as an integrator meets it: tokens, problems, orders, idempotency, ETags, pages (C-19), strangers."""

from __future__ import annotations

import hashlib
import json
import uuid
from typing import Any

import pytest
from django.core.cache import cache
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from gpu import orders
from gpu.api.idempotency import lock_key
from gpu.locks import ANSWER_LOCK
from gpu.models import IdempotentAnswer, Order, Slice
from tenants.models import ApiToken, Tenant, User
from tests.factories import IMAGE, World, card, claim, observe, quota, watched, world

pytestmark = pytest.mark.django_db

BODY: dict[str, Any] = {
    "project": "acme-ai",
    "package": "v100-25",
    "display_name": "Chat der Küche",
    "workload": {"image": IMAGE, "cpu_request": "500m", "cpu_limit": "1"},
}


class Api:
    """A client with a token."""

    def __init__(self, user: User, tenant: Tenant, scope: str = "write") -> None:
        self.row, self.token = ApiToken.issue(user, tenant, "test", scope)
        self.client = Client(raise_request_exception=False)

    def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        values = {
            "Authorization": f"Bearer {self.token}",
            **{key.replace("_", "-"): value for key, value in headers.items()},
        }
        content_type = values.pop("Content-Type", "application/json")
        data = body if isinstance(body, str | bytes) else "" if body is None else json.dumps(body)
        return self.client.generic(method, f"/api/v1/{path}", data, content_type=content_type, headers=values)


@pytest.fixture(autouse=True)
def _no_throttle_left() -> None:
    cache.clear()


@pytest.fixture
def made() -> World:
    found = world(entitled=3)
    observe(
        card(),
        quota(
            "acme-ai",
            {"requests.cpu": "8", "limits.memory": "24Gi"},
            {"requests.cpu": "1", "limits.memory": "2Gi"},
        ),
    )
    watched()
    return found


@pytest.fixture
def api(made: World) -> Api:
    return Api(made.kim, made.acme)


@pytest.fixture
def stranger(made: World) -> Api:
    return Api(made.robin, made.birch)


def problem(answer: Any, status: int, code: str) -> dict[str, Any]:
    """Check that an answer is a whole problem, and return it."""
    assert answer.status_code == status, answer.content
    assert answer["Content-Type"] == "application/problem+json"
    found: dict[str, Any] = answer.json()
    assert (found["status"], found["code"]) == (status, code)
    assert found["detail"]
    assert found["title"]
    assert found["instance"] == answer["X-Request-Id"]
    return found


# Tokens and errors


def test_without_a_token_is_401_with_a_challenge() -> None:
    answer = Client().get("/api/v1/slices/")
    problem(answer, 401, "not_authenticated")
    assert answer["WWW-Authenticate"].startswith("Bearer")


@pytest.mark.parametrize("header", ["Bearer nonsense", "Basic abc", "Bearer", "Token ünïcode", "\x00"])
def test_a_bad_token_is_401(header: str) -> None:
    problem(Client().get("/api/v1/slices/", headers={"Authorization": header}), 401, "token_invalid")


def test_the_token_form_of_django_rest_framework_works(api: Api) -> None:
    assert Client().get("/api/v1/slices/", headers={"Authorization": f"Token {api.token}"}).status_code == 200


def test_a_revoked_token_and_one_of_a_former_member_are_401(api: Api, made: World) -> None:
    made.kim.memberships.all().delete()
    problem(api("GET", "slices/"), 401, "token_invalid")


def test_a_reading_token_may_not_write(made: World) -> None:
    reader = Api(made.kim, made.acme, "read")
    assert reader("GET", "slices/").status_code == 200
    problem(reader("POST", "slices/", BODY), 403, "not_allowed")
    assert reader("POST", "slices/preview/", BODY).status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status", "code"),
    [
        ("POST", "slices/", "{no json", {}, 400, "malformed"),
        ("POST", "slices/", b"\xff\xfe", {}, 400, "malformed"),
        ("POST", "slices/", "[]", {}, 400, "malformed"),
        (
            "POST",
            "slices/",
            "a=b",
            {"Content_Type": "application/x-www-form-urlencoded"},
            415,
            "unsupported_media_type",
        ),
        ("DELETE", "slices/", None, {}, 405, "method_not_allowed"),
        ("GET", "nothing/here/", None, {}, 404, "not_found"),
        ("GET", "slices/sl_unknown/", None, {}, 404, "not_found"),
        ("GET", "slices/%00/", None, {}, 404, "not_found"),
        ("GET", "projects/%00/", None, {}, 404, "not_found"),
        ("GET", "slices/?nonsense=1", None, {}, 400, "unknown_parameter"),
        ("GET", "slices/?page_size=0", None, {}, 400, "bad_parameter"),
        ("GET", "slices/?page_size=101", None, {}, 400, "bad_parameter"),
        ("GET", "slices/?page_size=000001999", None, {}, 400, "bad_parameter"),
        ("GET", "slices/?page_size=%C2%B2", None, {}, 400, "bad_parameter"),
        ("GET", "slices/?cursor=%%%", None, {}, 400, "bad_cursor"),
        ("GET", "slices/?cursor=bz1hYmM%3D", None, {}, 400, "bad_cursor"),
        ("GET", "slices/?cursor=cD1hYmM%3D", None, {}, 400, "bad_cursor"),
        ("GET", "slices/?ordering=price", None, {}, 400, "bad_parameter"),
        ("GET", "slices/?state=happy", None, {}, 400, "bad_parameter"),
        ("GET", "slices/?ended=perhaps", None, {}, 400, "bad_parameter"),
        ("GET", "packages/?on_sale=x", None, {}, 400, "bad_parameter"),
        ("GET", "slices/", None, {"Accept": "text/html"}, 406, "not_acceptable"),
        ("POST", "slices/", BODY, {"Idempotency_Key": "with blank"}, 400, "bad_idempotency_key"),
    ],
)
def test_every_error_is_a_problem(
    api: Api, method: str, path: str, body: Any, headers: dict[str, str], status: int, code: str
) -> None:
    problem(api(method, path, body, **headers), status, code)


def test_a_problem_speaks_the_readers_language(api: Api) -> None:
    english = problem(api("GET", "slices/sl_unknown/"), 404, "not_found")
    german = problem(api("GET", "slices/sl_unknown/", Accept_Language="de"), 404, "not_found")
    assert english["detail"] != german["detail"]


def test_a_surprise_is_500_without_its_text(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any) -> None:
        raise RuntimeError("secret of the house")

    monkeypatch.setattr("gpu.api.views.project_status", fail)
    assert "secret" not in json.dumps(problem(api("GET", "projects/acme-ai/"), 500, "failed"))


# Catalogue and projects


def test_packages_come_with_price_and_both_forms_of_memory(api: Api) -> None:
    found = api("GET", "packages/").json()["results"]
    assert {row["id"] for row in found} == {"v100-25", "v100-50", "v100-100"}
    small = next(row for row in found if row["id"] == "v100-25")
    assert small["price_per_hour"] == {"amount": "0.2500", "currency": "EUR"}
    assert (small["gpu_memory"], small["gpu_memory_bytes"]) == ("8192Mi", 8589934592)


def test_a_project_tells_entitlement_use_capacity_and_headroom(api: Api, made: World) -> None:
    row = made.order()
    observe(claim("acme-ai", row.app))
    found = api("GET", f"projects/{made.project.public_id}/").json()
    small = next(line for line in found["packages"] if line["package"] == "v100-25")
    assert (small["entitled"], small["in_use"], small["waiting"], small["free_to_order"]) == (3, 1, 0, 2)
    assert small["cards"] == {"total": 4, "free": 3}
    cpu = next(line for line in found["headroom"] if line["resource"] == "requests.cpu")
    assert cpu["left"] == {"quantity": "7", "cpu_millicores": 7000}
    assert cpu["binding_quota"] == "plan-quota"
    assert found["observed"]["stale"] is False


def test_a_project_of_another_tenant_is_404(stranger: Api) -> None:
    problem(stranger("GET", "projects/acme-ai/"), 404, "not_found")
    assert [row["namespace"] for row in stranger("GET", "projects/").json()["results"]] == ["birch-lab"]


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
    assert counts[0] == counts[1] <= 23


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


# Throttling (C-19 a)


def test_behind_one_proxy_the_address_it_has_seen_is_counted(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gpu.api.throttling import AnonThrottle

    monkeypatch.setattr(AnonThrottle, "THROTTLE_RATES", {"anon": "5/min"}, raising=False)
    monkeypatch.setattr("rest_framework.settings.api_settings.NUM_PROXIES", 1)
    client = Client()

    def call(forwarded: str) -> Any:
        return client.get("/api/v1/", headers={"X-Forwarded-For": forwarded})

    for last in range(1, 6):
        assert call(f"10.9.9.{last}, 203.0.113.9").status_code == 200
    refused = call("10.9.9.6, 203.0.113.9")
    problem(refused, 429, "throttled")
    assert int(refused["Retry-After"]) > 0
    assert call("10.9.9.1, 203.0.113.10").status_code == 200


def test_limits_are_told_before_they_bite(api: Api) -> None:
    first, second = (api("GET", "packages/") for _ in range(2))
    assert first["RateLimit-Policy"] == '"token";q=600;w=60'
    assert first["RateLimit"].startswith('"token";r=599;')
    assert second["RateLimit"].startswith('"token";r=598;')


def test_nobody_is_throttled_while_the_cache_is_away(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    import redis

    def away(*args: Any, **kwargs: Any) -> None:
        raise redis.ConnectionError

    monkeypatch.setattr("django.core.cache.backends.redis.RedisCache.get", away)
    assert api("GET", "packages/").status_code == 200


def test_a_new_token_is_kept_as_a_digest_only(api: Api) -> None:
    row = ApiToken.objects.get(pk=api.row.pk)
    kept = json.dumps({field.name: str(getattr(row, field.name)) for field in row._meta.fields})
    assert api.token not in kept
    assert len(row.prefix) == 8


def test_a_database_that_is_away_is_503(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    from django.db import OperationalError

    def away(*args: Any, **kwargs: Any) -> None:
        raise OperationalError

    monkeypatch.setattr(orders, "place", away)
    answer = api("POST", "slices/", BODY)
    problem(answer, 503, "unavailable")
    assert answer["Retry-After"]
