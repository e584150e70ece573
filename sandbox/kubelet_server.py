"""The kubelet's own HTTPS interface, as far as ``kubectl logs`` needs it."""

import datetime
import ipaddress
import ssl
import tempfile
import threading
import time
import urllib.parse
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from sandbox.logbook import Line, Logbook


def serve_logs(logbook: Logbook, address: str, port: int, stop: threading.Event) -> int:
    """Serve ``/containerLogs/NAMESPACE/POD/CONTAINER`` with a certificate of its own; returns the port."""

    class Handler(_Handler):
        book = logbook
        ended = stop

    server = ThreadingHTTPServer((address, port), Handler)
    server.daemon_threads = True
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.NamedTemporaryFile(suffix=".pem") as pem:
        pem.write(_self_signed(address))
        pem.flush()
        context.load_cert_chain(Path(pem.name))
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, name="kubelet-server", daemon=True).start()

    def end() -> None:
        stop.wait()
        server.shutdown()
        server.server_close()

    threading.Thread(target=end, name="kubelet-server-end", daemon=True).start()
    return int(server.server_address[1])


def _self_signed(address: str) -> bytes:
    """Key and certificate for one address, in one PEM text."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, address)])
    today = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(today - datetime.timedelta(days=1))
        .not_valid_after(today + datetime.timedelta(days=365))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))]), False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return private + certificate.public_bytes(serialization.Encoding.PEM)


class _Handler(BaseHTTPRequestHandler):
    book: Logbook
    ended: threading.Event
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer with a log, to its end or following it."""
        url = urllib.parse.urlsplit(self.path)
        parts = [urllib.parse.unquote(part) for part in url.path.strip("/").split("/")]
        if len(parts) != 4 or parts[0] != "containerLogs":
            self._fail(404, "not served here")
            return
        query = {key: values[-1] for key, values in urllib.parse.parse_qs(url.query).items()}
        namespace, pod, container = parts[1:]
        previous = query.get("previous") == "true"
        found = self.book.lines(namespace, pod, container, previous)
        if found is None:
            before = f'previous terminated container "{container}" in pod "{pod}" not found'
            # A kubelet says 400 to every log that it cannot give.
            self._fail(400, before if previous else f'container "{container}" of pod "{pod}" has no log')
            return
        lines, mark = found
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        left = int(query["limitBytes"]) if "limitBytes" in query else None
        left = self._send(_selected(lines, query), query, left)
        while query.get("follow") == "true" and left != 0 and not self.ended.is_set():
            self.book.wait(1.0)
            found = self.book.lines(namespace, pod, container, previous, mark)
            if found is None:
                break
            lines, mark = found
            left = self._send(lines, query, left)
        self.wfile.write(b"0\r\n\r\n")

    def _send(self, lines: Sequence[Line], query: dict[str, str], left: int | None) -> int | None:
        """Write lines as one chunk; how many bytes may still follow, None for any number."""
        stamps = query.get("timestamps") == "true"
        data = "".join((_stamp(at) + " " if stamps else "") + text for at, text in lines).encode()[:left]
        if data:
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
            self.wfile.flush()
        return None if left is None else left - len(data)

    def _fail(self, code: int, text: str) -> None:
        data = text.encode()
        self.send_response(code)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Requests are not worth a line each."""


def _selected(lines: Sequence[Line], query: dict[str, str]) -> Sequence[Line]:
    oldest = 0.0
    if "sinceSeconds" in query:
        oldest = time.time() - float(query["sinceSeconds"])
    elif "sinceTime" in query:
        oldest = datetime.datetime.fromisoformat(query["sinceTime"]).timestamp()
    lines = [line for line in lines if line[0] >= oldest]
    if "tailLines" in query:
        count = int(query["tailLines"])
        lines = lines[-count:] if count else []
    return lines


def _stamp(at: float) -> str:
    return datetime.datetime.fromtimestamp(at, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
