"""Django admin: packages, what projects are entitled to, and a reading view of orders and slices."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext as _t
from django.utils.translation import gettext_lazy as _
from django.utils.translation import gettext_noop

from gpu import (
    admin_reports,  # noqa: F401  registers itself
    entitlements,
    orders,
    outcomes,
)
from gpu.admin_models import ReadOnlyAdmin
from gpu.models import ComputePool, Entitlement, Order, Package, QuotaState, Slice, TimelineEntry
from gpu.order_errors import OrderRefused
from gpu.quota_view import quota_lines
from gpu.status import slice_status
from gpu.wording import money, render
from tenants.models import Project

admin.site.site_header = admin.site.site_title = _("GPU slices: administration")
admin.site.index_title = _("What the platform sells, to whom, and how it is")
# Beside it the lists were cut at 1280 pixels; the start page shows the same, one click away.
admin.site.enable_nav_sidebar = False

DJANGOS_WORDS = (
    gettext_noop("Run"),
    gettext_noop("- Select an option -"),
    gettext_noop("Filter by %(field_name)s"),
)
"""What Django's admin says and Django has no German for yet."""


@admin.register(Package)
class PackageAdmin(admin.ModelAdmin[Package]):
    """What is on sale. A changed class or share count is written to every project's quota."""

    list_display = [
        "name",
        "memory_mib",
        "compute_percent",
        "shares",
        "price",
        "device_class",
        "on_sale",
    ]
    list_filter = ["on_sale", "gpu_model"]
    search_fields = ["name", "slug", "device_class"]
    prepopulated_fields = {"slug": ["name"]}

    @admin.display(description=_("price per hour"), ordering="price_per_hour")
    def price(self, obj: Package) -> str:
        """Price and currency."""
        return money(obj.price_per_hour, obj.currency)

    def save_model(
        self, request: HttpRequest, obj: Package, form: forms.ModelForm[Package], change: bool
    ) -> None:
        """Save, and write the quotas anew where the change concerns them."""
        super().save_model(request, obj, form, change)
        if not change or {"device_class", "shares"} & set(form.changed_data):
            for project in Project.objects.filter(quota_state__isnull=False):
                entitlements.ask_to_write(project)


class EntitlementForm(forms.ModelForm[Entitlement]):
    """Refuses to go below what is in use, naming the slices."""

    def clean(self) -> dict[str, Any]:
        """Check the number against the holders."""
        cleaned = super().clean() or {}
        project, package, count = (cleaned.get(name) for name in ("project", "package", "count"))
        if project and package and count is not None:
            refusal = entitlements.refuse_lower_entitlement(project, package, count)
            if refusal:
                self.add_error("count", render(refusal))
        return cleaned


class EntitlementFormSet(forms.BaseInlineFormSet[Entitlement, Project, forms.ModelForm[Entitlement]]):
    """Refuses to delete an entitlement that is in use, naming the slices."""

    def clean(self) -> None:
        """Check what is ticked for deletion."""
        super().clean()
        for form in self.deleted_forms:
            row = form.instance
            refusal = entitlements.refuse_lower_entitlement(row.project, row.package, 0) if row.pk else None
            if refusal:
                raise forms.ValidationError(render(refusal))


class PoolForm(forms.ModelForm[ComputePool]):
    """Refuses to go below what is in use, naming the slices."""

    FIELDS = {
        "requests.cpu": "cpu_requests",
        "limits.cpu": "cpu_limits",
        "requests.memory": "memory_requests",
        "limits.memory": "memory_limits",
        "requests.storage": "storage",
        "pods": "pods",
    }

    def clean(self) -> dict[str, Any]:
        """Check each quantity against what is used."""
        cleaned = super().clean() or {}
        project = cleaned.get("project") or getattr(self.instance, "project", None)
        if project is not None and not self.errors:
            pool = ComputePool(
                **{name: cleaned.get(name) for name in self.FIELDS.values() if name in cleaned}
            )
            for key, refusal in entitlements.refuse_lower_pool(project, pool.hard()).items():
                self.add_error(self.FIELDS[key], render(refusal))
        return cleaned


class EntitlementInline(admin.TabularInline[Entitlement, Project]):
    """Entitlements beside the project."""

    model = Entitlement
    form = EntitlementForm
    formset = EntitlementFormSet
    extra = 0


class PoolInline(admin.StackedInline[ComputePool, Project]):
    """The compute pool beside the project."""

    model = ComputePool
    form = PoolForm
    extra = 0
    max_num = 1


@admin.register(Project)
class ProjectAdmin(admin.ModelAdmin[Project]):
    """Projects with entitlements and pool: asked, in the cluster and used, side by side."""

    list_display = ["name", "tenant", "cluster", "namespace", "entitlement_lines", "in_step"]
    list_filter = ["tenant", "cluster"]
    search_fields = ["name", "namespace", "tenant__name"]
    inlines = [EntitlementInline, PoolInline]
    readonly_fields = ["public_id", "quota_table", "in_step"]
    list_select_related = ["tenant", "cluster", "quota_state"]

    def get_readonly_fields(self, request: HttpRequest, obj: Project | None = None) -> list[str]:
        """Cluster and namespace of a project with orders do not change."""
        fixed = ["namespace", "tenant", "cluster"] if obj and obj.orders.exists() else []
        return [*self.readonly_fields, *fixed]

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        """Save, and let a worker write the ResourceQuota."""
        super().save_related(request, form, formsets, change)
        entitlements.ask_to_write(form.instance)

    @admin.display(description=_("asked / in the cluster / used"))
    def entitlement_lines(self, obj: Project) -> str:
        """One line a package."""
        lines = [line for line in quota_lines(obj) if line.is_device]
        return format_html_join(
            "\n",
            "<div>{}: {} / {} / {}</div>",
            ((line.label, line.asked, line.present, line.used) for line in lines),
        )

    @admin.display(description=_("ResourceQuota"))
    def quota_table(self, obj: Project) -> str:
        """Every line of the quota."""
        if obj.pk is None:
            return "–"
        head = format_html(
            "<tr><th>{}</th><th>{}</th><th>{}</th><th>{}</th></tr>",
            "",
            _t("asked"),
            _t("in the cluster"),
            _t("used"),
        )
        rows = format_html_join(
            "",
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            ((line.label, line.asked, line.present, line.used) for line in quota_lines(obj)),
        )
        return format_html("<table>{}{}</table>", head, rows)

    @admin.display(description=_("agrees"))
    def in_step(self, obj: Project) -> str:
        """Whether the cluster has what was asked, and why not yet."""
        state = QuotaState.objects.filter(project=obj).first() if obj.pk else None
        if state is None:
            return _t("not asked for yet")
        if state.action_code:
            return _t("not written: %(code)s %(message)s") % {
                "code": state.action_code,
                "message": state.action_message,
            }
        if state.applied_generation < state.generation:
            return _t("being written")
        return _t("yes") if all(line.agrees for line in quota_lines(obj)) else _t("written, not seen yet")


@admin.register(Order)
class OrderAdmin(ReadOnlyAdmin, admin.ModelAdmin[Order]):
    """Orders, to read."""

    list_display = [
        "public_id",
        "created_at",
        "tenant",
        "project",
        "package",
        "price",
        "user",
    ]
    list_filter = ["package", "tenant"]
    search_fields = ["public_id", "project__namespace", "user__username"]
    date_hierarchy = "created_at"
    list_select_related = ["tenant", "project", "package", "user"]

    @admin.display(description=_("price per hour"), ordering="price_per_hour")
    def price(self, obj: Order) -> str:
        """Price and currency as ordered."""
        return money(obj.price_per_hour, obj.currency)


class TimelineInline(ReadOnlyAdmin, admin.TabularInline[TimelineEntry, Slice]):
    """What was done with the slice."""

    model = TimelineEntry
    fields = ["at", "actor", "code", "params"]
    extra = 0


@admin.register(Slice)
class SliceAdmin(ReadOnlyAdmin, admin.ModelAdmin[Slice]):
    """Slices, to read; actions release them or try again, through the same service as everybody's."""

    list_display = [
        "display_name",
        "project",
        "package",
        "intent",
        "action",
        "created_at",
        "ended_at",
    ]
    list_filter = ["intent", "action", "package", "project__tenant"]
    search_fields = ["display_name", "public_id", "app", "project__namespace"]
    list_select_related = ["project", "package"]
    actions = ["release", "try_again", "send_again"]
    inlines = [TimelineInline]
    readonly_fields = ["state_now"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Slice]:
        """Rows with what the state needs."""
        return super().get_queryset(request).select_related("project", "package", "order")

    @admin.display(description=_("state"))
    def state_now(self, obj: Slice) -> str:
        """The state as the tenant sees it."""
        found = slice_status(obj)
        return f"{found.state_label} · {found.sentence}"

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Staff with the right to view slices."""
        return request.user.has_perm("gpu.view_slice")

    @admin.action(description=_("Release the selected slices (their volumes stay)"), permissions=["view"])
    def release(self, request: HttpRequest, queryset: QuerySet[Slice]) -> None:
        """Release the proper way."""
        done = 0
        for row in queryset:
            try:
                orders.release(request.user if request.user.is_authenticated else None, row)
                done += 1
            except OrderRefused as refusal:
                self.message_user(request, f"{row}: {render(refusal.sentence)}", messages.WARNING)
        self.message_user(request, _t("%(count)s slices are being given back.") % {"count": done})

    @admin.action(description=_("Try again what needs an operator"), permissions=["view"])
    def try_again(self, request: HttpRequest, queryset: QuerySet[Slice]) -> None:
        """Send again what was handed to an operator."""
        count = outcomes.try_again(queryset)
        self.message_user(request, _t("%(count)s are sent again.") % {"count": count})

    @admin.action(description=_("Send again what the cluster should have"), permissions=["view"])
    def send_again(self, request: HttpRequest, queryset: QuerySet[Slice]) -> None:
        """Bring the cluster back to what the rows say."""
        done = 0
        for row in queryset:
            try:
                orders.send_again(request.user if request.user.is_authenticated else None, row)
                done += 1
            except OrderRefused as refusal:
                self.message_user(request, f"{row}: {render(refusal.sentence)}", messages.WARNING)
        self.message_user(request, _t("%(count)s are sent again.") % {"count": done})
