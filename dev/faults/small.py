"""The small run of the test command: python -m dev.faults.small FOLDER SEED COUNT SECONDS writes FOLDER/small.json."""

from __future__ import annotations

import json
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dev.faults import run
from dev.faults.customers import IMAGE, Wish
from dev.fleet import Fleet
from dev.http import Browser

OPERATIONS = 6
SENDERS = 3
"""Each operation is sent by so many at once with one key, as an impatient client does."""


def main(folder: Path, seed: int, count: int, most_s: float) -> int:
    """Run both parts on one fleet."""
    with Fleet(folder / "fleet", durable=True, extra=run.SETTINGS) as fleet:
        run.start(fleet)
        tokens = run.furnish(fleet)
        many = at_once(fleet, *tokens[0])
        outcome = run.attack(fleet, tokens, seed, count, print, most_s=most_s)
    found = asdict(outcome.verdict)
    placed = found.pop("placed")
    result = {
        "many": many,
        "faults": {
            "placed": placed,
            "injected": outcome.injected.total(),
            "took": outcome.took_s,
            "wrong": {name: lines for name, lines in found.items() if lines},
        },
    }
    (folder / "small.json").write_text(json.dumps(result))
    return 0


def at_once(fleet: Fleet, token: str, project: str) -> dict[str, Any]:
    """Send every operation several times at once to three web processes; say what came of it."""
    from django.db import connection

    from dev.faults import verdict
    from gpu.manifests import render
    from gpu.models import Slice

    bodies = {str(uuid.uuid4()): _order(project, number) for number in range(OPERATIONS)}

    def send(key: str) -> str:
        browser = Browser(fleet.url, token)
        while True:
            answer = browser.call("POST", "/api/v1/slices/", bodies[key], {"Idempotency-Key": key})
            if answer.status == 202:
                found: str = answer.json()["id"]
                return found
            if answer.json()["code"] != "idempotency_in_progress":
                raise RuntimeError(answer.text[:500])

    with ThreadPoolExecutor(OPERATIONS * SENDERS) as pool:
        ids = list(pool.map(send, [key for key in bodies for _ in range(SENDERS)]))
    verdict.settle(60.0)
    wishes = [
        Wish(body["display_name"], project, ids[number * SENDERS], image=body["workload"]["image"])
        for number, body in enumerate(bodies.values())
    ]
    found = verdict.judge(fleet.admin(), wishes)
    rows = list(Slice.objects.select_related("project", "package"))
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = %s", [0x3A7C4]
        )
        watching = cursor.fetchone()[0]
    wanted = sorted(
        (document["kind"], document["metadata"]["name"])
        for row in rows
        for document in render(row.manifest_spec(row.project.namespace))
    )
    namespace = run.NAMESPACES[0]
    objects = sorted(
        (kind, item["metadata"]["name"])
        for kind, api in verdict.KINDS.items()
        if kind not in ("Pod", "ResourceClaim", "ResourceQuota")
        for item in fleet.admin().items(api, kind, namespace)
    )
    sentences = asdict(found)
    del sentences["placed"]
    result = {
        "operations": len(bodies),
        "slices": len(set(ids)) if len(set(ids)) == len(rows) else len(rows),
        "wanted": wanted,
        "objects": objects,
        "watching": watching,
        "wrong": [line for lines in sentences.values() for line in lines],
    }
    _release(fleet, token, set(ids))
    verdict.settle(60.0)
    return result


def _order(project: str, number: int) -> dict[str, Any]:
    return {
        "project": project,
        "package": "v100-25",
        "display_name": f"At once {number}",
        "allow_queue": True,
        "workload": {
            "image": IMAGE.format(name="app"),
            "port": 8080,
            "cpu_request": "100m",
            "cpu_limit": "500m",
            "memory_request": "64Mi",
            "memory_limit": "256Mi",
        },
    }


def _release(fleet: Fleet, token: str, ids: set[str]) -> None:
    browser = Browser(fleet.url, token)
    for slice_id in ids:
        browser.call("POST", f"/api/v1/slices/{slice_id}/release/", {"delete_volume": True})


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])))
