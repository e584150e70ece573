"""Rows for tests: the tenants and people of ../shared's cases (acme with kim and lee, birch with robin)."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

from django.utils import timezone

from gpu import orders
from gpu.facts import WATCHED_KINDS
from gpu.manifests import WorkloadSpec
from gpu.models import Entitlement, Observed, Package, Slice, WatchState
from gpu.observe import row_of
from tenants.models import FIRST_CLUSTER, Membership, Project, Tenant, User

IMAGE = "registry.example.test/team/app:1.0@sha256:" + "a" * 64
SIZES = ((25, 8192, "8g", ""), (50, 16384, "16g", "-16g"), (100, 32768, "32g", "-32g"))


@dataclass
class World:
    """Two tenants, their people, a project each, three packages."""

    acme: Tenant
    birch: Tenant
    kim: User
    lee: User
    robin: User
    project: Project
    other: Project
    packages: dict[int, Package]

    def entitle(self, count: int, share: int = 25, project: Project | None = None) -> None:
        """Entitle a project (acme's by default) to `count` slices."""
        Entitlement.objects.update_or_create(
            project=project or self.project, package=self.packages[share], defaults={"count": count}
        )

    def order(
        self, name: str = "chat", *, share: int = 25, key: str = "", user: User | None = None, **values: Any
    ) -> Slice:
        """Place an order that may wait."""
        project = values.pop("project", self.project)
        row, _made = orders.place(
            user or self.kim,
            project,
            self.packages[share],
            name,
            values.pop("workload", workload()),
            operation_key=key or uuid.uuid4().hex,
            allow_queue=values.pop("allow_queue", True),
        )
        return row


def workload(**values: Any) -> WorkloadSpec:
    """A small container that passes every check."""
    return WorkloadSpec(**{"image": IMAGE, **values})


def person(email: str, tenant: Tenant, role: str) -> User:
    """A user with a role."""
    user = User.objects.create_user(email, email=email, password="correct horse battery")
    Membership.objects.create(user=user, tenant=tenant, role=role)
    return user


def world(entitled: int = 0) -> World:
    """Make the tenants and packages; acme-ai is entitled to `entitled` slices of 25 %."""
    acme = Tenant.objects.create(slug="acme", name="Acme")
    birch = Tenant.objects.create(slug="birch", name="Birch")
    packages = {
        share: Package.objects.create(
            slug=f"v100-{share}",
            name=f"V100 {share} %",
            memory_mib=memory,
            compute_percent=share,
            price_per_hour=Decimal(share) / 100,
            device_class=f"kube-dc-nvidia-v100-shared-{size}",
            profile_id=f"nvidia-v100-hami{suffix}",
            position=share,
        )
        for share, memory, size, suffix in SIZES
    }
    made = World(
        acme=acme,
        birch=birch,
        kim=person("kim@acme.example", acme, "owner"),
        lee=person("lee@acme.example", acme, "member"),
        robin=person("robin@birch.example", birch, "owner"),
        project=Project.objects.create(tenant=acme, name="AI", namespace="acme-ai"),
        other=Project.objects.create(tenant=birch, name="Lab", namespace="birch-lab"),
        packages=packages,
    )
    if entitled:
        made.entitle(entitled)
    return made


def observe(*objects: dict[str, Any], cluster: int = FIRST_CLUSTER) -> None:
    """Put objects into the Observed rows as the watcher of a cluster would."""
    for obj in objects:
        row = row_of(obj["kind"], obj, cluster)
        Observed.objects.filter(
            cluster=row.cluster_id, kind=row.kind, namespace=row.namespace, name=row.name
        ).delete()
        row.save()


def watched(age_s: float = 0.0, failing: bool = False, cluster: int = FIRST_CLUSTER) -> None:
    """Let every watch of a cluster have been seen `age_s` seconds ago."""
    now = timezone.now()
    for kind in WATCHED_KINDS:
        WatchState.objects.update_or_create(
            cluster_id=cluster,
            kind=kind,
            defaults={
                "resource_version": "1",
                "listed_at": now,
                "seen_at": now - timedelta(seconds=age_s),
                "failing_since": now - timedelta(seconds=60) if failing else None,
            },
        )


def card(node: str = "gpu-node-1", memory: str = "32Gi") -> dict[str, Any]:
    """A ResourceSlice with one V100."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-hami", "uid": f"uid-{node}"},
        "spec": {
            "driver": "hami-core-gpu.project-hami.io",
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [
                {
                    "name": "hami-gpu-0",
                    "allowMultipleAllocations": True,
                    "attributes": {"productName": {"string": "Tesla V100-PCIE-32GB"}},
                    "capacity": {"memory": {"value": memory}, "cores": {"value": "100"}},
                }
            ],
        },
    }


def quota(
    namespace: str, hard: dict[str, str], used: dict[str, str], name: str = "plan-quota"
) -> dict[str, Any]:
    """A ResourceQuota whose status has been counted."""
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}"},
        "spec": {"hard": hard},
        "status": {"hard": hard, "used": used},
    }


def claim(
    namespace: str, app: str, share: int = 25, *, node: str | None = "gpu-node-1", device_class: str = ""
) -> dict[str, Any]:
    """A ResourceClaim of an app, allocated on `node`'s card, or waiting where `node` is None."""
    memory, size = {25: ("8Gi", "8g"), 50: ("16Gi", "16g"), 100: ("32Gi", "32g")}[share]
    obj: dict[str, Any] = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "name": f"{app}-claim",
            "namespace": namespace,
            "uid": f"uid-claim-{namespace}-{app}",
            "labels": {"app.kubernetes.io/name": app},
            "creationTimestamp": "2026-11-30T15:00:00Z",
        },
        "spec": {
            "devices": {
                "requests": [
                    {
                        "name": "gpu",
                        "exactly": {
                            "deviceClassName": device_class or f"kube-dc-nvidia-v100-shared-{size}",
                            "count": 1,
                        },
                    }
                ]
            }
        },
        "status": {},
    }
    if node:
        obj["status"] = {
            "allocation": {
                "devices": {
                    "results": [
                        {
                            "driver": "hami-core-gpu.project-hami.io",
                            "pool": node,
                            "device": "hami-gpu-0",
                            "request": "gpu",
                            "consumedCapacity": {"memory": memory, "cores": str(share)},
                        }
                    ]
                }
            }
        }
    return obj
