"""Rows by the ten thousand, made by the database itself from one real row and one recorded object of each kind."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.db import connection
from django.db.models import Model
from django.utils import timezone

from gpu import entitlements
from gpu.facts import WATCHED_KINDS
from gpu.management.commands.seed_demo import workload
from gpu.models import ComputePool, Entitlement, Observed, Order, Package, QuotaState, Slice, WatchState
from gpu.observe import prune, row_of
from tenants.models import FIRST_CLUSTER, ApiToken, Membership, Project, Tenant, User

RECORDED = Path(__file__).resolve().parents[2] / "tests" / "data" / "recorded"
OF_TENANT = 100
"""Slices of one tenant."""

_NAMESPACE, _APP, _NUMBER, _NODE = "@NAMESPACE@", "@APP@", "@NUMBER@", "@NODE@"


@dataclass(frozen=True)
class Filled:
    """The tenant to look at: its project's namespace, one of its people, and an API token of that person."""

    namespace: str
    user: User
    token: str
    slices: int
    observed: int


def fill(slices: int) -> Filled:
    """Add tenants of OF_TENANT running slices each until there are `slices`, and what a cluster shows of them."""
    tenants = slices // OF_TENANT
    first = _first(tenants)
    package = Package.objects.get(slug="v100-25")
    of_tenant = f"'bench-' || (n / {OF_TENANT})"
    tenant = f"(SELECT id FROM tenants_tenant WHERE slug = {of_tenant})"  # noqa: S608
    project = f"(SELECT id FROM tenants_project WHERE namespace = {of_tenant})"  # noqa: S608
    row = one_slice(first, User.objects.get(username="bench@bench.example"))
    order = row.order
    _copy(
        order,
        slices,
        {
            "public_id": "'or_bench' || n",
            "operation_key": "'bench-' || n",
            "project_id": project,
            "tenant_id": tenant,
        },
    )
    _copy(
        row,
        slices,
        {
            "public_id": "'sl_bench' || n",
            "display_name": "'Bench ' || n",
            "app": f"'s' || n % {OF_TENANT}",
            "project_id": project,
            "order_id": "(SELECT id FROM gpu_order WHERE public_id = 'or_bench' || n)",
        },
    )
    observed = sum(_observe(kind, text, slices) for kind, text in _templates())
    _observe_cluster(slices, package, first)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    _token, token = ApiToken.issue(order.user, first.tenant, "bench")
    return Filled(first.namespace, order.user, token, slices, observed)


def one_slice(project: Project, user: User, app: str = "s0") -> Slice:
    """A row of a slice that the cluster has accepted."""
    package = Package.objects.get(slug="v100-25")
    order = Order.objects.create(
        project=project,
        tenant=project.tenant,
        package=package,
        user=user,
        operation_key=f"bench-{app}",
        price_per_hour=package.price_per_hour,
        currency=package.currency,
        spec=workload("team/app", port=8080).to_json(),
    )
    return Slice.objects.create(
        project=project,
        package=package,
        order=order,
        display_name="Bench",
        app=app,
        terms=vars(package.terms),
        spec=order.spec,
        applied_spec=order.spec,
        applied_generation=1,
        action=Slice.Action.APPLIED,
        action_at=timezone.now(),
    )


def _first(tenants: int) -> Project:
    """Make the tenants with a project each, and one person who is a member of the first; return its project."""
    rows = Tenant.objects.bulk_create(
        [Tenant(slug=f"bench-{n}", name=f"Bench {n}") for n in range(tenants)], batch_size=1000
    )
    Project.objects.bulk_create(
        [Project(tenant=row, name="Bench", namespace=row.slug) for row in rows], batch_size=1000
    )
    user = User.objects.create_user("bench@bench.example", email="bench@bench.example")
    Membership.objects.create(user=user, tenant=rows[0], role=Membership.Role.OWNER)
    project = Project.objects.get(tenant=rows[0])
    Entitlement.objects.create(
        project=project, package=Package.objects.get(slug="v100-25"), count=OF_TENANT + 20
    )
    ComputePool.objects.create(
        project=project,
        cpu_requests="200",
        cpu_limits="800",
        memory_requests="400Gi",
        memory_limits="1600Gi",
        storage="1Ti",
        pods=400,
    )
    QuotaState.objects.create(project=project, applied_generation=1)
    return project


def _copy(row: Model, count: int, changes: Mapping[str, str]) -> None:
    """Insert `count` - 1 rows like `row`, number n from 1; `changes` are SQL expressions over n by column."""
    columns = [field.column for field in row._meta.concrete_fields if not field.primary_key]
    values = [changes.get(str(column), f'old."{column}"') for column in columns]
    names = ", ".join(f'"{column}"' for column in columns)
    table = row._meta.db_table
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {table} ({names}) SELECT {', '.join(values)} "  # noqa: S608  names of our own models
            f"FROM {table} old, generate_series(1, {count - 1}) n WHERE old.id = {row.pk}"
        )


def _templates() -> Iterator[tuple[str, str]]:
    """A recorded running slice, kind by kind, as text with marks for what differs."""
    recorded = json.loads((RECORDED / "running.json").read_text())
    for name, items in recorded.items():
        kind = name.removesuffix("List")
        for item in items["items"] if isinstance(items, dict) else items:
            if kind in ("ResourceQuota", "Event"):
                continue
            metadata = item["metadata"]
            text = json.dumps(prune(item))
            text = text.replace(metadata["namespace"], _NAMESPACE)
            text = text.replace(metadata["uid"], f"{kind}-{_NUMBER}")
            node = _node(item)
            yield kind, text.replace("chat", _APP).replace(node or _NODE, _NODE)


def _node(item: dict[str, Any]) -> str:
    allocation = (item.get("status") or {}).get("allocation") or {}
    results: list[dict[str, Any]] = (allocation.get("devices") or {}).get("results") or [{}]
    return str(results[0].get("pool") or (item.get("spec") or {}).get("nodeName") or "")


def _observe(kind: str, text: str, count: int) -> int:
    example = row_of(kind, json.loads(text))
    marks = f"""replace(replace(replace(replace(%s, '{_NAMESPACE}', 'bench-' || (n / {OF_TENANT})),
        '{_APP}', 's' || n %% {OF_TENANT}), '{_NUMBER}', n::text), '{_NODE}', 'bench-node-' || (n / 4))"""
    with connection.cursor() as cursor:
        cursor.execute(
            f"""INSERT INTO gpu_observed (cluster_id, kind, namespace, name, uid, app, involved_uid, data)
            SELECT {FIRST_CLUSTER}, %s, 'bench-' || (n / {OF_TENANT}), {marks}, %s || '-' || n,
            's' || n %% {OF_TENANT}, '', {marks}::jsonb FROM generate_series(0, {count - 1}) n""",  # noqa: S608
            [kind, example.name, kind, text],
        )
    return count


def _observe_cluster(slices: int, package: Package, project: Project) -> None:
    """The cards (four slices each, a node each), the project's quota, and watches that stand."""
    inventory = json.loads((RECORDED / "inventory.json").read_text())
    card = next(iter(inventory["ResourceSliceList"]))
    name, node = card["metadata"]["name"], card["spec"]["nodeName"]
    rows = []
    for number in range(slices // 4 + 8):
        text = json.dumps(prune(card)).replace(name, f"bench-card-{number}")
        text = text.replace(node, f"bench-node-{number}").replace(card["metadata"]["uid"], f"card-{number}")
        rows.append(row_of("ResourceSlice", json.loads(text)))
    Observed.objects.bulk_create(rows, batch_size=1000)
    quota = entitlements.quota_document(project)
    hard = quota["spec"]["hard"]
    quota["metadata"]["uid"] = "bench-quota"
    used = dict.fromkeys(hard, "0") | {entitlements.device_key(package.device_class): str(OF_TENANT)}
    row_of("ResourceQuota", quota | {"status": {"hard": hard, "used": used}}).save()
    touch_watches()


def touch_watches() -> None:
    """Let every watch have been seen now."""
    now = timezone.now()
    for kind in WATCHED_KINDS:
        WatchState.objects.update_or_create(
            cluster_id=FIRST_CLUSTER,
            kind=kind,
            defaults={"listed_at": now, "seen_at": now, "failing_since": None, "error_code": ""},
        )


def empty() -> None:
    """Take out everything but the packages and people."""
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE gpu_observed, gpu_slice, gpu_order, tenants_tenant CASCADE")
    User.objects.filter(username="bench@bench.example").delete()
