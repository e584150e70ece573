"""Pages of the portal itself: a refused request, a missing page, a failure. An htmx request gets a notice instead."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django_htmx.middleware import HtmxDetails

from portal import request_id


def refused(request: HttpRequest, kind: str, sentence: str = "") -> HttpResponse:
    """Answer 403: as a page, or for htmx as a notice that it swaps into the corner of the page (case C-18 d)."""
    context = {"kind": kind, "sentence": sentence}
    if not HtmxDetails(request):
        return render(request, "403.html", context, status=403)
    response = render(request, "403.html#notice", context, status=403)
    response["HX-Retarget"] = "#toasts"
    response["HX-Reswap"] = "innerHTML"
    return response


def permission_denied(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Answer 403 with the sentence of `exception`."""
    return refused(request, "role", str(exception))


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """Answer 403 to a form whose token is from before the last sign-in; nothing was done."""
    return refused(request, "token")


def page_not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Answer 404, for what is not there and for what is not the reader's alike."""
    return render(request, "404.html", status=404)


def server_error(request: HttpRequest) -> HttpResponse:
    """Answer 500 with the request id; the template reads nothing from the database."""
    return render(request, "500.html", {"request_id": request_id.current()}, status=500)
