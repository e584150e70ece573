"""`make demo`: the portal with everything it needs, on this machine, for one person.

Starts what the environment does not name (PostgreSQL, Valkey, the sandbox cluster), brings the database up to date,
fills it, starts web, worker, beat and watcher, and looks after them until Ctrl-C or SIGTERM. PORT, DATABASE_URL,
REDIS_URL, KUBECONFIG, DATA_DIR and CLUSTER=controlplane (a real one instead of the sandbox) change what it uses.
`python -m dev.demo --reset` empties its data.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from io import TextIOWrapper
from pathlib import Path

from dev import messages, processes, services, stack
from dev.supervisor import GaveUp, Part, Stopped, Supervisor, mend

ROOT = stack.ROOT
HOST = stack.HOST
LONGEST_WAIT_S = 20.0
"""Seconds that the first signs of life of worker, beat and watcher are waited for once the pages answer."""
LONGEST_LOG = 10_000_000
"""Bytes; a longer log is put aside at the next start."""


class Refused(Exception):
    """The demo cannot start; the text says why and what to do."""


def say(line: str) -> None:
    """One line to the person at the terminal, at once."""
    print(line, flush=True)


class Demo:
    """One start of the demo: its folder, its address, its supervisor."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self.env = dict(env)
        self.data = Path(env.get("DATA_DIR") or ROOT / ".data").resolve()
        self.logs = self.data / "logs"
        self.supervisor = Supervisor(self.data / "children.json", say)
        self._lock: TextIOWrapper | None = None

    @property
    def port(self) -> int:
        """The port of the pages, from PORT. Raises Refused."""
        text = self.env.get("PORT") or "8000"
        if not text.isdecimal() or not 0 < int(text) < 65536:
            raise Refused(f"PORT={text} is no port: a number from 1 to 65535 is needed.")
        return int(text)

    def lock(self, about: Mapping[str, object]) -> None:
        """Keep a second start, or a reset, out of the folder until this process ends. Raises Refused."""
        self.data.mkdir(parents=True, exist_ok=True)
        self._lock = (self.data / "demo.lock").open("a+")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Refused(_running(self._lock)) from None
        self._lock.truncate(0)
        json.dump({"pid": os.getpid(), **about}, self._lock)
        self._lock.flush()

    def start(self) -> None:
        """Start everything and stay until it is to end. Raises Stopped, GaveUp, Refused, ServiceError."""
        url = f"http://{HOST}:{self.port}"
        self.lock({"url": url})
        self.supervisor.take_over()
        _refuse_taken_port(self.port)
        if self.env.get("CLUSTER", "") not in ("", "sandbox", "controlplane"):
            raise Refused(f"CLUSTER={self.env['CLUSTER']} is not known: sandbox or controlplane.")
        self._put_long_logs_aside()
        messages.compile_catalogues()
        self.env |= {
            "PORTAL_ENV": "demo",
            "PORTAL_DEMO": "1",
            "DATA_DIR": str(self.data),
            "SECRET_KEY_FILE": str(self._secret_key()),
            "DJANGO_SETTINGS_MODULE": "portal.settings",
            "PYTHONUNBUFFERED": "1",
        }
        # Each part starts as soon as what it needs is there: they share the cores while they load.
        cluster_ready = self._start_cluster(self._start_services())
        say("Database: bringing it up to date")
        self._manage("migrate", "--no-input")
        say("Web: starting")
        self._add("web", stack.web(self.port))
        say("Demo data: filling in what is missing")
        self._manage("seed_demo")
        cluster_ready()
        say("Worker, watcher and beat: starting")
        began, beat_log = time.monotonic(), _size(self.logs / "beat.log")
        self._add("worker", stack.worker())
        self._add("watcher", stack.watcher())
        self._add("beat", stack.beat(self.data))
        self.supervisor.wait_for(
            lambda: stack.answers(self.port, "/"), "The web process", self.logs / "web.log", 60
        )
        if not self.supervisor.wait(
            lambda: self._at_work(time.monotonic() - began, beat_log), LONGEST_WAIT_S
        ):
            say(f"Worker, watcher and beat are not all at work yet; see their logs in {self.logs}.")
        self._tell(url)
        self.supervisor.forever()

    def _at_work(self, since_s: float, beat_log: int) -> bool:
        """Whether worker, sweep and every watch have given a sign of life in the last `since_s` seconds, and beat has
        written to its log, which had `beat_log` bytes before."""
        if _size(self.logs / "beat.log") <= beat_log:
            return False
        told = stack.ready(self.port)
        signs = [told.get("worker"), told.get("sweep"), *(told.get("watcher") or {"": None}).values()]
        return all(sign and sign["age_s"] is not None and sign["age_s"] < since_s for sign in signs)

    def reset(self) -> None:
        """Remove all data of the demo. Raises Refused while it runs."""
        self.lock({"url": "being emptied"})
        self.supervisor.take_over()
        for path in self.data.iterdir():
            if path.name in ("demo.lock", "install.lock", "test"):  # in use by this process or by others
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        say(f"Emptied {self.data}")
        for name in ("DATABASE_URL", "REDIS_URL", "KUBECONFIG"):
            if self.env.get(name):
                say(f"{name} is set: what is there was left alone.")

    def _secret_key(self) -> Path:
        path = self.data / "secret_key"
        if not path.exists():
            services.write_private(path, secrets.token_urlsafe(50))
        return path

    def _put_long_logs_aside(self) -> None:
        self.logs.mkdir(exist_ok=True)
        for log in self.logs.glob("*.log"):
            if log.stat().st_size > LONGEST_LOG:
                log.replace(log.with_suffix(".log.old"))

    def _start_services(self) -> services.Memory:
        for name, what in (("DATABASE_URL", "PostgreSQL"), ("REDIS_URL", "Redis")):
            if self.env.get(name):
                say(f"{what}: using the server of {name}")
        started = services.start(self.data, env=self.env, say=say)
        self.env |= started.environment()

        for name, launch, process, number in (
            ("PostgreSQL", started.start_postgres, started.postgres, signal.SIGINT),
            ("Valkey", started.start_valkey, started.valkey, signal.SIGTERM),
        ):
            if process is not None:
                log = self.logs / ("postgres.log" if name == "PostgreSQL" else "valkey.log")
                part = Part(name, launch, log, stop_signal=number, last=True, process=process)
                self.supervisor.add(part)
        return started.memory

    def _start_cluster(self, memory: services.Memory) -> Callable[[], None]:
        """Start the cluster and name its kubeconfig; what is returned waits until it answers."""
        if self.env.get("KUBECONFIG"):
            say(f"Cluster: using KUBECONFIG={self.env['KUBECONFIG']}")
            return lambda: None
        kind = self.env.get("CLUSTER") or "sandbox"
        folder = self.data / kind
        kubeconfig = stack.kubeconfig(folder)
        self.env["KUBECONFIG"] = str(kubeconfig)
        log = self.logs / f"{kind}.log"
        if kind == "sandbox":
            port = memory.port("sandbox_port")
            say(f"Sandbox cluster: starting on port {port}")
            self._add(kind, stack.sandbox(folder, port), last=True)
            return lambda: self.supervisor.wait_for(
                lambda: kubeconfig.exists() and stack.answers(port, "/readyz"), "The sandbox cluster", log, 60
            )
        say(
            f"Kubernetes control plane: starting; where it must be built first, this takes minutes (log: {log})"
        )
        kubeconfig.unlink(missing_ok=True)
        self._add(kind, stack.control_plane(folder), last=True)

        def wait() -> None:
            self.supervisor.wait_for(kubeconfig.exists, "The control plane", log, 1800)
            self._make_namespaces(stack.kubeconfig(folder, "admin"))

        return wait

    def _make_namespaces(self, kubeconfig: Path) -> None:
        """The demo's projects on a real control plane; the sandbox makes them itself."""
        import yaml

        from dev.controlplane.client import Client

        client = Client.from_kubeconfig(kubeconfig)
        for document in yaml.safe_load_all((ROOT / "sandbox" / "demo.yaml").read_text()):
            answer = client.apply(document)
            if not answer.ok:
                raise GaveUp(
                    f"The control plane did not take {document['metadata']['name']}: {answer.message}"
                )

    def _add(self, name: str, command: list[str], *, last: bool = False) -> None:
        log = self.logs / f"{name}.log"
        env = dict(self.env)
        part = Part(name, lambda: processes.spawn(command, log=log, env=env, cwd=ROOT), log, last=last)
        self.supervisor.add(part)

    def _manage(self, *arguments: str) -> None:
        log = self.logs / f"{arguments[0]}.log"
        command = [sys.executable, "manage.py", *arguments]
        self.supervisor.run(command, log, self.env, ROOT, f"manage.py {arguments[0]}")

    def _tell(self, url: str) -> None:
        say(f"\nPortal ready: {url}\n")
        try:
            known = json.loads((self.data / "demo.json").read_text())
        except (OSError, ValueError):
            known = {}
        for line in describe(known):
            say(f"  {line}")
        say(f"\nLogs: {self.logs}. Ctrl-C stops everything; the data is kept (make demo-reset empties it).")


def describe(known: Mapping[str, object]) -> list[str]:
    """Lines for what seed_demo wrote into demo.json: logins (user, what), their password, an API token."""
    logins = known.get("logins")
    lines = [f"{login['user']:<24} {login['what']}" for login in logins] if isinstance(logins, list) else []
    for name, title in (("password", "Password of all"), ("api_token", "API token")):
        if known.get(name):
            lines.append(f"{title:<24} {known[name]}")
    return lines


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _what_to_do(told: str, data: Path) -> str:
    """Return what a person can do when a part keeps ending."""
    return (
        f"What to do: {mend(told) or 'mend what the last lines name.'} Then run make demo again; your data is kept.\n"
        f"Where the data itself is broken, make demo-reset starts afresh: it empties {data} and nothing else."
    )


def _running(lock: TextIOWrapper) -> str:
    lock.seek(0)
    try:
        about = json.loads(lock.read())
        return (
            f"The demo is already running: {about['url']} (process {about['pid']}). "
            f"Stop it with Ctrl-C in its terminal or with: kill {about['pid']}"
        )
    except (ValueError, KeyError):
        return "The demo is already being started from this checkout."


def _refuse_taken_port(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except PermissionError:
            raise Refused(f"Port {port} is reserved for root. Choose another: make demo PORT=8001") from None
        except OSError:
            raise Refused(
                f"Port {port} is taken by another program. Choose another: make demo PORT={port % 65535 + 1}"
            ) from None


def main(arguments: list[str]) -> int:
    """Run the demo or empty its data; 0 after a stop that was asked for, 1 with a sentence on stderr otherwise."""
    os.umask(0o077)  # keys, tokens and the database are this user's alone
    demo = Demo(os.environ)
    try:
        if "--reset" in arguments:
            demo.reset()
        else:
            demo.start()
    except Stopped as stopped:
        say(f"\nStopping everything ({stopped})")
        demo.supervisor.stop()
        say("Stopped.")
    except (GaveUp, Refused, services.ServiceError) as error:
        print(f"\n{error}", file=sys.stderr, flush=True)
        if isinstance(error, GaveUp):
            print(_what_to_do(str(error), demo.data), file=sys.stderr, flush=True)
        demo.supervisor.stop()
        return 1
    except BaseException:
        demo.supervisor.stop()
        raise
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
