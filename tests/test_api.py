"""The REST API as an integrator meets it: tokens, problems, packages, projects, throttling (C-19)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client

from gpu import orders
from tenants.models import ApiToken
from tests.api_kit import BODY, Api, api, made, no_throttle_left, problem, stranger
from tests.factories import World, claim, observe

__all__ = ["api", "made", "no_throttle_left", "stranger"]  # fixtures

pytestmark = pytest.mark.django_db

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
    refused = problem(reader("POST", "slices/", BODY), 403, "not_allowed")
    assert refused["next_step"] == "Make one on the portal's page “API tokens”."
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


def test_an_address_without_its_last_slash_is_told(api: Api) -> None:
    for path in ("slices", "slices/sl_unknown/stop"):
        told = problem(api("POST", path, BODY), 404, "not_found")
        assert told["next_step"] == f"Addresses end with a slash: /api/v1/{path}/"
    for path in ("nothing", "nothing/here"):
        assert problem(api("GET", path), 404, "not_found")["next_step"] == "Check the id."


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
