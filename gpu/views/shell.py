"""What every page of a project has: the frame around it, and parts that replace themselves when they change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import cast
from zoneinfo import ZoneInfo

from django.db.models import Count, Subquery
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _

from gpu.facts import Freshness, freshness
from gpu.models import Slice
from gpu.status import SliceStatus
from gpu.views.polling import AGES, BASIS, SEEN, Poll, changed_parts
from tenants import access
from tenants.access import Actor
from tenants.models import Project


@dataclass(frozen=True)
class Tab:
    """One entry of the project's navigation."""

    label: str
    url: str
    current: bool
    count: int = 0


@dataclass(frozen=True)
class Shell:
    """The frame of a project's page: where one is, what else one may see, how old the facts are."""

    project: Project
    projects: tuple[Project, ...]
    tabs: tuple[Tab, ...]
    freshness: Freshness
    is_owner: bool


def shell(actor: Actor, project: Project, section: str, fresh: Freshness | None = None) -> Shell:
    """Return the frame of a page of `project`; `section` is the name of its tab's address, `fresh` the age of the
    facts where it was read already."""
    of_project = Slice.objects.filter(project=project, ended_at=None).order_by().values("project")
    alive_here = Subquery(of_project.annotate(alive=Count("pk")).values("alive"))
    projects = tuple(access.projects(actor).annotate(is_owner=access.owned(actor), alive_here=alive_here))
    alive = projects[0].alive_here or 0 if projects else 0
    labels = {
        "project": _("Overview"),
        "slices": _("Slices"),
        "catalogue": _("Catalogue"),
        "tokens": _("API tokens"),
        "members": _("Members"),
    }
    tabs = tuple(
        Tab(label, reverse(name, args=[project.namespace]), name == section, alive if name == "slices" else 0)
        for name, label in labels.items()
    )
    return Shell(
        project=project,
        projects=projects,
        tabs=tabs,
        freshness=fresh or freshness(cluster=cast(int, project.cluster_id)),
        is_owner=any(other == project and other.is_owner for other in projects),
    )


def show(
    request: HttpRequest,
    actor: Actor,
    project: Project,
    section: str,
    template: str,
    context: Mapping[str, object],
    *,
    part: str = "live",
    fresh: Freshness | None = None,
    asked: Poll | None = None,
    shown: Iterable[SliceStatus] = (),
) -> HttpResponse:
    """Render a page of a project in the tenant's time zone; a poll gets the parts that have changed.

    A template marks its parts with `{% live %}` inside the partial named `part`; one other than `live` also stands
    for itself, without the frame. The page sends the versions it shows in `X-Seen`; 204 says that nothing has changed,
    so that nothing moves under the cursor. `asked` is what the poll rests on (gpu.views.polling), `shown` the slices
    whose states it tells.
    """
    frame = dict(context)
    if part == "live":
        frame["shell"] = asked or shell(actor, project, section, fresh)
    with timezone.override(ZoneInfo(project.tenant.time_zone)):
        if SEEN not in request.headers:
            return render(request, template if part == "live" else f"{template}#{part}", frame)
        parts: dict[str, tuple[str, str]] = {}
        frame |= {"live_parts": parts, "polling": True}
        render_to_string(f"{template}#{part}", frame, request)
        for everywhere in AGES if part == "live" else ():
            render_to_string(everywhere, frame, request)
    answer = changed_parts(request, parts)
    if asked is not None and (basis := asked.basis(shown)):
        answer[BASIS] = basis
    return answer
