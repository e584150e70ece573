"""How long migrations hold up a version that goes on serving: on filled tables, with readers and writers beside.

    python -m dev.upgrade [--rows 1000000] [--json]

Makes a scratch database on the server of DATABASE_URL, migrates it to the first release, fills it, and applies each
later migration while two connections do what the old version does, statement after statement.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg

ROOT = Path(__file__).resolve().parent.parent
FIRST_RELEASE = (("tenants", "0001_initial"), ("gpu", "0002_initial"))
APPS = ("tenants", "gpu")
GOAL_S = 1.0
LOCK_TIMEOUT = "-c lock_timeout=1s"

FILL = """
INSERT INTO tenants_user (password, is_superuser, username, first_name, last_name, email, is_staff, is_active,
    date_joined, language) VALUES ('!', false, 'kim', '', '', '', false, true, now(), '');
INSERT INTO tenants_tenant (slug, name, time_zone, created_at) VALUES ('acme', 'Acme', 'UTC', now());
INSERT INTO tenants_project (public_id, name, namespace, created_at, tenant_id)
    VALUES ('pr_1', 'AI', 'acme-ai', now(), 1);
INSERT INTO gpu_package (slug, name, gpu_model, card_product, memory_mib, compute_percent, shares, price_per_hour,
    currency, device_class, profile_id, on_sale, position)
    VALUES ('p', 'P', 'V100', 'V100', 8192, 25, 1, 1, 'EUR', 'c', 'p', true, 0);
INSERT INTO gpu_order (public_id, operation_key, price_per_hour, currency, spec, allow_queue, created_at, package_id,
    project_id, tenant_id, user_id)
    SELECT 'or_' || n, n::text, 1, 'EUR', '{"image": "x"}', false, now(), 1, 1, 1, 1
    FROM generate_series(1, %(rows)s) n;
INSERT INTO gpu_slice (public_id, display_name, app, terms, spec, intent, delete_volume, restarts, generation,
    applied_generation, action, action_code, action_message, action_policy, attempts, lost_runs, created_at,
    changed_at, order_id, package_id, project_id)
    SELECT 'sl_' || n, 's', 'app-' || n, '{}', '{"image": "x"}', 'run', false, 0, 1, 1, 'applied', '', '', '', 0, 0,
    now(), now(), n, 1, 1 FROM generate_series(1, %(rows)s) n;
INSERT INTO gpu_timelineentry (at, code, params, slice_id)
    SELECT now(), 'ordered', '{}', n FROM generate_series(1, %(rows)s) n;
INSERT INTO gpu_observed (kind, namespace, name, uid, app, involved_uid, data)
    SELECT 'Pod', 'ns-' || n %% 1000, 'pod-' || n, 'uid-' || n, 'app-' || n, '',
    '{"metadata": {"name": "pod", "labels": {"app.kubernetes.io/name": "app"}}, "status": {"phase": "Running"}}'
    FROM generate_series(1, %(rows)s) n;
"""

# What a version of the first release does all the time, with the columns it knows.
READS = (
    "SELECT data FROM gpu_observed WHERE namespace = 'ns-7' AND app = 'app-1007'",
    "SELECT id, intent, action FROM gpu_slice WHERE project_id = 1 ORDER BY created_at DESC, id DESC LIMIT 20",
    "SELECT id FROM gpu_order WHERE tenant_id = 1 AND operation_key = '77'",
    "SELECT code FROM gpu_timelineentry WHERE slice_id = 77",
    "SELECT id, namespace FROM tenants_project WHERE namespace = 'acme-ai'",
)
WRITES = (
    "UPDATE gpu_slice SET attempts = attempts + 1 WHERE id = 77",
    "INSERT INTO gpu_timelineentry (at, code, params, slice_id) VALUES (now(), 'accepted', '{}', 77)",
    "INSERT INTO gpu_observed (kind, namespace, name, uid, app, involved_uid, data)"
    " VALUES ('Job', 'ns-7', 'probe', 'u', 'a', '', '{}')",
    "DELETE FROM gpu_observed WHERE kind = 'Job' AND namespace = 'ns-7' AND name = 'probe'",
    "INSERT INTO tenants_project (public_id, name, namespace, created_at, tenant_id)"
    " VALUES ('pr_probe', 'P', 'probe', now(), 1)",
    "DELETE FROM tenants_project WHERE public_id = 'pr_probe'",
    "INSERT INTO gpu_watchstate (kind, resource_version, error_code, relists) VALUES ('Probe', '1', '', 1)",
    "DELETE FROM gpu_watchstate WHERE kind = 'Probe'",
)


@dataclass(frozen=True)
class Measured:
    """One migration: how long it took, the longest statement beside it, and what the old version could not do."""

    migration: str
    took_s: float
    longest_wait_s: float
    statements: int
    refused: tuple[str, ...]


class Prober(threading.Thread):
    """Runs statements one after the other and notes the longest."""

    def __init__(self, url: str, statements: Sequence[str]) -> None:
        super().__init__(daemon=True)
        self._url = url
        self._statements = statements
        self._end = threading.Event()
        self.longest_s = 0.0
        self.count = 0
        self.refused: set[str] = set()

    def run(self) -> None:
        """Go on until `finish`."""
        with psycopg.connect(self._url, autocommit=True) as connection:
            while not self._end.is_set():
                for statement in self._statements:
                    began = time.monotonic()
                    try:
                        connection.execute(statement.encode())
                    except psycopg.Error as error:
                        self.refused.add(f"{statement[:60]}: {str(error).splitlines()[0]}")
                    self.longest_s = max(self.longest_s, time.monotonic() - began)
                    self.count += 1
                    self._end.wait(0.002)

    def finish(self) -> None:
        """End after the statement that runs."""
        self._end.set()
        self.join()


@contextmanager
def scratch(server: str, name: str = "portal_upgrade") -> Iterator[str]:
    """Make an empty database on the server of an address; gives its address, and drops it at the end."""
    parts = urlsplit(server)
    maintenance = urlunsplit(parts._replace(path="/postgres"))
    name = f"{name}_{os.getpid()}"
    with psycopg.connect(maintenance, autocommit=True) as connection:
        connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)'.encode())
        connection.execute(f'CREATE DATABASE "{name}"'.encode())
    try:
        yield urlunsplit(parts._replace(path=f"/{name}"))
    finally:
        with psycopg.connect(maintenance, autocommit=True) as connection:
            connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)'.encode())


def migrate(url: str, app: str, name: str) -> None:
    """Migrate as the Job of deploy/portal does. Raises CalledProcessError."""
    _manage(url, "migrate", "--no-input", "--verbosity", "0", app, name)


def later_migrations(url: str) -> list[tuple[str, str]]:
    """The migrations after the first release, in the order in which they are applied."""
    lines = _manage(url, "showmigrations", "--plan").splitlines()
    names = [line.split("]")[1].split()[0].partition(".") for line in lines if line.startswith("[ ]")]
    return [(app, name) for app, _dot, name in names if app in APPS]


def measure(server: str, rows: int) -> list[Measured]:
    """Apply each migration after the first release on tables of `rows` rows while the old version reads and writes."""
    found = []
    with scratch(server) as url:
        for app, name in FIRST_RELEASE:
            migrate(url, app, name)
        with psycopg.connect(url, autocommit=True) as connection:
            for statement in filter(None, map(str.strip, (FILL % {"rows": rows}).split(";\n"))):
                connection.execute(statement.encode())
            connection.execute("VACUUM ANALYZE")
        for app, name in later_migrations(url):
            probers = [Prober(url, READS), Prober(url, WRITES)]
            for prober in probers:
                prober.start()
            began = time.monotonic()
            try:
                migrate(url, app, name)
            finally:
                took = time.monotonic() - began
                for prober in probers:
                    prober.finish()
            found.append(
                Measured(
                    f"{app}.{name}",
                    round(took, 2),
                    round(max(prober.longest_s for prober in probers), 3),
                    sum(prober.count for prober in probers),
                    tuple(sorted(set().union(*(prober.refused for prober in probers)))),
                )
            )
    return found


def _manage(url: str, *arguments: str) -> str:
    env = os.environ | {"DATABASE_URL": url, "PORTAL_ENV": "test", "PGOPTIONS": LOCK_TIMEOUT}
    command = [sys.executable, "manage.py", *arguments]
    answer = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        raise SystemExit(f"{' '.join(arguments)} failed:\n{answer.stderr[-2000:]}")
    return answer.stdout


def main() -> int:
    """Print a line for each migration; 1 when one held up a statement for a second or more."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = measure(os.environ["DATABASE_URL"], options.rows)
    if options.json:
        print(json.dumps([asdict(one) for one in found], indent=1))
    else:
        print(f"Migrations on tables of {options.rows:,} rows (goal: no statement waits {GOAL_S:.0f} s)")
        for one in found:
            print(f"{one.migration:40} {one.took_s:7.2f} s   longest wait {one.longest_wait_s:6.3f} s")
            for refused in one.refused:
                print(f"    refused: {refused}")
    return int(any(one.longest_wait_s >= GOAL_S for one in found))


if __name__ == "__main__":
    sys.exit(main())
