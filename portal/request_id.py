"""A request id for every request: in the log lines, in the answer's X-Request-Id header, in API problems."""

from __future__ import annotations

import logging
import re
import time
import uuid
from collections.abc import Callable

from django.http import HttpRequest, HttpResponse
from django.utils.encoding import escape_uri_path

from portal import logs

log = logging.getLogger("portal.request")

_ACCEPTED = re.compile(r"[A-Za-z0-9._-]{8,64}")
_QUIET = ("/healthz", "/readyz", "/metrics", "/static/")


def current() -> str:
    """Return the id of the request (or of the one that sent the task) being worked on, `-` outside of one."""
    return logs.context().get("request", "-")


class RequestIdMiddleware:
    """Take the proxy's X-Request-Id where it is well formed, else make one, and return it with the answer.

    Each request is logged in one line, but for those of probes and static files.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        given = request.headers.get("X-Request-Id", "")
        request_id = given if _ACCEPTED.fullmatch(given) else uuid.uuid4().hex
        began = time.monotonic()
        with logs.bound(request=request_id):
            response = self.get_response(request)
            if not request.path.startswith(_QUIET):
                seconds = round(time.monotonic() - began, 4)
                log.info(
                    "%s %s %s",
                    request.method,
                    escape_uri_path(request.path),
                    response.status_code,
                    extra={"status": response.status_code, "seconds": seconds},
                )
        response["X-Request-Id"] = request_id
        return response
