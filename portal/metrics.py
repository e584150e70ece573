"""/metrics in Prometheus' text form, worked out at scrape time from the database, the broker and shared counters.

So it is the same from every web process, and worker and watcher need no port of their own: scrape one of them.
"""

from __future__ import annotations

import hmac
import math
from collections import defaultdict
from collections.abc import Iterator
from ipaddress import ip_address

import redis
from django.conf import settings
from django.db.models import Count, F, Min, Q
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from gpu import signs
from gpu.facts import WATCHED_KINDS
from gpu.models import ClusterReport, Order, QuotaState, Sign, Slice, WatchState
from portal import counters
from tenants.models import Cluster

QUEUE = "celery"
UNACKNOWLEDGED = "unacked"


def metrics(request: HttpRequest) -> HttpResponse:
    """Answer with all metrics; 404 to whom it is not for."""
    if not _allowed(request):
        return HttpResponse(status=404)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(PortalCollector())
    return HttpResponse(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)


def _allowed(request: HttpRequest) -> bool:
    scheme, _space, token = request.headers.get("Authorization", "").partition(" ")
    if settings.METRICS_TOKEN and scheme.lower() == "bearer":
        return hmac.compare_digest(token.strip().encode(), settings.METRICS_TOKEN.encode())
    if "X-Forwarded-For" in request.headers or "Forwarded" in request.headers:
        return False  # a proxy's address says nothing of who asks
    try:
        address = ip_address(request.META.get("REMOTE_ADDR", ""))
    except ValueError:
        return False
    return any(address in network for network in settings.METRICS_NETWORKS)


class PortalCollector(Collector):
    """All metrics of the portal. Ages are in seconds."""

    def collect(self) -> Iterator[Metric]:
        """Yield every family, also those without a sample, so that their names are known."""
        yield from _orders()
        yield from _to_send()
        yield from _signs()
        yield from _watches()
        yield from _reports()
        yield from _broker()


def _orders() -> Iterator[Metric]:
    orders = CounterMetricFamily("portal_orders", "Orders placed.", labels=["package"])
    for slug, count in Order.objects.order_by().values_list("package__slug").annotate(count=Count("pk")):
        orders.add_metric([slug], count)
    yield orders
    slices = GaugeMetricFamily(
        "portal_slices", "Slices that have not ended.", labels=["package", "intent", "action"]
    )
    alive = Slice.objects.filter(ended_at=None).order_by().values_list("package__slug", "intent", "action")
    for slug, intent, action, count in alive.annotate(count=Count("pk")):
        slices.add_metric([slug, intent, action], count)
    yield slices


def _to_send() -> Iterator[Metric]:
    unsent = Q(ended_at=None, applied_generation__lt=F("generation"))
    settled = Q(action__in=Slice.SETTLED)
    found = Slice.objects.filter(unsent & ~settled).aggregate(count=Count("pk"), oldest=Min("changed_at"))
    yield _gauge(
        "portal_slices_to_send", "Slices whose intent the cluster does not have yet.", found["count"]
    )
    age = (timezone.now() - found["oldest"]).total_seconds() if found["oldest"] else 0.0
    yield _gauge("portal_slices_to_send_age_seconds", "Age of the oldest of them.", age)
    operator = Slice.objects.filter(ended_at=None, action=Slice.Action.NEEDS_OPERATOR).count()
    yield _gauge("portal_slices_need_operator", "Slices that only an operator can help.", operator)
    quotas = QuotaState.objects.filter(applied_generation__lt=F("generation")).count()
    yield _gauge("portal_quotas_to_write", "ResourceQuotas that the cluster does not have yet.", quotas)


def _signs() -> Iterator[Metric]:
    age = GaugeMetricFamily(
        "portal_sign_age_seconds",
        "Time since this sign of life of the background work; +Inf before the first.",
        labels=["sign"],
    )
    now, at = timezone.now(), dict(Sign.objects.values_list("name", "at"))
    for name in (signs.WORKER, signs.SWEEP):
        seconds = max(0.0, (now - at[name]).total_seconds()) if name in at else math.inf
        age.add_metric([name], seconds)
    yield age


def _watches() -> Iterator[Metric]:
    age = GaugeMetricFamily(
        "portal_watch_age_seconds", "Time since the last sign of life of a watch.", labels=["cluster", "kind"]
    )
    failing = GaugeMetricFamily(
        "portal_watch_failing", "1 while a watch fails or has never been.", labels=["cluster", "kind"]
    )
    relists = CounterMetricFamily(
        "portal_watch_relists", "Times everything was listed anew.", labels=["cluster", "kind"]
    )
    known = {
        (state.cluster_id, state.kind): state for state in WatchState.objects.filter(kind__in=WATCHED_KINDS)
    }
    now = timezone.now()
    for pk, slug in Cluster.objects.values_list("pk", "slug"):
        for kind in WATCHED_KINDS:
            state = known.get((pk, kind))
            seen = state.seen_at if state else None
            failing.add_metric([slug, kind], float(seen is None or bool(state and state.failing_since)))
            if state is not None and seen is not None:
                age.add_metric([slug, kind], max(0.0, (now - seen).total_seconds()))
            relists.add_metric([slug, kind], state.relists if state else 0)
    yield from (age, failing, relists)


def _reports() -> Iterator[Metric]:
    well = GaugeMetricFamily(
        "portal_cluster_well", "1 when the last check of a cluster found nothing.", labels=["cluster"]
    )
    checked = GaugeMetricFamily(
        "portal_cluster_check_age_seconds", "Time since a cluster was last checked.", labels=["cluster"]
    )
    differ = GaugeMetricFamily(
        "portal_disagreements", "What in a cluster does not agree with the rows.", labels=["cluster"]
    )
    now = timezone.now()
    for report in ClusterReport.objects.select_related("cluster"):
        name = [report.cluster.slug]
        if report.checked_at is not None:
            well.add_metric(name, float(report.well))
            checked.add_metric(name, (now - report.checked_at).total_seconds())
        if report.compared_at is not None:
            differ.add_metric(name, report.disagreement_count)
    yield from (well, checked, differ)


def _broker() -> Iterator[Metric]:
    depth = GaugeMetricFamily("portal_queue_depth", "Tasks in the broker.", labels=["state"])
    outcomes = CounterMetricFamily(
        "portal_provision_outcomes", "What became of sending a slice.", labels=["outcome"]
    )
    duration = HistogramMetricFamily(
        "portal_provision_duration_seconds", "From a change of intent until the cluster accepted it."
    )
    refusals = CounterMetricFamily(
        "portal_refusals", "Refusals by the portal and by the cluster.", labels=["by", "code"]
    )
    client = counters.broker(1.0)
    up = 1.0
    try:
        depth.add_metric(["waiting"], float(client.llen(QUEUE)))
        depth.add_metric(["taken"], float(client.hlen(UNACKNOWLEDGED)))
        counted = counters.read()
    except (redis.RedisError, OSError):
        counted, up = {}, 0.0
    finally:
        client.close()
    buckets: dict[str, float] = defaultdict(float)
    for key, value in sorted(counted.items()):
        match key:
            case ("outcomes", outcome):
                outcomes.add_metric([outcome], value)
            case ("refusals", by, code):
                refusals.add_metric([by, code], value)
            case ("provision", "bucket", limit):
                buckets[limit] = value
    total = 0.0
    cumulated: list[tuple[str, float]] = []
    for limit in (*map(str, counters.BUCKETS_S), "+Inf"):
        total += buckets[limit]
        cumulated.append((limit, total))
    duration.add_metric([], cumulated, counted.get(("provision", "sum"), 0.0))
    yield _gauge("portal_broker_up", "1 while the broker answers.", up)
    yield from (depth, outcomes, duration, refusals)


def _gauge(name: str, text: str, value: float) -> Metric:
    family = GaugeMetricFamily(name, text)
    family.add_metric([], float(value))
    return family
