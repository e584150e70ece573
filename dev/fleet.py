"""Many real processes of one portal beside each other on loopback, to be killed and started: for faults and bench."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dev import processes, services, stack
from dev.controlplane.client import Client

ROOT = stack.ROOT


class FleetError(Exception):
    """A process did not start; the text holds the end of its log."""


class Fleet:
    """PostgreSQL, Valkey and the sandbox cluster in `folder`, and any number of the portal's own processes.

    `env` is what every process gets; `url` where the pages are; `durable` where the database is to outlive a crash. End
    it with `stop()`, or use it in a `with`.
    """

    def __init__(
        self, folder: Path, *, extra: Mapping[str, str] | None = None, durable: bool = False
    ) -> None:
        self.folder = folder.resolve()
        self.logs = self.folder / "logs"
        bare = {key: value for key, value in os.environ.items() if key not in ("DATABASE_URL", "REDIS_URL")}
        self.services = services.start(self.folder, env=bare, throw_away=not durable)
        self.sandbox_port, self.web_port = free_port(), free_port()
        self.url = f"http://{stack.HOST}:{self.web_port}"
        self.cluster_url = f"http://{stack.HOST}:{self.sandbox_port}"
        self.env = (
            bare
            | {
                "PORTAL_ENV": "demo",
                "DATA_DIR": str(self.folder),
                "KUBECONFIG": str(stack.kubeconfig(self.folder / "sandbox")),
                "DJANGO_SETTINGS_MODULE": "portal.settings",
                "PYTHONUNBUFFERED": "1",
                "API_RATE_TOKEN": "1000000/min",
            }
            | self.services.environment()
            | dict(extra or {})
        )
        self.running: dict[str, processes.Process] = {}
        self._commands: dict[str, list[str]] = {}

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def sandbox(self) -> None:
        """Start the cluster and wait until it answers."""
        self.start("sandbox", stack.sandbox(self.folder / "sandbox", self.sandbox_port))
        self.wait_for("sandbox", lambda: stack.answers(self.sandbox_port, "/readyz"))

    def manage(self, *arguments: str) -> str:
        """Run a management command; return what it printed. Raises FleetError."""
        answer = subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=ROOT,
            env=self.env,
            capture_output=True,
            text=True,
            check=False,
        )
        if answer.returncode:
            raise FleetError(answer.stderr[-3000:])
        return answer.stdout

    def web(self, workers: int = 1, threads: int = 8) -> None:
        """Start the web process with so many workers and wait until it answers."""
        command = stack.web(self.web_port, threads=threads)
        command[command.index("--workers") + 1] = str(workers)
        command[command.index("--access-logfile") + 1] = str(os.devnull)
        self.start("web", command)
        self.wait_for("web", lambda: stack.answers(self.web_port, "/healthz"))

    def start(self, name: str, command: list[str] | None = None) -> None:
        """Start a process of this name; without a command, the one it had before."""
        command = command or self._commands[name]
        self._commands[name] = command
        self.running[name] = processes.spawn(command, log=self.log(name), env=self.env, cwd=ROOT)

    def command(self, name: str) -> list[str]:
        """What a process was started with."""
        return self._commands[name]

    def kill(self, name: str) -> None:
        """End a process and what it has forked, without warning."""
        process = self.running.pop(name)
        processes.signal_group(process, signal.SIGKILL)
        process.wait()

    def children(self, *names: str) -> list[int]:
        """Pids of what these processes have forked."""
        found: list[int] = []
        for name in names:
            process = self.running.get(name)
            if process is None:
                continue
            try:
                for task in Path(f"/proc/{process.pid}/task").iterdir():
                    found += [int(pid) for pid in (task / "children").read_text().split()]
            except OSError:
                continue
        return found

    def dead(self) -> list[str]:
        """Names of processes that ended by themselves."""
        return [name for name, process in self.running.items() if processes.exit_code(process) is not None]

    def wait_for(self, name: str, ready: Callable[[], Any], seconds: float = 90.0) -> None:
        """Wait until `ready`. Raises FleetError where the process ends or takes longer."""
        deadline = time.monotonic() + seconds
        while not ready():
            if processes.exit_code(self.running[name]) is not None or time.monotonic() > deadline:
                raise FleetError(f"{name} did not start.\n{self.tail(name)}")
            time.sleep(0.05)

    def log(self, name: str) -> Path:
        """Where a process writes its log."""
        return self.logs / f"{name}.log"

    def tail(self, name: str, length: int = 3000) -> str:
        """The end of a process's log."""
        try:
            return self.log(name).read_text(errors="replace")[-length:]
        except OSError:
            return ""

    def admin(self) -> Client:
        """A client of the sandbox's API with the rights of its administrator."""
        return Client.from_kubeconfig(stack.kubeconfig(self.folder / "sandbox", "admin"))

    def demo(self) -> dict[str, Any]:
        """What seed_demo wrote: password, logins, api_token."""
        found: dict[str, Any] = json.loads((self.folder / "demo.json").read_text())
        return found

    def stop(self) -> None:
        """End all; the cluster and the services last."""
        for process in self.running.values():
            if process.returncode is None:
                processes.signal_group(process, signal.SIGTERM)
        for name in reversed(list(self.running)):
            processes.stop(self.running.pop(name), patience=3.0)
        self.services.stop()


def free_port() -> int:
    """A port of loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind((stack.HOST, 0))
        return int(probe.getsockname()[1])
