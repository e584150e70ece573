"""Slice receipts as rows: what the container's log tells of its GPU, kept when the log has gone on."""

from __future__ import annotations

import logging
from typing import Any

from django.db import transaction
from django.db.models import Exists, OuterRef
from django.utils import timezone

from gpu.cluster.client import Cluster
from gpu.cluster.errors import ClusterError
from gpu.cluster.logs import fetch_log
from gpu.link import reach
from gpu.models import Observed, Slice, SliceReceipt, TimelineEntry
from gpu.receipts import MIB, ServerLog, read_server_log, receipt

log = logging.getLogger(__name__)

BATCH = 50


def read(slice_pk: int, cluster: Cluster | None = None) -> None:
    """Read the log of a slice's present pod into its receipt; without a log the next sweep asks again."""
    row = Slice.objects.select_related("project__cluster").filter(pk=slice_pk, ended_at=None).first()
    uid = pod_uid(row) if row is not None else ""
    if row is None or not uid:
        return
    try:
        with reach(row.project.cluster, cluster) as reached:
            text = fetch_log(reached, row.project.namespace, row.app)
    except ClusterError as error:
        log.info("receipt of slice %s: %s", row.public_id, error.code)
        return
    note(row, text, uid)


def give_up(slice_pk: int) -> None:
    """Note an empty receipt for a log that took too long, so that the sweep does not ask for it again and again."""
    row = Slice.objects.select_related("project__cluster").filter(pk=slice_pk, ended_at=None).first()
    if row is not None and (uid := pod_uid(row)):
        log.warning("receipt of slice %s: its log took too long", row.public_id)
        note(row, "", uid)


def pod_uid(row: Slice) -> str:
    """Return the uid of the slice's newest running pod, "" without one."""
    pods = Observed.objects.filter(
        cluster=row.project.cluster_id, namespace=row.project.namespace, app=row.app, kind="Pod"
    )
    running = [
        pod for pod in pods.values_list("data", flat=True) if pod.get("status", {}).get("phase") == "Running"
    ]
    newest = max(running, key=lambda pod: pod["metadata"].get("creationTimestamp") or "", default=None)
    return str(newest["metadata"].get("uid") or "") if newest else ""


def note(row: Slice, text: str, uid: str) -> SliceReceipt:
    """Keep what a log tells. What the present pod said before and its log no longer holds stays."""
    seen = read_server_log(text)
    with transaction.atomic():
        kept, _made = SliceReceipt.objects.select_for_update().get_or_create(slice=row)
        same_pod = bool(uid) and kept.pod_uid == uid
        told = not same_pod or seen.card is not None or seen.cpu_only
        if told:
            judged = receipt(seen, row.package_terms.memory_mib)
            card = seen.card
            kept.gpu_name = card.name[:120] if card else ""
            kept.memory_mib = card.memory // MIB if card and card.memory is not None else None
            kept.driver = card.driver[:40] if card else ""
            kept.compute_capability = card.compute[:16] if card else ""
            kept.on_cpu = seen.cpu_only
            alarmed = same_pod and kept.whole_card
            kept.whole_card = judged.alarm
            if judged.alarm and not alarmed:
                log.error("slice %s: the whole card is visible in it", row.public_id)
                TimelineEntry.objects.create(slice=row, code="whole_card", params={})
        notes = notes_of(seen)
        kept.notes = {**(kept.notes if same_pod else {}), **notes}
        kept.pod_uid, kept.read_at = uid, timezone.now()
        kept.save()
    return kept


def notes_of(seen: ServerLog) -> dict[str, Any]:
    """Return what a log tells beside the card, as plain data; what it does not tell is left out."""
    told: dict[str, Any] = {
        "on_gpu": seen.on_gpu,
        "layers": list(seen.layers) if seen.layers else None,
        "context": seen.context,
        "asked_context": seen.asked_context,
        "cuts": seen.cuts or None,
        "cut_limit": seen.last_cut.limit if seen.last_cut else None,
        "cut_prompt": seen.last_cut.prompt if seen.last_cut else None,
        "shortage": seen.shortage or None,
        "needed": seen.needed,
        "available": seen.available,
        "kernels_missing": seen.kernels_missing or None,
        "driver_too_old": seen.driver_too_old or None,
    }
    return {name: value for name, value in told.items() if value is not None}


def without_receipt() -> list[int]:
    """Return running slices whose present pod's log has not been read: their first lines tell of the GPU."""
    pod = Observed.objects.filter(
        kind="Pod",
        cluster=OuterRef("project__cluster"),
        namespace=OuterRef("project__namespace"),
        app=OuterRef("app"),
        data__status__phase="Running",
    )
    read_already = pod.filter(uid=OuterRef("receipt__pod_uid"))
    rows = Slice.objects.filter(Exists(pod), ~Exists(read_already), ended_at=None, intent=Slice.Intent.RUN)
    return list(rows.values_list("pk", flat=True)[:BATCH])
