"""Reads what all cards of a cluster hold and have free. PostgreSQL picks the few values out of the objects: a cluster
may have tens of thousands of claims, and a page has milliseconds."""

from __future__ import annotations

from collections import Counter

from django.db import connection

from gpu.capacity import Cards, Device, Share, count_cards

_OF_CLUSTER = "o.cluster_id = (SELECT cluster_id FROM tenants_project WHERE namespace = %s) AND o.kind = "

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


def cards(namespace: str) -> Cards:
    """Count the cards and the waiting claims of the cluster of a project's namespace, in two queries."""
    with connection.cursor() as cursor:
        cursor.execute(_DEVICES, [namespace])
        devices = [Device((driver, pool, name), *rest) for driver, pool, name, *rest in cursor.fetchall()]
        if not devices:
            return Cards()
        cursor.execute(_CLAIMS, [namespace])
        shares: list[Share] = []
        waiting: Counter[str] = Counter()
        for driver, pool, name, memory, cores, device_class, count in cursor.fetchall():
            if driver is None:
                waiting[device_class or ""] += count
            else:
                shares.append(Share((driver, pool or "", name or ""), memory, cores, count))
    return count_cards(devices, shares, waiting)
