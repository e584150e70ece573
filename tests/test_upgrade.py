"""Migrations run with the old version still serving; production settings pass Django's own check."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import psycopg
import pytest

from dev import upgrade

ROOT = Path(__file__).resolve().parent.parent
SERVER = os.environ["DATABASE_URL"]


@pytest.fixture(scope="module")
def measured() -> list[upgrade.Measured]:
    """Each migration on tables of 100,000 rows; `make bench` does it with a million."""
    return upgrade.measure(SERVER, 100_000)


def test_every_migration_after_the_first_release_is_measured(measured: list[upgrade.Measured]) -> None:
    first = {f"{app}.{name}" for app, name in upgrade.FIRST_RELEASE} | {"gpu.0001_initial"}
    there = {
        f"{app}.{path.stem}" for app in upgrade.APPS for path in (ROOT / app / "migrations").glob("0*.py")
    }
    assert {one.migration for one in measured} == there - first


def test_no_statement_of_the_old_version_waits_a_second(measured: list[upgrade.Measured]) -> None:
    assert [one for one in measured if one.longest_wait_s >= upgrade.GOAL_S] == []
    assert all(one.statements > 50 for one in measured), "the old version was hardly there"


def test_the_old_version_can_go_on_reading_and_writing(measured: list[upgrade.Measured]) -> None:
    assert [one for one in measured if one.refused] == []


def test_a_lock_that_holds_up_is_noticed() -> None:
    with upgrade.scratch(SERVER, "portal_prober") as url:
        with psycopg.connect(url, autocommit=True) as admin:
            admin.execute("CREATE TABLE t (id int)")
        prober = upgrade.Prober(url, ["SELECT * FROM t", "SELECT nothing"])
        prober.start()
        time.sleep(0.2)
        with psycopg.connect(url) as holder:
            holder.execute("LOCK TABLE t")
            time.sleep(0.5)
        time.sleep(0.2)
        prober.finish()
    assert prober.longest_s > 0.4
    assert [text.partition(":")[0] for text in prober.refused] == ["SELECT nothing"]


def test_a_migration_gives_up_rather_than_hold_up_and_can_be_run_again() -> None:
    with upgrade.scratch(SERVER, "portal_lock") as url:
        for app, name in upgrade.FIRST_RELEASE:
            upgrade.migrate(url, app, name)
        waits: list[float] = []

        def read() -> None:
            """Queue behind the migration, which queues behind the transaction that is open."""
            with psycopg.connect(url, autocommit=True) as reader:
                for _time in range(40):
                    began = time.monotonic()
                    reader.execute("SELECT count(*) FROM tenants_project")
                    waits.append(time.monotonic() - began)
                    time.sleep(0.1)

        with psycopg.connect(url) as long:
            long.execute("SELECT count(*) FROM tenants_project")
            reader = threading.Thread(target=read)
            reader.start()
            with pytest.raises(SystemExit, match="lock timeout"):
                upgrade.migrate(url, "tenants", "0002_clusters")
            reader.join()
        assert max(waits) < 1.5
        upgrade.migrate(url, "tenants", "0002_clusters")


def test_the_index_is_built_again_when_an_attempt_was_broken_off() -> None:
    with upgrade.scratch(SERVER, "portal_again") as url:
        upgrade.migrate(url, "gpu", "0004_clusters")
        with psycopg.connect(url, autocommit=True) as admin:
            # What a build that was broken off leaves, under the name.
            admin.execute("CREATE UNIQUE INDEX observed_in_cluster ON gpu_observed (cluster_id, id)")
        upgrade.migrate(url, "gpu", "0005_observed_by_cluster")
        with psycopg.connect(url) as admin:
            found = admin.execute(
                "SELECT indexdef FROM pg_indexes WHERE indexname IN ('observed_in_cluster', 'observed_key')"
            ).fetchall()
        assert [line.partition("USING ")[2] for (line,) in found] == [
            "btree (cluster_id, kind, namespace, name)"
        ]
        upgrade.migrate(url, "gpu", "0004_clusters")
        upgrade.migrate(url, "gpu", "0005_observed_by_cluster")


def test_production_settings_pass_djangos_check() -> None:
    env = {
        "PATH": os.environ["PATH"],
        "PORTAL_ENV": "production",
        "SECRET_KEY": "".join(map(chr, range(40, 110))),
        "ALLOWED_HOSTS": "portal.example.org",
        "DATABASE_URL": "postgres://localhost/none",
        "REDIS_URL": "redis://localhost/0",
    }
    answer = subprocess.run(
        [sys.executable, "manage.py", "check", "--deploy", "--fail-level", "DEBUG"],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.strip() == "System check identified no issues (0 silenced)."
