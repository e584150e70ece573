"""The page of a slice: its state, what to do, its log; and the actions on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop
from django.views.decorators.http import require_http_methods, require_safe

from gpu import orders, pulls, templates_catalogue, tokens, wording
from gpu.diagnosis import Step
from gpu.diagnosis.model import NOTHING_TO_DO
from gpu.facts import project_facts
from gpu.forms import ChangeForm, sentence_of, workload_fields
from gpu.logcopies import request_log
from gpu.manifest_yaml import to_yaml
from gpu.manifests import render as render_documents
from gpu.model_card import models_card
from gpu.models import LogCopy, Slice, SliceReceipt
from gpu.order_errors import OrderRefused, StaleRow
from gpu.status import SliceStatus, slice_status
from gpu.timeline import events, happened
from gpu.views.order import explain, fields_of
from gpu.views.polling import poll, rows_of_slice, unchanged
from gpu.views.preview import preview
from gpu.views.shell import show
from tenants import access
from tenants.access import Actor
from tenants.models import User

STEPS = {
    "ordered": gettext_noop("Ordered"),
    "accepted": gettext_noop("Accepted"),
    "claim_made": gettext_noop("Claim made"),
    "card_found": gettext_noop("Card found"),
    "image_pulled": gettext_noop("Image pulled"),
    "started": gettext_noop("Started"),
    "ready": gettext_noop("Ready"),
}
PATHS = {"ollama": "api/tags", "vllm": "v1/models", "sglang": "v1/models"}
"""What a template's server answers without further ado, for the line to copy."""
POLL_S = 1
POLL_SETTLED_S = 2


@dataclass(frozen=True)
class StepLine:
    """One step for the page; `took` is in seconds, None where a time is missing."""

    label: str
    state: str
    took: float | None


def slice_or_404(actor: Actor, public_id: str) -> Slice:
    """Return the actor's slice with project, package and order; raises Http404."""
    rows = Slice.objects.select_related("project__tenant", "package", "order__user")
    return access.get_or_404(rows, actor, "project__tenant", public_id=public_id)


def steps(found: Sequence[Step], *, again: bool = False) -> list[StepLine]:
    """Return the steps with how long each took; how long a slice ran before it was started `again` is no such time."""
    lines: list[StepLine] = []
    before: datetime | None = None
    for step in found:
        if again and step.code == "claim_made":
            before = None
        took = (step.at - before).total_seconds() if step.at and before else None
        lines.append(StepLine(_(STEPS[step.code]), step.state, took))
        before = step.at or before
    return lines


@login_required
@require_safe
def detail(request: HttpRequest, public_id: str) -> HttpResponse:
    """Show a slice; the parts that change follow the cluster until the slice has ended."""
    actor = access.actor_of(request.user)
    row = slice_or_404(actor, public_id)
    asked = poll(request, actor, row.project, rows_of_slice(row))
    if asked:
        if asked.known:
            return unchanged(request, asked)
        row = slice_or_404(actor, public_id)  # anew: it was read before its version was
    facts = project_facts(row.project.namespace, [row.app])
    status = slice_status(row, facts, ahead=asked is not None)
    documents = render_documents(row.manifest_spec(row.project.namespace))
    models = models_card(row, status)
    # Of a pull that no worker looks at any more only time tells.
    lasts = status.lasts if models is None or models.settled else timedelta(0)
    context: dict[str, object] = {
        "status": status,
        "row": row,
        "workload": row.workload,
        "template": templates_catalogue.get(row.workload.template),
        "path": PATHS.get(row.workload.template, ""),
        "steps": steps(status.steps, again=row.generation > 1),
        "timeline": happened(row),
        "events": events(row, facts),
        "yaml": to_yaml(documents),
        "price": wording.money(row.order.price_per_hour, row.order.currency),
        "next_step": "" if status.diagnosis.next_step == NOTHING_TO_DO else status.next_step,
        "poll": poll_seconds(status),
        "copy": LogCopy.objects.filter(slice=row).first(),
        "models": models,
        "token_waits": tokens.waits(row, actor.user),
        "receipt": SliceReceipt.objects.filter(slice=row).first(),
    }
    shown = [replace(status, lasts=lasts)]
    return show(request, actor, row.project, "slices", "slice.html", context, asked=asked, shown=shown)


def poll_seconds(status: SliceStatus) -> int | None:
    """Return how often the page asks again; None once the slice has ended."""
    if status.slice.ended_at is not None:
        return None
    return POLL_SETTLED_S if status.diagnosis.settled else POLL_S


@login_required
@require_safe
def log(request: HttpRequest, public_id: str) -> HttpResponse:
    """Show the copy of the log at hand and ask the worker for a newer one."""
    actor = access.actor_of(request.user)
    row = slice_or_404(actor, public_id)
    context = {"row": row, "copy": request_log(row)}
    return show(request, actor, row.project, "slices", "slice.html", context, part="logpart")


@login_required
@require_safe
def manifest(request: HttpRequest, public_id: str) -> HttpResponse:
    """Give the manifests as a file, byte for byte what the worker applies."""
    row = slice_or_404(access.actor_of(request.user), public_id)
    text = to_yaml(render_documents(row.manifest_spec(row.project.namespace)))
    answer = HttpResponse(text, content_type="application/yaml; charset=utf-8")
    answer["Content-Disposition"] = f'attachment; filename="{row.app}.yaml"'
    return answer


def _release(request: HttpRequest, user: User, row: Slice) -> None:
    orders.release(user, row, delete_volume="delete_volume" in request.POST)


def _start(request: HttpRequest, user: User, row: Slice) -> None:
    orders.start(user, row, allow_queue="allow_queue" in request.POST)


def _restart(request: HttpRequest, user: User, row: Slice) -> None:
    expected = request.POST.get("expected", "")
    number = int(expected) if expected.isascii() and expected.isdigit() and len(expected) < 10 else -1
    orders.restart(user, row, expected=number if expected else None)


def _stop(request: HttpRequest, user: User, row: Slice) -> None:
    orders.stop(user, row)


ACTIONS: dict[str, Callable[[HttpRequest, User, Slice], None]] = {
    "stop": _stop,
    "start": _start,
    "restart": _restart,
    "release": _release,
}


@login_required
@require_http_methods(["GET", "POST"])
def act(request: HttpRequest, public_id: str, action: str) -> HttpResponse:
    """Say what an action does and what is lost, and do it when confirmed."""
    actor = access.actor_of(request.user)
    row = slice_or_404(actor, public_id)
    if action not in ACTIONS:
        raise Http404
    error = wrong_name = ""
    if request.method == "POST":
        wrong_name = name_error(request, row) if action == "release" else ""
        if not wrong_name:
            try:
                ACTIONS[action](request, actor.user, row)
            except StaleRow:
                messages.info(request, _("The slice had changed already; this is how it is now."))
                return redirect("slice", public_id)
            except OrderRefused as refusal:
                error = sentence_of(refusal.sentence, refusal.next_step)
            else:
                return redirect("slice", public_id)
    context = {"row": row, "action": action, "error": error, "volume": row.workload.volume}
    context |= {"wrong_name": wrong_name, "typed": request.POST}
    context["lost"] = pulls.unfinished(row) if action in ("stop", "restart", "release") else []
    if action == "start":
        context["judged"] = orders.assess_change(row, row.workload)
    template = "slice_action.html#body" if "HX-Request" in request.headers else "slice_action.html"
    return show(request, actor, row.project, "slices", template, context)


def name_error(request: HttpRequest, row: Slice) -> str:
    """Return why the typed name does not confirm the loss of data; the name is asked for only where data goes."""
    if (
        "delete_volume" not in request.POST
        or request.POST.get("name", "").strip() == row.display_name.strip()
    ):
        return ""
    return _("Type the name of the slice exactly as it is shown, so that no data is deleted by mistake.")


@login_required
@require_http_methods(["GET", "POST"])
def change(request: HttpRequest, public_id: str) -> HttpResponse:
    """Change image, command, environment, port, CPU and memory, with the same preview as an order."""
    actor = access.actor_of(request.user)
    row = slice_or_404(actor, public_id)
    template = templates_catalogue.get(row.workload.template) or templates_catalogue.TEMPLATES["custom"]
    initial = {
        **workload_fields(row.workload, template),
        "expected": row.generation,
        "template": template.code,
    }
    data = request.POST if request.method == "POST" else None
    form = ChangeForm(data, initial=initial, templates=[template], base=row.workload)
    if form.is_valid() and form.workload and "HX-Request" not in request.headers:
        try:
            orders.change(
                actor.user,
                row,
                form.workload,
                allow_queue=form.cleaned_data["allow_queue"],
                expected=form.cleaned_data["expected"],
            )
        except OrderRefused as refusal:
            explain(form, refusal)
        else:
            return redirect("slice", public_id)
    judged = orders.assess_change(row, form.workload or row.workload)
    context: dict[str, object] = {
        "row": row,
        "form": form,
        "settings": [form[name] for name in form.fields if name.startswith("set-")],
        "preview": preview(judged, fields_of(form, judged.findings))
        if form.workload or not form.is_bound
        else None,
    }
    page = "slice_change.html#preview" if "HX-Request" in request.headers else "slice_change.html"
    return show(request, actor, row.project, "slices", page, context)
