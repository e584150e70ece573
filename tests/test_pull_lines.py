"""The agent's lines as values."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu import pull_lines
from gpu.pull_lines import AgentLog, Check, Models, Progress, Verdict, read_agent_log, read_line
from tests.ollama_replay import Answer, finish, recorded, reply, serving, start, tags
from worker import pull_agent

AT = "2026-11-30T18:00:00Z"
WHEN = datetime(2026, 11, 30, 18, tzinfo=UTC)


def line(kind: str, **fields: Any) -> str:
    return json.dumps({"v": 1, "at": AT, "kind": kind, **fields})


PROGRESS = line(
    "progress",
    step="pulling",
    completed=10,
    total=40,
    layers=1,
    speed=5,
    eta_s=6,
    percent=25.0,
    attempt=1,
)


def check(size: int | None, size_vram: int | None) -> Check:
    found = read_line(line("check", model="m", size=size, size_vram=size_vram))
    assert isinstance(found, Check)
    return found


def test_progress() -> None:
    assert read_line(PROGRESS) == Progress(WHEN, "pulling", 10, 40, 1, 5, 6, 25.0, 1, 0)
    stalled = read_line(
        PROGRESS.replace('"progress"', '"stall"').replace('"attempt"', '"stalled_s": 61, "attempt"')
    )
    assert isinstance(stalled, Progress)
    assert (stalled.stalled, stalled.stalled_s) == (True, 61)


def test_the_last_line_of_each_kind_counts() -> None:
    text = "\n".join(
        [
            PROGRESS[20:],
            PROGRESS,
            PROGRESS.replace("25.0", "50.0"),
            line("models", models=[{"name": "a:latest", "size": 7, "modified_at": AT, "digest": "f"}]),
            "Traceback (most recent call last):",
            line(
                "verdict",
                outcome="done",
                cause="",
                detail="",
                completed=40,
                total=40,
                retry=False,
                digest="f",
            ),
            PROGRESS[:30],
        ]
    )
    found = read_agent_log(text)
    assert found.progress is not None
    assert found.progress.percent == 50.0
    assert found.models is not None
    assert found.models.models == (pull_lines.Model("a:latest", 7, WHEN, "f"),)
    assert found.verdict == Verdict(WHEN, "done", "", "", 40, 40, False, "f")
    assert found.verdict.good
    assert found.check is None


@pytest.mark.parametrize(
    ("size", "size_vram", "percent", "placement"),
    [
        (4021182464, 0, 0, "cpu"),
        (4021182464, 4021182464, 100, "gpu"),
        (6000000000, 4500000000, 75, "partly"),
        (6000000000, 5999999999, 99, "partly"),
        (6000000000, 1, 0, "partly"),
        (None, None, None, "none"),
        (0, 0, None, "none"),
    ],
)
def test_where_a_model_runs(
    size: int | None, size_vram: int | None, percent: int | None, placement: str
) -> None:
    found = check(size, size_vram)
    assert (found.gpu_percent, found.placement) == (percent, placement)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello",
        "[]",
        "5",
        "null",
        "{" * 3000,
        "[" * 100_000,
        PROGRESS.replace('"v": 1', '"v": 2'),
        PROGRESS.replace(AT, "yesterday"),
        PROGRESS.replace("progress", "dance"),
        PROGRESS.replace("Z", ""),
    ],
)
def test_what_is_no_line_of_the_agent(text: str) -> None:
    assert read_line(text) is None
    assert read_agent_log(text) == AgentLog()


def test_an_outcome_of_another_version_is_a_failure() -> None:
    found = pull_lines.read_verdict(line("verdict", outcome="melted", cause="heat", retry="yes"))
    assert found == Verdict(WHEN, "failed", "", "", 0, 0, False, "")
    assert pull_lines.read_verdict(PROGRESS) is None
    assert pull_lines.read_verdict("") is None


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(
    st.sampled_from(["progress", "stall", "models", "check", "verdict"]),
    st.dictionaries(
        st.sampled_from(
            [
                "completed",
                "total",
                "percent",
                "eta_s",
                "models",
                "size",
                "size_vram",
                "retry",
                "outcome",
                "detail",
            ]
        ),
        _json,
    ),
)
def test_whatever_the_fields_hold_a_line_is_read(kind: str, fields: dict[str, Any]) -> None:
    assert read_line(line(kind, **fields)) is not None


def test_every_outcome_of_the_agent_is_known() -> None:
    outcomes = {row[1] for row in pull_agent.ERRORS}
    causes = {row[2] for row in pull_agent.ERRORS}
    assert outcomes <= set(pull_lines.OUTCOMES)
    assert causes - {""} <= set(pull_lines.CAUSES)


def test_what_the_agent_prints_is_read() -> None:
    answer = Answer([recorded("pull/two-layers.ndjson")])
    with serving(pull=answer, tags=[tags(), tags("llama3.2:3b")]) as server:
        process = start(server.port)
        out, _ = process.communicate(timeout=20)
    found = read_agent_log(out.decode())
    assert found.verdict is not None
    assert (found.verdict.outcome, found.verdict.total) == ("done", 83886302)
    assert found.models is not None
    assert found.models.models[0].modified_at == datetime(2026, 11, 30, 16, 51, 25, tzinfo=UTC)
    assert found.progress is not None


def test_a_check_of_the_agent_is_read() -> None:
    generate, ps = recorded("api/generate-short.json"), recorded("api/ps-cpu-8192.json")
    with serving(generate=reply(generate), ps=reply(ps)) as server:
        process = start(server.port, AGENT_MODE="check", MODEL="toy")
        out, _ = process.communicate(timeout=20)
    found = read_agent_log(out.decode()).check
    assert found is not None
    assert (found.placement, found.context_length, found.tokens_per_second) == ("cpu", 8192, 1075.8)


def test_nanoseconds_of_go_are_read() -> None:
    with serving(tags=reply(recorded("api/tags-one.json"))) as server:
        run = finish(start(server.port, AGENT_MODE="list"))
    found = read_line(json.dumps(run.of("models")[0]))
    assert isinstance(found, Models)
    assert found.models[0].modified_at == datetime(2026, 11, 30, 16, 51, 25, 938800, tzinfo=UTC)
