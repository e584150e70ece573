"""200 signed-in pages that poll, each every three seconds as the browser does, and what reaches the API server."""

from __future__ import annotations

import os
import re
import threading
import time

from dev import stack
from dev.bench.cluster import reach
from dev.bench.line import Line, spread
from dev.bench.orders import wait
from dev.fleet import Fleet
from dev.http import Browser

PAGES = int(os.environ.get("BENCH_PAGES", "200"))
EVERY_S = 3.0
SECONDS = 30.0
GENERATORS = 20
"""Threads; each plays PAGES / GENERATORS pages, one request after the other."""
PATHS = ("/projects/acme-ai/", "/projects/acme-ai/slices/")


def measure(fleet: Fleet) -> list[Line]:
    """Start the portal as the demo does, with two web workers; nothing but pages asks for anything."""
    reach(fleet)
    fleet.manage("migrate", "--no-input")
    fleet.manage("seed_demo")
    fleet.start("worker", stack.worker())
    fleet.start("watcher", stack.watcher())
    fleet.start("beat", stack.beat(fleet.folder))
    fleet.web(workers=2)
    demo = fleet.demo()
    first = Browser(fleet.url)
    first.sign_in(demo["logins"][0]["user"], demo["password"])
    wait(lambda: "data-version" in first.call("GET", PATHS[0]).text, "the page")
    time.sleep(5.0)  # the demo's slices start
    quiet = _requests(fleet, 10.0) / 10.0
    times, statuses, took, asked = _poll(fleet, first.cookies)
    wrong = {status: count for status, count in statuses.items() if status not in (200, 204)}
    numbers = spread(times) | {"requests/s": round(len(times) / took, 1)}
    more = max(0.0, asked / took - quiet)
    return [
        Line(f"{PAGES} signed-in pages polling", numbers, unit="ms", goal="all answered", met=not wrong),
        Line(
            "  requests of web processes to the API server",
            {"count": _connections(fleet)},
            unit="",
            goal="0",
            met=_connections(fleet) == 0,
        ),
        Line(
            "  API-server requests a second with, less without pages", {"difference": round(more, 2)}, unit=""
        ),
    ]


def _poll(fleet: Fleet, cookies: dict[str, str]) -> tuple[list[float], dict[int, int], float, float]:
    times: list[float] = []
    statuses: dict[int, int] = {}
    guard = threading.Lock()
    end = time.perf_counter() + SECONDS

    def play(generator: int) -> None:
        browser = Browser(fleet.url)
        browser.cookies = dict(cookies)
        mine = PAGES // GENERATORS
        seen = [""] * mine
        due = [time.perf_counter() + EVERY_S * (number / mine) for number in range(mine)]
        while time.perf_counter() < end:
            number = min(range(mine), key=due.__getitem__)
            time.sleep(max(0.0, due[number] - time.perf_counter()))
            path = PATHS[(generator + number) % len(PATHS)]
            headers = {"HX-Request": "true", "X-Seen": seen[number] or "none:0"}
            answer = browser.call("GET", path, headers=headers)
            due[number] += EVERY_S
            if answer.status == 200:
                parts = re.findall(r'id="([\w-]+)" data-version="(\w+)"', answer.text)
                kept = dict(item.rpartition(":")[::2] for item in seen[number].split())
                seen[number] = " ".join(f"{name}:{version}" for name, version in (kept | dict(parts)).items())
            with guard:
                times.append(answer.took)
                statuses[answer.status] = statuses.get(answer.status, 0) + 1

    threads = [threading.Thread(target=play, args=(number,), daemon=True) for number in range(GENERATORS)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    asked = _requests(fleet, SECONDS)
    for thread in threads:
        thread.join(30.0)
    return times, statuses, time.perf_counter() - began, asked


def _requests(fleet: Fleet, seconds: float) -> float:
    """Requests that reached the API server while so many seconds went by."""
    admin = fleet.admin()
    admin.call("POST", "/sandbox/faults", {"faults": [{"kind": "latency", "seconds": 0.0, "path": "."}]})
    time.sleep(seconds)
    hits = admin.call("GET", "/sandbox/faults").body["faults"][0]["hits"]
    admin.call("DELETE", "/sandbox/faults")
    return float(hits)


def _connections(fleet: Fleet) -> int:
    """Connections of the web processes to the API server's port."""
    from pathlib import Path

    pids = [fleet.running["web"].pid, *fleet.children("web")]
    port = f":{fleet.sandbox_port:04X}"
    inodes = {
        fields[9]
        for fields in (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
        if fields[2].endswith(port)
    }
    count = 0
    for pid in pids:
        for link in Path(f"/proc/{pid}/fd").iterdir():
            try:
                target = os.readlink(link)
            except OSError:
                continue
            count += target.startswith("socket:[") and target[8:-1] in inodes
    return count
