"""Fetches a slice's log from the cluster for a page that asked for it."""

from __future__ import annotations

import logging

from gpu.cluster.client import Cluster
from gpu.cluster.errors import ClusterError
from gpu.cluster.logs import fetch_log
from gpu.link import reach
from gpu.logcopies import store_log
from gpu.models import LogCopy
from gpu.receipt_rows import note, pod_uid

log = logging.getLogger(__name__)

TOO_SLOW = "too_slow"


def fetch(slice_pk: int, cluster: Cluster | None = None) -> None:
    """Fetch and keep the log of the slice; a failure is kept as its code, the text at hand stays."""
    copy = LogCopy.objects.select_related("slice__project__cluster").filter(slice=slice_pk).first()
    if copy is None:
        return
    row = copy.slice
    try:
        with reach(row.project.cluster, cluster) as reached:
            text = fetch_log(reached, row.project.namespace, row.app, previous=copy.previous)
    except ClusterError as error:
        store_log(row, "", error.code)
    else:
        store_log(row, text)
        if not copy.previous and (uid := pod_uid(row)):
            note(row, text, uid)


def give_up(slice_pk: int) -> None:
    """Note that the log took too long; the text at hand stays."""
    copy = LogCopy.objects.select_related("slice").filter(slice=slice_pk).first()
    if copy is not None:
        log.warning("log of slice %s: took too long", copy.slice.public_id)
        store_log(copy.slice, "", TOO_SLOW)
