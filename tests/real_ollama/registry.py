"""A small registry of models, as Ollama reaches it over plain HTTP, with everything that can go wrong with one."""

from __future__ import annotations

import hashlib
import json
import re
import socket
import struct
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

CONFIG = {"model_format": "gguf", "model_family": "llama", "model_families": ["llama"], "model_type": "1.3M"}
KINDS = ("application/vnd.ollama.image.model", "application/vnd.ollama.image.template")
PIECE = 64 * 1024


@dataclass
class Published:
    """A model in the registry. `rate` in bytes a second, 0 for none. What goes wrong after `after` bytes: `fault`
    "drop", "reset" or "stall" the connection, as often as `times` says."""

    weights: bytes
    rate: float = 0.0
    fault: str = ""
    after: int = 0
    times: int = 1_000_000
    broken: bool = False  # other bytes than the digest promises


@dataclass
class Registry:
    """The registry's models by name, and what was asked: each layer fetched, and at which byte that began."""

    models: dict[str, Published] = field(default_factory=dict)
    gets: list[str] = field(default_factory=list)
    begins: list[int] = field(default_factory=list)
    blobs: dict[str, tuple[bytes, Published | None]] = field(default_factory=dict)
    port: int = 0

    def start(self) -> None:
        """Serve on a free loopback port."""
        self.server = ThreadingHTTPServer(("127.0.0.1", self.port), _handler(self))
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        """Stop serving."""
        self.server.shutdown()
        self.server.server_close()

    def name(self, model: str, tag: str = "v1") -> str:
        """The name under which Ollama pulls a model from here."""
        return f"127.0.0.1:{self.port}/team/{model}:{tag}"

    def publish(self, model: str, published: Published) -> None:
        """Offer a model."""
        self.models[model] = published
        parts = [published.weights, b"{{ .Prompt }}", json.dumps(CONFIG).encode()]
        for number, data in enumerate(parts):
            self.blobs[_digest(data)] = (data, published if number == 0 else None)

    def manifest(self, model: str) -> bytes | None:
        """The manifest of a model, None where there is none."""
        published = self.models.get(model)
        if published is None:
            return None
        parts = [published.weights, b"{{ .Prompt }}"]
        layers = [_layer(kind, data) for kind, data in zip(KINDS, parts, strict=True)]
        config = _layer("application/vnd.docker.container.image.v1+json", json.dumps(CONFIG).encode())
        return json.dumps({"schemaVersion": 2, "config": config, "layers": layers}).encode()


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _layer(kind: str, data: bytes) -> dict[str, object]:
    return {"mediaType": kind, "digest": _digest(data), "size": len(data)}


def _handler(registry: Registry) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            data, _ = registry.blobs[self.path.rpartition("/")[2]]
            self._head(200, len(data))

        def do_GET(self) -> None:
            kind, _, last = self.path.partition("?")[0].rpartition("/")
            if kind.endswith("/manifests"):
                self._manifest(kind.split("/")[-2])
            elif kind.startswith("/v2/"):
                self.send_response(307)
                # Another host name, as where the layers are kept somewhere else.
                self.send_header("Location", f"http://localhost:{registry.port}/store/{last}")
                self.send_header("Content-Length", "0")
                self.end_headers()
            else:
                registry.gets.append(last)
                self._blob(*registry.blobs[last])

        def _manifest(self, model: str) -> None:
            data = registry.manifest(model)
            if model == "boom":
                self._head(500, 4)
                self.wfile.write(b"oops")
            elif model == "html":
                page = b"<html><body>Log in</body></html>"
                self._head(200, len(page))
                self.wfile.write(page)
            elif model == "secret":
                self._head(401, 0)
            elif data is None:
                self._head(404, 0)
            else:
                self._head(200, len(data))
                self.wfile.write(data)

        def _head(self, status: int, length: int) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(length))
            self.end_headers()

        def _blob(self, data: bytes, published: Published | None) -> None:
            if published is not None and published.broken:
                data = data[:-1] + bytes([data[-1] ^ 1])
            first, last = 0, len(data) - 1
            if match := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "")):
                first, last = int(match[1]), min(last, int(match[2] or last))
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {first}-{last}/{len(data)}")
            else:
                self.send_response(200)
            registry.begins.append(first)
            self.send_header("Content-Length", str(last + 1 - first))
            self.end_headers()
            self.close_connection = True
            try:
                self._pour(data[first : last + 1], published)
            except OSError:
                return

        def _pour(self, data: bytes, published: Published | None) -> None:
            rate = published.rate if published is not None else 0.0
            fault = ""
            if (
                published is not None
                and published.fault
                and published.times > 0
                and len(data) > published.after
            ):
                fault, data = published.fault, data[: published.after]
                published.times -= 1
            for place in range(0, len(data), PIECE):
                self.wfile.write(data[place : place + PIECE])
                if rate:
                    time.sleep(PIECE / rate)
            if fault == "stall":
                time.sleep(3600)
            elif fault == "reset":
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.connection.close()

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler
