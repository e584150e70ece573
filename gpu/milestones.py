"""The only writer of Milestone rows: keeps what happened to slices when their pods are gone.

The watcher calls it with each pod it sees, in front of what it writes itself, so that whoever sees the pod sees the
milestone too. What is known already costs no statement.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from django.db import connection
from django.utils import timezone

from gpu.diagnosis.milestones import Happening, happenings, last_happening
from gpu.models import Milestone
from gpu.names import LABEL_NAME
from tenants.models import FIRST_CLUSTER

Object = Mapping[str, Any]
Found = dict[tuple[str, str], tuple[Object, Happening]]

KIND = "Pod"
KEEP = 50
"""Rows of one code that a slice keeps: pods that end by themselves are made anew without end."""

REMEMBERED = 100_000
"""Happenings whose row is known to be there."""

BATCH = 2000

# The slice that has the name now: what is left of an earlier one of the same name was gone before it was ordered.
_WRITE = """
INSERT INTO gpu_milestone (slice_id, pod, code, at, last_at, count, params)
SELECT found.id, new.pod, new.code, new.at, new.at, 1, new.params
FROM unnest(%s::text[], %s::text[], %s::text[], %s::text[], %s::timestamptz[], %s::jsonb[])
    AS new (namespace, app, pod, code, at, params)
JOIN tenants_project ON tenants_project.namespace = new.namespace AND tenants_project.cluster_id = %s
JOIN gpu_slice found
    ON found.project_id = tenants_project.id AND found.app = new.app AND found.ended_at IS NULL
LEFT JOIN gpu_milestone known
    ON known.slice_id = found.id AND known.pod = new.pod AND known.code = new.code
WHERE known.id IS NULL OR known.last_at < new.at
ON CONFLICT (slice_id, pod, code) DO UPDATE
SET last_at = excluded.last_at, count = gpu_milestone.count + 1, params = excluded.params
WHERE gpu_milestone.last_at < excluded.last_at
"""

_TRIM = """
DELETE FROM gpu_milestone WHERE id IN (
    SELECT id FROM (
        SELECT id, row_number() OVER (PARTITION BY slice_id, code ORDER BY last_at DESC, id DESC) AS place
        FROM gpu_milestone WHERE slice_id IN (
            SELECT slice_id FROM gpu_milestone GROUP BY slice_id, code HAVING count(*) > %s
        )
    ) AS numbered WHERE place > %s
)
"""


class Recorder:
    """Notes what happens to the pods of one cluster. Safe to use from the one thread that watches pods."""

    def __init__(self, cluster: int = FIRST_CLUSTER) -> None:
        self._cluster = cluster
        self._known: OrderedDict[tuple[str, str], datetime] | None = None

    def seen(self, kind: str, objects: Iterable[Object]) -> None:
        """Note what objects that are there tell."""
        if kind != KIND:
            return
        new: Found = {}
        if self._known is None:
            self._known = self._stored()
        for pod in objects:
            if _app(pod):
                for happening in happenings(pod):
                    key = (_uid(pod), happening.code)
                    if self._known.get(key) != happening.at:
                        new[key] = (pod, happening)
        self._write(new)
        for key, (_pod, happening) in new.items():
            self._known[key] = happening.at
            self._known.move_to_end(key)
        while len(self._known) > REMEMBERED:
            self._known.popitem(last=False)

    def _stored(self) -> OrderedDict[tuple[str, str], datetime]:
        rows = Milestone.objects.filter(slice__ended_at=None, slice__project__cluster=self._cluster)
        newest = rows.order_by("-pk").values_list("pod", "code", "last_at")[:REMEMBERED]
        return OrderedDict(((pod, code), at) for pod, code, at in reversed(list(newest)))

    def gone(self, kind: str, objects: Iterable[Object]) -> None:
        """Note that objects, last seen like this, are gone."""
        if kind != KIND:
            return
        now = timezone.now()
        self._write(
            {
                (_uid(pod), happening.code): (pod, happening)
                for pod in objects
                if _app(pod)
                for happening in (*happenings(pod), *last_happening(pod, now))
            }
        )

    def _write(self, found: Found) -> None:
        rows = list(found.items())
        for start in range(0, len(rows), BATCH):
            part = rows[start : start + BATCH]
            columns: list[list[Any]] = [
                [str(pod["metadata"].get("namespace") or "") for _key, (pod, _happening) in part],
                [_app(pod) for _key, (pod, _happening) in part],
                [uid for (uid, _code), _value in part],
                [code for (_uid, code), _value in part],
                [happening.at for _key, (_pod, happening) in part],
                [json.dumps(happening.params) for _key, (_pod, happening) in part],
            ]
            with connection.cursor() as cursor:
                cursor.execute(_WRITE, [*columns, self._cluster])


def _app(pod: Object) -> str:
    return str((pod["metadata"].get("labels") or {}).get(LABEL_NAME) or "")


def _uid(pod: Object) -> str:
    return str(pod["metadata"].get("uid") or "")[:64]


def forget_beyond(keep: int = KEEP) -> int:
    """Delete the oldest rows of a slice beyond `keep` of a code; return how many."""
    with connection.cursor() as cursor:
        cursor.execute(_TRIM, [keep, keep])
        return int(cursor.rowcount)
