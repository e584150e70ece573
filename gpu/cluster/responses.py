"""Which error an HTTP answer of the cluster means."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from gpu import refusals
from gpu.cluster.errors import (
    ClusterError,
    Conflict,
    Forbidden,
    Gone,
    InvalidObject,
    ManagedByBackend,
    NamespaceMissing,
    NamespaceTerminating,
    NotFound,
    NotServed,
    OutsideLimitRange,
    PodSecurityRefused,
    PolicyFailed,
    PolicyMissesKey,
    PolicyRefused,
    QuotaExceeded,
    QuotaNotCounted,
    RequestsMissing,
    ServerFault,
    Throttled,
    Unauthorized,
    amount,
)

_WEBHOOK = re.compile(
    r'admission webhook "(?P<name>[^"]+)" denied the request(?:: (?P<sentence>.*)| without explanation)',
    re.DOTALL,
)

_UNREADABLE = "failed to create typed patch object"


def from_response(status: int, body: Any, headers: Mapping[str, str]) -> ClusterError:
    """The error that an HTTP answer outside 2xx means; `body` is the Status object or the raw text."""
    if isinstance(body, str):
        body = _status_object(body)
    message = str(body.get("message") or "")
    details = body.get("details")
    details = details if isinstance(details, dict) else {}
    told = refusals.read(message)
    if isinstance(told, refusals.PolicyDenied):
        return _policy(told, message, status)
    if status == 403:
        return _forbidden(told, message, details)
    if status == 404:
        return _not_found(message, details)
    if status == 409:
        return Conflict(message, status=status)
    # Server-side apply answers 500 to a document it cannot read (a list key twice, a wrong type): no try mends that.
    if status in (400, 413, 415, 422) or (status == 500 and _UNREADABLE in message):
        webhook = _webhook(message, status)
        return webhook or InvalidObject(message, status=status, immutable=_immutable(message, details))
    simple: dict[int, type[ClusterError]] = {401: Unauthorized, 410: Gone, 429: Throttled}
    return simple.get(status, ServerFault)(message, status=status, retry_after=_retry_after(headers, details))


def from_status(status: Mapping[str, Any]) -> ClusterError:
    """The error that a Status object inside a watch means; a code it lacks counts as 500."""
    code = status.get("code")
    if status.get("reason") in ("Expired", "Gone"):
        code = 410
    return from_response(code if isinstance(code, int) else 500, dict(status), {})


def _status_object(text: str) -> Mapping[str, Any]:
    try:
        body = json.loads(text)
    except ValueError:
        body = None
    return body if isinstance(body, dict) else {"message": text.strip()}


def _retry_after(headers: Mapping[str, str], details: Mapping[str, Any]) -> float | None:
    """Seconds, from the header or the Status; a date in the header is left to our own pauses."""
    stated = headers.get("Retry-After") or details.get("retryAfterSeconds")
    try:
        return max(0.0, float(stated)) if stated is not None else None
    except (TypeError, ValueError):
        return None


def _policy(told: refusals.PolicyDenied, message: str, status: int) -> ClusterError:
    if told.backend_only:
        return ManagedByBackend(told.sentence, status=status, policy=told.policy)
    if told.sentence:
        return PolicyRefused(told.sentence, status=status, policy=told.policy)
    if told.missing_key:
        return PolicyMissesKey(message, status=status, policy=told.policy, key=told.missing_key)
    return PolicyFailed(message, status=status, policy=told.policy)


def _webhook(message: str, status: int) -> PolicyRefused | None:
    match = _WEBHOOK.search(message)
    if match is None:
        return None
    return PolicyRefused(match["sentence"] or message, status=status, policy=match["name"])


def _forbidden(told: refusals.Refusal | None, message: str, details: Mapping[str, Any]) -> ClusterError:
    match told:
        case refusals.QuotaExceeded():
            return QuotaExceeded(message, told, status=403)
        case refusals.QuotaNotCounted():
            return QuotaNotCounted(message, status=403, quota=told.quota)
        case refusals.ValuesMissing():
            return RequestsMissing(message, status=403, quota=told.quota, keys=", ".join(told.keys))
        case refusals.OutsideLimitRange():
            allowed = told.allowed if told.bound == "ratio" else amount(told.resource, told.allowed)
            return OutsideLimitRange(
                message, status=403, resource=told.resource, bound=told.bound, allowed=allowed
            )
        case refusals.PodSecurityDenied():
            return PodSecurityRefused(told.violations, status=403, policy=told.level)
    if any(cause.get("reason") == "NamespaceTerminating" for cause in _causes(details)):
        return NamespaceTerminating(message, status=403)
    return _webhook(message, 403) or Forbidden(message, status=403)


def _not_found(message: str, details: Mapping[str, Any]) -> ClusterError:
    if details.get("kind") == "namespaces":
        return NamespaceMissing(message, status=404, namespace=str(details.get("name", "")))
    if details.get("name"):
        return NotFound(message, status=404)
    return NotServed(message, status=404)


def _causes(details: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    causes = details.get("causes")
    return [cause for cause in causes if isinstance(cause, dict)] if isinstance(causes, list) else []


def _immutable(message: str, details: Mapping[str, Any]) -> bool:
    told = [str(cause.get("message", "")) for cause in _causes(details)] or [message]
    return any("field is immutable" in text or "is immutable after creation" in text for text in told)
