"""Django admin of what concerns models: image matrix, registries of the house, rules; pulls and receipts to read."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from gpu.models import HouseRegistry, ImageRule, ModelPull, OrderPolicy, SliceReceipt


class ReadOnlyAdmin:
    """Rows that only the portal's own services write."""

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody adds by hand."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody changes by hand."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody deletes by hand."""
        return False


@admin.register(ImageRule)
class ImageRuleAdmin(admin.ModelAdmin[ImageRule]):
    """The image matrix. Without any line the matrix that comes with the portal holds."""

    list_display = ["path", "card", "known_good", "bad_from", "reason"]
    list_filter = ["card"]
    search_fields = ["path", "pin"]


@admin.register(HouseRegistry)
class HouseRegistryAdmin(admin.ModelAdmin[HouseRegistry]):
    """Registries from which models are pulled; those over plain HTTP are named here."""

    list_display = ["host", "insecure", "note"]
    search_fields = ["host", "note"]


@admin.register(OrderPolicy)
class OrderPolicyAdmin(admin.ModelAdmin[OrderPolicy]):
    """One row of rules for every order."""

    list_display = ["__str__", "demand_digest"]

    def has_add_permission(self, request: HttpRequest) -> bool:
        """One row is enough."""
        return super().has_add_permission(request) and not OrderPolicy.objects.exists()


@admin.register(ModelPull)
class ModelPullAdmin(ReadOnlyAdmin, admin.ModelAdmin[ModelPull]):
    """Pulls, to read."""

    list_display = ["model", "slice", "mode", "outcome", "percent", "created_at", "finished_at"]
    list_filter = ["mode", "outcome"]
    search_fields = ["public_id", "model", "job_name", "slice__public_id", "slice__project__namespace"]
    list_select_related = ["slice"]


@admin.register(SliceReceipt)
class SliceReceiptAdmin(ReadOnlyAdmin, admin.ModelAdmin[SliceReceipt]):
    """What slices see of their GPU; a whole card where a part was ordered is to be looked at at once."""

    list_display = ["slice", "gpu_name", "memory_mib", "whole_card", "on_cpu", "read_at"]
    list_filter = ["whole_card", "on_cpu"]
    search_fields = ["slice__public_id", "slice__display_name", "slice__project__namespace"]
    list_select_related = ["slice"]
