"""The pull agent against recorded answers: how each pull ends (C-07 and every recorded row), lists, checks."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable

import pytest

from tests.ollama_replay import (
    DATA,
    NDJSON,
    Answer,
    Run,
    here,
    pull,
    recorded,
    refusal,
    reply,
    serving,
    tags,
)
from worker import pull_agent

Agent = Callable[..., Run]
MANIFEST = {"status": "pulling manifest"}
HALF = {
    "status": "pulling dde5aa3fc5ff",
    "digest": "sha256:dde5aa3fc5ff",
    "total": 2019377376,
    "completed": 1009688688,
}
SUCCESS = {"status": "success"}
EMPTY = tags()
LISTED = tags("llama3.2:3b")


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Agent:
    """Run the agent in this process, without its pause before a second try."""
    monkeypatch.setattr(pull_agent.time, "sleep", lambda seconds: None)
    return lambda port, **settings: here(monkeypatch, capfd, port, **settings)


def pieces(data: bytes, seed: int) -> list[bytes]:
    """`data` cut at random places, most of them within lines."""
    shuffled = random.Random(seed)  # noqa: S311
    cuts = sorted(shuffled.sample(range(1, len(data)), min(12, len(data) - 1)))
    return [data[a:b] for a, b in itertools.pairwise([0, *cuts, len(data)])]


DONE = ("done", "", False, 0)
ROWS = {
    "tiny": DONE,
    "present": ("already_there", "", False, 0),
    "shared-layer": DONE,
    "two-layers": DONE,
    "updated-tag": DONE,
    "resume": DONE,
    "c1": DONE,
    "c2": DONE,
    "k2": DONE,
    "drop-once": DONE,
    "reset-once": DONE,
    "missing": ("unknown_model", "", False, 2),
    "boom": ("failed", "registry_error", True, 1),
    "secret": ("no_access", "", False, 2),
    "html": ("failed", "registry_page", False, 2),
    "not-insecure": ("failed", "registry_protocol", False, 2),
    "refused": ("failed", "registry_down", True, 1),
    "dns": ("failed", "registry_name", False, 2),  # tried once more by the agent itself
    "mismatch": ("digest_mismatch", "", False, 2),  # the same
    "diskfull": ("volume_full", "", False, 2),
    "cancel": ("interrupted", "", True, 1),
    "k1": ("interrupted", "", True, 1),
    "stall": ("interrupted", "", True, 1),
    "drop": ("interrupted", "", True, 1),
    "reset": ("interrupted", "", True, 1),
}


def test_every_recorded_pull_has_a_row() -> None:
    assert {path.stem for path in (DATA / "pull").glob("*.ndjson")} == set(ROWS)


@pytest.mark.parametrize("row", ROWS)
def test_how_recorded_pulls_end(agent: Agent, row: str) -> None:
    before = (
        LISTED
        if row == "present"
        else tags("llama3.2:3b", digest="b" * 64)
        if row == "updated-tag"
        else EMPTY
    )
    answer = Answer(pieces(recorded(f"pull/{row}.ndjson"), seed=len(row)))
    with serving(pull=answer, tags=[before, LISTED]) as server:
        run = agent(server.port)
    assert run.outcome == ROWS[row]
    assert len(server.bodies("POST /api/pull")) == (2 if row in ("dns", "mismatch") else 1)
    if run.code == 0:
        assert run.verdict["digest"] == "a" * 64
        assert run.verdict["completed"] == run.verdict["total"] > 40 * 1024 * 1024
        assert [model["name"] for model in run.of("models")[-1]["models"]] == ["llama3.2:3b"]


@pytest.mark.parametrize(
    ("row", "second", "outcome"),
    [
        ("mismatch", "tiny", DONE),
        ("dns", "tiny", DONE),
        ("mismatch", "drop", ("interrupted", "", True, 1)),
        ("dns", "mismatch", ("digest_mismatch", "", False, 2)),
    ],
)
def test_the_second_try_of_the_agent_counts(
    agent: Agent, row: str, second: str, outcome: tuple[str, str, bool, int]
) -> None:
    both = [Answer([recorded(f"pull/{name}.ndjson")]) for name in (row, second)]
    with serving(pull=both, tags=[EMPTY, LISTED]) as server:
        run = agent(server.port)
    assert run.outcome == outcome


class TestC07:
    """How a pull can end, row by row."""

    def test_unknown_model(self, agent: Agent) -> None:
        answer = pull(MANIFEST, {"error": "pull model manifest: file does not exist"})
        with serving(pull=answer, tags=EMPTY) as server:
            assert agent(server.port).outcome == ("unknown_model", "", False, 2)

    def test_interrupted_at_half(self, agent: Agent) -> None:
        with serving(pull=pull(MANIFEST, HALF, cut=True), tags=EMPTY) as server:
            run = agent(server.port)
        assert run.outcome == ("interrupted", "", True, 1)
        assert (run.verdict["completed"], run.verdict["total"]) == (1009688688, 2019377376)

    def test_volume_full(self, agent: Agent) -> None:
        error = "write /models/blobs/sha256-dde5aa3fc5ff-partial: no space left on device"
        with serving(pull=pull(MANIFEST, HALF, {"error": error}), tags=EMPTY) as server:
            run = agent(server.port)
        assert run.outcome == ("volume_full", "", False, 2)
        assert run.verdict["total"] == 2019377376

    def test_proxy_answers(self, agent: Agent) -> None:
        page = b"<html><body>proxy.example.test: access denied</body></html>"
        with serving(pull=Answer([page], 502, "text/html"), tags=EMPTY) as server:
            run = agent(server.port)
        assert run.outcome == ("not_ollama", "", True, 1)
        assert run.verdict["detail"] == "HTTP 502 text/html"
        assert "<" not in json.dumps(run.lines)
        assert "proxy.example.test" not in json.dumps(run.lines)

    def test_success_without_line_feed(self, agent: Agent) -> None:
        with serving(pull=pull(MANIFEST, b'{"status":"success"}'), tags=[EMPTY, LISTED]) as server:
            assert agent(server.port).outcome == DONE

    def test_success_without_line_feed_and_without_the_last_chunk(self, agent: Agent) -> None:
        with serving(pull=pull(MANIFEST, b'{"status":"success"}', cut=True), tags=[EMPTY, LISTED]) as server:
            assert agent(server.port).outcome == DONE

    def test_half_a_success_is_none(self, agent: Agent) -> None:
        with serving(pull=pull(MANIFEST, b'{"status":"succ', cut=True), tags=[EMPTY, LISTED]) as server:
            assert agent(server.port).outcome == ("interrupted", "", True, 1)


def error(text: str) -> Answer:
    """A stream that ends with this error."""
    return pull(MANIFEST, {"error": text})


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (refusal("pull without model"), ("bad_name", "", False, 2)),
        (refusal("pull without body"), ("failed", "", False, 2)),
        (refusal("pull by GET"), ("not_ollama", "", True, 1)),
        (refusal("unknown path"), ("not_ollama", "", True, 1)),
        (refusal("pull, stream false, unknown model"), ("unknown_model", "", False, 2)),
        (Answer([b"hello"], 200, "text/plain"), ("not_ollama", "", True, 1)),
        (Answer([b"hello"], 200, NDJSON), ("not_ollama", "", True, 1)),
        (Answer([b"hello\n"], 200, NDJSON), ("not_ollama", "", True, 1)),
        (Answer([b"[]\n"], 200, NDJSON), ("not_ollama", "", True, 1)),
        (Answer([b"null"], 200, NDJSON), ("not_ollama", "", True, 1)),
        (Answer([b'{"error": 5}'], 500, "application/json"), ("not_ollama", "", True, 1)),
        (Answer([], 200, NDJSON), ("interrupted", "", True, 1)),
        (Answer([], 503, None), ("not_ollama", "", True, 1)),
        (reply({"error": "something new"}, 500), ("failed", "", True, 1)),
        (reply({"error": "something new"}, 400), ("failed", "", False, 2)),
        (error("something new"), ("failed", "", True, 1)),
        (error("context canceled"), ("interrupted", "", True, 1)),
        (
            error(
                'pull model manifest: 400: {"error":"The specified tag is not a valid quantization scheme. '
                'Please use another tag or \\"latest\\""}'
            ),
            ("unknown_model", "unknown_tag", False, 2),
        ),
        (
            error("pull model manifest: 412: The model requires a newer version of Ollama."),
            ("failed", "needs_newer_ollama", False, 2),
        ),
        (
            error('pull model manifest: 401: {"errors":[{"code":"UNAUTHORIZED"}]}'),
            ("no_access", "", False, 2),
        ),
        (error("pull model manifest: 403: "), ("no_access", "", False, 2)),
        (error("pull model manifest: 429: slow down"), ("failed", "registry_busy", True, 1)),
        (error("open /models/blobs/x: permission denied"), ("failed", "volume_not_writable", False, 2)),
        (error("write /models/blobs/x: disk quota exceeded"), ("volume_full", "", False, 2)),
        (
            error('Get "https://registry/v2/": net/http: TLS handshake timeout'),
            ("failed", "registry_down", True, 1),
        ),
        (
            error('Get "https://registry/v2/": tls: failed to verify certificate: x509: unknown authority'),
            ("failed", "registry_certificate", False, 2),
        ),
    ],
)
def test_other_answers(agent: Agent, answer: Answer, outcome: tuple[str, str, bool, int]) -> None:
    with serving(pull=answer, tags=EMPTY) as server:
        assert agent(server.port).outcome == outcome


def test_details_are_free_of_markup_and_addresses(agent: Agent) -> None:
    for row in ("dns", "reset", "refused"):
        with serving(pull=Answer([recorded(f"pull/{row}.ndjson")]), tags=EMPTY) as server:
            detail = agent(server.port).verdict["detail"]
        assert "192.0.2" not in detail
        assert "[…]" in detail
    page = (
        "pull model manifest: 500: <html><script>alert(1)</script>no</html> at [fe80::1]:53\x1b[31m"
        + "x" * 999
    )
    with serving(pull=error(page), tags=EMPTY) as server:
        detail = agent(server.port).verdict["detail"]
    assert detail.startswith("pull model manifest: 500: alert(1) no at […] [31m")
    assert len(detail) == 300


def test_a_present_model_is_already_there_but_an_updated_one_is_done(agent: Agent) -> None:
    answer = Answer([recorded("pull/present.ndjson")])
    with serving(pull=answer, tags=[tags("LLAMA3.2:3B", digest="b" * 64), LISTED]) as server:
        assert agent(server.port).outcome == DONE
    with serving(pull=answer, tags=LISTED) as server:
        assert (
            agent(server.port, MODEL="registry.ollama.ai/library/Llama3.2:3B").outcome[0] == "already_there"
        )


@pytest.mark.parametrize("after", [tags(), tags("other:latest"), tags("llama3.2:3b", digest="abc")])
def test_a_success_is_not_believed_without_the_model_in_the_list(agent: Agent, after: Answer) -> None:
    with serving(pull=pull(SUCCESS), tags=[EMPTY, after]) as server:
        assert agent(server.port).outcome == ("failed", "not_listed", True, 1)


def test_what_is_sent(agent: Agent) -> None:
    with serving(pull=pull(SUCCESS), tags=LISTED) as server:
        agent(server.port)
        agent(server.port, MODEL="r.test:5000/team/tiny", INSECURE=1)
        agent(server.port, MODEL="http://r.test:5000/team/tiny", INSECURE=1)
    assert server.bodies("POST /api/pull") == [
        {"model": "llama3.2:3b", "insecure": False, "stream": True},
        {"model": "http://r.test:5000/team/tiny", "insecure": True, "stream": True},
        {"model": "http://r.test:5000/team/tiny", "insecure": True, "stream": True},
    ]


def test_list(agent: Agent) -> None:
    with serving(tags=reply(recorded("api/tags-several.json"))) as server:
        run = agent(server.port, AGENT_MODE="list")
    assert run.outcome == DONE
    models = run.of("models")[0]["models"]
    assert [model["name"] for model in models][3:5] == ["hungry:latest", "toy:latest"]
    assert set(models[0]) == {"name", "size", "modified_at", "digest"}
    assert models[2]["size"] == 83886302


@pytest.mark.parametrize("answer", [reply({}), reply({"models": None}), reply({"models": [5]}), Answer([])])
def test_an_empty_list(agent: Agent, answer: Answer) -> None:
    with serving(tags=answer) as server:
        run = agent(server.port, AGENT_MODE="list")
    assert run.of("models")[0]["models"] == []


@pytest.mark.parametrize(
    ("what", "outcome"),
    [
        ("delete known", DONE),
        ("delete unknown", ("unknown_model", "", False, 2)),
        ("delete the same twice (second answer)", ("unknown_model", "", False, 2)),
        ("delete invalid name", ("bad_name", "", False, 2)),
        ("unknown path", ("not_ollama", "", True, 1)),
    ],
)
def test_delete(agent: Agent, what: str, outcome: tuple[str, str, bool, int]) -> None:
    with serving(delete=refusal(what), tags=EMPTY) as server:
        run = agent(server.port, AGENT_MODE="delete", MODEL="toy")
    assert run.outcome == outcome
    assert server.bodies("DELETE /api/delete") == [{"model": "toy"}]
    assert len(run.of("models")) == (1 if outcome == DONE else 0)


@pytest.mark.parametrize(
    ("ps", "context", "size"), [("ps-cpu", 4096, 5327360), ("ps-cpu-16384", 16384, 11618816)]
)
def test_check_on_the_cpu(agent: Agent, ps: str, context: int, size: int) -> None:
    with serving(
        generate=reply(recorded("api/generate-short.json")), ps=reply(recorded(f"api/{ps}.json"))
    ) as server:
        run = agent(server.port, AGENT_MODE="check", MODEL="Toy")
    assert run.outcome == DONE
    (found,) = run.of("check")
    assert {key: found[key] for key in found if key not in ("v", "at", "kind")} == {
        "model": "Toy",
        "size": size,
        "size_vram": 0,
        "context_length": context,
        "tokens_per_second": 1075.8,  # 8 in 7436020 ns
        "eval_count": 8,
        "load_seconds": 0.29,
    }
    # No option that would load the model anew, other than its users do.
    assert server.bodies("POST /api/generate")[0]["options"] == {"num_predict": 16}


def test_check_without_a_loaded_model_makes_no_statement(agent: Agent) -> None:
    with serving(generate=reply(recorded("api/generate-load-only.json")), ps=reply({"models": []})) as server:
        (found,) = agent(server.port, AGENT_MODE="check").of("check")
    assert found["size"] is found["size_vram"] is found["tokens_per_second"] is None


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (refusal("generate unknown model"), ("unknown_model", "", False, 2)),
        (refusal("generate, context larger than memory"), ("out_of_memory", "host", False, 2)),
        (refusal("generate, weights are not GGUF"), ("model_broken", "", False, 2)),
        (
            refusal("generate, runner killed (SIGKILL) while it reads the prompt"),
            ("failed", "runner_stopped", False, 2),
        ),
        (
            reply({"error": "llama runner process has terminated: signal: killed"}, 500),
            ("out_of_memory", "host", False, 2),
        ),
        (
            reply({"error": "llama runner process has terminated: cudaMalloc failed: out of memory"}, 500),
            ("out_of_memory", "gpu", False, 2),
        ),
        (
            reply({"error": "unable to load model: /models/blobs/sha256-x"}, 500),
            ("model_broken", "", False, 2),
        ),
        (reply({"error": '"embed" does not support generate'}, 400), ("failed", "no_generate", False, 2)),
    ],
)
def test_checks_that_fail(agent: Agent, answer: Answer, outcome: tuple[str, str, bool, int]) -> None:
    with serving(generate=answer, ps=reply({"models": []})) as server:
        run = agent(server.port, AGENT_MODE="check")
    assert run.outcome == outcome
    assert not run.of("check")


def test_an_unknown_mode(agent: Agent) -> None:
    assert agent(1, AGENT_MODE="dance").outcome == ("failed", "agent", False, 2)
