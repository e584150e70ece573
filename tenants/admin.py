"""Django admin for tenants, members, projects and tokens."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.admin.widgets import AutocompleteSelect
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.db.models import ForeignKey
from django.http import HttpRequest
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from tenants.models import FIRST_CLUSTER, ApiToken, Cluster, Membership, Project, Tenant, User


class KeySelect(AutocompleteSelect):
    """Shows nobody as chosen where what was sent is no key; Django's own looks it up and fails."""

    def optgroups(self, name: str, value: Any, attr: Any = None) -> Any:
        """See Django's widget."""
        return super().optgroups(name, [item for item in value if str(item).isdecimal()], attr)


class MembershipInline(admin.TabularInline[Membership, Any]):
    """Members, beside the tenant or the user."""

    model = Membership
    extra = 1
    autocomplete_fields = ["user"]

    def formfield_for_foreignkey(self, db_field: ForeignKey[Any, Any], request: Any, **kwargs: Any) -> Any:
        """Give the user a widget that bears any input."""
        if db_field.name == "user":
            kwargs["widget"] = KeySelect(db_field, self.admin_site)
        return super().formfield_for_foreignkey(db_field, request, **kwargs)


class ProjectInline(admin.TabularInline[Project, Tenant]):
    """Projects beside the tenant."""

    model = Project
    extra = 0
    fields = ["name", "cluster", "namespace"]
    show_change_link = True


@admin.register(Cluster)
class ClusterAdmin(admin.ModelAdmin[Cluster]):
    """Clusters; the watcher notices a change within seconds."""

    list_display = ["name", "slug", "kubeconfig", "context", "is_default"]

    def has_delete_permission(self, request: HttpRequest, obj: Cluster | None = None) -> bool:
        """The first one stays: rows refer to it by default."""
        return super().has_delete_permission(request, obj) and (obj is None or obj.pk != FIRST_CLUSTER)


@admin.register(User)
class UserAdmin(DjangoUserAdmin[User]):
    """Users with their language."""

    list_display = ["username", "first_name", "last_name", "is_active", "is_staff", "last_login"]
    fieldsets = (*(DjangoUserAdmin.fieldsets or ()), (_("Portal"), {"fields": ["language"]}))


@admin.register(Tenant)
class TenantAdmin(admin.ModelAdmin[Tenant]):
    """Tenants with members and projects."""

    list_display = ["name", "slug", "time_zone", "created_at"]
    search_fields = ["name", "slug"]
    inlines = [MembershipInline, ProjectInline]


@admin.register(ApiToken)
class ApiTokenAdmin(admin.ModelAdmin[ApiToken]):
    """Tokens, readable by their prefix only; they can be revoked, never made or shown here."""

    list_display = ["name", "prefix", "user", "tenant", "scope", "last_used_at", "revoked_at"]
    list_filter = ["scope", "tenant"]
    search_fields = ["name", "prefix", "user__username"]
    actions = ["revoke"]
    readonly_fields = [
        "name",
        "prefix",
        "user",
        "tenant",
        "scope",
        "created_at",
        "last_used_at",
        "expires_at",
        "revoked_at",
    ]

    def get_fields(self, request: HttpRequest, obj: ApiToken | None = None) -> Any:
        """Everything there is to read."""
        return self.readonly_fields

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Tokens are made by their users."""
        return False

    @admin.action(description=_("Revoke the selected tokens"))
    def revoke(self, request: HttpRequest, queryset: Any) -> None:
        """Revoke tokens at once."""
        count = queryset.filter(revoked_at=None).update(revoked_at=timezone.now())
        self.message_user(request, _("%(count)s revoked.") % {"count": count})
