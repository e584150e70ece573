"""Error pages: a refused request, a missing page, a failure. Below /api/ the same as problem+json, and for an htmx
request a notice in the corner of the page."""

from __future__ import annotations

import sys

from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.template.loader import render_to_string
from django.utils.translation import gettext as _
from django_htmx.middleware import HtmxDetails

from gpu.api.problems import problem_response
from portal import request_id


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """400: the request could not be read."""
    return _page(request, 400, "malformed", _("The request cannot be read."))


def forbidden(request: HttpRequest, exception: Exception) -> HttpResponse:
    """403: known, but not allowed by role; `exception` may say why."""
    return _page(request, 403, "not_allowed", str(exception) or _("Your role does not allow this."))


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """403 to a form whose token is from before the last sign-in; nothing was done (case C-18 d)."""
    return _page(
        request,
        403,
        "form_token",
        _("Nothing was done. Reload the page; what you typed is kept. Then send it again."),
    )


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """404: not there, or not yours."""
    return _page(request, 404, "not_found", _("There is nothing here, or it is not yours."))


def server_error(request: HttpRequest) -> HttpResponse:
    """500: a surprise, which is logged; 503 where it is the database that does not answer."""
    if isinstance(sys.exc_info()[1], OperationalError | InterfaceError):
        return _database_away(request)
    return _page(
        request, 500, "failed", _("The portal failed on this request; nothing is known to have been changed.")
    )


def _database_away(request: HttpRequest) -> HttpResponse:
    detail, code = _("The portal's database does not answer."), "unavailable"
    if request.path.startswith("/api/"):
        response = problem_response(503, code, detail, _("Try again in a few seconds."))
    else:
        # Without the request: who is signed in stands in the database, too.
        context = {"code": code, "detail": detail, "request_id": request_id.current()}
        response = HttpResponse(render_to_string("503.html", context), status=503)
    response["Retry-After"] = "5"
    return response


def _page(request: HttpRequest, status: int, code: str, detail: str) -> HttpResponse:
    if request.path.startswith("/api/"):
        return problem_response(status, code, detail)
    context = {"code": code, "detail": detail, "request_id": request_id.current()}
    if status != 403 or not HtmxDetails(request):
        return render(request, f"{status}.html", context, status=status)
    response = render(request, "403.html#notice", context, status=status)
    response["HX-Retarget"] = "#toasts"
    response["HX-Reswap"] = "innerHTML"
    return response
