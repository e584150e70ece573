"""What tests of the REST API share: a client with a token, and a world to use it in."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.core.cache import cache
from django.test import Client

from tenants.models import ApiToken, Tenant, User
from tests.factories import IMAGE, World, card, observe, quota, watched, world

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
def no_throttle_left() -> None:
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
