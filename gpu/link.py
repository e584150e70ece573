"""This process's connections to the clusters, made at the first call, and the memory of which one is down."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache

from django.conf import settings
from django.core.cache import cache
from redis import RedisError

from gpu.cluster.client import Cluster, ClusterSettings, connect
from gpu.cluster.errors import ClusterError, Unreachable
from tenants.models import Cluster as ClusterRow

PROBE_EVERY_S = 10
DOWN_FOR_S = 3600
LONG_S = 1.0


def cluster(row: ClusterRow | None = None) -> Cluster:
    """Return the connection of a cluster's row (without one, that of the settings); a forked worker makes its own."""
    kubeconfig, context = (row.kubeconfig, row.context) if row is not None else ("", "")
    if not kubeconfig:
        kubeconfig, context = settings.KUBECONFIG, context or settings.KUBE_CONTEXT
    return _connect(os.getpid(), kubeconfig, context)


@lru_cache(maxsize=64)
def _connect(pid: int, kubeconfig: str, context: str) -> Cluster:
    return connect(
        ClusterSettings(
            kubeconfig=kubeconfig or None,
            context=context or None,
            connect_timeout_s=settings.CLUSTER_CONNECT_TIMEOUT,
            read_timeout_s=settings.CLUSTER_READ_TIMEOUT,
            cache_dir=str(settings.DATA_DIR / "cluster-cache"),
        )
    )


@contextmanager
def reach(row: ClusterRow, given: Cluster | None = None) -> Iterator[Cluster]:
    """Give the connection of a cluster (`given` where the caller has one), or raise Unreachable at once.

    A cluster that lets callers wait for an answer in vain is tried by one worker every PROBE_EVERY_S; the others do not
    sit through its timeouts, which would keep the tasks of the other clusters from their turn.
    """
    if given is not None:
        yield given
        return
    down, probe = f"cluster-down:{row.pk}", f"cluster-probe:{row.pk}"
    was_down = _cache(lambda: cache.get(down) is not None)
    if was_down and not _cache(lambda: cache.add(probe, 1, PROBE_EVERY_S)):
        raise Unreachable
    began = time.monotonic()
    try:
        yield cluster(row)
    except Unreachable:
        if time.monotonic() - began > LONG_S:
            _cache(lambda: cache.set(down, 1, DOWN_FOR_S))
            _cache(lambda: cache.set(probe, 1, PROBE_EVERY_S))
        raise
    except ClusterError:
        _cache(lambda: cache.delete(down))
        raise
    if was_down:
        _cache(lambda: cache.delete(down))


def _cache(call: Callable[[], object]) -> bool:
    """What the cache says; nothing where it does not answer: it only saves time."""
    with suppress(RedisError, OSError):
        return bool(call())
    return False
