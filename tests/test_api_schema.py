"""The OpenAPI document: committed as it is, without a warning, true to the answers, and no input gives a 500."""

from __future__ import annotations

import json
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from django.core.management import call_command
from django.core.signals import request_finished, request_started
from django.db import close_old_connections
from hypothesis import HealthCheck, settings
from jsonschema import Draft202012Validator
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from gpu.api.components import COMPONENTS
from gpu.api.examples import ANSWERS, ORDER, PACKAGE, PROBLEM, PROJECT
from portal.wsgi import application
from tenants.models import User
from tests.api_kit import BODY, Api, api, made  # noqa: F401  fixtures
from tests.factories import World, world

DOCUMENT = Path(__file__).resolve().parent.parent / "openapi.json"
pytestmark = pytest.mark.django_db


def generated() -> str:
    """The document as the code gives it, without a warning."""
    out = StringIO()
    call_command("spectacular", format="openapi-json", validate=True, fail_on_warn=True, stdout=out)
    return out.getvalue()


def test_the_committed_document_is_the_codes() -> None:
    """Renew it with: .venv/bin/python manage.py spectacular --format openapi-json --file openapi.json"""
    assert json.loads(DOCUMENT.read_text(encoding="utf-8")) == json.loads(generated())


def test_every_operation_has_an_id_a_title_and_its_errors() -> None:
    document = json.loads(DOCUMENT.read_text(encoding="utf-8"))
    assert document["openapi"].startswith("3.1")
    operations = [operation for path in document["paths"].values() for operation in path.values()]
    ids = [operation["operationId"] for operation in operations]
    assert "slices_create" in ids
    assert len(ids) == len(set(ids))
    titles = [operation["summary"] for operation in operations]
    assert len(titles) == len(set(titles))
    for operation in operations:
        assert {"400", "401", "429", "500", "503"} <= set(operation["responses"]), operation["operationId"]


def check(name: str, value: Any) -> None:
    """Check a value against a component, unknown fields included."""
    schemas = {
        key: {**schema, "additionalProperties": False} if schema.get("type") == "object" else schema
        for key, schema in COMPONENTS.items()
    }
    root = {"$ref": f"#/components/schemas/{name}", "components": {"schemas": schemas}}
    Draft202012Validator(root).validate(value)


def test_real_answers_have_the_shape_that_is_documented(api: Api, made: World) -> None:  # noqa: F811
    row = made.order("one")
    for name, path in (
        ("Root", ""),
        ("PackageList", "packages/"),
        ("ProjectList", "projects/"),
        ("ProjectStatus", "projects/acme-ai/"),
        ("SliceList", "slices/"),
        ("Slice", f"slices/{row.public_id}/"),
        ("Events", f"slices/{row.public_id}/events/"),
        ("Events", f"slices/{row.public_id}/timeline/"),
        ("Log", f"slices/{row.public_id}/log/"),
        ("Problem", "slices/none/"),
    ):
        check(name, api("GET", path).json())
    check("Preview", api("POST", "slices/preview/", BODY).json())
    made.entitle(1)
    check("Problem", api("POST", "slices/", BODY).json())


def test_the_examples_are_true_to_the_shapes() -> None:
    check("Problem", PROBLEM)
    check("Package", PACKAGE)
    check("Project", PROJECT)
    for name, answer in ANSWERS.items():
        check(name, answer)
    assert set(ORDER) <= set(BODY) | {"allow_queue"}


schema = schemathesis.openapi.from_wsgi("/api/v1/schema/", application)
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


@pytest.fixture
def _one_connection(db: None) -> Iterator[None]:
    """Keep the test's connection over requests, as Django's own test client does."""
    request_started.disconnect(close_old_connections)
    request_finished.disconnect(close_old_connections)
    yield
    request_started.connect(close_old_connections)
    request_finished.connect(close_old_connections)


@schema.parametrize()
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@pytest.mark.usefixtures("_one_connection")
def test_no_input_gives_a_500_or_an_undocumented_answer(case: schemathesis.Case) -> None:
    found = User.objects.filter(username="kim@acme.example").first() or world(entitled=50).kim
    token = Api(found, found.memberships.get().tenant).token
    case.call_and_validate(headers={"Authorization": f"Bearer {token}"}, checks=CHECKS)
