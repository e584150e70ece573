"""Rows of the portal: catalogue, orders and slices, quotas, what was observed, answers kept for the API."""

from gpu.models.api import IdempotentAnswer
from gpu.models.catalogue import Package
from gpu.models.observed import Observed, WatchState
from gpu.models.orders import LogCopy, Order, Slice, TimelineEntry
from gpu.models.quotas import ComputePool, Entitlement, QuotaState

__all__ = [
    "ComputePool",
    "Entitlement",
    "IdempotentAnswer",
    "LogCopy",
    "Observed",
    "Order",
    "Package",
    "QuotaState",
    "Slice",
    "TimelineEntry",
    "WatchState",
]
