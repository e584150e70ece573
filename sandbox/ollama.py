"""A small stand-in for an Ollama server: it talks like the recorded ones, and holds no weights.

`python -m sandbox.ollama --port N --models DIR` answers on loopback. Which models there are and what goes wrong with
which is in sandbox/ollama_models.py. Like a real server it is set up by OLLAMA_CONTEXT_LENGTH, OLLAMA_NUM_PARALLEL
and OLLAMA_KEEP_ALIVE.
"""

import argparse
import json
import os
import signal
import threading
import time
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from sandbox import ollama_log as log
from sandbox import ollama_models as models
from sandbox.ollama_core import Ollama, Refused
from sandbox.ollama_store import GaveUp, Shelf

JSON = "application/json; charset=utf-8"
BIND_SECONDS = 10.0


class Handler(BaseHTTPRequestHandler):
    """The routes that the portal's agent and a curious person use."""

    protocol_version = "HTTP/1.1"
    server: "Server"

    def answer(self) -> None:
        """Answer a request of any method."""
        began = time.monotonic()
        try:
            status = self._route()
        except Refused as error:
            status = error.status
            self._send(status, b"" if error.words is None else _json({"error": error.words}), JSON)
        log.request(status, time.monotonic() - began, self.command, self.path)

    do_GET = do_HEAD = do_POST = do_DELETE = do_PUT = answer

    def _route(self) -> int:
        ollama = self.server.ollama
        match self.command, self.path:
            case (("GET" | "HEAD"), "/"):
                return self._send(200, b"Ollama is running", "text/plain; charset=utf-8")
            case "GET", "/api/version":
                return self._send(200, _json({"version": ollama.version}), JSON)
            case "GET", "/api/tags":
                return self._send(200, _json(ollama.tags()), JSON)
            case "GET", "/api/ps":
                return self._send(200, _json(ollama.ps()), JSON)
            case "POST", "/api/show":
                return self._send(200, _json(ollama.show(self._body())), JSON)
            case "POST", "/api/generate":
                return self._send(200, _json(ollama.generate(self._body())), JSON)
            case "DELETE", "/api/delete":
                ollama.delete(self._body())
                return self._send(200, b"", None)
            case "POST", "/api/pull":
                name = models.parse(self._body().get("model"))
                if name is None:
                    raise Refused(400, "invalid model name")
                return self._stream(ollama.pull(name))
        self._read()
        known = (
            "/api/version",
            "/api/tags",
            "/api/ps",
            "/api/show",
            "/api/generate",
            "/api/delete",
            "/api/pull",
        )
        if self.path in known:
            return self._send(405, b"405 method not allowed", "text/plain")
        return self._send(404, b"404 page not found", "text/plain")

    def _read(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _body(self) -> dict[str, Any]:
        data = self._read()
        if not data:
            raise Refused(400, "missing request body")
        try:
            found = json.loads(data)
        except ValueError:
            raise Refused(400, "unexpected EOF") from None
        if not isinstance(found, dict):
            raise Refused(400, "json: cannot unmarshal value into Go value of type api.Request")
        return found

    def _send(self, status: int, data: bytes, kind: str | None) -> int:
        self.send_response(status)
        if kind and data:
            self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)
        return status

    def _stream(self, lines: Generator[dict[str, Any]]) -> int:
        self.send_response(200)
        self.send_header("Content-Type", "application/x-ndjson")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.close_connection = True
        try:
            try:
                for line in lines:
                    self._chunk(line)
            except GaveUp as end:
                if not str(end):
                    return 200
                self._chunk({"error": str(end)})
            self.wfile.write(b"0\r\n\r\n")
        except OSError:  # the client has left; what came so far is kept
            lines.close()
        return 200

    def _chunk(self, line: dict[str, Any]) -> None:
        data = _json(line) + b"\n"
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def log_message(self, format: str, *args: object) -> None:
        """Requests are logged as Ollama does."""


class Server(ThreadingHTTPServer):
    """The stand-in on a loopback port; 0 takes a free one."""

    daemon_threads = True

    def __init__(self, ollama: Ollama, port: int) -> None:
        self.ollama = ollama
        super().__init__(("127.0.0.1", port), Handler)


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _bound(ollama: Ollama, port: int) -> Server:
    """A server on the port, which the one before may hold for a moment longer."""
    end = time.monotonic() + BIND_SECONDS
    while True:
        try:
            return Server(ollama, port)
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


def _end_with(parent: int) -> None:
    """End when whoever started us is gone, however it ended."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m sandbox.ollama", description=main.__doc__)
    parser.add_argument("--port", type=int, default=11434)
    parser.add_argument("--models", type=Path, required=True, help="the folder of the volume")
    parser.add_argument("--capacity", type=int, default=20 * 1024**3, help="bytes of the volume")
    parser.add_argument("--card-memory", type=int, default=0, help="MiB of the slice, 0 for none")
    parser.add_argument("--unusable-card", action="store_true", help="as a build that has dropped the card")
    parser.add_argument("--memory", type=int, default=0, help="limit of the container in bytes")
    parser.add_argument("--seconds", type=float, default=12.0, help="how long an ordinary pull takes")
    parser.add_argument("--version", default="0.0.0")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    card = log.Card(arguments.card_memory * models.MEBI, not arguments.unusable_card)
    shelf = Shelf(arguments.models, arguments.capacity)
    ollama = Ollama(shelf, card, arguments.seconds, arguments.version, arguments.memory)
    server = _bound(ollama, arguments.port)
    context = os.environ.get("OLLAMA_CONTEXT_LENGTH", "")
    log.started(card, context, str(arguments.models), server.server_address[1], arguments.version)
    server.serve_forever()


if __name__ == "__main__":
    main()
