"""From a change in the cluster to the answer of the API, at 1,000 pods and 50 changes a second, beside a bare watch.

Beside the time until somebody who asks without pause is told stand its parts: how long the change takes to be stored,
by word of the database, and how long a request takes. Such a client's wait is between one part of a request, where the
one that runs still sees the change, and nearly two, where it does not.
"""

from __future__ import annotations

import json
import os
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg

from dev import stack
from dev.bench.cluster import reach
from dev.bench.line import Line, spread
from dev.bench.orders import wait
from dev.controlplane.client import Client
from dev.fleet import Fleet
from dev.http import Browser

PODS = int(os.environ.get("BENCH_PODS", "1000"))
A_SECOND = 50
SECONDS = 20
GOAL_S = 1.0
GOAL_RATIO = 3.0
NAMESPACE = "acme-ai"
PROBE = "probe"
PROBE_EVERY = 10
YEAR = "2031"
START = datetime(2031, 1, 1, tzinfo=UTC)
_TELL = """
CREATE FUNCTION tell_probe() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    PERFORM pg_notify('probe', NEW.data #>> '{status,containerStatuses,0,state,running,startedAt}');
    RETURN NULL;
END $$;
CREATE TRIGGER tell_probe AFTER INSERT OR UPDATE ON gpu_observed FOR EACH ROW
    WHEN (NEW.kind = 'Pod' AND NEW.app = 'probe') EXECUTE FUNCTION tell_probe();
"""


def measure(fleet: Fleet) -> list[Line]:
    """Make pods that nothing runs, change 50 a second, and see when watch and API tell one of them."""
    admin = reach(fleet)
    fleet.manage("migrate", "--no-input")
    fleet.manage("seed_demo", "--no-slices")
    fleet.start("watcher", stack.watcher())
    fleet.web()
    for number in range(PODS):
        document = _pod(f"pod-{number}") if number else _deployment()
        answer = admin.create(document, namespace=NAMESPACE)
        if not answer.ok:
            raise RuntimeError(answer.message)
    from dev.bench.data import one_slice
    from gpu.models import Observed, WatchState
    from tenants.models import Project, User

    row = one_slice(
        Project.objects.get(namespace=NAMESPACE), User.objects.get(username="kim@acme.example"), PROBE
    )
    wait(lambda: WatchState.objects.filter(seen_at__isnull=False).count() >= 12, "the watches")
    wait(lambda: Observed.objects.filter(kind="Pod").count() >= PODS, "the pods", 120)
    return _run(fleet, admin, row.public_id)


def _pod(name: str) -> dict[str, Any]:
    """A pod that no scheduler takes; its app is its name."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app.kubernetes.io/name": name}},
        "spec": {
            "schedulerName": "nobody",
            "automountServiceAccountToken": False,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 10001,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [
                {
                    "name": "workload",
                    "image": "registry.portal.example/team/app:1.4.2",
                    "resources": {
                        "requests": {"cpu": "1m", "memory": "1Mi"},
                        "limits": {"cpu": "1m", "memory": "1Mi"},
                    },
                    "securityContext": {
                        "allowPrivilegeEscalation": False,
                        "capabilities": {"drop": ["ALL"]},
                    },
                }
            ],
        },
    }


def _deployment() -> dict[str, Any]:
    """The owner of the probe: the portal takes only pods of a Deployment for a slice's."""
    pod = _pod(PROBE)
    labels = pod["metadata"]["labels"]
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": PROBE, "labels": labels},
        "spec": {
            "replicas": 1,
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod["spec"]},
        },
    }


def _status(at: str) -> dict[str, Any]:
    """A status whose times tell which change it is."""
    return {
        "status": {
            "phase": "Running",
            "conditions": [
                {"type": kind, "status": "True", "lastTransitionTime": at}
                for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
            ],
            "containerStatuses": [
                {
                    "name": "workload",
                    "image": "registry.portal.example/team/app:1.4.2",
                    "imageID": "",
                    "ready": True,
                    "started": True,
                    "restartCount": 0,
                    "state": {"running": {"startedAt": at}},
                }
            ],
        }
    }


def _change(admin: Client, sent: dict[str, float]) -> float:
    """Change pods in turn, A_SECOND of them, now and then the probe. Returns the seconds it took."""
    pods = admin.items("v1", "Pod", NAMESPACE, labelSelector=f"app.kubernetes.io/name={PROBE}")
    probe_pod = pods[0]["metadata"]["name"]
    began = time.perf_counter()
    for number in range(A_SECOND * SECONDS):
        wait_s = began + number / A_SECOND - time.perf_counter()
        if wait_s > 0:
            time.sleep(wait_s)
        probe = number % PROBE_EVERY == 0
        at = (START + timedelta(seconds=number)).strftime("%Y-%m-%dT%H:%M:%S")
        name = probe_pod if probe else f"pod-{1 + number % (PODS - 1)}"
        if probe:
            sent[at] = time.perf_counter()
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{name}/status"
        answer = admin.call("PATCH", path, _status(f"{at}Z"), content_type="application/merge-patch+json")
        if not answer.ok:
            raise RuntimeError(answer.message)
    return time.perf_counter() - began


def _watch(admin: Client, watched: dict[str, float], stop: threading.Event) -> None:
    """A bare watch of the namespace's pods: when a line with the probe's new time came."""
    response = admin.watch(f"/api/v1/namespaces/{NAMESPACE}/pods?watch=1")
    while not stop.is_set():
        line = response.readline()
        if not line:
            return
        pod = json.loads(line)["object"]
        if pod["metadata"]["labels"].get("app.kubernetes.io/name") == PROBE:
            for status in (pod.get("status") or {}).get("containerStatuses") or []:
                watched.setdefault(status["state"]["running"]["startedAt"][:19], time.perf_counter())


def _listen(stored: dict[str, float], stop: threading.Event) -> None:
    """Be told by the database when a row with the probe's new time is there for readers."""
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
        connection.execute(_TELL)
        connection.execute("LISTEN probe")
        while not stop.is_set():
            for notice in connection.notifies(timeout=0.5):
                stored.setdefault(notice.payload[:19], time.perf_counter())


def _look(
    fleet: Fleet,
    slice_id: str,
    told: dict[str, float],
    requests: dict[str, float],
    stop: threading.Event,
) -> None:
    """Ask the API for the probe's slice again and again: when its newest time was first told, by how long a request."""
    browser = Browser(fleet.url, fleet.demo()["api_token"])
    while not stop.is_set():
        answer = browser.call("GET", f"/api/v1/slices/{slice_id}/")
        if answer.status != 200:
            raise RuntimeError(f"{answer.status} {answer.text[:300]}")
        for step in answer.json()["steps"]:
            if step["at"] and step["at"].startswith(YEAR):
                told.setdefault(step["at"][:19], time.perf_counter())
                requests.setdefault(step["at"][:19], answer.took)
        time.sleep(0.005)


def _run(fleet: Fleet, admin: Client, slice_id: str) -> list[Line]:
    stop = threading.Event()
    watched: dict[str, float] = {}
    sent: dict[str, float] = {}
    watch = threading.Thread(target=_watch, args=(admin, watched, stop), daemon=True)
    watch.start()
    time.sleep(1.0)
    stored: dict[str, float] = {}
    told: dict[str, float] = {}
    requests: dict[str, float] = {}
    others = [
        threading.Thread(target=_listen, args=(stored, stop), daemon=True),
        threading.Thread(target=_look, args=(fleet, slice_id, told, requests, stop), daemon=True),
    ]
    for other in others:
        other.start()
    time.sleep(1.0)
    took = _change(admin, sent)
    time.sleep(3.0)
    stop.set()
    for other in others:
        other.join(5.0)
    bare = [watched[mark] - sent[mark] for mark in sent if mark in watched]
    marks = [mark for mark in sent if mark in told and mark in stored]
    if len(marks) < 20 or len(bare) < 20:
        raise RuntimeError(f"too few changes were seen: {len(bare)} by the watch, {len(marks)} by the API")
    ours = spread([told[mark] - sent[mark] for mark in marks])
    alone = spread(bare)
    ratio = round(ours["p50"] / max(alone["p50"], 0.1), 2)
    return [
        Line(
            f"Change to API answer, {PODS:,} objects",
            ours,
            goal="p95 ≤ 1000 ms",
            met=ours["p95"] <= 1000 * GOAL_S,
        ),
        Line("  until it is stored", spread([stored[mark] - sent[mark] for mark in marks])),
        Line("  a request", spread([requests[mark] for mark in marks])),
        Line("  a bare watch", alone),
        Line("  ratio", {"p50": ratio}, unit="", goal="≤ 3", met=ratio <= GOAL_RATIO),
        Line("  changes a second", {"rate": round(A_SECOND * SECONDS / took, 1)}, unit="", goal="50"),
    ]
