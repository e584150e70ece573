"""Pages of a project: which one, overview, catalogue, the list of slices."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from django.contrib.auth.decorators import login_required
from django.core.paginator import Page, Paginator
from django.db.models import Q
from django.db.models.functions import Lower
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from gpu.cards import cards
from gpu.models import Package
from gpu.status import SliceStatus, project_status, slice_statuses, slices_of, with_orders
from gpu.views.polling import poll, rows_of_project, unchanged
from gpu.views.shell import show
from tenants import access

PAGE_SIZE = 25
MODEL_SIZES = (1, 3, 7, 8, 14, 32, 70)
NEWEST = ("-created_at", "-id")
ORDERS: dict[str, tuple[str | Lower, ...]] = {
    "": NEWEST,
    "name": (Lower("display_name"), *NEWEST),
    "newest": NEWEST,
    "oldest": ("created_at", "id"),
    "package": ("package__position", "package__name", *NEWEST),
}
WAITING = (
    "ordered",
    "waiting_for_card",
    "waiting_for_volume",
    "waiting_for_node",
    "pulling_image",
    "starting",
)


@login_required
@require_safe
def home(request: HttpRequest) -> HttpResponse:
    """Lead to the person's project, or a platform admin to the administration; offer the choice where there are
    several, say what to do where there is none."""
    actor = access.actor_of(request.user)
    found = list(access.projects(actor))
    if len(found) == 1:
        return redirect("project", found[0].namespace)
    if not found and actor.user.is_staff:
        return redirect("admin:index")
    return render(request, "home.html", {"projects": found})


@login_required
@require_safe
def overview(request: HttpRequest, namespace: str) -> HttpResponse:
    """Show what a project has, what it can have, and its slices, those that need somebody first."""
    actor = access.actor_of(request.user)
    project = access.project_or_404(actor, namespace)
    asked = poll(
        request,
        actor,
        project,
        rows_of_project(project),
        lambda: cards(project.namespace, project.cluster_id),
    )
    if asked and asked.known:
        return unchanged(request, asked)
    status = project_status(project, ahead=asked is not None)
    context = {"status": status, "limited": [line for line in status.pool if not line.unlimited]}
    return show(
        request,
        actor,
        project,
        "project",
        "project.html",
        context,
        fresh=status.freshness,
        asked=asked,
        shown=status.slices,
    )


@login_required
@require_safe
def catalogue(request: HttpRequest, namespace: str) -> HttpResponse:
    """Show the packages side by side, and what is promised and what is not."""
    actor = access.actor_of(request.user)
    project = access.project_or_404(actor, namespace)
    packages = [
        {
            "package": package,
            "four_bits": largest_model(package, Decimal("0.62")),
            "sixteen_bits": largest_model(package, Decimal(2)),
        }
        for package in Package.objects.filter(on_sale=True)
    ]
    return show(request, actor, project, "catalogue", "catalogue.html", {"packages": packages})


def largest_model(package: Package, gigabytes_a_billion: Decimal) -> int | None:
    """Return the largest usual model (billions of parameters) that fits, as a rule of thumb.

    Weights, one gigabyte for a short context and the runtime, and a tenth of the memory left free.
    """
    room = Decimal(package.memory_mib) * 1024 * 1024 / 10**9 * Decimal("0.9") - 1
    return max((size for size in MODEL_SIZES if size * gigabytes_a_billion <= room), default=None)


@login_required
@require_safe
def slices(request: HttpRequest, namespace: str) -> HttpResponse:
    """List a project's slices, filtered by words and by what they do, in the order asked for."""
    actor = access.actor_of(request.user)
    project = access.project_or_404(actor, namespace)
    asked = poll(request, actor, project, rows_of_project(project))
    if asked and asked.known:
        return unchanged(request, asked)
    words, group = request.GET.get("q", "").strip()[:100], request.GET.get("show", "")
    order = request.GET.get("sort", "")
    order = order if order in ORDERS and (group, order) != ("ended", "newest") else ""
    rows = project.slices.filter(ended_at__isnull=group != "ended").defer("applied_spec")
    if words:
        rows = rows.filter(
            Q(display_name__icontains=words) | Q(app__icontains=words) | Q(spec__image__icontains=words)
        )
    rows = rows.order_by(*ORDERS[order])
    number = request.GET.get("page")
    if group != "ended":
        judged = slice_statuses(slices_of(project, rows), ahead=asked is not None)
        shown = [status for status in judged if in_group(status, group)]
        if not order:
            shown.sort(key=lambda status: not status.needs_somebody)
        page: Page[Any] = Paginator(shown, PAGE_SIZE).get_page(number)
        statuses: tuple[SliceStatus, ...] = tuple(page.object_list)
    else:
        page = Paginator(rows, PAGE_SIZE).get_page(number)
        judged = statuses = slice_statuses(slices_of(project, page.object_list), ahead=asked is not None)
    with_orders(statuses)
    orders = {
        "": _("Newest first") if group == "ended" else _("Needs somebody first"),
        "name": _("By name"),
        "newest": _("Newest first"),
        "oldest": _("Oldest first"),
        "package": _("By package"),
    }
    if group == "ended":
        del orders["newest"]  # as without an order
    context: dict[str, object] = {
        "page": page,
        "statuses": statuses,
        "words": words,
        "group": group,
        "groups": {
            "": _("All"),
            "attention": _("Needs somebody"),
            "running": _("Running"),
            "waiting": _("On the way"),
            "stopped": _("Stopped"),
            "ended": _("Ended"),
        },
        "order": order,
        "orders": orders,
        "order_label": orders[order],
    }
    fresh = statuses[0].freshness if statuses else None
    return show(
        request, actor, project, "slices", "slices.html", context, fresh=fresh, asked=asked, shown=judged
    )


def in_group(status: SliceStatus, group: str) -> bool:
    """Whether a slice belongs to a filter of the list; an unknown filter holds all."""
    match group:
        case "attention":
            return status.needs_somebody
        case "running":
            return status.state.startswith("running")
        case "waiting":
            return status.state in WAITING
        case "stopped":
            return status.state in ("stopping", "stopped")
        case _:
            return True
