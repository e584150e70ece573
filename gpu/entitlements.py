"""What a project is entitled to, as the ResourceQuota the portal writes; the rules for changing it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from django.db.models import F
from django.utils import timezone

from gpu import enqueue
from gpu.facts import project_facts
from gpu.headroom import amount, headroom, parse_quota
from gpu.holders import Holding, holding
from gpu.messages import Names, Text, gettext_noop
from gpu.models import ComputePool, Entitlement, Package, QuotaState
from gpu.quantities import parse
from gpu.shortages import resource_name
from tenants.models import Project

QUOTA_NAME = "gpu-portal"
PROJECT_ANNOTATION = "gpu-portal/project"


def device_key(device_class: str) -> str:
    """Return the ResourceQuota key that counts the devices of a DeviceClass."""
    return f"{device_class}.deviceclass.resource.k8s.io/devices"


def quota_document(project: Project) -> dict[str, Any]:
    """Return the ResourceQuota of a project: a line for every package of the catalogue (0 where nothing is
    entitled), and the compute pool."""
    entitled = dict(Entitlement.objects.filter(project=project).values_list("package_id", "count"))
    lines: dict[str, int] = defaultdict(int)
    for package in Package.objects.order_by("device_class"):
        lines[device_key(package.device_class)] += entitled.get(package.pk, 0) * package.shares
    pool = ComputePool.objects.filter(project=project).first()
    hard = {key: str(count) for key, count in lines.items()} | (pool.hard() if pool else {})
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {
            "name": QUOTA_NAME,
            "namespace": project.namespace,
            "annotations": {PROJECT_ANNOTATION: project.public_id},
        },
        "spec": {"hard": dict(sorted(hard.items()))},
    }


def ask_to_write(project: Project) -> None:
    """Note that a project's quota is to be written, and ask a worker to."""
    _state, created = QuotaState.objects.get_or_create(project=project)
    if not created:
        QuotaState.objects.filter(project=project).update(
            generation=F("generation") + 1, attempts=0, retry_at=None, changed_at=timezone.now()
        )
    enqueue.write_quota(project.pk)


def refuse_lower_entitlement(project: Project, package: Package, count: int) -> Text | None:
    """Return why an entitlement cannot be set to `count` (packages), naming the holders; None when it can."""
    held: Holding = holding(project, [package], project_facts(project.namespace, events=False))[package.pk]
    if count * package.shares >= held.used:
        return None
    return Text(
        gettext_noop("%(used)s are in use by %(holders)s. Release some of them first."),
        {"used": held.used, "holders": Names(tuple(holder.name for holder in held.holders))},
    )


def refuse_lower_pool(project: Project, hard: Mapping[str, str]) -> dict[str, Text]:
    """Return, by quota key, why the pool cannot be set so low: what is used and by which slices."""
    facts = project_facts(project.namespace, events=False)
    rooms = headroom(parse_quota(item) for item in facts.quotas if item["metadata"]["name"] == QUOTA_NAME)
    names = [
        row.display_name
        for row in project.slices.filter(ended_at=None)
        if facts.of(row.app, "Pod") or facts.of(row.app, "PersistentVolumeClaim")
    ]
    found: dict[str, Text] = {}
    for key, wanted in hard.items():
        room = rooms.get(key)
        if room is not None and room.used is not None and parse(wanted) < room.used:
            found[key] = Text(
                gettext_noop(
                    "%(used)s of %(what)s are in use; slices here: %(holders)s. Release or shrink some first."
                ),
                {
                    "used": amount(key, room.used),
                    "what": resource_name(key),
                    "holders": Names(tuple(names)),
                },
            )
    return found
