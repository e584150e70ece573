"""Models of a slice: order a pull with what it would meet, cancel, list, delete, check."""

from __future__ import annotations

from collections.abc import Callable

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_http_methods, require_POST

from gpu import fit, pulls, tokens
from gpu.forms import TextInput, sentence_of
from gpu.model_card import advice_lines
from gpu.models import ModelPull, Slice
from gpu.order_errors import OrderRefused
from gpu.views.shell import show
from gpu.views.slices import slice_or_404
from tenants import access
from tenants.models import User


class PullForm(forms.Form):
    """The name of a model to fetch."""

    use_required_attribute = False
    model = forms.CharField(
        label=gettext_lazy("Name of the model"),
        max_length=600,
        widget=TextInput(list="known-models", autofocus=""),
        help_text=gettext_lazy("As Ollama's library shows it: llama3.2:3b, or hf.co/owner/model:Q4_K_M."),
        error_messages={"required": gettext_lazy("Name the model.")},
    )


@login_required
@require_http_methods(["GET", "POST"])
def pull(request: HttpRequest, public_id: str) -> HttpResponse:
    """Show what a pull of the typed name would meet (htmx), and order it."""
    actor = access.actor_of(request.user)
    row = slice_or_404(actor, public_id)
    if not pulls.is_ollama(row):
        raise Http404
    form = PullForm(request.POST if request.method == "POST" else None)
    partial = "HX-Request" in request.headers
    advice: tuple[tuple[str, str], ...] = ()
    if form.is_valid():
        typed = form.cleaned_data["model"]
        try:
            if not partial:
                ordered, made = pulls.place(actor.user, row, typed, update="update" in request.POST)
                if not made:
                    messages.info(request, _("This model is being fetched already; here it is."))
                return redirect("slice", ordered.slice.public_id)
            advice = advice_lines(pulls.advise(row, pulls.read_name(typed)))
        except OrderRefused as refusal:
            form.add_error("model", sentence_of(refusal.sentence, refusal.next_step))
    context = {"row": row, "form": form, "advice": advice, "known": fit.COMMON_MODELS}
    part = "" if not partial else "#advice" if request.method == "POST" else "#body"
    return show(request, actor, row.project, "slices", f"models/pull.html{part}", context)


@login_required
@require_POST
def token(request: HttpRequest, public_id: str) -> HttpResponse:
    """Show a slice's access token to whoever ordered it, this one time."""
    actor = access.actor_of(request.user)
    row = slice_or_404(actor, public_id)
    context = {"row": row, "token": tokens.show_once(row, actor.user)}
    answer = show(request, actor, row.project, "slices", "models/token.html", context)
    answer["Cache-Control"] = "no-store"
    return answer


@login_required
@require_POST
def cancel(request: HttpRequest, public_id: str) -> HttpResponse:
    """Cancel a pull."""
    actor = access.actor_of(request.user)
    rows = ModelPull.objects.select_related("slice")
    found = access.get_or_404(rows, actor, "slice__project__tenant", public_id=public_id)
    try:
        pulls.cancel(actor.user, found)
    except OrderRefused as refusal:
        messages.info(request, sentence_of(refusal.sentence))
    return redirect("slice", found.slice.public_id)


def _list(user: User, row: Slice, name: str) -> None:
    pulls.refresh_list(user, row)


def _delete(user: User, row: Slice, name: str) -> None:
    pulls.delete_model(user, row, name)


def _check(user: User, row: Slice, name: str) -> None:
    pulls.check(user, row, name)


ACTIONS: dict[str, Callable[[User, Slice, str], None]] = {"list": _list, "delete": _delete, "check": _check}


@login_required
@require_POST
def act(request: HttpRequest, public_id: str, action: str) -> HttpResponse:
    """List the models, or delete or check the named one."""
    actor = access.actor_of(request.user)
    row = slice_or_404(actor, public_id)
    if action not in ACTIONS:
        raise Http404
    try:
        ACTIONS[action](actor.user, row, request.POST.get("model", ""))
    except OrderRefused as refusal:
        messages.error(request, sentence_of(refusal.sentence, refusal.next_step))
    return redirect("slice", public_id)
