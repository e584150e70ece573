"""What all views of the API share: throttle before the answer, actor, parameters, pages."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Collection
from typing import Any

from django.utils.translation import gettext as _
from rest_framework import exceptions
from rest_framework.pagination import CursorPagination
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from gpu.api import throttling
from gpu.api.problems import Problem
from tenants.access import Actor
from tenants.models import ApiToken, User


class ApiView(APIView):
    """A view of the API. `params` names the query parameters each method takes; others are 400."""

    params: dict[str, Collection[str]] = {}
    rate_limit: tuple[Any, ...] | None = None

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Authenticate, count, then check; a bad token is counted as an anonymous call."""
        self.format_kwarg = self.get_format_suffix(**kwargs)
        failed: exceptions.APIException | None = None
        try:
            request.user  # noqa: B018  authenticates
        except exceptions.AuthenticationFailed as error:
            request._not_authenticated()  # type: ignore[attr-defined]
            failed = error
        self.check_throttles(request)
        if failed is not None:
            raise failed
        super_negotiation = self.perform_content_negotiation(request)
        request.accepted_renderer, request.accepted_media_type = super_negotiation
        self.check_permissions(request)
        self._check_params(request)

    def _check_params(self, request: Request) -> None:
        allowed = self.params.get(request.method or "", ())
        unknown = sorted(set(request.query_params) - set(allowed))
        if unknown:
            raise Problem(
                400,
                "unknown_parameter",
                _("Unknown parameter: %(names)s.") % {"names": ", ".join(unknown)[:200]},
                _("Known here: %(names)s.") % {"names": ", ".join(sorted(allowed)) or "–"},
            )

    def finalize_response(self, request: Request, response: Response, *args: Any, **kwargs: Any) -> Response:
        """Add the rate limit headers, and let no cache keep an answer."""
        response = super().finalize_response(request, response, *args, **kwargs)
        if self.rate_limit is not None:
            for name, value in throttling.headers(self.rate_limit).items():
                response[name] = value
        response.setdefault("Cache-Control", "private, no-cache")
        return response

    @property
    def actor(self) -> Actor:
        """Who calls."""
        user, token = self.request.user, self.request.auth
        if not isinstance(user, User) or not isinstance(token, ApiToken):
            raise exceptions.NotAuthenticated
        return Actor(user, token)


class Pages(CursorPagination):
    """Pages by cursor over one unique key, so that inserts neither repeat nor drop a row."""

    page_size = 25
    max_page_size = 100
    page_size_query_param = "page_size"
    ordering = "-id"

    def get_page_size(self, request: Request) -> int | None:
        """Return the page size asked for; 400 for what is none."""
        text = request.query_params.get("page_size", str(self.page_size))
        size = int(text) if text.isascii() and text.isdigit() and len(text) <= 3 else 0
        if not 1 <= size <= self.max_page_size:
            raise Problem(
                400,
                "bad_parameter",
                _("page_size is a whole number from 1 to %(most)s.") % {"most": self.max_page_size},
                "",
            )
        return size

    def decode_cursor(self, request: Request) -> Any:
        """Read the cursor; 400 for one that this list did not make."""
        text = request.query_params.get("cursor")
        if text is None:
            return None
        try:
            base64.b64decode(text.encode("ascii"), validate=True).decode("utf-8")
            cursor = super().decode_cursor(request)
            if cursor is not None and cursor.position is not None:
                self._check_position(str(cursor.position))
        except (UnicodeError, binascii.Error, ValueError, exceptions.NotFound) as error:
            raise Problem(
                400, "bad_cursor", _("The cursor is not one of this list."), _("Begin again without it.")
            ) from error
        return cursor

    def _check_position(self, position: str) -> None:
        by_id = "".join(self.ordering).lstrip("-") == "id"
        if "\x00" in position or (
            by_id and not (position.isascii() and position.isdigit() and len(position) < 19)
        ):
            raise ValueError(position)
