"""A server that answers like the recorded Ollama, piece by piece, and runs of the agent against it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from worker import pull_agent

DATA = Path(__file__).parent / "data" / "ollama"
SOURCE = Path(pull_agent.__file__)
JSON = "application/json; charset=utf-8"
NDJSON = "application/x-ndjson"


@dataclass
class Answer:
    """One answer: `pieces` are sent as they are, each a chunk of its own, with `pause` seconds after each."""

    pieces: Sequence[bytes]
    status: int = 200
    kind: str | None = NDJSON
    pause: float = 0.0
    cut: bool = False  # the connection closes without the end of the answer
    forever: bool = False  # the last piece is repeated until the client leaves


@dataclass
class Replay:
    """Answers by method and path; the last of several is repeated. Keeps what it was asked."""

    answers: dict[str, list[Answer]]
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    port: int = 0

    def bodies(self, what: str) -> list[dict[str, Any]]:
        """The bodies of the requests of one kind, in order."""
        return [body for asked, body in self.asked if asked == what]


def pull(*lines: object, **more: Any) -> Answer:
    """A stream of these lines (objects, or bytes as they are)."""
    return Answer(
        [line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n" for line in lines], **more
    )


def recorded(name: str) -> bytes:
    """A recorded file."""
    return (DATA / name).read_bytes()


def reply(value: object, status: int = 200) -> Answer:
    """A JSON answer."""
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return Answer([data], status, JSON)


def refusal(what: str) -> Answer:
    """One of the recorded refusals."""
    found = next(one for one in json.loads(recorded("api/refusals.json")) if one["what"] == what)
    return Answer([found["body"].encode()], found["status"], found["content_type"])


def tags(*names: str, digest: str = "a" * 64) -> Answer:
    """The list of models on the volume."""
    return reply(
        {
            "models": [
                {
                    "name": name,
                    "model": name,
                    "modified_at": "2026-11-30T16:51:25Z",
                    "size": 7,
                    "digest": digest,
                }
                for name in names
            ]
        }
    )


@contextmanager
def serving(port: int = 0, **answers: Answer | list[Answer]) -> Iterator[Replay]:
    """Serve; the names of `answers` are pull, tags, delete, generate, ps."""
    paths = {
        "pull": "POST /api/pull",
        "tags": "GET /api/tags",
        "delete": "DELETE /api/delete",
        "generate": "POST /api/generate",
        "ps": "GET /api/ps",
    }
    found = {paths[key]: one if isinstance(one, list) else [one] for key, one in answers.items()}
    replay = Replay(found)
    server = ThreadingHTTPServer(("127.0.0.1", port), _handler(replay))
    server.daemon_threads = True
    replay.port = server.server_address[1]
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield replay
    finally:
        server.shutdown()
        server.server_close()


def _handler(replay: Replay) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            what = f"{self.command} {self.path}"
            replay.asked.append((what, json.loads(body) if body else {}))
            queue = replay.answers.get(what, [Answer([b"404 page not found"], 404, "text/plain")])
            answer = queue.pop(0) if len(queue) > 1 else queue[0]
            self.send_response(answer.status)
            if answer.kind:
                self.send_header("Content-Type", answer.kind)
            self.send_header("Connection", "close")
            self.close_connection = True
            if answer.kind != NDJSON:
                data = b"".join(answer.pieces)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)
                return
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            try:
                self.chunks(answer)
            except OSError:
                return

        def chunks(self, answer: Answer) -> None:
            for piece in answer.pieces:
                self.chunk(piece)
                time.sleep(answer.pause)
            while answer.forever:
                self.chunk(answer.pieces[-1])
                time.sleep(answer.pause)
            if not answer.cut:
                self.wfile.write(b"0\r\n\r\n")

        def chunk(self, piece: bytes) -> None:
            if piece:
                self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
                self.wfile.flush()

        do_GET = do_POST = do_DELETE = answer

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler


def environment(port: int, **settings: object) -> dict[str, str]:
    """The agent's environment: a pull of `llama3.2:3b` unless told otherwise."""
    return {
        "AGENT_MODE": "pull",
        "OLLAMA_URL": f"http://127.0.0.1:{port}",
        "MODEL": "llama3.2:3b",
        "START_SECONDS": "0",
        **{key: str(value) for key, value in settings.items()},
    }


@dataclass(frozen=True)
class Run:
    """What a run of the agent printed, and its exit code."""

    code: int
    lines: list[dict[str, Any]]

    @property
    def verdict(self) -> dict[str, Any]:
        """The last line; every line is one object, and no other is a verdict."""
        assert [line["kind"] for line in self.lines].count("verdict") == 1
        assert self.lines[-1]["kind"] == "verdict"
        return self.lines[-1]

    @property
    def outcome(self) -> tuple[str, str, bool, int]:
        """Outcome, cause, whether to try again, exit code."""
        return self.verdict["outcome"], self.verdict["cause"], self.verdict["retry"], self.code

    def of(self, kind: str) -> list[dict[str, Any]]:
        """The lines of one kind."""
        return [line for line in self.lines if line["kind"] == kind]


def start(port: int, note: Path | None = None, **settings: object) -> subprocess.Popen[bytes]:
    """Start the agent as its Job does: `python -c SOURCE`."""
    env = {**os.environ, **environment(port, **settings)}
    if note is not None:
        env["TERMINATION_LOG"] = str(note)
    return subprocess.Popen([sys.executable, "-c", SOURCE.read_text()], env=env, stdout=subprocess.PIPE)


def finish(process: subprocess.Popen[bytes], seconds: float = 30.0) -> Run:
    """Wait for the end of an agent."""
    out, _ = process.communicate(timeout=seconds)
    return Run(process.returncode, [json.loads(line) for line in out.splitlines()])


def here(monkeypatch: Any, capfd: Any, port: int, **settings: object) -> Run:
    """Run the agent in this process, which is quicker."""
    for key, value in environment(port, **settings).items():
        monkeypatch.setenv(key, value)
    before = signal.getsignal(signal.SIGTERM)
    capfd.readouterr()
    try:
        code = pull_agent.main()
    finally:
        signal.signal(signal.SIGTERM, before)
    return Run(code, [json.loads(line) for line in capfd.readouterr().out.splitlines()])


def until(look: Callable[[], Any], seconds: float = 10.0) -> Any:
    """Wait until `look` answers something true."""
    end = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.02)
    return found
