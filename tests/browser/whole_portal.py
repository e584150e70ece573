"""The whole portal as real processes, for the browser tests."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import redis
from psycopg import sql

from dev import processes, stack
from dev.supervisor import tail


class WholePortal:
    """Sandbox cluster, web, worker, watcher and beat on free ports; the demo's tenants and packages, no slices.

    `url` is where the pages are, `database` the database's name, `logins` what seed_demo wrote (password, logins,
    api_token), `logs` the folder of the logs, `kubeconfig("admin")` the sandbox's.
    """

    def __init__(self, folder: Path, logs: Path, database_url: str, redis_url: str) -> None:
        self._folder = folder
        self.logs = logs
        self._running: dict[str, processes.Process] = {}
        self._sandbox_port, self._web_port = _free_port(), _free_port()
        self.url = f"http://{stack.HOST}:{self._web_port}"
        self.database = urlsplit(database_url).path.strip("/")
        self.env = os.environ | {
            "PORTAL_ENV": "demo",
            "DATA_DIR": str(folder),
            "DATABASE_URL": database_url,
            "REDIS_URL": redis_url,
            "KUBECONFIG": str(self.kubeconfig()),
            "PYTHONUNBUFFERED": "1",
        }
        self.env.pop("SECRET_KEY", None)
        redis.Redis.from_url(redis_url).flushdb()
        try:
            self.start("sandbox")
            self._wait(
                "sandbox", lambda: self.kubeconfig().exists() and stack.answers(self._sandbox_port, "/readyz")
            )
            self.manage("migrate", "--no-input")
            self.manage("seed_demo", "--no-slices")
            for name in ("web", "worker", "watcher", "beat"):
                self.start(name)
            self._wait("web", lambda: stack.answers(self._web_port, "/healthz"))
        except BaseException:
            self.stop()
            raise
        self.logins: dict[str, Any] = json.loads((folder / "demo.json").read_text())

    def kubeconfig(self, who: str = "portal") -> Path:
        """The sandbox's kubeconfig of `portal` or `admin`."""
        return stack.kubeconfig(self._folder / "sandbox", who)

    def start(self, name: str) -> None:
        """Start one of sandbox, web, worker, watcher, beat."""
        command = {
            "sandbox": lambda: stack.sandbox(self._folder / "sandbox", self._sandbox_port),
            "web": lambda: stack.web(self._web_port),
            "worker": lambda: stack.worker(concurrency=1),
            "watcher": stack.watcher,
            "beat": lambda: stack.beat(self._folder),
        }[name]()
        self._running[name] = processes.spawn(command, log=self._log(name), env=self.env, cwd=stack.ROOT)

    def kill(self, name: str) -> None:
        """End one of them without warning."""
        processes.signal_group(self._running[name], 9)
        processes.stop(self._running.pop(name))

    def dead(self) -> list[str]:
        """What ended by itself, with the end of its log."""
        found = []
        for name, process in self._running.items():
            code = processes.exit_code(process)
            if code is not None:
                found.append(f"{name} ended with {code}.\n{tail(self._log(name), 20)}")
        return found

    def stop(self) -> None:
        """End all, the sandbox last."""
        for name in reversed(self._running):
            processes.stop(self._running[name])
        self._running.clear()

    def _log(self, name: str) -> Path:
        return self.logs / f"{name}.log"

    def manage(self, *arguments: str) -> str:
        """Run a management command against the portal's database; returns what it printed."""
        command = [sys.executable, "manage.py", *arguments]
        answer = subprocess.run(
            command, cwd=stack.ROOT, env=self.env, capture_output=True, text=True, check=False
        )
        assert answer.returncode == 0, answer.stderr
        return answer.stdout

    def _wait(self, name: str, ready: Callable[[], bool], seconds: float = 60.0) -> None:
        deadline = time.monotonic() + seconds
        while not ready():
            assert not self.dead(), "\n".join(self.dead())
            assert time.monotonic() < deadline, f"{name} did not answer.\n{tail(self._log(name), 20)}"
            time.sleep(0.05)


def own_database(database_url: str) -> str:
    """The address of a new, empty database beside the given one; that of an earlier run is dropped.

    Workers of xdist share the given one and have one each here.
    """
    parts = urlsplit(database_url)
    name = "_".join([parts.path.strip("/"), "browser", os.environ.get("PYTEST_XDIST_WORKER", "")]).strip("_")
    address = urlunsplit(parts._replace(path=f"/{name}"))
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    return address


def other_number(redis_url: str) -> str:
    """The same Redis server, another of its numbered databases: leftover tasks of other tests must not run here."""
    parts = urlsplit(redis_url)
    number = (int(parts.path.strip("/") or 0) + 8) % 16
    return urlunsplit(parts._replace(path=f"/{number}"))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((stack.HOST, 0))
        return int(probe.getsockname()[1])
