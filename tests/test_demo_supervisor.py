"""The demo's supervisor with stand-in children: what it started ends, nothing else does, whatever died before."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dev import processes, stack
from dev.demo import Demo
from dev.processes import Identity
from dev.supervisor import mend

ROOT = Path(__file__).resolve().parent.parent
DRIVER = """
import sys
from pathlib import Path
from dev import processes
from dev.supervisor import GaveUp, Part, Patience, Stopped, Supervisor

folder = Path(sys.argv[1])
patience = Patience(first_pause=0.05, longest_pause=0.2, deaths=3, period=60, stop=1.0)
supervisor = Supervisor(folder / "children.json", lambda line: print(line, flush=True), patience)
try:
    supervisor.take_over()
    for number, code in enumerate(sys.argv[2:]):
        log = folder / f"{number}.log"
        launch = lambda code=code, log=log: processes.spawn([sys.executable, "-c", code], log=log, cwd=folder)
        supervisor.add(Part(f"part {number}", launch, log))
    print("started", flush=True)
    supervisor.forever()
except Stopped:
    supervisor.stop()
except GaveUp as error:
    print(error, flush=True)
    supervisor.stop()
    sys.exit(1)
"""
SLEEPS = "import os, time; open(f'pid-{os.getpid()}', 'w').close(); time.sleep(60)"
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + SLEEPS
FAILS = "print('no such table'); raise SystemExit(3)"
# Leaves a grandchild in a session of its own behind, as a daemon would.
LEAVES_ONE = (
    f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {SLEEPS!r}], start_new_session=True)"
)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []

    def run(*codes: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", DRIVER, str(tmp_path), *codes]
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.wait()


def eventually(found: Callable[[], object], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not found():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.02)


def stand_ins(folder: Path) -> set[Identity]:
    """Those stand-ins that run now."""
    pids = [int(path.name.removeprefix("pid-")) for path in folder.glob("pid-*")]
    return {identity for identity in map(Identity.of, pids) if identity is not None}


def end(process: subprocess.Popen[str], number: int = signal.SIGTERM) -> str:
    process.send_signal(number)
    return process.communicate(timeout=15)[0]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_everything_started_and_nothing_else(start, tmp_path: Path, number: int) -> None:
    other = subprocess.Popen([sys.executable, "-c", SLEEPS], cwd=tmp_path.parent)
    try:
        demo = start(SLEEPS, DEAF)
        eventually(lambda: len(stand_ins(tmp_path)) == 2)
        end(demo, number)
        assert demo.returncode == 0
        assert stand_ins(tmp_path) == set()
        assert not (tmp_path / "children.json").exists()
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_orphans_of_a_dead_part_are_ended_too(start, tmp_path: Path) -> None:
    demo = start(SLEEPS, LEAVES_ONE)
    eventually(lambda: len(stand_ins(tmp_path)) >= 2)
    end(demo)
    assert stand_ins(tmp_path) == set()


def test_a_killed_part_is_told_and_started_again(start, tmp_path: Path) -> None:
    demo = start(SLEEPS)
    eventually(lambda: len(stand_ins(tmp_path)) == 1)
    first = stand_ins(tmp_path).pop()
    os.kill(first.pid, signal.SIGKILL)
    eventually(lambda: stand_ins(tmp_path) - {first})
    output = end(demo)
    assert "part 0 ended (signal SIGKILL); starting it again in 0.05 s." in output
    assert f"Log: {tmp_path / '0.log'}" in output
    assert stand_ins(tmp_path) == set()


def test_a_part_that_keeps_ending_ends_all_with_its_last_lines(start, tmp_path: Path) -> None:
    demo = start(SLEEPS, FAILS)
    output = demo.communicate(timeout=15)[0]
    assert demo.returncode == 1
    assert "part 1 ended (exit code 3), 3 times in short order." in output
    assert f"Log: {tmp_path / '1.log'}\n  | no such table" in output
    assert stand_ins(tmp_path) == set()


def test_a_stop_while_a_part_is_down_ends_the_others(start, tmp_path: Path) -> None:
    demo = start(SLEEPS, "import time; time.sleep(0.3); raise SystemExit(1)")
    for line in demo.stdout:
        if "starting it again" in line:
            break
    end(demo)
    assert demo.returncode == 0
    assert stand_ins(tmp_path) == set()


def test_children_end_when_the_supervisor_is_killed(start, tmp_path: Path) -> None:
    demo = start(SLEEPS)
    eventually(lambda: len(stand_ins(tmp_path)) == 1)
    demo.kill()
    eventually(lambda: not stand_ins(tmp_path))


def test_the_next_start_ends_what_survived_a_killed_supervisor(start, tmp_path: Path) -> None:
    demo = start(DEAF)
    eventually(lambda: len(stand_ins(tmp_path)) == 1 and (tmp_path / "children.json").exists())
    survivor = stand_ins(tmp_path).pop()
    demo.kill()
    demo.wait()
    time.sleep(0.2)
    assert survivor.alive
    again = start(SLEEPS)
    eventually(lambda: not survivor.alive)
    eventually(lambda: len(stand_ins(tmp_path)) == 1)
    assert f"Ending process {survivor.pid}, left by an earlier start" in end(again)


def test_a_pid_that_belongs_to_another_by_now_is_left_alone(start, tmp_path: Path) -> None:
    other = subprocess.Popen([sys.executable, "-c", SLEEPS], cwd=tmp_path.parent)
    try:
        identity = Identity.of(other.pid)
        assert identity is not None
        (tmp_path / "children.json").write_text(json.dumps([[other.pid, identity.started - 1]]))
        demo = start(SLEEPS)
        eventually(lambda: len(stand_ins(tmp_path)) == 1)
        end(demo)
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_a_damaged_record_does_not_stop_the_start(start, tmp_path: Path) -> None:
    (tmp_path / "children.json").write_text("[[1")
    demo = start(SLEEPS)
    eventually(lambda: len(stand_ins(tmp_path)) == 1)
    end(demo)
    assert demo.returncode == 0


def test_the_identity_of_a_zombie_is_none(tmp_path: Path) -> None:
    child = processes.spawn([sys.executable, "-c", "pass"], log=tmp_path / "log")
    eventually(lambda: processes.exit_code(child) == 0)
    assert Identity.of(child.pid) is None
    processes.stop(child)
    assert child.returncode == 0


# The command itself, as far as it goes without starting anything.


def demo_command(folder: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if name not in ("PORT", "KUBECONFIG")}
    command = [sys.executable, "-m", "dev.demo", *arguments]
    env = clean | {"DATA_DIR": str(folder)} | env
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=30, check=False)


@contextlib.contextmanager
def running(folder: Path) -> Iterator[int]:
    code = "import sys, time; from dev.demo import Demo; d = Demo({'DATA_DIR': sys.argv[1]}); "
    code += "d.lock({'url': 'http://127.0.0.1:8123'}); print('locked', flush=True); time.sleep(60)"
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(folder)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        yield process.pid
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("arguments", [(), ("--reset",)])
def test_a_second_start_and_a_reset_say_where_the_first_one_runs(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    (tmp_path / "children.json").write_text("[]")
    with running(tmp_path) as pid:
        answer = demo_command(tmp_path, *arguments)
    assert answer.returncode == 1
    assert f"The demo is already running: http://127.0.0.1:8123 (process {pid})." in answer.stderr
    assert (tmp_path / "children.json").exists()


def test_a_killed_demo_leaves_no_lock(tmp_path: Path) -> None:
    with running(tmp_path):
        pass
    assert demo_command(tmp_path, "--reset").returncode == 0


def test_a_taken_port_is_told_with_the_mend(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        answer = demo_command(tmp_path, PORT=str(port))
    assert answer.returncode == 1
    assert (
        f"Port {port} is taken by another program. Choose another: make demo PORT={port % 65535 + 1}"
        in answer.stderr
    )


@pytest.mark.parametrize("port", ["0", "65536", "http", "-1"])
def test_a_port_that_is_none_is_refused(tmp_path: Path, port: str) -> None:
    answer = demo_command(tmp_path, PORT=port)
    assert answer.returncode == 1
    assert f"PORT={port} is no port" in answer.stderr


def test_reset_empties_the_folder_and_names_what_it_leaves(tmp_path: Path) -> None:
    (tmp_path / "postgres").mkdir()
    (tmp_path / "postgres" / "PG_VERSION").write_text("18")
    (tmp_path / "secret_key").write_text("x")
    (tmp_path / "test").mkdir()
    answer = demo_command(tmp_path, "--reset", KUBECONFIG="/somewhere")
    assert answer.returncode == 0
    assert {path.name for path in tmp_path.iterdir()} == {"demo.lock", "test"}
    assert "KUBECONFIG is set: what is there was left alone." in answer.stdout


def test_giving_up_names_log_and_mend(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    nothing = {"DATABASE_URL": "postgres://u:p@127.0.0.1:1/x", "REDIS_URL": "redis://127.0.0.1:1/0"}
    answer = demo_command(tmp_path, PORT=str(port), KUBECONFIG="/nowhere", **nothing)
    assert answer.returncode == 1
    assert f"Log: {tmp_path / 'logs' / 'migrate.log'}" in answer.stderr
    assert "What to do: What it needs does not answer: see that it runs" in answer.stderr
    assert f"make demo-reset starts afresh: it empties {tmp_path} and nothing else." in answer.stderr


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("could not write: No space left on device", "The disk is full"),
        ("OSError: [Errno 98] Address already in use", "Another program holds its port"),
        ("ModuleNotFoundError: No module named 'x'", "make install"),
        ("ValueError: x", ""),
    ],
)
def test_what_the_last_lines_tell_to_do(text: str, told: str) -> None:
    assert told in mend(text)
    assert bool(mend(text)) is bool(told)


def test_ready_is_said_once_worker_beat_and_every_watch_are_at_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo = Demo({"DATA_DIR": str(tmp_path)})
    demo.logs.mkdir()
    (demo.logs / "beat.log").write_text("old line\n")
    fresh, old, never = {"age_s": 1.0}, {"age_s": 9.0}, {"age_s": None}
    told: dict[str, object] = {"worker": fresh, "sweep": fresh, "watcher": {"default": fresh}}
    monkeypatch.setattr(stack, "ready", lambda port: told)
    assert not demo._at_work(5.0, 9)  # beat has written nothing new
    assert demo._at_work(5.0, 0)
    for name, sign in (("worker", never), ("sweep", old), ("watcher", {"default": fresh, "west": old})):
        monkeypatch.setattr(stack, "ready", lambda port, name=name, sign=sign: told | {name: sign})
        assert not demo._at_work(5.0, 0)
    for answer in ({}, told | {"watcher": {}}):
        monkeypatch.setattr(stack, "ready", lambda port, answer=answer: answer)
        assert not demo._at_work(5.0, 0)
