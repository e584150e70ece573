"""PostgreSQL and Valkey in a folder: found again, whatever happened to them before."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pytest
import redis

from dev import services
from dev.processes import Identity


def query(url: str, statement: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else []


def start(folder: Path, **env: str) -> services.Services:
    return services.start(folder, env=env, throw_away=True)


def test_data_and_addresses_are_the_same_at_the_next_start(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 20) / ("path" * 20)  # longer than the path of a Unix socket may be
    with start(folder) as first:
        query(first.database_url, "CREATE TABLE kept (word text)")
        query(first.database_url, "INSERT INTO kept VALUES ('yes')")
        urls = first.environment()
    with start(folder) as second:
        assert second.environment() == urls
        assert query(second.database_url, "SELECT word FROM kept") == [("yes",)]
        assert redis.Redis.from_url(second.redis_url).ping()
    assert (folder / "services.json").stat().st_mode & 0o777 == 0o600


def test_both_servers_ask_for_the_password_and_listen_on_loopback_only(tmp_path: Path) -> None:
    with start(tmp_path) as started:
        password = started.memory.password
        with pytest.raises(psycopg.OperationalError, match="password"):
            query(started.database_url.replace(password, "guess"), "SELECT 1")
        with pytest.raises(redis.AuthenticationError):
            redis.Redis.from_url(started.redis_url.replace(password, "guess")).ping()
        assert query(started.database_url, "SHOW listen_addresses") == [("127.0.0.1",)]
        assert query(started.database_url, "SHOW unix_socket_directories") == [("",)]


def test_a_killed_server_is_started_over_its_stale_lock(tmp_path: Path) -> None:
    with start(tmp_path) as first:
        assert first.postgres is not None
        query(first.database_url, "CREATE TABLE kept ()")
        query(first.database_url, "CHECKPOINT")
        os.kill(first.postgres.pid, signal.SIGKILL)
    lock = tmp_path / "postgres" / "postmaster.pid"
    assert lock.exists()
    # The pid in the lock now belongs to a process that has nothing to do with it: this one.
    lines = lock.read_text().splitlines()
    lock.write_text("\n".join([str(os.getpid()), *lines[1:]]) + "\n")
    with start(tmp_path) as second:
        assert query(second.database_url, "SELECT count(*) FROM kept") == [(0,)]


def test_a_server_that_outlived_its_run_is_ended_first(tmp_path: Path) -> None:
    code = "import signal, sys, time; from pathlib import Path; from dev import processes, services; "
    code += "processes._in_child = lambda parent, number, root: processes.become_nobody if root else None; "
    code += "s = services.start(Path(sys.argv[1]), env={'REDIS_URL': 'x'}); "
    code += "print(s.postgres.pid, flush=True); time.sleep(60)"
    command = [sys.executable, "-c", code, str(tmp_path)]
    run = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parent.parent)
    assert run.stdout is not None
    left = int(run.stdout.readline())
    run.kill()
    run.communicate()
    server = Identity.of(left)
    assert server is not None, "it ended with its parent, which this test must not see"
    with start(tmp_path, REDIS_URL="x") as second:
        assert query(second.database_url, "SELECT 1") == [(1,)]
        assert not server.alive


def test_a_half_made_database_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / "postgres.new").mkdir()
    (tmp_path / "postgres.new" / "PG_VERSION").write_text("18\n")
    (tmp_path / "postgres").mkdir()
    with start(tmp_path, REDIS_URL="x") as started:
        assert query(started.database_url, "SELECT 1") == [(1,)]
    assert not (tmp_path / "postgres.new").exists()


def test_servers_that_are_named_are_used_and_none_is_started(tmp_path: Path) -> None:
    with start(tmp_path, DATABASE_URL="postgres://there/db", REDIS_URL="redis://there/0") as started:
        assert started.environment() == {
            "DATABASE_URL": "postgres://there/db",
            "REDIS_URL": "redis://there/0",
        }
        assert started.postgres is None
        assert started.valkey is None


def test_data_of_another_version_is_refused_with_the_mend(tmp_path: Path) -> None:
    (tmp_path / "postgres").mkdir()
    (tmp_path / "postgres" / "PG_VERSION").write_text("9\n")
    with pytest.raises(services.ServiceError, match=r"of PostgreSQL 9, .*make demo-reset"):
        start(tmp_path)


def test_a_port_taken_since_is_replaced(tmp_path: Path) -> None:
    memory = services.Memory(tmp_path / "services.json")
    port = memory.port("some")
    assert services.Memory(tmp_path / "services.json").port("some") == port
    with socket.socket() as other:
        other.bind((services.HOST, port))
        other.listen()
        assert memory.port("some") != port


def test_nothing_is_left_when_the_run_is_killed(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "dev.services",
        "--data",
        str(tmp_path),
        "--throw-away",
        "--",
        "sleep",
        "1",
    ]
    env = {name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "REDIS_URL")}
    run = subprocess.Popen(command, env=env, cwd=Path(__file__).parent.parent)
    lock = tmp_path / "postgres" / "postmaster.pid"
    deadline = time.monotonic() + 20
    while not lock.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    run.kill()
    run.wait()
    while lock.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not lock.exists(), "the server did not end with its parent"
