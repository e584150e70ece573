"""docs/operations.md, "Backup and restore": restored to yesterday, what was ordered since is found and left alone."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from dev import services
from gpu import enqueue, orders
from gpu.agreement import compare
from gpu.models import Order, Slice
from gpu.provision import provision
from gpu.sweep import sweep
from tenants.models import FIRST_CLUSTER, Cluster
from tests.clusters import Target, eventually
from tests.factories import workload, world
from tests.live import entitle, namespace_of, order_and_send, portal_cluster, row_of, until, watching

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.cluster]
DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "operations.md"


def documented(step: str, backup: Path) -> None:
    """Run the command that docs/operations.md gives for `step`, on this test's database."""
    (command,) = re.findall(rf"^    ({step} .*)$", DOCUMENT.read_text(), re.MULTILINE)
    wanted = connection.settings_dict
    url = f"postgres://{wanted['USER']}:{wanted['PASSWORD'] or ''}@{wanted['HOST']}:{wanted['PORT']}/{wanted['NAME']}"
    env = {"PATH": f"{services._postgres_binaries()}:{os.environ['PATH']}", "DATABASE_URL": url}
    connection.close()
    command = command.replace("portal.dump", str(backup))
    subprocess.run(["sh", "-euc", command], check=True, env=env, capture_output=True, text=True)


def differences() -> set[tuple[str, str, str]]:
    """Code, kind and slice of everything that does not agree."""
    return {(item.code, item.kind, item.slice_id) for item in compare(Cluster.objects.get(pk=FIRST_CLUSTER))}


def test_restored_to_yesterday(cluster: Target, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    portal = portal_cluster(cluster)
    sent: list[str] = []
    monkeypatch.setattr(enqueue, "_send", lambda task, _pk: sent.append(task))
    made = world()
    backup = tmp_path / "portal.dump"

    def objects() -> dict[str, Any]:
        found = portal.list("Deployment", made.project.namespace)[0]
        return {item["metadata"]["name"]: item["spec"]["template"] for item in found}

    with namespace_of(cluster, made.project):
        with watching(portal):
            entitle(made, portal, 5)
            kept, changed, released = (
                order_and_send(made, portal, name) for name in ("kept", "changed", "released")
            )
            for row in (kept, changed, released):
                until(row, "running")
        documented("pg_dump", backup)

        # Since yesterday: one changed, one given back, one ordered.
        with watching(portal):
            newer = workload(args=("--newer",))
            orders.change(made.kim, row_of(changed), newer, allow_queue=True)
            orders.release(made.kim, row_of(released), delete_volume=True)
            for row in (changed, released):
                provision(row.pk, portal)
            later = order_and_send(made, portal, "later")
            until(later, "running")
            until(released, "released", cluster=portal)
            eventually(lambda: sweep(portal) and row_of(released).ended_at, "the end of the slice")
        before = objects()
        assert sorted(before) == ["changed", "kept", "later"]

        documented("pg_restore", backup)
        assert not Slice.objects.filter(public_id=later.public_id).exists()
        assert row_of(changed).workload != newer
        with watching(portal):
            expected = {
                ("drift", "Deployment", changed.public_id),
                ("no_objects", "", released.public_id),
                ("no_row", "Deployment", later.public_id),
                ("no_row", "ResourceClaimTemplate", later.public_id),
            }
            eventually(lambda: differences() == expected, f"{expected} (are {differences()})")

            # However often the sweep runs: it deletes nothing, changes nothing, brings nothing back.
            sent.clear()
            for _round in range(3):
                done = sweep(portal)
                assert (done["closed"], done["woken"]) == (0, 0)
            assert {enqueue.PROVISION, enqueue.WRITE_QUOTA}.isdisjoint(sent)
            assert objects() == before

            # A new order of the same name does not take what is there.
            again = order_and_send(made, portal, "later")
            assert (again.action, again.action_code) == ("refused", "not_ours")
            assert objects() == before

            # What the operator decides is done by the usual means.
            orders.send_again(None, row_of(changed))
            orders.release(None, row_of(released))
            for row in (changed, released):
                provision(row.pk, portal)
            eventually(lambda: sweep(portal) and row_of(released).ended_at, "the end of the slice")
            left = {item for item in expected if item[0] == "no_row"}
            eventually(lambda: differences() == left, f"{left} (are {differences()})")
            assert Order.objects.filter(slice__public_id=kept.public_id).exists()
