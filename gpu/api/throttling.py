"""Rate limits, told in headers before they bite. While the cache is away nobody is throttled."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import redis
from rest_framework.request import Request
from rest_framework.throttling import SimpleRateThrottle

from tenants.models import ApiToken

if TYPE_CHECKING:  # rest_framework.views imports this module
    from rest_framework.views import APIView

log = logging.getLogger(__name__)


class _Throttle(SimpleRateThrottle):
    """Counts by what `bucket` returns; None is not throttled by this class."""

    history: list[float]
    now: float
    num_requests: int | None
    duration: int | None

    def bucket(self, request: Request) -> str | None:
        """Return who is counted."""
        raise NotImplementedError

    def get_cache_key(self, request: Request, view: APIView) -> str | None:
        """Return the cache key of the bucket."""
        bucket = self.bucket(request)
        return None if bucket is None else f"throttle:{self.scope}:{bucket}"

    def allow_request(self, request: Request, view: APIView) -> bool:
        """Count the request; True while the limit is not reached."""
        try:
            allowed = bool(super().allow_request(request, view))
        except redis.RedisError as error:
            log.warning("throttling is off: %s", error.__class__.__name__)
            return True
        if getattr(self, "key", None) is not None:
            left = max(0, (self.num_requests or 0) - len(self.history))
            reset = int(self.duration or 0)
            if self.history:
                reset = max(0, int((self.duration or 0) - (self.now - self.history[-1])))
            view.rate_limit = (self.scope, self.num_requests, self.duration, left, reset)  # type: ignore[attr-defined]
        return allowed


class AnonThrottle(_Throttle):
    """Calls without a valid token, by address; behind TRUSTED_PROXIES proxies by the address those have seen."""

    scope = "anon"

    def bucket(self, request: Request) -> str | None:
        """Return the caller's address, None for a call with a token."""
        return None if isinstance(request.auth, ApiToken) else self.get_ident(request)


class TokenThrottle(_Throttle):
    """Calls with a token, by token."""

    scope = "token"

    def bucket(self, request: Request) -> str | None:
        """Return the token's id."""
        return request.auth.public_id if isinstance(request.auth, ApiToken) else None


def headers(rate_limit: tuple[Any, ...]) -> dict[str, str]:
    """Return the RateLimit headers (IETF draft: quota, window, remaining, reset)."""
    scope, quota, window, left, reset = rate_limit
    return {
        "RateLimit-Policy": f'"{scope}";q={quota};w={window}',
        "RateLimit": f'"{scope}";r={left};t={reset}',
    }
