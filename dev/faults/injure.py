"""Carries one injection out. Every one waits until it has struck, or says that it found nothing to strike."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psycopg
import redis

from dev import processes, stack
from dev.faults.plan import WRITES, Injection
from dev.fleet import Fleet

WORKERS = ("worker1", "worker2")
WATCHERS = ("watcher1", "watcher2")
STRIKE_S = 1.0
"""How long an injection waits for a request it can strike."""


class Injurer:
    """Knows how to do every kind of plan.WEIGHTS to a fleet."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._admin = fleet.admin()
        self._right: dict[str, list[str]] = {}
        self._kinds: dict[str, Callable[[dict[str, Any]], bool]] = {
            "step_killed_before": lambda n: self._kill_at_step("latency", n),
            "step_killed_after": lambda n: self._kill_at_step("late", n),
            "worker_child_killed": self._kill_child,
            "web_killed": self._kill_web,
            "web_killed_in_transaction": self._kill_web_in_transaction,
            "api_latency": lambda n: self._misbehave(n, kind="latency", seconds=n["seconds"], ratio=0.5),
            "api_429": lambda n: self._misbehave(n, kind="status", code=429, retry_after=1),
            "api_500": lambda n: self._misbehave(n, kind="status", code=500),
            "api_dropped": lambda n: self._misbehave(n, kind="drop"),
            "api_half": lambda n: self._misbehave(n, kind="half"),
            "api_lost": lambda n: self._misbehave(n, kind="lost"),
            "api_compacted": self._compact,
            "broker_emptied": self._empty_broker,
            "watcher_killed": lambda n: self._restart(WATCHERS[n["number"] % 2]),
            "worker_killed": lambda n: self._restart(WORKERS[n["number"] % 2]),
            "beat_killed": lambda n: self._restart("beat"),
            "broker_restarted": self._restart_broker,
            "database_restarted": self._restart_database,
            "api_away": self._api_away,
            "watch_silent": self._silence,
            "clock_wrong": self._wrong_clock,
        }

    def inject(self, injection: Injection) -> bool:
        """Do it; whether it struck something."""
        time.sleep(injection.pause)
        return self._kinds[injection.kind](injection.numbers)

    def heal(self) -> None:
        """Take all standing faults back; dead processes are started again, wrong clocks set right."""
        with suppress(OSError):
            self._admin.call("DELETE", "/sandbox/faults")
        for name, command in self._right.items():
            self._fleet.kill(name)
            self._fleet.start(name, command)
        self._right.clear()
        for name in self._fleet.dead():
            self._fleet.running.pop(name).wait()
            self._fleet.start(name)

    def _faults(self, *faults: dict[str, Any]) -> None:
        answer = self._admin.call("POST", "/sandbox/faults", {"faults": list(faults)})
        if not answer.ok:
            raise RuntimeError(f"sandbox: {answer.message}")

    def _hits(self) -> int:
        found = self._admin.call("GET", "/sandbox/faults").body["faults"]
        return sum(fault["hits"] for fault in found)

    def _struck(self) -> bool:
        deadline = time.monotonic() + STRIKE_S
        while time.monotonic() < deadline:
            if self._hits():
                return True
            time.sleep(0.02)
        return False

    def _kill_at_step(self, kind: str, numbers: dict[str, Any]) -> bool:
        """Kill the workers' children while the request of this step has not been, or has been, carried out."""
        fault = {"kind": kind, "method": numbers["method"], "path": numbers["path"], "count": 1}
        self._faults(fault | {"seconds": 0.4})
        struck = self._struck()
        if struck:
            if kind == "late":
                time.sleep(0.05)  # the sandbox writes before it waits
            for pid in self._fleet.children(*WORKERS):
                _kill(pid)
        self._admin.call("DELETE", "/sandbox/faults")
        return struck

    def _misbehave(self, numbers: dict[str, Any], **fault: Any) -> bool:
        self._faults(fault | {"count": numbers["count"], "seed": numbers["seed"], "path": WRITES})
        struck = self._struck()
        time.sleep(0.1)
        self._admin.call("DELETE", "/sandbox/faults")
        return struck

    def _kill_child(self, numbers: dict[str, Any]) -> bool:
        pids = self._fleet.children(*WORKERS)
        if pids:
            _kill(pids[numbers["number"] % len(pids)])
        return bool(pids)

    def _kill_web(self, numbers: dict[str, Any]) -> bool:
        pids = self._fleet.children("web")
        if pids:
            _kill(pids[numbers["number"] % len(pids)])
        return bool(pids)

    def _kill_web_in_transaction(self, numbers: dict[str, Any]) -> bool:
        """Hold the projects' rows until a request waits for one, and kill its process there."""
        with psycopg.connect(self._fleet.services.database_url, connect_timeout=5) as lock:
            lock.execute("SELECT 1 FROM tenants_project FOR UPDATE")
            waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            deadline = time.monotonic() + STRIKE_S
            struck = False
            with psycopg.connect(self._fleet.services.database_url, autocommit=True) as look:
                while not struck and time.monotonic() < deadline:
                    row = look.execute(waiting).fetchone()
                    struck = bool(row and row[0])
                    time.sleep(0.02)
            if struck:
                for pid in self._fleet.children("web"):
                    _kill(pid)
        return struck

    def _compact(self, numbers: dict[str, Any]) -> bool:
        self._admin.call("POST", "/sandbox/compact")
        self._fleet.kill("watcher1")  # whoever goes on from an old version is told that it is gone
        self._fleet.start("watcher1")
        return True

    def _empty_broker(self, numbers: dict[str, Any]) -> bool:
        redis.Redis.from_url(self._fleet.services.redis_url, socket_timeout=5).flushall()
        return True

    def _restart(self, name: str) -> bool:
        self._fleet.kill(name)
        self._fleet.start(name)
        return True

    def _restart_broker(self, numbers: dict[str, Any]) -> bool:
        process = self._fleet.services.valkey
        if process is None:
            return False
        processes.stop(process, first=signal.SIGKILL)
        time.sleep(numbers["seconds"])
        self._fleet.services.start_valkey()
        return True

    def _restart_database(self, numbers: dict[str, Any]) -> bool:
        process = self._fleet.services.postgres
        if process is None:
            return False
        crash = numbers["number"] % 2
        processes.stop(process, first=signal.SIGQUIT if crash else signal.SIGINT)
        time.sleep(numbers["seconds"])
        self._fleet.services.start_postgres()
        return True

    def _api_away(self, numbers: dict[str, Any]) -> bool:
        self._fleet.kill("sandbox")
        time.sleep(numbers["seconds"])
        self._fleet.start("sandbox")
        self._fleet.wait_for("sandbox", lambda: stack.answers(self._fleet.sandbox_port, "/readyz"))
        return True

    def _silence(self, numbers: dict[str, Any]) -> bool:
        """The next watches that are opened say nothing; a watcher that is started anew opens them."""
        self._faults({"kind": "silent", "path": "watch=", "count": 1 + numbers["count"] % 3})
        for name in WATCHERS:
            self._restart(name)
        deadline = time.monotonic() + 15.0
        while not self._hits() and time.monotonic() < deadline:
            time.sleep(0.1)
        struck = self._hits() > 0
        self._admin.call("DELETE", "/sandbox/faults")
        return struck

    def _wrong_clock(self, numbers: dict[str, Any]) -> bool:
        """Start one process anew with a clock that is wrong; the one that had it before gets the right one."""
        for name, command in self._right.items():
            self._fleet.kill(name)
            self._fleet.start(name, command)
        self._right.clear()
        name = ("worker1", "beat", "watcher1", "worker2", "watcher2")[numbers["number"] % 5]
        command = self._fleet.command(name)
        self._right[name] = command
        python, *rest = command
        module = rest[1:] if rest[0] == "-m" else rest
        self._fleet.kill(name)
        self._fleet.start(name, [python, "-m", "dev.faults.wrong_clock", str(numbers["offset"]), *module])
        return True


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
