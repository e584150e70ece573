"""The only writer of Observed and WatchState rows: a sink for the watcher.

A row holds the newest version seen. An object that comes again, or late, changes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Q, QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from gpu.milestones import KIND as MILESTONES_OF
from gpu.milestones import Recorder
from gpu.models import Observed, WatchState
from gpu.names import LABEL_NAME
from tenants.models import FIRST_CLUSTER, Cluster

Object = Mapping[str, Any]

EVENT_LIFE = timedelta(hours=1)
BATCH = 1000
# What no reader needs: it only costs room, or tells what a tenant must not learn.
_DROPPED_METADATA = ("managedFields", "selfLink", "generateName")
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def prune(obj: Object) -> dict[str, Any]:
    """Return a copy of `obj` without managed fields and the last applied text."""
    metadata = {key: value for key, value in obj["metadata"].items() if key not in _DROPPED_METADATA}
    annotations = metadata.get("annotations")
    if annotations and _LAST_APPLIED in annotations:
        metadata["annotations"] = {key: value for key, value in annotations.items() if key != _LAST_APPLIED}
    return {**obj, "metadata": metadata}


def row_of(kind: str, obj: Object, cluster: int = FIRST_CLUSTER) -> Observed:
    """Return the unsaved row of an object of a cluster (its row's key)."""
    metadata = obj["metadata"]
    return Observed(
        cluster_id=cluster,
        kind=kind,
        namespace=metadata.get("namespace") or "",
        name=metadata["name"],
        uid=metadata.get("uid") or "",
        app=(metadata.get("labels") or {}).get(LABEL_NAME, "")[:63],
        involved_uid=((obj.get("involvedObject") or {}).get("uid") or "") if kind == "Event" else "",
        data=_storable(prune(obj)),
    )


def _storable(value: Any) -> Any:
    """PostgreSQL's jsonb holds no NUL character; a log line or message may."""
    if isinstance(value, str):
        return value.replace("\x00", "�")
    if isinstance(value, dict):
        return {key: _storable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_storable(item) for item in value]
    return value


class RowSink:
    """Takes what the watcher of one cluster sees of any kind. Safe to use from one thread a kind."""

    def __init__(self, cluster: int = FIRST_CLUSTER) -> None:
        self.cluster = cluster
        self._alive: dict[str, float] = {}
        self._milestones = Recorder(cluster)

    def states(self, *kinds: str) -> QuerySet[WatchState]:
        """The rows of this cluster's watches of `kinds`."""
        return WatchState.objects.filter(cluster=self.cluster, kind__in=kinds)

    def replace(self, kind: str, items: Sequence[Object], resource_version: str) -> None:
        """Make the rows of `kind` exactly `items`."""
        rows = [row_of(kind, item, self.cluster) for item in items]
        self._milestones.seen(kind, items)
        with transaction.atomic():
            keep = {(row.namespace, row.name) for row in rows}
            gone = [
                pk
                for pk, namespace, name in Observed.objects.filter(cluster=self.cluster, kind=kind)
                .values_list("pk", "namespace", "name")
                .iterator()
                if (namespace, name) not in keep
            ]
            for start in range(0, len(gone), BATCH):
                batch = Observed.objects.filter(pk__in=gone[start : start + BATCH])
                if kind == MILESTONES_OF:
                    self._milestones.gone(kind, batch.values_list("data", flat=True))
                batch.delete()
            _save(rows)
            state, _created = WatchState.objects.get_or_create(cluster_id=self.cluster, kind=kind)
            state.resource_version = resource_version
            state.listed_at = state.seen_at = Now()
            state.failing_since = None
            state.error_code = ""
            state.relists += 1
            state.save()

    def upsert(self, kind: str, obj: Object) -> None:
        """Take in one object, new or changed."""
        self._milestones.seen(kind, [obj])
        _save([row_of(kind, obj, self.cluster)])

    def remove(self, kind: str, obj: Object) -> None:
        """Take out one object; an object of the same name that was made since stays."""
        metadata = obj["metadata"]
        self._milestones.gone(kind, [obj])
        Observed.objects.filter(
            Q(uid=metadata.get("uid") or "") | Q(uid=""),
            cluster=self.cluster,
            kind=kind,
            namespace=metadata.get("namespace") or "",
            name=metadata["name"],
        ).delete()

    def progress(self, kind: str, resource_version: str) -> None:
        """Note how far the watch is."""
        self.states(kind).update(
            resource_version=resource_version, seen_at=Now(), failing_since=None, error_code=""
        )

    def alive(self, kind: str) -> None:
        """Note that the watch of `kind` stands; written at most once a second."""
        now = time.monotonic()
        if now - self._alive.get(kind, 0.0) >= 1.0:
            self._alive[kind] = now
            self.states(kind).update(seen_at=Now(), failing_since=None, error_code="")

    def failed(self, kind: str, error: Exception) -> None:
        """Note that the watch of `kind` fails, and since when."""
        code = str(getattr(error, "code", "") or error.__class__.__name__)[:60]
        WatchState.objects.get_or_create(cluster_id=self.cluster, kind=kind)
        self.states(kind).update(error_code=code)
        self.states(kind).filter(failing_since=None).update(failing_since=Now())


def _save(rows: Sequence[Observed]) -> None:
    Observed.objects.bulk_create(
        rows,
        batch_size=BATCH,
        update_conflicts=True,
        unique_fields=["cluster", "kind", "namespace", "name"],
        update_fields=["uid", "app", "involved_uid", "data"],
    )


def forget_old_events(now: datetime | None = None) -> int:
    """Delete events the cluster itself has forgotten (they live an hour); return how many."""
    before = (now or timezone.now()) - EVENT_LIFE
    count, _kinds = Observed.objects.filter(
        cluster__in=list(Cluster.objects.values_list("pk", flat=True)),
        kind="Event",
        data__metadata__creationTimestamp__lt=before.strftime("%Y-%m-%dT%H:%M:%SZ"),
    ).delete()
    return count
