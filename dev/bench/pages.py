"""Server time and queries of the pages and the API list of a tenant with 100 slices, alone and among 50,000."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from dev import processes
from dev.bench.line import Line, spread
from dev.fleet import Fleet
from dev.http import Browser

if TYPE_CHECKING:  # both need Django's settings, which name the fleet's database
    from django.test import Client

    from dev.bench.data import Filled

GOAL_MS = 50.0
MOST_QUERIES = 12
ROUNDS = 60
WARM = 10


def measure(fleet: Fleet) -> list[Line]:
    """Fill the database with few and with many slices, and look at the same tenant both times."""
    from dev.bench import data

    many = int(os.environ.get("BENCH_SLICES", "50000"))
    fleet.manage("migrate", "--no-input")
    fleet.manage("seed_demo", "--no-slices")
    fleet.web()
    lines: list[Line] = []
    alone: dict[str, int] = {}
    for count in (data.OF_TENANT, many):
        data.empty()
        filled = data.fill(count)
        among = f"100 of {count:,} slices"
        for name, path in pages(filled.namespace).items():
            queries = _queries(filled, path)
            alone.setdefault(name, queries)
            before = cpu_s(fleet)
            times = _times(fleet, filled, path, data.touch_watches)
            numbers = spread(times) | {"cpu": round((cpu_s(fleet) - before) / (ROUNDS + WARM) * 1000, 1)}
            lines.append(
                Line(
                    f"{name}, {among}",
                    numbers,
                    goal=f"p95 ≤ {GOAL_MS:.0f} ms",
                    met=numbers["p95"] <= GOAL_MS,
                )
            )
            lines.append(
                Line(
                    f"{name}, {among}: queries",
                    {"queries": queries},
                    unit="",
                    goal=f"≤ {MOST_QUERIES}, the same at 100",
                    met=queries <= MOST_QUERIES and queries == alone[name],
                )
            )
    return lines


def pages(namespace: str) -> dict[str, str]:
    """What is looked at, by name."""
    return {
        "Slices page": f"/projects/{namespace}/slices/",
        "API list": "/api/v1/slices/",
        "API list, all on one page": "/api/v1/slices/?page_size=100",
        "Start page": f"/projects/{namespace}/",
    }


def cpu_s(fleet: Fleet) -> float:
    """Seconds of processor time the web processes have used: what a page costs on a machine that does nothing else."""
    return sum(processes.cpu_s(pid) for pid in fleet.children("web"))


def _queries(filled: Filled, path: str) -> int:
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    client, headers = _django_client(filled)
    client.get(path, headers=headers)
    with CaptureQueriesContext(connection) as captured:
        answer = client.get(path, headers=headers)
    if answer.status_code != 200:
        raise RuntimeError(f"{path}: {answer.status_code}")
    return len(captured)


def _django_client(filled: Filled) -> tuple[Client, dict[str, str]]:
    from django.test import Client

    client = Client()
    client.force_login(filled.user)
    return client, {"Authorization": f"Bearer {filled.token}", "Host": "127.0.0.1"}


def _times(fleet: Fleet, filled: Filled, path: str, between: Callable[[], None]) -> list[float]:
    """Seconds from request to answer on a kept connection, nothing else asked of the web process."""
    from django.conf import settings

    browser = Browser(fleet.url, token=filled.token if path.startswith("/api/") else "")
    client, _headers = _django_client(filled)
    browser.cookies[settings.SESSION_COOKIE_NAME] = client.cookies[settings.SESSION_COOKIE_NAME].value
    times = []
    for number in range(ROUNDS + WARM):
        if number % 20 == 0:
            between()
        answer = browser.call("GET", path)
        if answer.status != 200:
            raise RuntimeError(f"{path}: {answer.status}")
        times.append(answer.took)
    return times[WARM:]
