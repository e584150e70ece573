"""The HTTP side: one thread a connection, kept alive; watches as chunked streams."""

import json
import logging
import select
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import yaml

from sandbox import routes
from sandbox.api import ApiError, Obj
from sandbox.faults import Fault
from sandbox.refusals import bad_request, status
from sandbox.service import Answer, Request, Service

_LOG = logging.getLogger(__name__)


class Server(ThreadingHTTPServer):
    """Serves one sandbox. ``stop()`` ends every connection."""

    daemon_threads = True
    request_queue_size = 256
    allow_reuse_address = True

    def __init__(self, address: tuple[str, int], service: Service) -> None:
        self.service = service
        self._connections: set[socket.socket] = set()
        self._guard = threading.Lock()
        super().__init__(address, Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Remember the connection, so that it can be closed at the end."""
        request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._guard:
            self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Forget a connection that ends."""
        with self._guard:
            self._connections.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no error of the server."""

    def stop(self) -> None:
        """Stop listening and close what is open."""
        self.shutdown()
        self.server_close()
        with self._guard:
            connections = list(self._connections)
        for connection in connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue


class _Dropped(Exception):
    """The connection is to be closed without an answer."""


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    server: Server
    protocol_version = "HTTP/1.1"
    server_version = "sandbox"
    wbufsize = -1

    def log_message(self, format: str, *args: Any) -> None:
        """The sandbox keeps no access log."""

    def do_GET(self) -> None:
        """Read."""
        self._serve()

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

    def _serve(self) -> None:
        try:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            url = urlsplit(self.path)
            faults: dict[str, Fault] = {}
            if not url.path.startswith("/sandbox/") and not routes.is_health(url.path):
                faults = self.server.service.faults.strike(self.command, self.path)
            self._suffer(faults)
            answer = self._answer(url.path, url.query, body, faults)
            if "late" in faults:
                time.sleep(faults["late"].seconds)
            if "lost" in faults:
                raise _Dropped
            self._send(answer, "half" in faults)
        except (_Dropped, ConnectionError, TimeoutError):
            self.close_connection = True

    def _suffer(self, faults: dict[str, Fault]) -> None:
        if "latency" in faults:
            time.sleep(faults["latency"].seconds)
        if "drop" in faults:
            raise _Dropped

    def _answer(self, path: str, query: str, body: bytes, faults: dict[str, Fault]) -> Answer:
        try:
            if "status" in faults:
                raise _commanded(faults["status"])
            request = Request(
                method=self.command,
                path=unquote(path),
                query=dict(parse_qsl(query, keep_blank_values=True)),
                headers=self.headers,
                body=self._read(body),
                silent="silent" in faults,
            )
            return self.server.service.handle(request)
        except ApiError as error:
            return Answer(error.status, json.dumps(error.body), headers=error.headers)
        except Exception:
            _LOG.exception("%s %s", self.command, path)
            failure = status(500, "Internal error occurred: see the log of the sandbox")
            return Answer(500, json.dumps(failure.body))

    def _read(self, body: bytes) -> Any:
        if not body:
            return None
        kind = self.headers.get("Content-Type", "application/json").partition(";")[0].strip()
        if "protobuf" in kind:
            raise status(415, f"the body of the request was in an unknown format - {kind}")
        try:
            return json.loads(body)
        except ValueError as error:
            if not kind.endswith("yaml"):
                raise bad_request(f"couldn't get version/kind; json parse error: {error}") from error
        try:
            return yaml.load(body, Loader=_LOADER)  # noqa: S506  (one of the safe loaders)
        except yaml.YAMLError as error:
            raise bad_request(f"error decoding YAML: {error}") from error

    def _send(self, answer: Answer, half: bool) -> None:
        self.send_response(answer.code)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Audit-Id", "sandbox")
        for name, value in answer.headers.items():
            self.send_header(name, value)
        for warning in dict.fromkeys(answer.warnings):
            quoted = warning.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
            self.send_header("Warning", f'299 - "{quoted}"')
        if answer.stream is not None:
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self._stream(answer.stream, half)
            return
        content = answer.text.encode()
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if half:
            self.wfile.write(content[: len(content) // 2])
            self.wfile.flush()
            raise _Dropped
        self.wfile.write(content)
        self.wfile.flush()

    def _stream(self, parts: Iterator[str], half: bool) -> None:
        self.wfile.flush()
        try:
            for part in parts:
                if part:
                    content = part.encode()
                    if half:
                        content = content[: len(content) // 2]
                    self.wfile.write(f"{len(content):x}\r\n".encode() + content + b"\r\n")
                    self.wfile.flush()
                    if half:
                        raise _Dropped
                elif self._is_gone():
                    raise _Dropped
            self.wfile.write(b"0\r\n\r\n")
            self.wfile.flush()
        finally:
            close = getattr(parts, "close", None)
            if close is not None:
                close()

    def _is_gone(self) -> bool:
        readable, _, _ = select.select([self.connection], [], [], 0)
        return bool(readable) and not self.connection.recv(1, socket.MSG_PEEK)


_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _commanded(fault: Fault) -> ApiError:
    if fault.code == 429:
        seconds = 1 if fault.retry_after is None else fault.retry_after
        details: Obj = {"retryAfterSeconds": seconds}
        message = "the server has received too many requests and has asked us to try again later"
        return status(429, message, details=details, Retry_After=str(seconds))
    if fault.code == 503:
        return status(503, "the server is currently unable to handle the request", "ServiceUnavailable")
    return status(fault.code, "Internal error occurred: as told to", None)
