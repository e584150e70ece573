"""The pull agent's sums, its clock, and how it ends: stalls, deadlines, signals, a server that is not there."""

from __future__ import annotations

import ast
import itertools
import json
import queue
import signal
import socket
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ollama_replay import SOURCE, Answer, finish, pull, recorded, serving, start, tags
from worker import pull_agent
from worker.pull_agent import Agent, Ended, Progress

EMPTY = tags()
LISTED = tags("llama3.2:3b")
MIB = 1024 * 1024


def layer(name: str, completed: int | None, total: int = 40 * MIB) -> dict[str, object]:
    """A line about a layer; `completed` None is left out, as Ollama does with 0."""
    line: dict[str, object] = {"status": f"pulling {name}", "digest": f"sha256:{name}", "total": total}
    return line if completed is None else line | {"completed": completed}


def played(name: str) -> list[dict[str, object]]:
    """What the agent tells after each line of a recorded pull, a second for each."""
    progress = Progress()
    found = []
    for number, line in enumerate(recorded(f"pull/{name}.ndjson").splitlines(), 1):
        at = progress.history[0][0] + number
        progress.take(json.loads(line), at)
        found.append(progress.report(at))
    return found


@pytest.mark.parametrize("name", ["tiny", "two-layers", "reset-once", "reset", "drop", "stall", "resume"])
def test_percent_and_bytes_never_go_backwards(name: str) -> None:
    reports = played(name)
    for key in ("percent", "completed", "total", "layers"):
        values = [report[key] for report in reports]
        assert values == sorted(values)  # type: ignore[type-var]
    assert all(report["percent"] <= 99.0 for report in reports)  # type: ignore[operator]


def test_layers_are_summed() -> None:
    last = played("two-layers")[-1]
    assert (last["completed"], last["total"], last["layers"]) == (80 * MIB + 222, 80 * MIB + 222, 4)
    assert last["step"] == "success"


def test_steps_have_names() -> None:
    steps = list(dict.fromkeys(report["step"] for report in played("updated-tag")))
    assert steps == ["pulling manifest", "pulling", "verifying", "writing", "removing", "success"]


def test_a_missing_completed_is_nothing() -> None:
    progress = Progress()
    progress.take(layer("a", None), 1.0)
    assert progress.sums() == {"completed": 0, "total": 40 * MIB}


def test_only_growth_beyond_the_highest_is_life() -> None:
    progress = Progress()
    progress.take(layer("a", 14 * MIB), 1.0)
    for at, completed in ((2.0, 14 * MIB), (3.0, None), (4.0, 5 * MIB), (5.0, 14 * MIB)):
        progress.take(layer("a", completed), at)
        assert progress.grew == 1.0
    progress.take(layer("a", 15 * MIB), 6.0)
    assert progress.grew == 6.0


def test_speed_leaves_out_what_was_there() -> None:
    progress = Progress()
    begin = progress.grew
    progress.take(layer("a", 20 * MIB), begin)
    assert progress.report(begin)["speed"] == 0
    progress.take(layer("a", 22 * MIB), begin + 1)
    report = progress.report(begin + 1)
    assert (report["speed"], report["eta_s"]) == (2 * MIB, 9)
    assert progress.report(begin + 30)["speed"] == 0
    assert progress.report(begin + 31)["eta_s"] is None


class Pieces:
    """An answer that comes in these pieces."""

    def __init__(self, pieces: list[bytes]) -> None:
        self.left = [piece for piece in pieces if piece]

    def read1(self, size: int) -> bytes:
        return self.left.pop(0) if self.left else b""


@given(st.sampled_from(["tiny", "reset", "html", "secret"]), st.lists(st.integers(1, 3000), max_size=20))
def test_whatever_the_borders_the_lines_are_the_same(name: str, cuts: list[int]) -> None:
    data = recorded(f"pull/{name}.ndjson")
    places = sorted({0, len(data), *(cut % len(data) for cut in cuts)})
    lines: queue.Queue[list[bytes] | None] = queue.Queue()
    pull_agent.read(
        Pieces([data[a:b] for a, b in itertools.pairwise(places)]),  # type: ignore[arg-type]
        lines,
    )
    found: list[bytes] = []
    while (batch := lines.get_nowait()) is not None:
        found += batch
    assert found == data.splitlines()


def test_a_line_a_second_and_the_order_of_things() -> None:
    lines = [layer("a", n * MIB) for n in range(1, 41)]
    answer = pull(*lines, {"status": "success"}, pause=0.06)
    with serving(pull=answer, tags=[EMPTY, LISTED]) as server:
        run = finish(start(server.port))
    assert run.outcome == ("done", "", False, 0)
    progress = run.of("progress")
    assert 3 <= len(progress) <= 10  # 2.4 s of lines; more where the machine is busy
    assert [line["kind"] for line in run.lines] == ["progress"] * len(progress) + ["models", "verdict"]
    assert progress[0]["step"] == "connecting"
    assert 0 < progress[-1]["percent"] < 99.1
    assert progress[-1]["speed"] > MIB
    assert all(line["v"] == 1 and line["at"].endswith("Z") for line in run.lines)


@pytest.mark.parametrize("forever", [True, False])
def test_a_stall_is_told_and_ends(forever: bool) -> None:
    # Lines go on for ever, or the server falls silent: both are no life.
    answer = pull(layer("a", 14 * MIB), layer("a", 2 * MIB), pause=0.06 if forever else 20.0, forever=forever)
    with serving(pull=answer, tags=EMPTY) as server:
        run = finish(start(server.port, STALL_SECONDS=1, STALL_LIMIT_SECONDS=3))
    assert run.outcome == ("interrupted", "stalled", True, 1)
    told = [line["stalled_s"] for line in run.of("stall")]
    assert told == sorted(set(told))
    assert 2 <= len(told) <= 3
    assert told[-1] >= 3
    assert run.of("stall")[-1]["percent"] == 35.0
    assert run.verdict["completed"] == 14 * MIB


def test_a_silent_verification_is_no_stall(capfd: pytest.CaptureFixture[str]) -> None:
    agent = Agent({"DEADLINE_SECONDS": "1e9"})
    agent.progress.take(layer("a", 30_000_000_000, 30_000_000_000), 0.0)
    agent.progress.take({"status": "verifying sha256 digest"}, 1.0)
    agent.tell(3600.0)  # 600 s, and 3000 s for 30 GB at 10 MB/s
    assert json.loads(capfd.readouterr().out)["kind"] == "progress"
    with pytest.raises(Ended) as caught:
        agent.tell(3601.5)
    assert caught.value.cause == "stalled"


def test_the_deadline() -> None:
    answer = pull(*(layer("a", n * MIB) for n in range(1, 41)), pause=0.2)
    with serving(pull=answer, tags=EMPTY) as server:
        run = finish(start(server.port, DEADLINE_SECONDS=1.5))
    assert run.outcome == ("time_limit", "", False, 2)


def test_the_end_by_signal(tmp_path: Path) -> None:
    note = tmp_path / "termination-log"
    note.touch()
    answer = pull(layer("a", 10 * MIB), pause=0.05, forever=True)
    with serving(pull=answer, tags=EMPTY) as server:
        process = start(server.port, note)
        assert process.stdout is not None
        while not json.loads(process.stdout.readline()).get("completed"):
            pass
        process.send_signal(signal.SIGTERM)
        run = finish(process)
    assert run.outcome == ("interrupted", "terminated", True, 1)
    assert run.verdict["completed"] == 10 * MIB
    assert json.loads(note.read_text()) == run.verdict


def test_a_server_that_is_still_starting_is_waited_for() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = start(port, START_SECONDS=20)
    time.sleep(1.0)
    with serving(port, pull=pull({"status": "success"}), tags=[EMPTY, LISTED]):
        assert finish(process).outcome == ("done", "", False, 0)


def test_nobody_there() -> None:
    begin = time.monotonic()
    run = finish(start(1, START_SECONDS=1))
    assert run.outcome == ("unreachable", "", True, 1)
    assert time.monotonic() - begin > 1.0
    run = finish(start(1, OLLAMA_URL="http://no-such-service.invalid:11434"))
    assert run.outcome == ("unreachable", "", True, 1)


def test_what_is_no_http_is_not_ollama() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def greet() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")

        threading.Thread(target=greet, daemon=True).start()
        run = finish(start(listener.getsockname()[1]))
    assert run.outcome == ("not_ollama", "", True, 1)


def test_proxies_are_not_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    with serving(tags=LISTED) as server:
        assert finish(start(server.port, AGENT_MODE="list")).outcome == ("done", "", False, 0)


def test_a_server_that_ends_in_the_middle() -> None:
    with serving(pull=Answer([recorded("pull/k1.ndjson")], cut=True), tags=EMPTY) as server:
        run = finish(start(server.port))
    assert run.outcome == ("interrupted", "", True, 1)
    assert run.verdict["completed"] == 19202048


def test_the_source_fits_into_a_command_and_needs_nothing() -> None:
    text = SOURCE.read_text()
    assert len(text.encode()) < 24 * 1024
    tree = ast.parse(text, feature_version=(3, 9))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in imported} <= sys.stdlib_module_names


def test_the_verdict_fits_into_the_termination_log() -> None:
    with serving(pull=pull({"error": "ü" * 10_000}), tags=EMPTY) as server:
        run = finish(start(server.port))
    assert len(json.dumps(run.verdict, ensure_ascii=False).encode()) < 4096
