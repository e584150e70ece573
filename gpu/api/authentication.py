"""Bearer tokens in the Authorization header (`Bearer`, and the `Token` form of Django REST framework)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from tenants.models import ApiToken, User

KEYWORDS = ("bearer", "token")
NOTE_USE_EVERY = timedelta(minutes=1)


class TokenAuthentication(BaseAuthentication):
    """Gives (user, token row); raises AuthenticationFailed for a header that names no valid token."""

    def authenticate(self, request: Request) -> tuple[User, ApiToken] | None:
        """Read the header; None when there is none."""
        header = request.META.get("HTTP_AUTHORIZATION", "")
        if not header:
            return None
        keyword, _blank, token = header.partition(" ")
        row = ApiToken.find(token.strip()) if keyword.lower() in KEYWORDS and token.isascii() else None
        if row is None:
            raise AuthenticationFailed(_("The token is unknown, revoked or expired."))
        now = timezone.now()
        if row.last_used_at is None or row.last_used_at < now - NOTE_USE_EVERY:
            ApiToken.objects.filter(pk=row.pk).update(last_used_at=now)
        return row.user, row

    def authenticate_header(self, request: Request) -> str:
        """Return the challenge of a 401."""
        return 'Bearer realm="api"'


class TokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """How the OpenAPI document names it."""

    target_class = "gpu.api.authentication.TokenAuthentication"
    name = "token"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        """Return the security scheme."""
        return {
            "type": "http",
            "scheme": "bearer",
            "description": "A token of the portal's page “API tokens”.",
        }
