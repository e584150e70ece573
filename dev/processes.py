"""Child processes that end with their parent, and identities that survive the reuse of a pid. Linux only."""

from __future__ import annotations

import contextlib
import ctypes
import os
import pwd
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_KEEPCAPS = 8
_PR_SET_CHILD_SUBREAPER = 36
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_RAISE = 2
_CAP_DAC_OVERRIDE = 1
_CAPABILITY_VERSION_3 = 0x20080522

Process = subprocess.Popen[bytes]

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Identity:
    """A process: pid and clock tick of its start (field 22 of /proc/PID/stat): a reused pid is told."""

    pid: int
    started: int

    @classmethod
    def of(cls, pid: int) -> Identity | None:
        """The process that has `pid` now; None where there is none, or only a zombie."""
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        return None if fields[0] in "ZX" else cls(pid, int(fields[19]))

    @property
    def alive(self) -> bool:
        """Whether this very process still runs."""
        return Identity.of(self.pid) == self


def _prctl(*arguments: int) -> None:
    if _libc.prctl(*(ctypes.c_ulong(argument) for argument in arguments)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def adopt_orphans() -> None:
    """Make this process the parent of orphaned descendants, so that it can find and end them."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def children() -> list[int]:
    """Pids of the direct children of this process, adopted orphans included."""
    found: list[int] = []
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):
            found += [int(pid) for pid in (task / "children").read_text().split()]
    return found


def nobody() -> pwd.struct_passwd:
    """The account a server runs under that refuses to run as root."""
    return pwd.getpwnam("nobody")


def become_nobody() -> None:
    """Give up root, keeping only the right to pass folder permissions (CAP_DAC_OVERRIDE).

    PostgreSQL refuses to run as root. A checkout below /root, which others cannot enter, must work all the
    same, and changing the permissions of the user's folders is not ours to do.
    """
    account = nobody()
    _prctl(_PR_SET_KEEPCAPS, 1, 0, 0, 0)
    os.setgroups([])
    os.setresgid(account.pw_gid, account.pw_gid, account.pw_gid)
    os.setresuid(account.pw_uid, account.pw_uid, account.pw_uid)
    mask = 1 << _CAP_DAC_OVERRIDE
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    data = (ctypes.c_uint32 * 6)(mask, mask, mask, 0, 0, 0)
    if _libc.capset(header, data) == 0:
        with contextlib.suppress(OSError):  # an old kernel: works where the folders can be entered
            _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, _CAP_DAC_OVERRIDE, 0, 0)


def _in_child(parent: int, death_signal: int, drop_root: bool) -> Callable[[], None]:
    def prepare() -> None:
        if drop_root:
            become_nobody()
        _prctl(_PR_SET_PDEATHSIG, death_signal, 0, 0, 0)  # after the change of user, which clears it
        if os.getppid() != parent:
            os._exit(1)

    return prepare


def spawn(
    command: Sequence[str],
    *,
    log: Path,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    death_signal: int = signal.SIGTERM,
    drop_root: bool = False,
) -> Process:
    """Start `command` in a process group of its own, its output appended to `log`.

    It gets `death_signal` when the thread that calls this ends, however that happens.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        return subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=dict(os.environ if env is None else env),
            cwd=cwd,
            start_new_session=True,
            preexec_fn=_in_child(os.getpid(), death_signal, drop_root),
        )


def cpu_s(pid: int) -> float:
    """Seconds of the processor a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_mib(pid: int) -> float:
    """The most memory a process has needed so far, in MiB; 0 where it has ended."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    return 0.0


def exit_code(process: Process) -> int | None:
    """The exit code (negative: signal) of a child that has ended, without reaping it; None while it runs.

    As long as it is not reaped nobody else can get its pid, so its process group can be signalled safely.
    """
    if process.returncode is not None:
        return process.returncode
    try:
        result = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return process.wait()
    if result is None:
        return None
    return result.si_status if result.si_code == os.CLD_EXITED else -result.si_status


def signal_group(process: Process, number: int) -> None:
    """Send a signal to the child's process group; nothing once the child has been reaped."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)


def stop(process: Process, *, first: int = signal.SIGTERM, patience: float = 10.0) -> None:
    """End a child: `first` to it, after `patience` seconds SIGKILL to what is left of its group. Reaps it."""
    if process.returncode is not None:
        return
    if exit_code(process) is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, first)
        deadline = time.monotonic() + patience
        while exit_code(process) is None and time.monotonic() < deadline:
            time.sleep(0.02)
    signal_group(process, signal.SIGKILL)
    process.wait()


def stop_foreign(identity: Identity, *, first: int = signal.SIGTERM, patience: float = 10.0) -> None:
    """End a process that is not our child; does nothing if its pid belongs to another by now."""
    for number, wait in ((first, patience), (signal.SIGKILL, 5.0)):
        if not identity.alive:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(identity.pid, number)
        deadline = time.monotonic() + wait
        while identity.alive and time.monotonic() < deadline:
            time.sleep(0.02)
