"""Examples of the OpenAPI document."""

from __future__ import annotations

from typing import Any

ORDER: dict[str, Any] = {
    "project": "acme-ai",
    "package": "v100-25",
    "display_name": "Chat",
    "workload": {
        "image": "registry.example.test/team/chat:1.4.2@sha256:" + "5c1b" * 16,
        "env": [{"name": "MODEL", "value": "small"}],
        "port": 8080,
        "cpu_request": "500m",
        "cpu_limit": "2",
        "memory_request": "2Gi",
        "memory_limit": "4Gi",
        "volume": {"size": "20Gi", "mount_path": "/data"},
    },
    "allow_queue": False,
}
CHANGE: dict[str, Any] = {"workload": {"memory_limit": "8Gi"}}
RELEASE: dict[str, Any] = {"delete_volume": True}
START: dict[str, Any] = {"allow_queue": True}
PULL: dict[str, Any] = {"model": "llama3.2:3b", "anew": False}
MODEL: dict[str, Any] = {"model": "llama3.2:3b"}
REQUESTS = {
    "OrderIn": ORDER,
    "ChangeIn": CHANGE,
    "ReleaseIn": RELEASE,
    "StartIn": START,
    "PullIn": PULL,
    "ModelIn": MODEL,
}
PROBLEM: dict[str, Any] = {
    "type": "about:blank",
    "title": "Not possible in the present state",
    "status": 409,
    "detail": "Your entitlement is used up: 4 of 4 × V100 25 %, held by “Chat”, “Batch”, “Lab”, “Test”.",
    "instance": "0d6f3ab1c2e94f7a8b5d4c3e2f1a0b9c",
    "code": "entitlement_used_up",
    "errors": [],
    "next_step": "Release or stop one of them, or let an owner request more.",
}
MONEY = {"amount": "0.3500", "currency": "EUR"}
OBSERVED = {"at": "2026-11-30T15:50:33.000Z", "age_seconds": 0.8, "stale": False, "cluster_reachable": True}
PACKAGE: dict[str, Any] = {
    "id": "v100-25",
    "name": "V100 25 %",
    "gpu_model": "NVIDIA Tesla V100 32 GB",
    "gpu_memory": "8192Mi",
    "gpu_memory_bytes": 8589934592,
    "compute_percent": 25,
    "shares": 1,
    "price_per_hour": MONEY,
    "device_class": "kube-dc-nvidia-v100-shared-8g",
    "on_sale": True,
}
PROJECT = {"id": "pr_4k2m9q8r7t6v5w3x", "name": "AI", "namespace": "acme-ai", "tenant": "acme"}
LOG = {
    "text": "listening on 8080\n",
    "previous": False,
    "fetched_at": "2026-11-30T15:50:33.000Z",
    "error_code": None,
}
PULLING: dict[str, Any] = {
    "id": "pl_7h3k9q2m5n8p4r6t",
    "slice": "sl_4k2m9q8r7t6v5w3x",
    "mode": "pull",
    "model": "llama3.2:3b",
    "intent": "run",
    "state": "running",
    "reason": "running",
    "label": "Under way",
    "sentence": "llama3.2:3b is being fetched.",
    "next_step": "Nothing. It goes on by itself.",
    "causes": [],
    "tried_again": False,
    "settled": False,
    "outcome": None,
    "may_retry": False,
    "tries": 1,
    "progress": {
        "step": "pulling",
        "completed_bytes": 1009688688,
        "total_bytes": 2019377376,
        "percent": 50.0,
        "speed_bytes": 31457280,
        "seconds_left": 32,
        "stalled_seconds": 0,
        "at": "2026-11-30T15:50:33.000Z",
    },
    "created_at": "2026-11-30T15:50:01.000Z",
    "finished_at": None,
}
ANSWERS: dict[str, Any] = {
    "Pull": PULLING,
    "PackageList": {"next": None, "previous": None, "results": [PACKAGE]},
    "ProjectList": {"next": None, "previous": None, "results": [PROJECT]},
    "Log": LOG,
}
