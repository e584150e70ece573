"""What is answered before or after any view: an ended session under htmx, an address that cannot be."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.auth.views import redirect_to_login
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import resolve_url
from django_htmx.middleware import HtmxDetails

from portal.errors import not_found


class SignedOutMiddleware:
    """Turn a redirect to the sign-in page into `HX-Redirect` for requests of htmx (case C-18).

    The browser would follow a 302 unseen and htmx would swap the sign-in page into the fragment. The way back is
    the page the person looks at, and only when it is one of ours.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        htmx = HtmxDetails(request)
        if not htmx or response.status_code not in (301, 302, 303, 307, 308):
            return response
        login = resolve_url(settings.LOGIN_URL)
        if urlsplit(response.headers.get("Location", "")).path != login:
            return response
        try:
            page = htmx.current_url_abs_path
        except ValueError:  # no address at all
            page = None
        answer = HttpResponse()
        answer["HX-Redirect"] = redirect_to_login(page)["Location"] if page else login
        return answer


class NoNulMiddleware:
    """Answer 404 to an address with a NUL character: PostgreSQL takes none, and nothing here is named by one."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if "\x00" in request.path_info or "%00" in request.META.get("QUERY_STRING", ""):
            return not_found(request, Http404())
        return self.get_response(request)
