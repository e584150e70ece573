"""From the POST of an order to its objects in the API, beside a bare client that creates the same objects."""

from __future__ import annotations

import os
import time
import uuid
from typing import Any

from dev import stack
from dev.bench.cluster import reach
from dev.bench.line import Line, spread
from dev.controlplane.client import Client
from dev.fleet import Fleet
from dev.http import Browser

ROUNDS = 40
GOAL = 2.0
KINDS = (
    ("resource.k8s.io/v1", "ResourceClaimTemplate", "{app}-gpu"),
    ("apps/v1", "Deployment", "{app}"),
    ("v1", "Service", "{app}"),
)
NAMESPACE = "acme-ai"


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
    browser = Browser(fleet.url, fleet.demo()["api_token"])
    portal: list[float] = []
    answered: list[float] = []
    bare: list[float] = []
    for number in range(ROUNDS + 3):
        app, took, until = _order(browser, admin, f"Bench {number}")
        documents = [admin.get(api, kind, NAMESPACE, name.format(app=app)).body for api, kind, name in KINDS]
        _release(browser, admin, app)
        alone = _bare(admin, [_fresh(document) for document in documents])
        if number >= 3:  # the first make connections and caches
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


def _order(browser: Browser, admin: Client, name: str) -> tuple[str, float, float]:
    """Return the app, the seconds to the answer, and to the last object."""
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
    app: str = answer.json()["object_name"]
    api, kind, place = KINDS[-1]
    while not admin.get(api, kind, NAMESPACE, place.format(app=app)).ok:
        time.sleep(0.002)
    return app, answer.took, time.perf_counter() - began


def _release(browser: Browser, admin: Client, app: str) -> None:
    found = browser.call("GET", "/api/v1/slices/?page_size=100").json()["results"]
    row = next(row for row in found if row["object_name"] == app)
    browser.call("POST", f"/api/v1/slices/{row['id']}/release/", {"delete_volume": True})
    _wait_until_gone(admin)


def _wait_until_gone(admin: Client) -> None:
    kinds = (
        *((api, kind) for api, kind, _name in KINDS),
        ("v1", "Pod"),
        ("resource.k8s.io/v1", "ResourceClaim"),
    )
    wait(lambda: not any(admin.items(api, kind, NAMESPACE) for api, kind in kinds), "an empty namespace")


def _fresh(document: dict[str, Any]) -> dict[str, Any]:
    metadata = {
        key: value for key, value in document["metadata"].items() if key in ("name", "labels", "annotations")
    }
    return {key: value for key, value in document.items() if key != "status"} | {"metadata": metadata}


def _bare(admin: Client, documents: list[dict[str, Any]]) -> float:
    """Create the objects, wait until the last can be read, take them away again; seconds of the first two."""
    began = time.perf_counter()
    for document in documents:
        if document["kind"] == "Service":
            document["spec"] = {key: document["spec"][key] for key in ("ports", "selector")}
        answer = admin.create(document, namespace=NAMESPACE)
        if not answer.ok:
            raise RuntimeError(answer.message)
    api, kind, _place = KINDS[-1]
    while not admin.get(api, kind, NAMESPACE, documents[-1]["metadata"]["name"]).ok:
        time.sleep(0.002)
    took = time.perf_counter() - began
    for document in documents[::-1]:
        admin.delete(document["apiVersion"], document["kind"], NAMESPACE, document["metadata"]["name"])
    _wait_until_gone(admin)
    return took


def wait(look: Any, what: str, seconds: float = 60.0) -> None:
    """Wait until `look` is true. Raises RuntimeError."""
    deadline = time.monotonic() + seconds
    while not look():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{what} did not come within {seconds:.0f} s (pid {os.getpid()})")
        time.sleep(0.02)
