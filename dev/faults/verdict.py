"""What a run has cost: compares what customers were promised, the rows, the cluster and what the watcher saw of it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import connection
from django.db.models import Count, F

from dev.controlplane.client import Client
from dev.faults.customers import Wish
from gpu import entitlements, outcomes
from gpu.manifests import ANNOTATION_HASH, ANNOTATION_SLICE, render
from gpu.models import Observed, Order, QuotaState, Slice
from gpu.names import LABEL_NAME
from gpu.quantities import parse
from tenants.models import Project

KINDS = {
    "Deployment": "apps/v1",
    "ResourceClaimTemplate": "resource.k8s.io/v1",
    "Service": "v1",
    "PersistentVolumeClaim": "v1",
    "Pod": "v1",
    "ResourceClaim": "resource.k8s.io/v1",
    "ResourceQuota": "v1",
}
Object = Mapping[str, Any]


@dataclass
class Verdict:
    """Sentences of what is wrong, by count; a run is good when there are none."""

    placed: int = 0
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    left_over: list[str] = field(default_factory=list)
    quota_off: list[str] = field(default_factory=list)
    facts_off: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        """Whether nothing is wrong."""
        return not (self.lost or self.doubled or self.left_over or self.quota_off or self.facts_off)


def settle(seconds: float) -> tuple[float, int]:
    """Wait until no row has anything left to send; what needs an operator is sent again, as an operator would.

    Returns the seconds it took and how many slices an operator had to send again.
    """
    began = time.monotonic()
    again = 0
    connection.close()  # the database may have been restarted since
    while time.monotonic() - began < seconds:
        again += outcomes.try_again(Slice.objects.filter(action_code=outcomes.WORKER_LOST))
        alive = Slice.objects.filter(ended_at=None)
        if not (
            alive.filter(applied_generation__lt=F("generation")).exists()
            or alive.filter(intent=Slice.Intent.RELEASE).exists()
            or QuotaState.objects.filter(applied_generation__lt=F("generation")).exists()
        ):
            break
        connection.close()
        time.sleep(0.5)
    return time.monotonic() - began, again


def judge(cluster: Client, wishes: Sequence[Wish], patience: float = 30.0) -> Verdict:
    """Compare; what the cluster still moves on its own is given `patience` seconds to come to rest."""
    deadline = time.monotonic() + patience
    while True:
        found = _judge(cluster, wishes)
        if found.good or time.monotonic() > deadline:
            return found
        time.sleep(1.0)


def _judge(cluster: Client, wishes: Sequence[Wish]) -> Verdict:
    found = Verdict(placed=len(wishes))
    rows = {row.public_id: row for row in Slice.objects.select_related("project", "package")}
    for wish in wishes:
        row = rows.get(wish.id)
        if row is None:
            found.lost.append(f"{wish.name}: answered with {wish.id}, and there is no row")
        elif row.intent != wish.intent or (wish.intent != "release" and row.spec["image"] != wish.image):
            found.lost.append(
                f"{wish.name}: {wish.intent} of {wish.image} was acknowledged, the row says {row.intent} "
                f"of {row.spec['image']} ({row.action} {row.action_code})"
            )
        elif row.intent == "release" and row.ended_at is None:
            found.lost.append(f"{wish.name}: its release never ended ({row.action} {row.action_code})")
    same = Order.objects.values("tenant", "operation_key").annotate(n=Count("pk")).filter(n__gt=1)
    found.doubled += [f"operation {item['operation_key']}: {item['n']} orders" for item in same]
    names = Counter((row.project_id, row.display_name) for row in rows.values())
    found.doubled += [f"{name}: {count} slices" for (_project, name), count in names.items() if count > 1]
    for project in Project.objects.filter(slices__isnull=False).distinct():
        objects = {kind: cluster.items(api, kind, project.namespace) for kind, api in KINDS.items()}
        mine = [row for row in rows.values() if row.project_id == project.pk]
        _compare_objects(found, mine, objects)
        _compare_quota(found, project, objects)
        _compare_facts(found, project, objects)
    return found


def _compare_objects(found: Verdict, rows: Sequence[Slice], objects: Mapping[str, Sequence[Object]]) -> None:
    by_key = {(kind, item["metadata"]["name"]): item for kind, items in objects.items() for item in items}
    expected: set[tuple[str, str]] = set()
    running: set[str] = set()
    for row in rows:
        if row.ended_at is not None:
            if row.spec.get("volume") and not row.delete_volume:
                expected.add(("PersistentVolumeClaim", f"{row.app}-data"))
            continue
        if row.intent == Slice.Intent.RUN:
            running.add(row.app)
        for document in render(row.manifest_spec(row.project.namespace)):
            key = (document["kind"], document["metadata"]["name"])
            expected.add(key)
            item = by_key.get(key)
            if item is None:
                found.lost.append(f"{row.display_name}: its {key[0]} is not in the cluster ({row.action})")
            elif _annotation(item, ANNOTATION_SLICE) != row.public_id:
                found.lost.append(f"{row.display_name}: the {key[0]} belongs to another")
            elif _annotation(item, ANNOTATION_HASH) != _annotation(document, ANNOTATION_HASH):
                found.lost.append(f"{row.display_name}: its {key[0]} is not as the row says")
            elif key[0] == "Deployment" and item["spec"]["replicas"] != document["spec"]["replicas"]:
                found.lost.append(f"{row.display_name}: {item['spec']['replicas']} replicas")
    for kind, name in by_key.keys() - expected:
        item = by_key[kind, name]
        app = (item["metadata"].get("labels") or {}).get(LABEL_NAME, "")
        if kind == "ResourceQuota" or (kind in ("Pod", "ResourceClaim") and app in running):
            continue
        found.left_over.append(f"{kind} {name} (slice {_annotation(item, ANNOTATION_SLICE)})")
    for kind in ("Pod", "ResourceClaim"):
        apps = Counter(
            (item["metadata"].get("labels") or {}).get(LABEL_NAME, "")
            for item in objects[kind]
            if not item["metadata"].get("deletionTimestamp")
        )
        found.doubled += [f"{count} {kind}s of {app}" for app, count in apps.items() if count > 1]


def _annotation(item: Object, name: str) -> str | None:
    value: str | None = (item["metadata"].get("annotations") or {}).get(name)
    return value


def _compare_quota(found: Verdict, project: Project, objects: Mapping[str, Sequence[Object]]) -> None:
    quota = next(
        (item for item in objects["ResourceQuota"] if item["metadata"]["name"] == entitlements.QUOTA_NAME),
        None,
    )
    wanted = entitlements.quota_document(project)["spec"]["hard"]
    if quota is None or {key: parse(value) for key, value in quota["spec"]["hard"].items()} != {
        key: parse(value) for key, value in wanted.items()
    }:
        found.quota_off.append(f"{project.namespace}: the quota is not as asked for")
        return
    classes: Counter[str] = Counter(
        claim["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"]
        for claim in objects["ResourceClaim"]
    )
    used = (quota.get("status") or {}).get("used") or {}
    for key in wanted:
        if key.endswith("/devices"):
            real = classes[key.partition(".deviceclass")[0]]
        elif key in ("pods", "persistentvolumeclaims"):
            real = len(objects["Pod" if key == "pods" else "PersistentVolumeClaim"])
        else:
            continue
        if int(used.get(key, 0)) != real:
            found.quota_off.append(f"{project.namespace}: {key} says {used.get(key)}, there are {real}")


def _compare_facts(found: Verdict, project: Project, objects: Mapping[str, Sequence[Object]]) -> None:
    seen = {
        (kind, name): data["metadata"].get("resourceVersion")
        for kind, name, data in Observed.objects.filter(
            namespace=project.namespace, kind__in=KINDS
        ).values_list("kind", "name", "data")
    }
    real = {
        (kind, item["metadata"]["name"]): item["metadata"]["resourceVersion"]
        for kind, items in objects.items()
        for item in items
    }
    for key in seen.keys() | real.keys():
        if seen.get(key) != real.get(key):
            found.facts_off.append(f"{key[0]} {key[1]}: seen {seen.get(key)}, is {real.get(key)}")
