"""Idempotency-Key: the same key and body gives the first answer again, for 24 hours, per tenant.

Only answers that made something are kept: a refused request made nothing, and may be tried again with its key.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from datetime import timedelta

from django.db import IntegrityError, transaction
from django.utils import timezone
from django.utils.translation import gettext as _
from rest_framework.request import Request
from rest_framework.response import Response

from gpu.api.problems import Problem
from gpu.models import IdempotentAnswer
from tenants.models import Tenant

HEADER = "Idempotency-Key"
REPLAYED = "Idempotent-Replayed"
# A request that is still "running" after this has lost its process; what it made is found by its operation key.
ABANDONED_AFTER = timedelta(seconds=60)
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
    row = _claim(tenant, key, fingerprint)
    if row.status is not None:
        return Response(row.body, status=row.status, headers={**row.headers, REPLAYED: "true"})
    try:
        response = make()
    except BaseException:
        IdempotentAnswer.objects.filter(pk=row.pk).delete()
        raise
    kept = {name: response[name] for name in ("Location", "ETag") if name in response}
    IdempotentAnswer.objects.filter(pk=row.pk).update(
        status=response.status_code, body=response.data, headers=kept
    )
    return response


def _claim(tenant: Tenant, key: str, fingerprint: str) -> IdempotentAnswer:
    """Return a row of ours with status None, or the answered row of an earlier request."""
    try:
        with transaction.atomic():
            return IdempotentAnswer.objects.create(tenant=tenant, key=key, fingerprint=fingerprint)
    except IntegrityError:
        row = IdempotentAnswer.objects.filter(tenant=tenant, key=key).first()
    if row is not None and row.fingerprint != fingerprint:
        raise Problem(
            422,
            "idempotency_key_reused",
            _("This Idempotency-Key was used for another request."),
            _("Use a new key for a new request."),
        )
    if row is not None and row.status is not None:
        return row
    taken_over = row is not None and IdempotentAnswer.objects.filter(
        pk=row.pk, status=None, created_at__lt=timezone.now() - ABANDONED_AFTER
    ).update(created_at=timezone.now())
    if row is not None and taken_over:
        return row
    raise Problem(
        409,
        "idempotency_in_progress",
        _("The first request with this Idempotency-Key is still running."),
        _("Try again in a second."),
        headers={"Retry-After": "1"},
    )
