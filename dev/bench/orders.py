"""From the POST of an order to its objects in the API, beside a bare client that creates the same objects.

The bare client sends the documents the portal has rendered, by server-side apply as the portal does, one after the
other through a connection it keeps. When an object is there is told to both by the same watches: whoever asks again and
again keeps the cluster, and a core of this machine, from the work that is measured.
"""

from __future__ import annotations

import http.client
import json
import os
import threading
import time
import uuid
from collections.abc import Iterable
from typing import Any

from dev import stack
from dev.bench.cluster import reach
from dev.bench.line import Line, spread
from dev.controlplane.client import Client, path_for
from dev.fleet import Fleet
from dev.http import Browser

ROUNDS = 40
WARM_UP = 3
"""The first rounds make connections and caches."""

SETTLE_S = 0.3
"""After what was made is gone, controllers and the watcher still have it to forget."""

GOAL = 2.0
KINDS = (("resource.k8s.io/v1", "ResourceClaimTemplate"), ("apps/v1", "Deployment"), ("v1", "Service"))
NAMESPACE = "acme-ai"


class Watches:
    """Notes when each object of KINDS came, as the API tells it."""

    def __init__(self, admin: Client) -> None:
        self._came: dict[tuple[str, str], float] = {}
        self._news = threading.Condition()
        for api, kind in KINDS:
            lines = _watch(admin, api, kind)
            threading.Thread(target=self._note, args=(kind, lines), daemon=True).start()

    def _note(self, kind: str, lines: Iterable[bytes]) -> None:
        for line in lines:
            now = time.perf_counter()
            change = json.loads(line)
            if change["type"] == "ADDED":
                with self._news:
                    self._came[kind, change["object"]["metadata"]["name"]] = now
                    self._news.notify_all()

    def last(self, objects: set[tuple[str, str]]) -> float:
        """Wait until all these objects (kind, name) have come and forget them; when the last one came."""
        with self._news:
            if not self._news.wait_for(lambda: objects <= self._came.keys(), 60.0):
                raise RuntimeError(f"did not come: {objects - self._came.keys()}")
            return max(self._came.pop(each) for each in objects)


def _watch(admin: Client, api: str, kind: str) -> http.client.HTTPResponse:
    """The lines of a watch of the namespace, from now on."""
    path = path_for(api, kind, NAMESPACE)
    version = admin.call("GET", path).body["metadata"]["resourceVersion"]
    return admin.watch(f"{path}?watch=1&timeoutSeconds=3600&resourceVersion={version}")


def measure(fleet: Fleet) -> list[Line]:
    """Order, wait for the last object, release; in between create the same objects with a bare client."""
    admin = reach(fleet)
    fleet.manage("migrate", "--no-input")
    fleet.manage("seed_demo", "--no-slices")
    fleet.start("worker", stack.worker())
    fleet.start("watcher", stack.watcher())
    fleet.start("beat", stack.beat(fleet.folder))
    fleet.web()
    wait(lambda: admin.get("v1", "ResourceQuota", NAMESPACE, "gpu-portal").ok, "the quota")
    browser, watches = Browser(fleet.url, fleet.demo()["api_token"]), Watches(admin)
    portal: list[float] = []
    answered: list[float] = []
    bare: list[float] = []
    for number in range(ROUNDS + WARM_UP):
        slice_id, took, until = _order(browser, watches, f"Bench {number}")
        documents = _documents(browser, slice_id)
        _release(browser, admin, slice_id)
        alone = _bare(admin, watches, documents)
        _wait_until_gone(admin)
        if number >= WARM_UP:
            answered.append(took)
            portal.append(until)
            bare.append(alone)
    with_portal, without = spread(portal), spread(bare)
    ratio = round(with_portal["p50"] / without["p50"], 2)
    ratio95 = round(with_portal["p95"] / without["p95"], 2)
    return [
        Line("Order POST to its answer", spread(answered)),
        Line("Order POST to objects in the API", with_portal),
        Line("  a bare client, the same objects", without),
        Line(
            "  ratio",
            {"p50": ratio, "p95": ratio95},
            unit="",
            goal=f"≤ {GOAL:.0f}",
            met=ratio <= GOAL,
        ),
    ]


def _order(browser: Browser, watches: Watches, name: str) -> tuple[str, float, float]:
    """Return the slice's id, the seconds to the answer, and to the last object."""
    body = {
        "project": NAMESPACE,
        "package": "v100-25",
        "display_name": name,
        "allow_queue": True,
        "workload": {
            "image": "registry.portal.example/team/app:1.4.2@sha256:" + "5c1b" * 16,
            "port": 8080,
            "cpu_request": "100m",
            "cpu_limit": "500m",
            "memory_request": "64Mi",
            "memory_limit": "256Mi",
        },
    }
    began = time.perf_counter()
    answer = browser.call("POST", "/api/v1/slices/", body, {"Idempotency-Key": str(uuid.uuid4())})
    if answer.status != 202:
        raise RuntimeError(f"order: {answer.status} {answer.text[:500]}")
    made = answer.json()
    app = made["object_name"]
    last = watches.last({(kind, f"{app}-gpu" if kind.endswith("Template") else app) for _api, kind in KINDS})
    return made["id"], answer.took, last - began


def _documents(browser: Browser, slice_id: str) -> list[dict[str, Any]]:
    """What the portal applies for the slice, as somebody else's: the sweep takes away what comes after a release."""
    answer = browser.call(
        "GET", f"/api/v1/slices/{slice_id}/manifest/", headers={"Accept": "application/json"}
    )
    documents: list[dict[str, Any]] = answer.json()["documents"]
    for document in documents:
        document["metadata"]["annotations"]["gpu-portal/slice"] = "bench"
    return documents


def _release(browser: Browser, admin: Client, slice_id: str) -> None:
    browser.call("POST", f"/api/v1/slices/{slice_id}/release/", {"delete_volume": True})
    _wait_until_gone(admin)


def _wait_until_gone(admin: Client) -> None:
    kinds = (*KINDS, ("v1", "Pod"), ("resource.k8s.io/v1", "ResourceClaim"))
    wait(lambda: not any(admin.items(api, kind, NAMESPACE) for api, kind in kinds), "an empty namespace")
    time.sleep(SETTLE_S)


def _bare(admin: Client, watches: Watches, documents: list[dict[str, Any]]) -> float:
    """Create the objects, wait until the last one is there, take them away again; seconds of the first two."""
    began = time.perf_counter()
    for document in documents:
        answer = admin.apply(document)
        if not answer.ok:
            raise RuntimeError(answer.message)
    last = watches.last({(document["kind"], document["metadata"]["name"]) for document in documents})
    for document in documents[::-1]:
        admin.delete(document["apiVersion"], document["kind"], NAMESPACE, document["metadata"]["name"])
    return last - began


def wait(look: Any, what: str, seconds: float = 60.0) -> None:
    """Wait until `look` is true. Raises RuntimeError."""
    deadline = time.monotonic() + seconds
    while not look():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{what} did not come within {seconds:.0f} s (pid {os.getpid()})")
        time.sleep(0.02)
