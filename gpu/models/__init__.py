"""Rows of the portal: catalogue, orders and slices, quotas, what was observed, answers kept for the API."""

from gpu.models.api import IdempotentAnswer
from gpu.models.catalogue import Package
from gpu.models.milestones import Milestone
from gpu.models.observed import Observed, WatchState
from gpu.models.orders import LogCopy, Order, Slice, TimelineEntry
from gpu.models.pulls import ModelCheck, ModelOnVolume, ModelPull, ModelShelf, SliceReceipt, SliceSecret
from gpu.models.quotas import ComputePool, Entitlement, QuotaState
from gpu.models.reports import ClusterReport
from gpu.models.rules import HouseRegistry, ImageRule, OrderPolicy
from gpu.models.signs import Sign

__all__ = [
    "ClusterReport",
    "ComputePool",
    "Entitlement",
    "HouseRegistry",
    "IdempotentAnswer",
    "ImageRule",
    "LogCopy",
    "Milestone",
    "ModelCheck",
    "ModelOnVolume",
    "ModelPull",
    "ModelShelf",
    "Observed",
    "Order",
    "OrderPolicy",
    "Package",
    "QuotaState",
    "Sign",
    "Slice",
    "SliceReceipt",
    "SliceSecret",
    "TimelineEntry",
    "WatchState",
]
