"""A real Ollama, built from its module, without a GPU; and a registry for its models."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dev.ollama.build import provide
from tests.ollama_replay import Run, finish, start, until
from tests.real_ollama.registry import Registry

MIB = 1024 * 1024


class Server:
    """`ollama serve` with its models in a folder."""

    def __init__(self, program: Path, folder: Path, models: Path | None = None, **env: str) -> None:
        self.program, self.folder, self.models = program, folder, models or folder / "models"
        self.env = env
        self.log = folder / "ollama.log"
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.begin()

    def begin(self) -> None:
        """Start; returns when it answers."""
        env = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "OLLAMA_HOST": f"127.0.0.1:{self.port}",
            "OLLAMA_MODELS": str(self.models),
            "OLLAMA_NO_CLOUD": "1",
            **self.env,
        }
        with self.log.open("a") as out:
            self.process = subprocess.Popen([self.program, "serve"], env=env, stdout=out, stderr=out)
        until(self._answers, 60.0)

    def _answers(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()[-2000:]
        try:
            return self.call("GET", "/api/version")[0] == 200
        except OSError:
            return False

    def end(self, number: int = signal.SIGTERM) -> None:
        """End the server."""
        self.process.send_signal(number)
        self.process.wait(20)

    def call(self, method: str, path: str, body: object = None, seconds: float = 60.0) -> tuple[int, Any]:
        """Status and JSON of an answer, None for an empty one."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, method=method)
        try:
            with urllib.request.urlopen(request, timeout=seconds) as answer:
                status, text = answer.status, answer.read()
        except urllib.error.HTTPError as error:
            status, text = error.code, error.read()
        return status, json.loads(text) if text else None

    def agent(self, model: str, seconds: float = 90.0, **settings: object) -> Run:
        """Run the agent to its end."""
        return finish(self.begin_agent(model, **settings), seconds)

    def begin_agent(self, model: str, **settings: object) -> subprocess.Popen[bytes]:
        """Start the agent."""
        return start(self.port, MODEL=model, **{"INSECURE": 1, **settings})


@pytest.fixture(scope="session")
def program() -> Path:
    """The program, built where need be."""
    return provide()


@pytest.fixture(scope="session")
def weights() -> bytes:
    """Some bytes that are no model."""
    return random.Random(1).randbytes(24 * MIB)  # noqa: S311


@pytest.fixture
def registry() -> Iterator[Registry]:
    """An empty registry."""
    found = Registry()
    found.start()
    yield found
    found.stop()


@pytest.fixture
def serve(program: Path, tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Start a server; it is ended after the test."""
    servers: list[Server] = []

    def begin(**arguments: Any) -> Server:
        servers.append(Server(program, tmp_path, **arguments))
        return servers[-1]

    yield begin
    for server in servers:
        if server.process.poll() is None:
            server.end()


@pytest.fixture
def server(serve: Callable[..., Server]) -> Server:
    """A server with an empty folder of models."""
    return serve()
