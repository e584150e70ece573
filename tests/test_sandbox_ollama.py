"""The stand-in for Ollama: it talks like the recorded server, and the real agent believes it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpu.receipts import read_server_log
from sandbox.ollama_core import OUT_OF_MEMORY
from tests.ollama_replay import Run, finish, recorded, start, until

ROOT = Path(__file__).resolve().parent.parent


class Stand:
    """A stand-in that runs as a process, with its volume in a folder."""

    def __init__(self, folder: Path, *arguments: str, **env: str) -> None:
        self.folder, self.arguments, self.env = folder, arguments, env
        self.log = folder / "log.txt"
        self.port = 0
        self.begin()

    def begin(self) -> None:
        command = [sys.executable, "-m", "sandbox.ollama", "--models", str(self.folder / "models")]
        command += ["--port", str(self.port), "--seconds", "0.6", *self.arguments]
        with self.log.open("w") as out:
            self.process = subprocess.Popen(
                command, cwd=ROOT, stdout=out, stderr=out, env={**os.environ, **self.env}
            )
        line = until(lambda: [one for one in self.log.read_text().splitlines() if "Listening on" in one])
        self.port = int(line[0].split("[::]:")[1].split(" ")[0])

    def end(self, number: int = signal.SIGTERM) -> None:
        self.process.send_signal(number)
        self.process.wait(5)

    def agent(self, model: str = "llama3.2:3b", **settings: object) -> Run:
        return finish(start(self.port, MODEL=model, START_SECONDS=5, **settings))

    def call(self, method: str, path: str, body: object = None) -> tuple[int, str | None, bytes]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, method=method)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, answer.headers.get("Content-Type"), answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.headers.get("Content-Type"), error.read()

    def some_lines(self, model: str, seconds: float) -> list[dict[str, Any]]:
        """The lines of a pull whose client leaves after a while, or at its end."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/api/pull", json.dumps({"model": model}).encode(), method="POST"
        )
        found: list[dict[str, Any]] = []
        end = time.monotonic() + seconds
        with urllib.request.urlopen(request, timeout=10) as answer:
            for line in answer:
                found.append(json.loads(line))
                if time.monotonic() > end and len(found) > 1:
                    break
        return found

    def json(self, path: str) -> Any:
        return json.loads(self.call("GET", path)[2])

    def names(self) -> list[str]:
        return [one["name"] for one in self.json("/api/tags")["models"]]


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[Stand]:
    stand = Stand(tmp_path, "--card-memory", "8192")
    yield stand
    stand.end()


def test_pull_list_check_delete(stand: Stand) -> None:
    run = stand.agent()
    assert run.outcome == ("done", "", False, 0)
    assert run.verdict["total"] == 2019377376 + 7711 + 1429 + 561
    assert stand.agent("LLAMA3.2").outcome == (
        "done",
        "",
        False,
        0,
    )
    assert stand.agent("Llama3.2:3B").outcome == ("already_there", "", False, 0)
    assert sorted(stand.names()) == ["LLAMA3.2:latest", "llama3.2:3b"]
    (check,) = stand.agent(AGENT_MODE="check").of("check")
    assert check["size"] == check["size_vram"] > 2019377376
    assert (check["context_length"], check["eval_count"]) == (4096, 16)
    assert check["tokens_per_second"] > 100
    assert stand.agent(AGENT_MODE="delete").of("models")[0]["models"][0]["name"] == "LLAMA3.2:latest"
    assert stand.agent(AGENT_MODE="delete").outcome == ("unknown_model", "", False, 2)
    seen = read_server_log(stand.log.read_text())
    assert seen.card is not None
    assert (seen.card.compute, seen.card.library, seen.card.memory) == ("7.0", "CUDA", 8 * 1024**3)
    assert (seen.on_gpu, seen.layers, seen.context) == (True, (29, 29), 4096)


@pytest.mark.parametrize(
    ("model", "outcome"),
    [
        ("missing", ("unknown_model", "", False, 2)),
        ("llama3.2:70b", ("unknown_model", "", False, 2)),
        ("boom", ("failed", "registry_error", True, 1)),
        ("secret", ("no_access", "", False, 2)),
        ("html", ("failed", "registry_page", False, 2)),
        ("tls", ("failed", "registry_protocol", False, 2)),
        ("refused", ("failed", "registry_down", True, 1)),
        ("dns", ("failed", "registry_name", False, 2)),
        ("newer", ("failed", "needs_newer_ollama", False, 2)),
        ("hf.co/acme/X-GGUF:Z9", ("unknown_model", "unknown_tag", False, 2)),
        ("hf.co/acme/X-GGUF:Q4_K_M", ("done", "", False, 0)),
        ("diskfull", ("volume_full", "", False, 2)),
        ("huge", ("volume_full", "", False, 2)),
        ("mismatch", ("digest_mismatch", "", False, 2)),
        ("drop", ("interrupted", "", True, 1)),
        ("reset", ("interrupted", "", True, 1)),
        ("cut", ("interrupted", "", True, 1)),
        ("stall", ("interrupted", "stalled", True, 1)),
        ("llama 3", ("bad_name", "", False, 2)),
    ],
)
def test_every_way_to_end(stand: Stand, model: str, outcome: tuple[str, str, bool, int]) -> None:
    assert stand.agent(model, STALL_SECONDS=1, STALL_LIMIT_SECONDS=2).outcome == outcome


def test_a_full_volume_stays_full_until_the_server_starts_again(stand: Stand) -> None:
    assert stand.agent("diskfull").outcome[0] == "volume_full"
    assert stand.agent().outcome[0] == "volume_full"
    stand.end()
    stand.begin()
    assert stand.agent().outcome[0] == "done"


def test_a_client_that_leaves_can_go_on_but_not_after_a_restart(stand: Stand) -> None:
    assert stand.agent().outcome[0] == "done"
    reached = stand.some_lines("slow:4", 2.0)[-1]["completed"]
    assert stand.some_lines("slow:4", 0.2)[1]["completed"] >= reached
    stand.end(signal.SIGKILL)
    stand.begin()
    assert stand.names() == ["llama3.2:3b"]
    assert stand.some_lines("slow:4", 0.2)[1].get("completed", 0) < reached


def test_two_pulls_of_one_model_are_one_download(stand: Stand) -> None:
    first = start(stand.port, MODEL="slow:4")
    until(lambda: stand.some_lines("slow:4", 0.1)[1].get("completed", 0) > 500_000_000)
    second = stand.some_lines("slow:4", 30.0)
    assert second[1]["completed"] > 500_000_000
    assert second[-1] == {"status": "success"}
    assert finish(first).outcome[0] == "done"


@pytest.mark.parametrize(
    ("model", "outcome"),
    [
        ("broken", ("model_broken", "", False, 2)),
        ("hungry", ("out_of_memory", "host", False, 2)),
        ("gpufull", ("out_of_memory", "gpu", False, 2)),
    ],
)
def test_models_that_do_not_load(stand: Stand, model: str, outcome: tuple[str, str, bool, int]) -> None:
    assert stand.agent(model).outcome[0] == "done"
    assert stand.agent(model, AGENT_MODE="check").outcome == outcome
    shortage = {"hungry": "host", "gpufull": "gpu", "broken": ""}[model]
    assert read_server_log(stand.log.read_text()).shortage == shortage


def test_models_beside_the_gpu(stand: Stand) -> None:
    for model, share in (("cpu", 0.0), ("partly", 0.75)):
        stand.agent(model)
        (check,) = stand.agent(model, AGENT_MODE="check").of("check")
        assert check["size_vram"] / check["size"] == pytest.approx(share)


@pytest.mark.parametrize("arguments", [(), ("--card-memory", "8192", "--unusable-card")])
def test_without_a_card_it_runs_on_the_cpu(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    stand = Stand(tmp_path, *arguments, OLLAMA_CONTEXT_LENGTH="16384")
    try:
        stand.agent()
        (check,) = stand.agent(AGENT_MODE="check").of("check")
        stand.call("POST", "/api/generate", {"model": "llama3.2:3b", "prompt": "word " * 20000})
    finally:
        stand.end()
    assert (check["size_vram"], check["context_length"]) == (0, 16384)
    seen = read_server_log(stand.log.read_text())
    assert (seen.cpu_only, seen.on_gpu, seen.cuts) == (True, False, 1)
    assert seen.kernels_missing == bool(arguments)


def test_a_container_with_too_little_memory_is_killed(tmp_path: Path) -> None:
    stand = Stand(tmp_path, "--card-memory", "8192", "--memory", str(512 * 1024**2))
    stand.agent()
    assert stand.agent(AGENT_MODE="check").outcome == ("interrupted", "", True, 1)
    assert stand.process.wait(5) == OUT_OF_MEMORY


@pytest.mark.parametrize(
    "what",
    [
        "delete unknown",
        "delete invalid name",
        "delete without body",
        "generate unknown model",
        "generate without model",
        "generate broken JSON",
        "show unknown model",
        "pull without body",
        "pull broken JSON",
        "pull without model",
        "pull by GET",
        "unknown path",
    ],
)
def test_refusals_are_those_recorded(stand: Stand, what: str) -> None:
    found = next(one for one in json.loads(recorded("api/refusals.json")) if one["what"] == what)
    method, _, path = found["request"].partition(" ")
    request = urllib.request.Request(
        f"http://127.0.0.1:{stand.port}{path}", found["request_body"].encode() or None, method=method
    )
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request, timeout=10)
    assert (caught.value.code, caught.value.headers.get("Content-Type")) == (
        found["status"],
        found["content_type"],
    )
    assert caught.value.read().decode() == found["body"]


def test_empty_lists_and_the_root(stand: Stand) -> None:
    assert stand.call("GET", "/api/tags")[2] == recorded("api/tags-empty.json")
    assert stand.call("GET", "/api/ps")[2] == recorded("api/ps-empty.json")
    assert stand.call("GET", "/")[0] == 200


def test_it_ends_with_whoever_started_it(tmp_path: Path) -> None:
    script = (
        "import subprocess, sys\n"
        f"folder = {str(tmp_path)!r}\n"
        "command = [sys.executable, '-m', 'sandbox.ollama', '--port', '0', '--models', folder]\n"
        "child = subprocess.Popen(command)\n"
        "print(child.pid, flush=True)\n"
        "child.wait()\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    until(lambda: "Listening" in parent.stdout.readline())
    parent.kill()
    parent.wait()
    until(lambda: not _alive(child))


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False
