"""What the API gives: plain data of api.md's conventions, made from the dataclasses of gpu.status."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from gpu import quantities
from gpu.api.serializers import workload_out
from gpu.assess import Assessment
from gpu.contract import Finding
from gpu.facts import Freshness
from gpu.headroom import Room, Shortage
from gpu.messages import Text
from gpu.models import Package
from gpu.status import ProjectStatus, SliceStatus
from gpu.status_lines import PackageLine, PoolLine
from gpu.timeline import TimelineLine
from gpu.wording import render
from tenants.models import Project


def moment(at: datetime | None) -> str | None:
    """Return RFC 3339 in UTC with Z."""
    return (
        None if at is None else at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    )


def package(row: Package) -> dict[str, Any]:
    """A package of the catalogue."""
    return {
        "id": row.slug,
        "name": row.name,
        "gpu_model": row.gpu_model,
        "gpu_memory": f"{row.memory_mib}Mi",
        "gpu_memory_bytes": row.memory_mib * 1024 * 1024,
        "compute_percent": row.compute_percent,
        "shares": row.shares,
        "price_per_hour": {"amount": f"{row.price_per_hour:f}", "currency": row.currency},
        "device_class": row.device_class,
        "on_sale": row.on_sale,
    }


def project(row: Project) -> dict[str, Any]:
    """A project, short."""
    return {"id": row.public_id, "name": row.name, "namespace": row.namespace, "tenant": row.tenant.slug}


def observed(freshness: Freshness) -> dict[str, Any]:
    """How old the facts are."""
    return {
        "at": moment(freshness.as_of),
        "age_seconds": None if freshness.age_s is None else round(freshness.age_s, 1),
        "stale": freshness.stale,
        "cluster_reachable": freshness.reachable,
    }


def project_status(status: ProjectStatus) -> dict[str, Any]:
    """A project with entitlements and headroom."""
    return {
        **project(status.project),
        "answer": status.answer,
        "packages": [_package_line(line) for line in status.packages],
        "headroom": [_pool_line(line) for line in status.pool],
        "observed": observed(status.freshness),
    }


def _package_line(line: PackageLine) -> dict[str, Any]:
    return {
        "package": line.package.slug,
        "entitled": line.holding.entitled,
        "in_use": line.in_use,
        "waiting": line.holding.waiting,
        "free_to_order": line.free_to_order,
        "reason": line.reason,
        "cards": None
        if line.capacity is None
        else {"total": line.capacity.total, "free": line.capacity.free},
    }


def amount(key: str, value: Decimal | None) -> dict[str, Any] | None:
    """An amount of a quota key twice: as Kubernetes writes it and as a plain number; None is unknown."""
    if value is None:
        return None
    if key.endswith("cpu"):
        return {"quantity": quantities.as_cpu_quantity(value), "cpu_millicores": int(value * 1000)}
    if key.endswith(("memory", "storage")):
        return {"quantity": _binary(int(value)), "memory_bytes": int(value)}
    return {"quantity": str(int(value)), "count": int(value)}


def _binary(value: int) -> str:
    return quantities.canonical(f"{value // 1024}Ki") if value and value % 1024 == 0 else str(value)


def _pool_line(line: PoolLine) -> dict[str, Any]:
    return {"resource": line.key, "limited": line.room is not None, **_room(line.key, line.room)}


def _room(key: str, room: Room | None) -> dict[str, Any]:
    return {
        "hard": amount(key, room.hard) if room else None,
        "used": amount(key, room.used) if room else None,
        "left": amount(key, room.left) if room else None,
        "binding_quota": room.binding if room else None,
    }


def slice_status(status: SliceStatus) -> dict[str, Any]:
    """A slice: intent, state, who can do what, how old that is."""
    row, found = status.slice, status.diagnosis
    return {
        "id": row.public_id,
        "display_name": row.display_name,
        "object_name": row.app,
        "project": project(status.project),
        "package": status.package.slug,
        "price_per_hour": {"amount": f"{row.order.price_per_hour:f}", "currency": row.order.currency},
        "order": row.order.public_id,
        "intent": row.intent,
        "state": found.state,
        "reason": found.reason,
        "label": status.state_label,
        "sentence": status.sentence,
        "who": found.who,
        "next_step": status.next_step,
        "causes": list(status.causes),
        "platform_term": found.platform_term,
        "since": moment(found.since),
        "settled": found.settled,
        "actions": sorted(status.allowed),
        "steps": [{"code": step.code, "state": step.state, "at": moment(step.at)} for step in found.steps],
        "template": row.workload.template,
        "workload": workload_out(row.workload),
        "generation": row.generation,
        "applied_generation": row.applied_generation,
        "created_at": moment(row.created_at),
        "ended_at": moment(row.ended_at),
        "observed": observed(status.freshness),
    }


def etag(data: dict[str, Any]) -> str:
    """Return the ETag of a slice: its generation, and a digest of what is said of it but its age."""
    told = {key: value for key, value in data.items() if key != "observed"}
    digest = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]
    return f'"{data["generation"]}.{digest}"'


def finding(item: Finding) -> dict[str, Any]:
    """A finding of the contract or of the form."""
    return {
        "rule": item.rule,
        "place": item.place,
        "level": item.level,
        "by": item.by,
        "detail": render(item.sentence),
        "mend": render(item.mend),
        "suggest": item.suggest,
    }


def _shortage(item: Shortage) -> dict[str, Any]:
    return {
        "resource": item.key,
        "needed": amount(item.key, item.needed),
        "left": amount(item.key, item.left),
        "short_by": amount(item.key, item.short_by),
        "binding_quota": item.binding,
    }


def preview(judged: Assessment, yaml: str, refusal: tuple[str, Text, Text] | None) -> dict[str, Any]:
    """What an order would meet."""
    held = judged.holding
    return {
        "verdict": judged.verdict,
        "would_be_accepted": refusal is None,
        "needs_allow_queue": judged.needs_consent,
        "refusal": None
        if refusal is None
        else {"code": refusal[0], "detail": render(refusal[1]), "next_step": render(refusal[2])},
        "price_per_hour": {
            "amount": f"{judged.package.price_per_hour:f}",
            "currency": judged.package.currency,
        },
        "entitlement": {
            "entitled": held.entitled,
            "used_before": held.used,
            "used_after": held.used + 1,
            "holders": [{"id": holder.public_id, "display_name": holder.name} for holder in held.holders],
        },
        "cards": None
        if judged.capacity is None
        else {
            "total": judged.capacity.total,
            "free": judged.capacity.free,
            "waiting": judged.capacity.waiting,
        },
        "demand": [{"resource": key, **(amount(key, value) or {})} for key, value in judged.demand.items()],
        "headroom": [{"resource": key, **_room(key, room)} for key, room in judged.rooms.items()],
        "shortages": [_shortage(item) for item in judged.shortages],
        "findings": [finding(item) for item in judged.findings],
        "manifest": yaml,
        "observed": observed(judged.freshness),
    }


def event(line: TimelineLine) -> dict[str, Any]:
    """A line of the timeline, or an event of the cluster."""
    return {
        "at": moment(line.at),
        "code": line.code,
        "sentence": line.sentence,
        "detail": line.detail,
        "actor": line.actor or None,
        "warning": line.warning,
        "count": line.count,
    }
