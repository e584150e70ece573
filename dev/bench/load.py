"""200 signed-in pages that poll as the browser does, and what reaches the API server because of them."""

from __future__ import annotations

import os
import re
import threading
import time
from dataclasses import dataclass, field

from dev import stack
from dev.bench.cluster import reach
from dev.bench.line import Line, spread
from dev.bench.orders import wait
from dev.bench.pages import cpu_s
from dev.fleet import Fleet
from dev.http import Answer, Browser

PAGES = int(os.environ.get("BENCH_PAGES", "200"))
SECONDS = 30.0
LISTS = {"/projects/acme-ai/": 3.0, "/projects/acme-ai/slices/": 3.0}
"""Seconds between two polls, by address; the page of a slice that has settled asks every two seconds."""
OF_SLICE_S = 2.0


@dataclass
class Played:
    """What all pages together have seen. `times` count from when a poll was due, so that nothing that waits is lost."""

    times: list[float] = field(default_factory=list)
    statuses: dict[int, int] = field(default_factory=dict)
    took: float = 0.0
    asked: float = 0.0
    web_cpu_s: float = 0.0
    own_cpu_s: float = 0.0


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
    _start, slices = LISTS
    running = f"{slices}?show=running"
    wait(lambda: 'class="name"' in first.call("GET", running).text, "a slice that runs")
    found = re.search(r'class="name"[^>]* href="(/slices/[^"]+)"', first.call("GET", running).text)
    if found is None:
        raise RuntimeError("the list of slices leads to none of them")
    time.sleep(5.0)  # the others start
    quiet = _requests(fleet, 10.0) / 10.0
    paths = LISTS | {found[1]: OF_SLICE_S}
    due = sum(PAGES / len(paths) / every for every in paths.values())
    played = _poll(fleet, first.cookies, paths)
    wrong = {status: count for status, count in played.statuses.items() if status not in (200, 204)}
    rate = len(played.times) / played.took
    numbers = spread(played.times) | {"requests/s": round(rate, 1), "of": round(due, 1)}
    more = max(0.0, played.asked / played.took - quiet)
    return [
        Line(
            f"{PAGES} signed-in pages polling",
            numbers,
            unit="ms",
            goal="all answered, as often as they ask",
            met=not wrong and rate >= 0.95 * due,
        ),
        Line(
            "  processor time of a poll, and cores that the measuring took",
            {
                "cpu": round(played.web_cpu_s / len(played.times) * 1000, 1),
                "own cores": round(played.own_cpu_s / played.took, 2),
            },
        ),
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


class Page:
    """An open page of a browser that polls as static/portal.js does."""

    def __init__(self, fleet: Fleet, cookies: dict[str, str], path: str) -> None:
        self.browser = Browser(fleet.url, timeout=60.0)
        self.browser.cookies = dict(cookies)
        self.path = path
        self.seen: dict[str, str] = {}
        self.basis = ""

    def open(self) -> None:
        """Load the page and poll once."""
        self._take(self.browser.call("GET", self.path))
        self.poll()

    def poll(self) -> int:
        """Ask once; return the status of the answer."""
        told = " ".join(f"{name}:{version}" for name, version in self.seen.items()) or "none:0"
        headers = {"HX-Request": "true", "X-Seen": told} | ({"X-Basis": self.basis} if self.basis else {})
        answer = self.browser.call("GET", self.path, headers=headers)
        self._take(answer)
        return answer.status

    def _take(self, answer: Answer) -> None:
        self.basis = answer.headers.get("X-Basis", "")
        if answer.status == 200:
            self.seen |= dict(re.findall(r'id="([\w-]+)" data-version="(\w+)"', answer.text))


def _poll(fleet: Fleet, cookies: dict[str, str], paths: dict[str, float]) -> Played:
    """Play PAGES pages, a thread and a connection each, spread over the addresses and over time."""
    played = Played()
    guard = threading.Lock()
    kinds = list(paths.items())
    all_open = threading.Barrier(PAGES + 1)

    def play(number: int) -> None:
        path, every = kinds[number % len(kinds)]
        page = Page(fleet, cookies, path)
        page.open()
        all_open.wait()
        page.browser = Browser(fleet.url)  # some have been open for longer than the server keeps a connection
        page.browser.cookies = dict(cookies)
        due = time.perf_counter() + every * (number + 0.5) / PAGES
        end = due + SECONDS
        while due < end:
            time.sleep(max(0.0, due - time.perf_counter()))
            status = page.poll()
            now = time.perf_counter()
            with guard:
                played.times.append(now - due)
                played.statuses[status] = played.statuses.get(status, 0) + 1
            # As a timer does: a turn that the last answer overran is left out.
            due += every * max(1, -(-(now - due) // every))

    threads = [threading.Thread(target=play, args=(number,), daemon=True) for number in range(PAGES)]
    for thread in threads:
        thread.start()
    all_open.wait(120.0)
    began, own, web = time.perf_counter(), time.process_time(), cpu_s(fleet)
    played.asked = _requests(fleet, SECONDS)
    for thread in threads:
        thread.join(30.0)
    played.took = time.perf_counter() - began
    played.own_cpu_s, played.web_cpu_s = time.process_time() - own, cpu_s(fleet) - web
    return played


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
