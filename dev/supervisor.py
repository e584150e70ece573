"""Keeps a fixed set of processes running and ends all of them, and nothing else, when told to.

Everything started is a child of this process or an orphan it adopts (PR_SET_CHILD_SUBREAPER), so what is to be ended
is read from the kernel and never guessed from names. If this process is killed, its children get a signal from the
kernel; what survives even that is ended by the next start, which knows them by pid and start time.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import NoReturn

from dev import processes


class Stopped(BaseException):
    """A signal asked to stop. Not an Exception: nothing on the way may take it for a failure."""


class GaveUp(Exception):
    """A part keeps ending; the text names the log, shows its last lines, and says what to do where they tell it."""


@dataclass
class Part:
    """One process to keep running. `launch` starts it and may raise; `last` parts are ended after all others."""

    name: str
    launch: Callable[[], processes.Process]
    log: Path
    stop_signal: int = signal.SIGTERM
    last: bool = False
    process: processes.Process | None = None
    ended_at: list[float] = field(default_factory=list)
    start_again_at: float = 0.0


@dataclass(frozen=True)
class Patience:
    """Seconds and counts of the restarts: the pause doubles; `deaths` within `period` are too many."""

    first_pause: float = 1.0
    longest_pause: float = 30.0
    deaths: int = 5
    period: float = 120.0
    stop: float = 10.0


class Supervisor:
    """See the module. `say` gets one line for each thing that happens; `record` is a file in a private folder."""

    def __init__(self, record: Path, say: Callable[[str], None], patience: Patience | None = None) -> None:
        self._parts: list[Part] = []
        self._command: processes.Process | None = None
        self._in_charge = False
        self._record = record
        self._say = say
        self._patience = patience or Patience()

    def take_over(self) -> None:
        """Adopt orphans, turn signals into Stopped, and end what an earlier run has left."""
        self._in_charge = True
        processes.adopt_orphans()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, _raise_stopped)
        for identity in self._recorded():
            if identity.alive:
                self._say(f"Ending process {identity.pid}, left by an earlier start")
                processes.stop_foreign(identity, patience=self._patience.stop)

    def add(self, part: Part) -> None:
        """Start a part (unless it brings its process) and keep it running from now on."""
        self._parts.append(part)
        if part.process is None:
            part.process = part.launch()
        self._write_record()

    def run(self, command: Sequence[str], log: Path, env: dict[str, str], cwd: Path, name: str) -> None:
        """Run a command to its end while the parts are looked after. Raises GaveUp if it fails."""
        process = self._command = processes.spawn(command, log=log, env=env, cwd=cwd)
        try:
            while (code := processes.exit_code(process)) is None:
                self.look_after()
                time.sleep(0.02)
        finally:
            processes.stop(process, patience=2.0)
            self._command = None
        if code != 0:
            raise GaveUp(f"{name} failed ({_how(code)}).\n{tail(log)}")

    def look_after(self) -> None:
        """Notice parts that ended, start them again when their pause is over. Raises GaveUp."""
        now = time.monotonic()
        for part in self._parts:
            if part.process is not None:
                code = processes.exit_code(part.process)
                if code is not None:
                    self._ended(part, code, now)
            elif now >= part.start_again_at:
                self._start_again(part, now)
        self._reap_orphans()

    def wait_for(self, ready: Callable[[], bool], name: str, log: Path, seconds: float) -> None:
        """Look after the parts until `ready`. Raises GaveUp after `seconds`."""
        if not self.wait(ready, seconds):
            raise GaveUp(f"{name} did not answer within {seconds:.0f} s.\n{tail(log)}")

    def wait(self, ready: Callable[[], bool], seconds: float) -> bool:
        """Look after the parts until `ready`; False after `seconds`. Raises GaveUp where a part keeps ending."""
        deadline = time.monotonic() + seconds
        while not ready():
            self.look_after()
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True

    def forever(self) -> NoReturn:
        """Look after the parts until Stopped or GaveUp is raised."""
        while True:
            self.look_after()
            time.sleep(0.2)

    def stop(self) -> None:
        """End everything: the parts, those marked `last` after the others, then whatever children are left.

        Before take_over() there is nothing to end, and the record is another's.
        """
        if not self._in_charge:
            return
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(
                number, signal.SIG_IGN
            )  # already stopping; a second Ctrl-C must not leave things behind
        for last in (False, True):
            group = [part for part in self._parts if part.last is last]
            for part in group:
                if part.process is not None and processes.exit_code(part.process) is None:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(part.process.pid, part.stop_signal)
            deadline = time.monotonic() + self._patience.stop
            for part in group:
                if part.process is not None:
                    left = max(0.0, deadline - time.monotonic())
                    processes.stop(part.process, first=part.stop_signal, patience=left)
        self._end_orphans()
        self._record.unlink(missing_ok=True)

    def _ended(self, part: Part, code: int, now: float) -> None:
        assert part.process is not None  # noqa: S101 (for mypy)
        processes.stop(part.process)  # reaps it and ends what is left of its group
        part.process = None
        self._died(part, f"ended ({_how(code)})", now)

    def _start_again(self, part: Part, now: float) -> None:
        try:
            part.process = part.launch()
        except Exception as error:  # a launch may fail in any way; it counts as a death
            self._died(part, f"could not be started: {error}", now)
        else:
            self._say(f"{part.name}: started again")
            self._write_record()

    def _died(self, part: Part, how: str, now: float) -> None:
        recent = [moment for moment in part.ended_at if now - moment < self._patience.period]
        part.ended_at = [*recent, now]
        if len(part.ended_at) >= self._patience.deaths:
            raise GaveUp(f"{part.name} {how}, {len(part.ended_at)} times in short order.\n{tail(part.log)}")
        pause = min(self._patience.first_pause * 2 ** len(recent), self._patience.longest_pause)
        part.start_again_at = now + pause
        self._say(f"{part.name} {how}; starting it again in {pause:g} s.\n{tail(part.log)}")

    def _reap_orphans(self) -> None:
        known = [self._command, *(part.process for part in self._parts)]
        ours = {process.pid for process in known if process is not None}
        for pid in processes.children():
            if pid not in ours:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)

    def _end_orphans(self) -> None:
        for _ in range(50):  # each round can bring the children of those that ended in the last one
            left = processes.children()
            if not left:
                return
            for pid in left:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, 0)

    def _write_record(self) -> None:
        running = [part.process.pid for part in self._parts if part.process is not None]
        known = [identity for identity in map(processes.Identity.of, running) if identity is not None]
        fresh = self._record.with_suffix(".new")
        fresh.write_text(json.dumps([[identity.pid, identity.started] for identity in known]))
        fresh.replace(self._record)

    def _recorded(self) -> list[processes.Identity]:
        try:
            return [
                processes.Identity(int(pid), int(started))
                for pid, started in json.loads(self._record.read_text())
            ]
        except (OSError, ValueError, TypeError):
            return []


MENDS = (
    ("no space left on device", "The disk is full: make room."),
    ("address already in use", "Another program holds its port: end that, or choose another PORT."),
    ("cannot allocate memory", "The machine is short of memory: end something else."),
    ("out of memory", "The machine is short of memory: end something else."),
    ("no module named", "The environment is not complete: make install."),
    (
        "connection refused",
        "What it needs does not answer: see that it runs, and what the environment names.",
    ),
    ("permission denied", "It may not use one of its files: see whose they are."),
)
"""What the last lines of a log may say, in lower case, and what to do about it."""


def mend(text: str) -> str:
    """Return what to do about last lines; empty where they do not tell."""
    return next((told for phrase, told in MENDS if phrase in text.lower()), "")


def tail(log: Path, lines: int = 6) -> str:
    """Where a log is, and its last lines."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 4096))
            last = file.read().decode(errors="replace").splitlines()[-lines:]
    except OSError:
        last = []
    return "\n".join([f"  Log: {log}", *(f"  | {line}" for line in last)])


def _how(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def _raise_stopped(number: int, frame: FrameType | None) -> NoReturn:
    for other in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(other, signal.SIG_IGN)
    raise Stopped(signal.Signals(number).name)
