"""Log lines: JSON with what they concern; a task knows the request that sent it."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from typing import Any

import pytest
from celery import signals
from django.test import Client

from gpu import enqueue, orders, provision
from gpu.order_errors import OrderRefused
from portal import gunicorn_conf, logs, request_id
from tests.factories import world
from worker.tasks import sweep_once


def formatted(record: logging.LogRecord, formatter: logging.Formatter) -> str:
    """A record as a handler would write it."""
    logs.ContextFilter().filter(record)
    return formatter.format(record)


def record(message: str = "sent %s", *args: object, **extra: Any) -> logging.LogRecord:
    """A record of the logger `gpu.test`."""
    made = logging.getLogger("gpu.test").makeRecord(
        "gpu.test", logging.INFO, "x.py", 1, message, args, None, extra=extra
    )
    assert isinstance(made, logging.LogRecord)
    return made


def test_a_json_line_holds_what_it_concerns() -> None:
    with logs.bound(request="r1"), logs.bound(slice="sl_1", order="or_1"):
        line = json.loads(
            formatted(
                record("sent %s", "x", code="conflict", data={"traceback": "..."}), logs.JsonFormatter()
            )
        )
    assert line["time"].endswith("Z")
    del line["time"]
    assert line == {
        "level": "info",
        "logger": "gpu.test",
        "message": "sent x",
        "request": "r1",
        "slice": "sl_1",
        "order": "or_1",
        "code": "conflict",
    }
    assert logs.context() == {}


def test_a_json_line_is_one_line_and_keeps_the_traceback() -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError:
        one = record("broken\nhere", odd=object())
        one.exc_info = sys.exc_info()
    text = formatted(one, logs.JsonFormatter())
    assert "\n" not in text
    assert "ValueError: two\nlines" in json.loads(text)["exception"]


def test_an_extra_field_does_not_replace_what_is_bound() -> None:
    with logs.bound(slice="sl_1"):
        assert json.loads(formatted(record(slice="other"), logs.JsonFormatter()))["slice"] == "sl_1"


def test_a_line_to_read_tells_what_is_bound() -> None:
    formatter = logs.LineFormatter("%(name)s [%(bound)s] %(message)s")
    with logs.bound(request="r1"):
        assert formatted(record("hello"), formatter) == "gpu.test [request=r1] hello"
    assert formatted(record("hello"), formatter) == "gpu.test [-] hello"


@pytest.mark.django_db
def test_a_request_is_logged_with_its_id_but_a_probe_is_not(caplog: pytest.LogCaptureFixture) -> None:
    caplog.handler.addFilter(logs.ContextFilter())
    with caplog.at_level(logging.INFO, "portal.request"):
        answer = Client().get("/login/%0Aforged", headers={"X-Request-Id": "abcdef-123456"})
        Client().get("/healthz")
    assert answer["X-Request-Id"] == "abcdef-123456"
    (line,) = [one for one in caplog.records if one.name == "portal.request"]
    assert line.context == {"request": "abcdef-123456"}  # type: ignore[attr-defined]
    assert line.getMessage() == "GET /login/%0Aforged 404"
    assert line.status == 404  # type: ignore[attr-defined]


def test_a_task_knows_itself_and_the_request_that_sent_it() -> None:
    headers: dict[str, Any] = {}
    with logs.bound(request="r1"):
        signals.before_task_publish.send("portal.provision", headers=headers)
    assert headers == {"portal_request": "r1"}

    task = sweep_once
    task.push_request(portal_request="r1")
    try:
        signals.task_prerun.send(task, task_id="t1", task=task)
        assert logs.context() == {"task": "t1", "request": "r1"}
        assert request_id.current() == "r1"
        signals.task_postrun.send(task, task_id="t1", task=task)
    finally:
        task.pop_request()
    assert logs.context() == {}


@pytest.mark.django_db
def test_provisioning_tells_slice_and_order(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(enqueue, "_send", lambda *_: None)
    monkeypatch.setattr(provision, "_send", lambda *_: None)
    caplog.handler.addFilter(logs.ContextFilter())
    made = world(entitled=1)
    with caplog.at_level(logging.INFO):
        row = made.order()
        provision.provision(row.pk)
        with pytest.raises(OrderRefused):
            made.order("second")
        orders.stop(made.kim, row)
    ordered, accepted, stopped = [
        one for one in caplog.records if one.name in ("gpu.orders", "gpu.provision")
    ]
    ids = (row.public_id, row.order.public_id)
    assert (ordered.slice, ordered.order) == ids  # type: ignore[attr-defined]
    assert accepted.context == {"slice": ids[0], "order": ids[1]}  # type: ignore[attr-defined]
    assert (stopped.getMessage(), stopped.slice) == ("stop_asked", ids[0])  # type: ignore[attr-defined]


def test_gunicorn_writes_the_same_lines() -> None:
    assert gunicorn_conf.logconfig_dict["formatters"] == logs.configuration("json", "INFO")["formatters"]


def test_production_writes_json_unless_told_otherwise() -> None:
    code = "from django.conf import settings; print(settings.LOGGING['handlers']['console']['formatter'])"
    base = {
        "PORTAL_ENV": "production",
        "SECRET_KEY": "k" * 60,
        "DATABASE_URL": "postgres://localhost/none",
        "REDIS_URL": "redis://localhost/0",
        "DJANGO_SETTINGS_MODULE": "portal.settings",
        "PATH": "/usr/bin:/bin",
    }

    def run(**more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-c", code], env=base | more, capture_output=True, text=True)

    assert run().stdout == "json\n"
    assert run(LOG_FORMAT="line").stdout == "line\n"
    assert "LOG_FORMAT is 'xml'; use json or line." in run(LOG_FORMAT="xml").stderr
