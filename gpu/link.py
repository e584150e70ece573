"""This process's connection to the cluster, made from settings at the first call."""

from __future__ import annotations

import os
from functools import lru_cache

from django.conf import settings

from gpu.cluster.client import Cluster, ClusterSettings, connect


def cluster() -> Cluster:
    """Return the cluster of the settings; a forked worker makes its own."""
    return _connect(os.getpid(), settings.KUBECONFIG, settings.KUBE_CONTEXT)


@lru_cache(maxsize=2)
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
