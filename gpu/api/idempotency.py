"""Idempotency-Key: the same key and body gives the first answer again, for 24 hours, per tenant.

Only answers that made something are kept: a refused request made nothing, and may be tried again with its key. A
request is "still running" while its transaction holds a lock, which ends with its process; no clock is asked.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable

from django.db import transaction
from django.utils.translation import gettext as _
from rest_framework.request import Request
from rest_framework.response import Response

from gpu.api.problems import Problem
from gpu.locks import ANSWER_LOCK, taken
from gpu.models import IdempotentAnswer
from tenants.models import Tenant

HEADER = "Idempotency-Key"
REPLAYED = "Idempotent-Replayed"
_KEY = re.compile(r"[\x21-\x7e]{1,200}")


def key_of(request: Request) -> str:
    """Return the request's key, empty where there is none; raises Problem 400 for a malformed one."""
    key = request.headers.get(HEADER, "")
    if key and not _KEY.fullmatch(key):
        raise Problem(
            400,
            "bad_idempotency_key",
            _("Idempotency-Key has 1 to 200 printable ASCII characters without blanks."),
            _("Use a UUID."),
        )
    return key


def once(request: Request, tenant: Tenant, make: Callable[[], Response]) -> Response:
    """Return `make()`, or the first answer where this key has been answered before.

    Raises Problem 422 for the same key with another body or address, 409 while the first request is still running.
    """
    key = key_of(request)
    if not key:
        return make()
    body = request.body
    fingerprint = hashlib.sha256(
        b"\n".join(((request.method or "").encode(), request.path.encode(), body))
    ).hexdigest()
    with transaction.atomic():  # what was made and its answer, or neither
        first = taken(ANSWER_LOCK, lock_key(tenant, key))
        row = IdempotentAnswer.objects.filter(tenant=tenant, key=key).first()
        if row is not None and row.fingerprint != fingerprint:
            raise Problem(
                422,
                "idempotency_key_reused",
                _("This Idempotency-Key was used for another request."),
                _("Use a new key for a new request."),
            )
        if row is not None and row.status is not None:
            return Response(row.body, status=row.status, headers={**row.headers, REPLAYED: "true"})
        if not first:
            raise Problem(
                409,
                "idempotency_in_progress",
                _("The first request with this Idempotency-Key is still running."),
                _("Try again in a second."),
                headers={"Retry-After": "1"},
            )
        response = make()
        _keep(tenant, key, fingerprint, response)
    return response


def lock_key(tenant: Tenant, key: str) -> int:
    """Return the advisory lock that is held while a request with this key runs."""
    return int.from_bytes(hashlib.sha256(f"{tenant.pk} {key}".encode()).digest()[:4])


def _keep(tenant: Tenant, key: str, fingerprint: str, response: Response) -> None:
    """Keep the answer. A row without one is of an earlier version, which wrote it before it began, and died."""
    answer = IdempotentAnswer(
        tenant=tenant,
        key=key,
        fingerprint=fingerprint,
        status=response.status_code,
        body=response.data,
        headers={name: response[name] for name in ("Location", "ETag") if name in response},
    )
    IdempotentAnswer.objects.bulk_create(
        [answer],
        update_conflicts=True,
        unique_fields=["tenant", "key"],
        update_fields=["status", "body", "headers"],
    )
