"""The injections of a run: which, how and in what order follows from the seed alone."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

# What the portal asks of the cluster, step by step (contract.md): the worker is killed before and after each.
STEPS = (
    ("GET", r"/deployments/"),
    ("PATCH", r"/resourceclaimtemplates/"),
    ("PATCH", r"/persistentvolumeclaims/"),
    ("PATCH", r"/deployments/"),
    ("PATCH", r"/services/"),
    ("DELETE", r"/deployments/"),
    ("DELETE", r"/resourceclaimtemplates/"),
    ("DELETE", r"/services/"),
    ("DELETE", r"/persistentvolumeclaims/"),
)
WRITES = r"/namespaces/.+"

# Kind of injection: how often it comes, relative to the others.
WEIGHTS = {
    "step_killed_before": 18,
    "step_killed_after": 18,
    "worker_child_killed": 10,
    "web_killed": 8,
    "web_killed_in_transaction": 5,
    "api_latency": 6,
    "api_429": 6,
    "api_500": 6,
    "api_dropped": 6,
    "api_half": 6,
    "api_lost": 8,
    "api_compacted": 3,
    "broker_emptied": 5,
    "watcher_killed": 3,
    "worker_killed": 2,
    "beat_killed": 1,
    "broker_restarted": 2,
    "database_restarted": 2,
    "api_away": 2,
    "watch_silent": 1,
    "clock_wrong": 2,
}


@dataclass(frozen=True)
class Injection:
    """One of WEIGHTS, with its numbers; `pause` seconds before it."""

    kind: str
    pause: float
    numbers: dict[str, Any] = field(default_factory=dict)


def plan(seed: int, count: int) -> list[Injection]:
    """Return `count` injections; every kind comes once before chance decides, and silence comes first."""
    chance = random.Random(seed)  # noqa: S311
    kinds = list(WEIGHTS)[: max(0, count)]
    kinds += chance.choices(list(WEIGHTS), list(WEIGHTS.values()), k=max(0, count - len(kinds)))
    chance.shuffle(kinds)
    # A watch that says nothing is doubted only after a minute: the run is not to end within it.
    kinds.sort(key=lambda kind: kind != "watch_silent")
    return [Injection(kind, chance.uniform(0.0, 0.25), _numbers(kind, chance)) for kind in kinds]


def _numbers(kind: str, chance: random.Random) -> dict[str, Any]:
    method, path = chance.choice(STEPS)
    return {
        "method": method,
        "path": path,
        "count": chance.randint(1, 6),
        "seconds": round(chance.uniform(0.1, 1.2), 2),
        "seed": chance.randrange(2**31),
        "number": chance.randrange(2**16),
        "offset": chance.choice((-7200, -600, -45, 45, 600, 7200)),
    }
