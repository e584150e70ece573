"""The order form with its live preview."""

from __future__ import annotations

import json

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods

from gpu import orders, templates_catalogue, wording
from gpu.assess import Assessment, assess
from gpu.contract import Finding
from gpu.facts import project_facts
from gpu.fit_panel import fit_fields, fit_panel
from gpu.forms import OrderForm, WorkloadForm, new_operation_key, sentence_of, workload_fields
from gpu.holders import holding
from gpu.manifests import WorkloadSpec
from gpu.models import Entitlement, Package, Slice
from gpu.order_errors import OrderRefused
from gpu.order_rules import CONSENT_MENDS
from gpu.views.preview import Preview, preview
from gpu.views.shell import show
from tenants import access
from tenants.models import Project, User


@login_required
@require_http_methods(["GET", "POST"])
def order(request: HttpRequest, namespace: str) -> HttpResponse:
    """Show the form, judge it while it is filled in (htmx), and order."""
    actor = access.actor_of(request.user)
    project = access.project_or_404(actor, namespace)
    form = order_form(request, actor.user, project)
    if form.is_valid() and form.workload and "HX-Request" not in request.headers:
        try:
            row, made = place(actor.user, project, form, form.workload)
        except OrderRefused as refusal:
            explain(form, refusal)
        else:
            if not made:
                messages.info(request, _("This order was placed already; here it is."))
            return redirect("slice", row.public_id)
    judged = judge(project, form)
    context: dict[str, object] = {
        "form": form,
        "preview": judged,
        "choices": choices(project, form),
        "fit": fit_panel(judged.judged.package, asked(form), form.data) if judged else None,
        "fit_fields": fit_fields(form.chosen_template().code, form.data),
    }
    context["templates"] = template_choices(form)
    template = "order.html#preview" if "HX-Request" in request.headers else "order.html"
    return show(request, actor, project, "order", template, context)


def place(
    user: User, project: Project, form: OrderForm, asked: WorkloadSpec
) -> tuple[Slice, Assessment | None]:
    """Send the order of a valid form; returns the slice and, where it is new, its judgement. Raises OrderRefused."""
    data = form.cleaned_data
    return orders.place(
        user,
        project,
        data["package"],
        data["display_name"],
        asked,
        operation_key=data["operation_key"],
        allow_queue=data["allow_queue"],
    )


def order_form(request: HttpRequest, user: User, project: Project) -> OrderForm:
    """Return the form: as sent, or with the defaults of a template and the first package one can have."""
    packages = Package.objects.filter(on_sale=True)
    if request.method == "POST":
        return OrderForm(request.POST, user=user, packages=packages)
    template = (
        templates_catalogue.get(request.GET.get("template", ""))
        or templates_catalogue.TEMPLATES["cuda-check"]
    )
    entitled = Entitlement.objects.filter(project=project, package__on_sale=True, count__gt=0)
    first = entitled.select_related("package").order_by("package__position").first()
    initial = {
        **workload_fields(template.first(), template),
        "operation_key": new_operation_key(user),
        "template": template.code,
        "package": request.GET.get("package") or (first.package.slug if first else ""),
    }
    return OrderForm(initial=initial, user=user, packages=packages)


def asked(form: OrderForm) -> WorkloadSpec:
    """Return the workload as typed, or the template's first one."""
    return form.workload if form.is_bound and form.workload else form.chosen_template().first()


def judge(project: Project, form: OrderForm) -> Preview | None:
    """Return the preview of what the form says, None while no package or nothing readable is there."""
    if form.is_bound:
        package, asked = form.cleaned_data.get("package"), form.workload
    else:
        package = Package.objects.filter(slug=form.initial["package"], on_sale=True).first()
        asked = form.chosen_template().first()
    if package is None or asked is None:
        return None
    name = form.cleaned_data.get("display_name", "") if form.is_bound else ""
    try:
        app = orders.app_name(project, name or _("my slice"))
    except OrderRefused:
        app = "slice"
    judged = assess(project, package, asked, app)
    return preview(judged, fields_of(form, judged.findings))


def fields_of(form: WorkloadForm, findings: tuple[Finding, ...]) -> dict[str, str]:
    """Return the field of each finding's place, so that a button can mend it."""
    places = {finding.place: form.field_of(finding.place) for finding in findings}
    return {place: field for place, field in places.items() if field}


def explain(form: WorkloadForm, refusal: OrderRefused) -> None:
    """Put a refusal into the form: beside its fields, or at the top with what to do now."""
    if refusal.fields:
        form.add_findings(refusal.fields)
    if not form.errors:
        place = "allow_queue" if refusal.code in CONSENT_MENDS else None
        form.add_error(place, sentence_of(refusal.sentence, refusal.next_step))


def choices(project: Project, form: OrderForm) -> list[dict[str, object]]:
    """Return the packages as choices: price, what is left, and why one cannot be had."""
    packages = list(Package.objects.filter(on_sale=True))
    held = holding(project, packages, project_facts(project.namespace, events=False))
    chosen = form["package"].value()
    return [
        {
            "package": package,
            "holding": held[package.pk],
            "price": wording.money(package.price_per_hour, package.currency),
            "checked": package.slug == chosen,
        }
        for package in packages
    ]


def template_choices(form: OrderForm) -> list[dict[str, object]]:
    """Return the templates as choices, each with its defaults for the page's script and its own settings."""
    chosen = form.chosen_template().code
    return [
        {
            "code": template.code,
            "title": _(template.title),
            "summary": _(template.summary),
            "checked": template.code == chosen,
            "fill": json.dumps(workload_fields(template.first(), template)),
            "settings": [form[f"set-{template.code}-{setting.code}"] for setting in template.settings],
        }
        for template in form.templates
    ]
