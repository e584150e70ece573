"""A request id for every request: in the log lines, in the answer's X-Request-Id header, in API problems."""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Callable
from contextvars import ContextVar

from django.http import HttpRequest, HttpResponse

_current: ContextVar[str] = ContextVar("request_id", default="-")
_ACCEPTED = re.compile(r"[A-Za-z0-9._-]{8,64}")


def current() -> str:
    """Return the id of the request (or task) being worked on, `-` outside of one."""
    return _current.get()


class RequestIdMiddleware:
    """Take the proxy's X-Request-Id where it is well formed, else make one, and return it with the answer."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        given = request.headers.get("X-Request-Id", "")
        request_id = given if _ACCEPTED.fullmatch(given) else uuid.uuid4().hex
        token = _current.set(request_id)
        try:
            response = self.get_response(request)
        finally:
            _current.reset(token)
        response["X-Request-Id"] = request_id
        return response


class RequestIdFilter(logging.Filter):
    """Put the current request id on every log record."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.request_id = _current.get()
        return True
