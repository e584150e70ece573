"""Is it really on the GPU? Checks of a real Ollama without one: it says so, in its answers and in its log."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from gpu.pull_lines import Check, read_line
from gpu.receipts import read_server_log, receipt
from tests.ollama_replay import Run
from tests.real_ollama import weights as toy
from tests.real_ollama.conftest import MIB, Server
from tests.real_ollama.registry import Published, Registry

pytestmark = pytest.mark.real


@pytest.fixture
def model(registry: Registry, tmp_path: Path) -> Callable[..., str]:
    """Publish a model of random weights; returns its name."""

    def publish(name: str = "toy", context: int = 32768) -> str:
        path = tmp_path / f"{name}.gguf"
        toy.write(path, context)
        registry.publish(name, Published(path.read_bytes()))
        return registry.name(name)

    return publish


def checked(run: Run) -> Check:
    assert run.code == 0, run.verdict
    found = read_line(json.dumps(run.of("check")[0]))
    assert isinstance(found, Check)
    return found


def test_a_model_on_the_cpu(server: Server, model: Callable[..., str]) -> None:
    name = model()
    assert server.agent(name).outcome[0] == "done"
    found = checked(server.agent(name, AGENT_MODE="check"))
    assert (found.placement, found.gpu_percent, found.context_length) == ("cpu", 0, 4096)
    assert found.size is not None
    assert found.size > 3 * MIB
    assert found.eval_count > 0
    assert (found.tokens_per_second or 0) > 1
    seen = read_server_log(server.log.read_text())
    assert (seen.cpu_only, seen.card, seen.on_gpu, seen.context) == (True, None, False, 4096)
    assert receipt(seen, 8192).finding == "no_gpu"


def test_a_cut_prompt_and_the_context_asked_for(
    serve: Callable[..., Server], model: Callable[..., str]
) -> None:
    server = serve(OLLAMA_CONTEXT_LENGTH="2048")
    name = model()
    server.agent(name)
    assert checked(server.agent(name, AGENT_MODE="check")).context_length == 2048
    assert read_server_log(server.log.read_text()).cuts == 0
    body = {"model": name, "prompt": "ab " * 6000, "stream": False, "options": {"num_predict": 1}}
    status, answer = server.call("POST", "/api/generate", body, 120.0)
    assert (status, answer["prompt_eval_count"]) == (200, 2048)
    seen = read_server_log(server.log.read_text())
    assert seen.cuts == 1
    assert seen.last_cut is not None
    assert (seen.last_cut.limit, seen.last_cut.prompt > 6000) == (2048, True)
    assert seen.context == 2048


def test_out_of_host_memory(serve: Callable[..., Server], model: Callable[..., str]) -> None:
    server = serve(OLLAMA_CONTEXT_LENGTH="400000000")
    name = model("hungry", context=500_000_000)
    server.agent(name)
    assert server.agent(name, AGENT_MODE="check").outcome == ("out_of_memory", "host", False, 2)
    seen = read_server_log(server.log.read_text())
    assert seen.shortage == "host"
    assert seen.needed is not None
    assert seen.available is not None
    assert seen.needed > seen.available


def test_weights_that_are_none(server: Server, registry: Registry, weights: bytes) -> None:
    registry.publish("junk", Published(weights[: 1 * MIB]))
    assert server.agent(registry.name("junk")).outcome[0] == "done"
    assert server.agent(registry.name("junk"), AGENT_MODE="check").outcome == ("model_broken", "", False, 2)


def test_a_model_that_is_not_there(server: Server) -> None:
    assert server.agent("toy", AGENT_MODE="check").outcome == ("unknown_model", "", False, 2)
