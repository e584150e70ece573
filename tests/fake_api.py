"""A small HTTP server that answers with exactly the bytes a test gives it, and remembers what it was asked.

Rules are tried in the order they were added; each hands out its replies one after another and repeats the last.
A request that no rule expects is answered with 501 and kept in `unexpected`.
"""

from __future__ import annotations

import json
import re
import socket
import ssl
import struct
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

TOKEN = "t0ken"


@dataclass(frozen=True)
class Asked:
    """One request as it came."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes
    at: float

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Reply:
    """One answer. `pieces` are sent as chunks of a stream: bytes as they are, numbers are pauses in seconds.

    `end` of a stream: "close" ends it properly, "cut" drops the connection, "hang" keeps it open and silent.
    A negative `status` drops the connection before any answer; `before_s` waits before the status line.
    """

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    pieces: Sequence[bytes | float] | None = None
    end: str = "close"
    before_s: float = 0.0


def as_json(document: Any, status: int = 200, **headers: str) -> Reply:
    return Reply(status, json.dumps(document).encode(), {"Content-Type": "application/json", **headers})


def status_object(code: int, reason: str, message: str, **details: Any) -> Reply:
    body = {
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code, "details": details,
    }  # fmt: skip
    return as_json(body, code)


def listed(kind: str, version: str, items: Sequence[dict[str, Any]], token: str = "") -> Reply:
    metadata = {"resourceVersion": version, **({"continue": token} if token else {})}
    return as_json({"kind": f"{kind}List", "metadata": metadata, "items": list(items)})


def streamed(*lines: dict[str, Any] | bytes | float, end: str = "close") -> Reply:
    """A watch: dicts become lines, bytes are sent as they are, numbers are pauses."""
    pieces = [json.dumps(each).encode() + b"\n" if isinstance(each, dict) else each for each in lines]
    return Reply(pieces=pieces, end=end)


Answer = Reply | Callable[[Asked], Reply]


@dataclass
class Rule:
    method: str
    pattern: re.Pattern[str]
    answers: list[Answer]


class FakeApi:
    """Use as a context manager; `url` is its address on the loopback interface."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.asked: list[Asked] = []
        self.unexpected: list[Asked] = []
        self.connections = 0
        self._rules: list[Rule] = []
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        handler = type("Handler", (_Handler,), {"api": self})
        self._server = _Server(("127.0.0.1", 0), handler)
        self._scheme = "https" if tls else "http"
        if tls:
            self._server.socket = tls.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self._server.server_address[1]}"

    def on(self, method: str, pattern: str, *answers: Answer) -> None:
        """Answer requests whose method and "path?query" match (`re.search`)."""
        self._rules.append(Rule(method, re.compile(pattern), list(answers)))

    def lists(self) -> list[Asked]:
        return [each for each in self.asked if each.method == "GET" and "watch" not in each.query]

    def watches(self) -> list[Asked]:
        return [each for each in self.asked if each.query.get("watch") == "true"]

    def kubeconfig(self, **cluster: Any) -> str:
        """A kubeconfig's text (JSON is YAML) for this server."""
        return json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "fake",
                "clusters": [{"name": "fake", "cluster": {"server": self.url, **cluster}}],
                "users": [{"name": "portal", "user": {"token": TOKEN}}],
                "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "portal"}}],
            }
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped.set()
        self._server.shutdown()
        self._server.server_close()

    def wait_for_stop(self, seconds: float | None = None) -> None:
        self._stopped.wait(seconds)

    def reply_to(self, asked: Asked) -> Reply:
        with self._lock:
            self.asked.append(asked)
            target = asked.path + "?" + "&".join(f"{key}={value}" for key, value in asked.query.items())
            for rule in self._rules:
                if rule.method == asked.method and rule.pattern.search(target):
                    answer = rule.answers.pop(0) if len(rule.answers) > 1 else rule.answers[0]
                    break
            else:
                self.unexpected.append(asked)
                return Reply(501, b"no rule for this request")
        return answer(asked) if callable(answer) else answer


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that leaves early is what many tests are about; anything else is told."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    api: FakeApi

    def setup(self) -> None:
        super().setup()
        self.api.connections += 1

    def log_message(self, format: str, *args: Any) -> None:
        """Stay silent."""

    def _serve(self) -> None:
        parts = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(parts.query, keep_blank_values=True).items()}
        headers = {name.lower(): value for name, value in self.headers.items()}
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        asked = Asked(self.command, parts.path, query, headers, body, time.monotonic())
        reply = self.api.reply_to(asked)
        if reply.before_s:
            self.api.wait_for_stop(reply.before_s)
        if reply.status < 0:
            return self._cut()
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        if reply.pieces is None:
            if "Content-Length" not in reply.headers:
                self.send_header("Content-Length", str(len(reply.body)))
            self.end_headers()
            self.wfile.write(reply.body)
            if int(reply.headers.get("Content-Length", len(reply.body))) != len(reply.body):
                self._cut()
            return None
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            self._stream(reply)
        except OSError:  # the client went away
            self.close_connection = True
        return None

    def _stream(self, reply: Reply) -> None:
        for piece in reply.pieces or ():
            if isinstance(piece, bytes):
                self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
                self.wfile.flush()
            else:
                self.api.wait_for_stop(piece)
        if reply.end == "hang":
            self.api.wait_for_stop()
        if reply.end == "close":
            self.wfile.write(b"0\r\n\r\n")
        else:
            self._cut()

    def _cut(self) -> None:
        # Linger 0 after what was sent has left: the client sees the end without the closing chunk.
        self.wfile.flush()
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 1))
        self.connection.shutdown(socket.SHUT_WR)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve
