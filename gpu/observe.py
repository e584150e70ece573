"""The only writer of Observed and WatchState rows: a sink for the watcher.

A row holds the newest version seen. An object that comes again, or late, changes nothing, and costs no write.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db import connection, transaction
from django.db.models import QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from gpu.milestones import KIND as MILESTONES_OF
from gpu.milestones import Recorder
from gpu.models import Observed, WatchState
from gpu.names import LABEL_NAME
from tenants.models import FIRST_CLUSTER, Cluster

Object = Mapping[str, Any]

EVENT_LIFE = timedelta(hours=1)
BATCH = 500
"""Objects of one statement: a page of a list."""

MAX_UID = 64
"""Characters of the columns of uids."""

_COLUMNS = "namespace, name, uid, app, involved_uid, data"
_TYPES = "namespace text, name text, uid text, app text, involved_uid text, data jsonb"
_CHANGED = """
DO UPDATE SET uid = excluded.uid, app = excluded.app, involved_uid = excluded.involved_uid, data = excluded.data
WHERE (known.uid, known.app, known.involved_uid, known.data)
    IS DISTINCT FROM (excluded.uid, excluded.app, excluded.involved_uid, excluded.data)
"""
# The pages of a list wait here, outside any transaction, until the last one has come.
_STAGE = f"CREATE TEMPORARY TABLE IF NOT EXISTS gpu_listing ({_TYPES})"
_PAGE = f"INSERT INTO pg_temp.gpu_listing SELECT * FROM json_to_recordset(%s::json) AS page ({_TYPES})"  # noqa: S608 - constants
_GONE = """
DELETE FROM gpu_observed known WHERE cluster_id = %s AND kind = %s AND NOT EXISTS (
    SELECT FROM pg_temp.gpu_listing listed WHERE listed.namespace = known.namespace AND listed.name = known.name
)
"""
# DISTINCT: a cluster that names an object on two pages must not stop its watch for good.
_MERGE = f"""
INSERT INTO gpu_observed AS known (cluster_id, kind, {_COLUMNS})
SELECT DISTINCT ON (namespace, name) %s::bigint, %s, {_COLUMNS} FROM pg_temp.gpu_listing
ON CONFLICT (cluster_id, kind, namespace, name) {_CHANGED}
"""  # noqa: S608 - constants
# Of one object the version with the greater number is the newer one; where they are no numbers, the one that came last.
_UPSERT = f"""
INSERT INTO gpu_observed AS known (cluster_id, kind, {_COLUMNS})
SELECT %s, %s, {_COLUMNS} FROM json_to_recordset(%s::json) AS new ({_TYPES})
ON CONFLICT (cluster_id, kind, namespace, name) {_CHANGED}
AND NOT CASE WHEN known.uid = excluded.uid
    AND known.data #>> '{{metadata,resourceVersion}}' ~ '^[0-9]{{1,18}}$'
    AND excluded.data #>> '{{metadata,resourceVersion}}' ~ '^[0-9]{{1,18}}$'
THEN (known.data #>> '{{metadata,resourceVersion}}')::bigint
    > (excluded.data #>> '{{metadata,resourceVersion}}')::bigint
ELSE false END
"""  # noqa: S608 - constants
_REMOVE = """
DELETE FROM gpu_observed known
USING json_to_recordset(%s::json) AS gone (namespace text, name text, uid text)
WHERE known.cluster_id = %s AND known.kind = %s AND known.namespace = gone.namespace AND known.name = gone.name
    AND known.uid IN (gone.uid, '')
"""
_FAILED = """
INSERT INTO gpu_watchstate AS known (cluster_id, kind, resource_version, error_code, failing_since, relists)
SELECT %s, kind, '', %s, statement_timestamp(), 0 FROM unnest(%s::text[]) AS kind
ON CONFLICT (cluster_id, kind) DO UPDATE SET error_code = excluded.error_code,
    failing_since = coalesce(known.failing_since, excluded.failing_since)
"""
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
    return Observed(cluster_id=cluster, kind=kind, **_storable(_columns(kind, obj)))


def _columns(kind: str, obj: Object) -> dict[str, Any]:
    metadata = obj["metadata"]
    return {
        "namespace": metadata.get("namespace") or "",
        "name": metadata["name"],
        "uid": metadata.get("uid") or "",
        "app": (metadata.get("labels") or {}).get(LABEL_NAME, "")[:63],
        "involved_uid": _uid_about(obj) if kind == "Event" else "",
        "data": prune(obj),
    }


def _uid_about(event: Object) -> str:
    """The uid an event is about. Whoever makes an event may write anything there; what is too long is no uid."""
    uid = (event.get("involvedObject") or {}).get("uid")
    return uid if isinstance(uid, str) and len(uid) <= MAX_UID else ""


def _text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as JSON that PostgreSQL takes; only where it may hold something else is every value looked at."""
    text = json.dumps(rows)
    if "\\u0000" in text or "\\ud" in text:
        text = json.dumps(_storable(rows))
    return text


def _storable(value: Any) -> Any:
    """PostgreSQL's jsonb holds neither a NUL character nor half a surrogate pair; a log line or message may."""
    if isinstance(value, str):
        return value.replace("\x00", "�").encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_storable(key): _storable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_storable(item) for item in value]
    return value


class RowSink:
    """Takes what the watcher of one cluster sees of any kind. Safe to use from one thread a kind."""

    def __init__(self, cluster: int = FIRST_CLUSTER) -> None:
        self.cluster = cluster
        self._milestones = Recorder(cluster)

    def states(self, *kinds: str) -> QuerySet[WatchState]:
        """The rows of this cluster's watches of `kinds`."""
        return WatchState.objects.filter(cluster=self.cluster, kind__in=kinds)

    def replace(self, kind: str, items: Iterable[Object], resource_version: str) -> None:
        """Make the rows of `kind` exactly `items`, all at once when the last one has come; where one fails, none."""
        with connection.cursor() as cursor:
            cursor.execute(_STAGE)
            cursor.execute("TRUNCATE pg_temp.gpu_listing")
            for page in itertools.batched(items, BATCH):
                self._milestones.seen(kind, page)
                cursor.execute(_PAGE, [_text([_columns(kind, item) for item in page])])
            with transaction.atomic():
                if kind == MILESTONES_OF:
                    cursor.execute(_GONE + "RETURNING data", [self.cluster, kind])
                    self._milestones.gone(kind, (json.loads(data) for (data,) in cursor.fetchall()))
                else:
                    cursor.execute(_GONE, [self.cluster, kind])
                cursor.execute(_MERGE, [self.cluster, kind])
                state, _created = WatchState.objects.get_or_create(cluster_id=self.cluster, kind=kind)
                state.resource_version = resource_version
                state.listed_at = state.seen_at = Now()
                state.failing_since = None
                state.error_code = ""
                state.relists += 1
                state.save()
            cursor.execute("TRUNCATE pg_temp.gpu_listing")

    def changes(self, kind: str, changes: Sequence[tuple[str, Object]]) -> None:
        """Take in changes in their order, ADDED and MODIFIED or DELETED, with one statement where none is DELETED.

        An object of the same name that was made since stays when the DELETED of the earlier one comes late.
        """
        there: dict[tuple[str, str], dict[str, Any]] = {}
        gone: list[dict[str, Any]] = []
        for event, obj in changes:
            row = _columns(kind, obj)
            key = row["namespace"], row["name"]
            if event != "DELETED":
                there[key] = row
                continue
            gone.append({name: row[name] for name in ("namespace", "name", "uid")})
            if key in there and there[key]["uid"] in (row["uid"], ""):
                del there[key]
        self._milestones.seen(kind, [obj for event, obj in changes if event != "DELETED"])
        self._milestones.gone(kind, [obj for event, obj in changes if event == "DELETED"])
        with connection.cursor() as cursor:
            if gone and there:
                with transaction.atomic():
                    self._remove(cursor, kind, gone)
                    self._upsert(cursor, kind, there.values())
            elif gone:
                self._remove(cursor, kind, gone)
            elif there:
                self._upsert(cursor, kind, there.values())

    def _upsert(self, cursor: Any, kind: str, rows: Iterable[Mapping[str, Any]]) -> None:
        cursor.execute(_UPSERT, [self.cluster, kind, _text(list(rows))])

    def _remove(self, cursor: Any, kind: str, rows: Sequence[Mapping[str, Any]]) -> None:
        cursor.execute(_REMOVE, [_text(rows), self.cluster, kind])

    def upsert(self, kind: str, obj: Object) -> None:
        """Take in one object, new or changed."""
        self.changes(kind, [("MODIFIED", obj)])

    def remove(self, kind: str, obj: Object) -> None:
        """Take out one object; an object of the same name that was made since stays."""
        self.changes(kind, [("DELETED", obj)])

    def progress(self, kind: str, resource_version: str) -> None:
        """Note how far the watch is."""
        self.states(kind).update(
            resource_version=resource_version, seen_at=Now(), failing_since=None, error_code=""
        )

    def alive(self, kind: str) -> None:
        """Note that the watch of `kind` stands."""
        self.states(kind).update(seen_at=Now(), failing_since=None, error_code="")

    def ended(self, kind: str) -> None:
        """What is known of `kind` gets old by itself, from its last sign of life."""

    def failed(self, kind: str, error: Exception) -> None:
        """Note that the watch of `kind` fails, and since when."""
        self.all_failed([kind], error)

    def all_failed(self, kinds: Sequence[str], error: Exception) -> None:
        """Note that the watches of `kinds` fail, and since when."""
        code = str(getattr(error, "code", "") or error.__class__.__name__)[:60]
        with connection.cursor() as cursor:
            cursor.execute(_FAILED, [self.cluster, code, list(kinds)])


def forget_old_events(now: datetime | None = None) -> int:
    """Delete events the cluster itself has forgotten (they live an hour); return how many."""
    before = (now or timezone.now()) - EVENT_LIFE
    count, _kinds = Observed.objects.filter(
        cluster__in=list(Cluster.objects.values_list("pk", flat=True)),
        kind="Event",
        data__metadata__creationTimestamp__lt=before.strftime("%Y-%m-%dT%H:%M:%SZ"),
    ).delete()
    return count
