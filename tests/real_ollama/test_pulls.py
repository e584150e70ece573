"""The agent pulls with a real Ollama: every way that such a pull can end."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gpu.model_names import ModelNameRefused, parse
from tests.ollama_replay import until
from tests.real_ollama.conftest import MIB, Server
from tests.real_ollama.registry import Published, Registry
from tests.test_model_names import REFUSED

pytestmark = pytest.mark.real

DONE = ("done", "", False, 0)


def throttled(weights: bytes, salt: str) -> Published:
    """A model that takes some six seconds; the salt makes it one of its own."""
    return Published(salt.encode() + weights, rate=4 * MIB)


def in_the_middle(registry: Registry) -> None:
    """Wait until a part of a layer has come."""
    until(lambda: registry.gets, 20.0)
    time.sleep(2.5)


def test_good(server: Server, registry: Registry, weights: bytes) -> None:
    registry.publish("tiny", throttled(weights, "good"))
    run = server.agent(registry.name("tiny"))
    assert run.outcome == DONE
    sizes = [model["size"] for model in server.call("GET", "/api/tags")[1]["models"]]
    assert sizes == [run.verdict["total"]] == [run.verdict["completed"]]
    percent = [line["percent"] for line in run.of("progress")]
    assert percent == sorted(percent)
    assert len(set(percent)) >= 4
    assert MIB < max(line["speed"] for line in run.of("progress")) < 8 * MIB  # throttled to 4 MiB/s
    assert server.agent(registry.name("TINY", "V1")).outcome == ("already_there", "", False, 0)
    assert server.agent(registry.name("tiny")).outcome == ("already_there", "", False, 0)


@pytest.mark.parametrize(
    ("model", "outcome"),
    [
        ("nope", ("unknown_model", "", False, 2)),
        ("boom", ("failed", "registry_error", True, 1)),
        ("html", ("failed", "registry_page", False, 2)),
        ("secret", ("no_access", "", False, 2)),
    ],
)
def test_what_the_registry_answers(
    server: Server, registry: Registry, model: str, outcome: tuple[str, str, bool, int]
) -> None:
    assert server.agent(registry.name(model)).outcome == outcome


def test_registry_down(server: Server, registry: Registry) -> None:
    run = server.agent("127.0.0.1:1/team/tiny:v1")
    assert run.outcome == ("failed", "registry_down", True, 1)
    plain = server.agent(registry.name("tiny"), INSECURE=0)
    assert plain.outcome == ("failed", "registry_protocol", False, 2)


def test_digest_mismatch(server: Server, registry: Registry, weights: bytes) -> None:
    registry.publish("tiny", Published(b"mismatch" + weights, broken=True))
    run = server.agent(registry.name("tiny"))
    assert run.outcome == ("digest_mismatch", "", False, 2)
    assert registry.gets.count(registry.gets[0]) == 2  # once more, and no further
    registry.models["tiny"].broken = False
    assert server.agent(registry.name("tiny")).outcome == DONE


@pytest.fixture
def small_volume(tmp_path: Path) -> Iterator[Path]:
    """A file system of 12 MiB."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a tmpfs")
    folder = tmp_path / "volume"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", folder],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip(f"a tmpfs cannot be mounted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def test_volume_full(
    serve: Callable[..., Server], registry: Registry, weights: bytes, small_volume: Path
) -> None:
    server = serve(models=small_volume)
    # Half a second until it is full: Ollama tells sizes every 60 ms, and of a layer that ends earlier it tells none.
    registry.publish("large", Published(b"full" + weights, rate=24 * MIB))
    registry.publish("small", Published(b"small" + weights[: 8 * MIB]))
    run = server.agent(registry.name("large"))
    assert run.outcome == ("volume_full", "", False, 2)
    assert run.verdict["total"] == 24 * MIB + 4
    # What came stays and keeps the volume full, until the server starts again: the mend that works.
    again = server.agent(registry.name("small"))
    assert again.outcome == ("volume_full", "", False, 2)
    assert again.verdict["total"] == 0
    server.end()
    server.begin()
    assert server.agent(registry.name("small")).outcome == DONE


def test_dropped_once_and_for_good(server: Server, registry: Registry, weights: bytes) -> None:
    published = Published(b"drop" + weights, fault="drop", after=4 * MIB, times=1)
    registry.publish("once", published)
    registry.publish("ever", replace(published, weights=b"ever" + weights, times=1000, after=64))
    forever = server.begin_agent(registry.name("ever"))
    assert server.agent(registry.name("once")).outcome == DONE
    out, _ = forever.communicate(timeout=110)  # Ollama itself tries six times, with 63 s of pauses
    assert forever.returncode == 1
    assert b"max retries exceeded" in out


def test_stalled(server: Server, registry: Registry, weights: bytes) -> None:
    registry.publish("tiny", Published(b"stall" + weights, fault="stall", after=4 * MIB))
    run = server.agent(registry.name("tiny"), STALL_SECONDS=2, STALL_LIMIT_SECONDS=6)
    assert run.outcome == ("interrupted", "stalled", True, 1)
    assert 3 <= len(run.of("stall")) <= 6
    assert run.verdict["completed"] == pytest.approx(4 * MIB, rel=0.2)


def test_server_killed_and_resumed(server: Server, registry: Registry, weights: bytes) -> None:
    registry.publish("tiny", throttled(weights, "killed"))
    process = server.begin_agent(registry.name("tiny"))
    in_the_middle(registry)
    server.end(signal.SIGKILL)
    out, _ = process.communicate(timeout=10)
    assert process.returncode == 1
    assert b'"outcome": "interrupted"' in out
    server.begin()
    assert server.agent(registry.name("tiny")).outcome == DONE
    assert registry.begins[:2] == [0, 0]  # a starting server deletes what came before


def test_server_not_up_yet(server: Server) -> None:
    server.end()
    process = server.begin_agent("tiny", AGENT_MODE="list", START_SECONDS=60)
    time.sleep(2.0)
    server.begin()
    process.communicate(timeout=20)
    assert process.returncode == 0


def test_two_pulls_of_one_model(server: Server, registry: Registry, weights: bytes) -> None:
    registry.publish("tiny", throttled(weights, "two"))
    first = server.begin_agent(registry.name("tiny"))
    in_the_middle(registry)
    second = server.agent(registry.name("tiny"))
    first.communicate(timeout=20)
    assert (first.returncode, second.code) == (0, 0)
    assert len(registry.gets) == len(set(registry.gets))  # each layer came once


def test_cancelled_and_resumed(server: Server, registry: Registry, weights: bytes) -> None:
    registry.publish("tiny", throttled(weights, "cancel"))
    process = server.begin_agent(registry.name("tiny"))
    in_the_middle(registry)
    process.terminate()
    out, _ = process.communicate(timeout=10)
    assert b'"cause": "terminated"' in out
    assert server.agent(registry.name("tiny")).outcome == DONE
    assert registry.begins[0] == 0
    assert registry.begins[1] > 1 * MIB  # it went on


def test_deleted(server: Server, registry: Registry, weights: bytes) -> None:
    registry.publish("tiny", Published(b"deleted" + weights))
    name = registry.name("tiny")
    assert server.agent(name).outcome == DONE
    run = server.agent(name, AGENT_MODE="delete")
    assert (run.outcome, run.of("models")[0]["models"]) == (DONE, [])
    assert server.agent(name, AGENT_MODE="delete").outcome == ("unknown_model", "", False, 2)
    blobs = server.models / "blobs"
    assert sum(path.stat().st_size for path in blobs.iterdir()) == 0


NAMES = [
    "llama3.2",
    "LLAMA3.2:3B",
    "m" * 80,
    "model:" + "t" * 80,
    "hf.co/acme/X-GGUF:Q4_K_M",
    "h" * 350 + "/team/model",
    "a_b/c-d.e_f:G.h-i",
    "_x/_y:_z",
    "localhost/team/model",
    "x/y/",
    "/x",
    "x:",
    "x/:y",
    "x:y/z",
    "x:y/z/a:b",
    "-x",
    ".x",
    "x/-y",
    "x:-y",
    "host:5000:6000/team/model",
    *(name for name in REFUSED if name.strip() and name == name.strip()),
]


def test_the_names_a_real_server_takes(server: Server) -> None:
    for name in NAMES:
        status, answer = server.call("DELETE", "/api/delete", {"model": name})
        taken = not (status == 400 and "invalid" in answer["error"])
        if name.startswith("ftp://"):
            continue  # of the schemes a server takes any, and can use two
        try:
            parse(name)
        except ModelNameRefused:
            assert not taken, name
        else:
            assert taken, name
