"""Polls that cost next to nothing while nothing changes.

The answer to a poll names what it rests on in `X-Basis`: a digest of the versions of all rows it was made of, and until
when time alone changes nothing of it. The page sends it with its next poll; while the digest is the same, only the age
of the facts is drawn. The versions are read before the rows, so that a change between the two is seen by the next poll.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, cast
from zoneinfo import ZoneInfo

from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.utils import timezone
from django.utils.translation import get_language

from gpu.facts import Freshness, freshness
from gpu.models import (
    Entitlement,
    Milestone,
    ModelCheck,
    ModelOnVolume,
    ModelPull,
    ModelShelf,
    Observed,
    Order,
    Package,
    QuotaState,
    Slice,
    SliceReceipt,
    SliceSecret,
    TimelineEntry,
)
from gpu.row_versions import row_versions
from gpu.status import AHEAD, SliceStatus
from tenants.access import Actor
from tenants.models import Project, User

BASIS = "X-Basis"
SEEN = "X-Seen"
LONGEST = max(AHEAD)
AGES = ("components/stale.html", "components/age.html")


@dataclass(frozen=True)
class Poll:
    """A poll of a page: what its answer rests on, and whether the page was drawn from just that."""

    project: Project
    digest: str
    freshness: Freshness
    known: bool

    def basis(self, shown: Iterable[SliceStatus]) -> str:
        """Return what the answer to this poll tells in X-Basis; empty where it may change by time alone at once."""
        lasts = min((status.lasts for status in shown), default=LONGEST).total_seconds()
        return f"{int(time.time() + lasts)}.{self.digest}" if lasts else ""


def poll(
    request: HttpRequest,
    actor: Actor,
    project: Project,
    rows: list[QuerySet[Any]],
    also: Callable[[], object] = lambda: None,
) -> Poll | None:
    """Return what a poll rests on: `rows`, and what `also` gives; None for a request that is no poll.

    Two queries. Call it after the access check and before reading what the page shows.
    """
    if SEEN not in request.headers:
        return None
    zone = ZoneInfo(project.tenant.time_zone)
    fresh = freshness(cluster=cast(int, project.cluster_id))
    told = (
        row_versions(*rows),
        # A page that cannot be followed says since when; one that can only says its age, which is drawn each time.
        (fresh.reachable, fresh.stale, fresh.as_of if not fresh.reachable else fresh.as_of is None),
        request.get_full_path(),
        get_language(),
        (actor.user.pk, project.name, zone.key),
        # Times of today are shown without their date.
        timezone.localdate(timezone=zone),
        also(),
    )
    digest = hashlib.sha256(repr(told).encode()).hexdigest()[:32]
    until, _dot, known = request.headers.get(BASIS, "").partition(".")
    lasts = until.isascii() and until.isdigit() and len(until) < 12
    left = int(until) - time.time() if lasts else -1.0
    return Poll(project, digest, fresh, known == digest and 0 < left <= LONGEST.total_seconds())


def unchanged(request: HttpRequest, asked: Poll) -> HttpResponse:
    """Answer a poll of a page that shows everything there is: with the age of the facts alone."""
    parts: dict[str, tuple[str, str]] = {}
    with timezone.override(ZoneInfo(asked.project.tenant.time_zone)):
        for template in AGES:
            render_to_string(template, {"shell": asked, "live_parts": parts})
    answer = changed_parts(request, parts)
    answer[BASIS] = request.headers[BASIS]
    return answer


def changed_parts(request: HttpRequest, parts: dict[str, tuple[str, str]]) -> HttpResponse:
    """Return of `parts` (version and text by name) those the page does not show; 204 where it shows all."""
    seen = dict(item.rpartition(":")[::2] for item in request.headers[SEEN].split())
    changed = "".join(html for name, (version, html) in parts.items() if seen.get(name) != version)
    return HttpResponse(changed, status=200 if changed else 204)


def rows_of_project(project: Project) -> list[QuerySet[Any]]:
    """Return all rows that the start page and the list of slices are made of, but for the cards."""
    return [
        *_rows_of_namespace(project),
        Slice.objects.filter(project=project),
        Entitlement.objects.filter(project=project),
        QuotaState.objects.filter(project=project),
        SliceReceipt.objects.filter(slice__project=project, slice__ended_at=None),
        ModelCheck.objects.filter(slice__project=project, slice__ended_at=None),
    ]


def rows_of_slice(row: Slice) -> list[QuerySet[Any]]:
    """Return all rows that the page of a slice is made of, but for its log."""
    of_slice = (TimelineEntry, Milestone, ModelPull, ModelOnVolume, ModelShelf, ModelCheck, SliceReceipt)
    return [
        *_rows_of_namespace(row.project),
        Slice.objects.filter(pk=row.pk),
        Order.objects.filter(pk=row.order_id),
        SliceSecret.objects.filter(slice=row),
        *(model._default_manager.filter(slice=row) for model in of_slice),
    ]


def _rows_of_namespace(project: Project) -> list[QuerySet[Any]]:
    return [
        Observed.objects.filter(cluster=project.cluster_id, namespace=project.namespace),
        User.objects.filter(memberships__tenant=project.tenant_id),
        Package.objects.all(),
    ]
