"""Reads what all cards of a cluster hold and have free. PostgreSQL picks the few values out of the objects: a cluster
may have tens of thousands of claims, and a page has milliseconds."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress

from django.core.cache import cache
from django.db import connection
from redis import RedisError

from gpu.capacity import Cards, Device, Share, count_cards
from tenants.models import Project

MANY = 1000
"""Cards and claims; counting more takes longer than a page may, so the count is kept for a moment."""

KEPT_S = 3

_OF_CLUSTER = "o.cluster_id = %s AND o.kind = "

_DEVICES = f"""
SELECT coalesce(o.data #>> '{{spec,driver}}', ''), coalesce(o.data #>> '{{spec,pool,name}}', ''),
    coalesce(d ->> 'name', ''),
    coalesce((SELECT a.value ->> 'string' FROM jsonb_each(d -> 'attributes') a
        WHERE a.key = 'productName' OR a.key LIKE '%%/productName' LIMIT 1), ''),
    coalesce(d #>> '{{capacity,memory,value}}', '0'), coalesce(d #>> '{{capacity,cores,value}}', '0')
FROM gpu_observed o, jsonb_path_query(o.data, '$.spec.devices[*]') d
WHERE {_OF_CLUSTER} 'ResourceSlice'
"""  # noqa: S608  no values from outside

_CLAIMS = f"""
SELECT r ->> 'driver', r ->> 'pool', r ->> 'device',
    coalesce(r #>> '{{consumedCapacity,memory}}', '0'), coalesce(r #>> '{{consumedCapacity,cores}}', '0'),
    CASE WHEN r IS NULL THEN o.data #>> '{{spec,devices,requests,0,exactly,deviceClassName}}' END, count(*)
FROM gpu_observed o
    LEFT JOIN LATERAL jsonb_path_query(o.data, '$.status.allocation.devices.results[*]') r ON true
WHERE {_OF_CLUSTER} 'ResourceClaim'
    AND (r IS NOT NULL OR o.data #> '{{metadata,deletionTimestamp}}' IS NULL)
GROUP BY 1, 2, 3, 4, 5, 6
"""  # noqa: S608  no values from outside


def cards(namespace: str, cluster: int | None = None) -> Cards:
    """Count the cards and the waiting claims of the cluster of a project's namespace, in three queries.

    Callers that know the project's cluster name it, which spares one of them. In a cluster of MANY the count may be
    KEPT_S seconds old.
    """
    if cluster is None:
        cluster = Project.objects.filter(namespace=namespace).values_list("cluster", flat=True).first()
    key = f"cards:{cluster}"
    with suppress(RedisError, OSError):
        kept: Cards | None = cache.get(key)
        if kept is not None:
            return kept
    counted, rows = _count(cluster)
    if rows > MANY:
        with suppress(RedisError, OSError):
            cache.set(key, counted, KEPT_S)
    return counted


def _count(cluster: int | None) -> tuple[Cards, int]:
    """Return the count, and how many cards and claims were looked at."""
    with connection.cursor() as cursor:
        cursor.execute(_DEVICES, [cluster])
        devices = [Device((driver, pool, name), *rest) for driver, pool, name, *rest in cursor.fetchall()]
        if not devices:
            return Cards(), 0
        cursor.execute(_CLAIMS, [cluster])
        shares: list[Share] = []
        waiting: Counter[str] = Counter()
        for driver, pool, name, memory, cores, device_class, count in cursor.fetchall():
            if driver is None:
                waiting[device_class or ""] += count
            else:
                shares.append(Share((driver, pool or "", name or ""), memory, cores, count))
    rows = len(devices) + sum(share.claims for share in shares) + waiting.total()
    return count_cards(devices, shares, dict(waiting)), rows
