"""Every error as application/problem+json (RFC 9457) with a stable code, a sentence and a next step."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from django.conf import settings
from django.core.exceptions import PermissionDenied as DjangoPermissionDenied
from django.core.exceptions import RequestDataTooBig
from django.db import InterfaceError, OperationalError
from django.http import Http404, HttpResponse, JsonResponse
from django.utils.translation import gettext as _
from rest_framework import exceptions
from rest_framework.response import Response

from gpu.order_errors import InvalidOrder, OrderRefused, StaleRow
from gpu.order_rules import CONSENT_MENDS
from gpu.wording import render
from portal import request_id
from tenants import access

log = logging.getLogger(__name__)

CONTENT_TYPE = "application/problem+json"


class Problem(exceptions.APIException):
    """An error with everything the answer says. `errors` are (JSON Pointer, code, sentence)."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        next_step: str = "",
        *,
        errors: Iterable[tuple[str, str, str]] = (),
        extra: Mapping[str, object] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status_code = status
        self.code = code
        self.sentence = detail
        self.next_step = next_step
        self.errors = tuple(errors)
        self.extra = dict(extra or {})
        self.headers = dict(headers or {})


def titles() -> dict[int, str]:
    """Return the title of each status the API answers with."""
    return {
        400: _("The request cannot be read"),
        401: _("Sign-in needed"),
        403: _("Not allowed"),
        404: _("Not found"),
        405: _("Method not allowed"),
        406: _("Not available in this form"),
        409: _("Not possible in the present state"),
        412: _("Changed meanwhile"),
        413: _("Too large"),
        415: _("Unsupported content type"),
        422: _("Fields are wrong"),
        428: _("If-Match needed"),
        429: _("Too many requests"),
        500: _("The portal failed"),
        503: _("Not available at present"),
    }


def exception_handler(error: Exception, context: dict[str, Any]) -> Response:
    """Turn any exception of a view into a problem; a surprise is logged and answered with 500."""
    problem = as_problem(error)
    response = Response(body(problem), status=problem.status_code, content_type=CONTENT_TYPE)
    for name, value in problem.headers.items():
        response[name] = value
    return response


def body(problem: Problem) -> dict[str, object]:
    """Return the JSON body of a problem."""
    return {
        "type": "about:blank",
        "title": titles().get(problem.status_code, ""),
        "status": problem.status_code,
        "detail": problem.sentence,
        "instance": request_id.current(),
        "code": problem.code,
        "errors": [
            {"pointer": pointer, "code": code, "detail": detail} for pointer, code, detail in problem.errors
        ],
        "next_step": problem.next_step,
        **problem.extra,
    }


def problem_response(status: int, code: str, detail: str, next_step: str = "") -> HttpResponse:
    """Return a problem outside of a view of the API (unknown address, failure of the portal)."""
    return JsonResponse(
        body(Problem(status, code, detail, next_step)), status=status, content_type=CONTENT_TYPE
    )


def as_problem(error: Exception) -> Problem:
    """Return the problem an exception stands for."""
    match error:
        case Problem():
            return error
        case OrderRefused():
            return _order(error)
        case exceptions.ValidationError():
            return Problem(
                422,
                "invalid",
                _("Some fields are wrong; see errors."),
                _("Mend the fields named in errors and send again."),
                errors=list(_flatten(error.get_full_details(), "")),
            )
        case RequestDataTooBig():
            return Problem(
                413,
                "too_large",
                _("The body is too large."),
                _("Send at most %(most)s bytes.") % {"most": settings.DATA_UPLOAD_MAX_MEMORY_SIZE},
            )
        case RecursionError():
            return Problem(
                400, "malformed", _("The body is nested too deeply."), _("Send JSON that is less nested.")
            )
        case exceptions.ParseError():
            return Problem(400, "malformed", _("The body is no valid JSON."), _("Send JSON in UTF-8."))
        case exceptions.NotAuthenticated() | exceptions.AuthenticationFailed():
            return Problem(
                401,
                "not_authenticated" if isinstance(error, exceptions.NotAuthenticated) else "token_invalid",
                str(error.detail),
                _("Send “Authorization: Bearer” with a token from the portal's page “API tokens”."),
                headers={"WWW-Authenticate": 'Bearer realm="api"'},
            )
        case access.MayOnlyRead():
            return Problem(403, "not_allowed", str(error), _("Make one on the portal's page “API tokens”."))
        case exceptions.PermissionDenied() | DjangoPermissionDenied():
            return Problem(
                403, "not_allowed", str(error) or _("Your role does not allow this."), _("Ask an owner.")
            )
        case exceptions.NotFound() | Http404():
            return Problem(
                404, "not_found", _("There is nothing here, or it is not yours."), _("Check the id.")
            )
        case exceptions.MethodNotAllowed():
            return Problem(405, "method_not_allowed", str(error.detail), _("See the OpenAPI document."))
        case exceptions.NotAcceptable():
            return Problem(406, "not_acceptable", str(error.detail), _("Send “Accept: application/json”."))
        case exceptions.UnsupportedMediaType():
            return Problem(415, "unsupported_media_type", str(error.detail), _("Send application/json."))
        case exceptions.Throttled():
            wait = str(int((getattr(error, "wait", None) or 0) + 1))
            return Problem(
                429,
                "throttled",
                _("Too many requests."),
                _("Wait %(seconds)s seconds and try again.") % {"seconds": wait},
                headers={"Retry-After": wait},
            )
        case OperationalError() | InterfaceError():
            return Problem(
                503,
                "unavailable",
                _("The portal's database does not answer."),
                _("Try again in a few seconds."),
                headers={"Retry-After": "5"},
            )
    log.exception("API request failed", exc_info=error)
    return Problem(
        500,
        "failed",
        _("The portal failed on this request; nothing is known to have been changed."),
        _("Try again; if it stays, give the operators the instance id."),
    )


# Place of a finding -> JSON Pointer into the body of an order.
def pointer(place: str) -> str:
    """Return the JSON Pointer of a finding's place: a field stands below /workload, unless it is the order's own."""
    if place.startswith("/"):
        return ""
    path = "/" + place.replace(".", "/")
    return (
        path
        if place in ("display_name", "package", "project", "allow_queue", "model")
        else f"/workload{path}"
    )


def _order(error: OrderRefused) -> Problem:
    status = 412 if isinstance(error, StaleRow) else 422 if isinstance(error, InvalidOrder) else 409
    extra: dict[str, object] = {}
    if error.holders:
        extra["holders"] = [{"id": holder.public_id, "display_name": holder.name} for holder in error.holders]
    return Problem(
        status,
        error.code,
        render(error.sentence),
        render(error.next_step) + (" (API: allow_queue)" if error.code in CONSENT_MENDS else ""),
        errors=[(pointer(item.place), item.rule, render(item.sentence)) for item in error.fields],
        extra=extra,
    )


def _flatten(details: Any, path: str) -> Iterable[tuple[str, str, str]]:
    """Yield (pointer, code, sentence) of nested validation details."""
    if isinstance(details, dict) and set(details) == {"message", "code"}:
        yield path, str(details["code"]), str(details["message"])
    elif isinstance(details, dict):
        for key, value in details.items():
            yield from _flatten(value, path if key == "non_field_errors" else f"{path}/{_escaped(str(key))}")
    elif isinstance(details, list):
        for number, value in enumerate(details):
            nested = isinstance(value, dict) and set(value) != {"message", "code"}
            yield from _flatten(value, f"{path}/{number}" if nested else path)


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
