"""Error pages; below /api/ the same as problem+json."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _

from gpu.api.problems import problem_response


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """400: the request could not be read."""
    return _page(request, 400, "malformed", _("The request cannot be read."))


def forbidden(request: HttpRequest, exception: Exception) -> HttpResponse:
    """403: known, but not allowed by role."""
    return _page(request, 403, "not_allowed", str(exception) or _("Your role does not allow this."))


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """404: not there, or not yours."""
    return _page(request, 404, "not_found", _("There is nothing here, or it is not yours."))


def server_error(request: HttpRequest) -> HttpResponse:
    """500: a surprise, which is logged."""
    return _page(
        request, 500, "failed", _("The portal failed on this request; nothing is known to have been changed.")
    )


def _page(request: HttpRequest, status: int, code: str, detail: str) -> HttpResponse:
    if request.path.startswith("/api/"):
        return problem_response(status, code, detail)
    return render(request, f"{status}.html", {"detail": detail}, status=status)
