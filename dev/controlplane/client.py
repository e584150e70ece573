"""A Kubernetes client of the standard library alone: what set-up and tests need to say to an API server."""

from __future__ import annotations

import base64
import http.client
import json
import socket
import ssl
import threading
from dataclasses import dataclass
from itertools import chain, repeat
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import yaml

from sandbox.kinds import KINDS, Kind

type Obj = dict[str, Any]

# What the sandbox does not serve and a real control plane is asked for.
_MORE = (
    Kind("PersistentVolume", "", "persistentvolumes", namespaced=False),
    Kind("StatefulSet", "apps", "statefulsets"),
)
_KINDS = {(kind.api_version, kind.kind): kind for kind in (*KINDS, *_MORE)}


@dataclass(frozen=True)
class Answer:
    """Status and body of an answer; the body is parsed JSON, or text where it is not JSON."""

    status: int
    body: Any

    @property
    def ok(self) -> bool:
        """Whether the request was carried out."""
        return self.status < 300

    @property
    def message(self) -> str:
        """The sentence of a refusal, empty otherwise."""
        return "" if self.ok or not isinstance(self.body, dict) else str(self.body.get("message", ""))


class Refused(Exception):
    """The API server refused what had to work."""


class Client:
    """One server, one account; a connection a thread, kept open. `impersonate`: user name, then groups."""

    def __init__(self, server: str, token: str, ca: str = "", impersonate: tuple[str, ...] = ()) -> None:
        self.server, self.token, self.ca = server, token, ca
        self._impersonate = impersonate
        self._address = urlsplit(server)
        assert self._address.hostname in ("127.0.0.1", "localhost"), server  # noqa: S101
        self._tls = ssl.create_default_context(cadata=ca) if ca else None
        self._local = threading.local()

    @classmethod
    def from_kubeconfig(cls, path: Path) -> Client:
        """The current context's server and token. Certificates of clients are not supported."""
        config = yaml.safe_load(path.read_text())
        named = {
            (kind, entry["name"]): entry[kind]
            for kind in ("cluster", "user", "context")
            for entry in config[f"{kind}s"]
        }
        context = named["context", config["current-context"]]
        cluster, user = named["cluster", context["cluster"]], named["user", context["user"]]
        ca = base64.b64decode(cluster.get("certificate-authority-data", "")).decode()
        return cls(cluster["server"], user["token"], ca)

    def acting_as(self, user: str, *groups: str) -> Client:
        """The same server in the name of another user (the account must be allowed to impersonate)."""
        return Client(self.server, self.token, self.ca, (user, *groups))

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: dict[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Answer:
        """One request. A refusal is an Answer too; raises OSError where nobody answers."""
        target = path + (f"?{urlencode(query)}" if query else "")
        content = None if body is None else json.dumps(body).encode()
        try:
            return self._send(method, target, content, content_type)
        except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError):
            return self._send(
                method, target, content, content_type
            )  # an idle connection was closed meanwhile

    def _send(self, method: str, target: str, content: bytes | None, content_type: str) -> Answer:
        connection = self._connection()
        try:
            connection.putrequest(method, target)
            connection.putheader("Authorization", f"Bearer {self.token}")
            connection.putheader("Accept", "application/json")
            if content is not None:
                connection.putheader("Content-Type", content_type)
                connection.putheader("Content-Length", str(len(content)))
            for header, value in zip(
                chain(("Impersonate-User",), repeat("Impersonate-Group")), self._impersonate, strict=False
            ):
                connection.putheader(header, value)
            connection.endheaders(content)
            response = connection.getresponse()
            return Answer(response.status, _parse(response.read()))
        except (OSError, http.client.HTTPException):
            self._local.connection = None
            connection.close()
            raise

    def watch(self, path: str) -> http.client.HTTPResponse:
        """The lines of a watch as they come, on a connection of its own without a time limit."""
        connection = self._new_connection(None)
        connection.request("GET", path, headers={"Authorization": f"Bearer {self.token}"})
        return connection.getresponse()

    def _new_connection(self, timeout_s: float | None) -> http.client.HTTPConnection:
        host, port = str(self._address.hostname), self._address.port
        if self._address.scheme == "https":
            return http.client.HTTPSConnection(host, port, timeout=timeout_s, context=self._tls)
        return http.client.HTTPConnection(host, port, timeout=timeout_s)

    def _connection(self) -> http.client.HTTPConnection:
        kept: http.client.HTTPConnection | None = getattr(self._local, "connection", None)
        if kept is None:
            kept = self._new_connection(30)
            kept.connect()
            assert kept.sock is not None  # noqa: S101
            kept.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._local.connection = kept
        return kept

    def create(self, document: Obj, *, namespace: str | None = None, dry_run: bool = False) -> Answer:
        """Create an object."""
        return self.call("POST", path_of(document, namespace, named=False), document, query=_dry(dry_run))

    def apply(self, document: Obj, *, namespace: str | None = None, dry_run: bool = False) -> Answer:
        """Server-side apply as field manager `setup`."""
        query = {"fieldManager": "setup", "force": "true"} | (_dry(dry_run) or {})
        path = path_of(document, namespace)
        return self.call("PATCH", path, document, query=query, content_type="application/apply-patch+yaml")

    def get(self, api_version: str, kind: str, namespace: str | None, name: str) -> Answer:
        """Read one object."""
        return self.call("GET", path_for(api_version, kind, namespace, name))

    def items(self, api_version: str, kind: str, namespace: str | None = None, **query: str) -> list[Obj]:
        """Read a list. Raises Refused."""
        answer = self.call("GET", path_for(api_version, kind, namespace), query=query)
        if not answer.ok:
            raise Refused(answer.message)
        found: list[Obj] = answer.body["items"]
        return found

    def delete(self, api_version: str, kind: str, namespace: str | None, name: str) -> Answer:
        """Delete one object, its dependents in the background."""
        body = {"propagationPolicy": "Background"}
        return self.call("DELETE", path_for(api_version, kind, namespace, name), body)


def path_of(document: Obj, namespace: str | None = None, *, named: bool = True) -> str:
    """The path of an object of a kind known here."""
    metadata = document.get("metadata", {})
    name = metadata["name"] if named else None
    return path_for(document["apiVersion"], document["kind"], namespace or metadata.get("namespace"), name)


def path_for(api_version: str, kind: str, namespace: str | None = None, name: str | None = None) -> str:
    """The path of a list (no `name`) or an object. Raises KeyError for a kind not known here."""
    entry = _KINDS[api_version, kind]
    parts = ["/apis" if "/" in api_version else "/api", api_version]
    if entry.namespaced and namespace:
        parts += ["namespaces", namespace]
    parts.append(entry.plural)
    return "/".join([*parts, name] if name else parts)


def _dry(dry_run: bool) -> dict[str, str] | None:
    return {"dryRun": "All"} if dry_run else None


def _parse(body: bytes) -> Any:
    text = body.decode(errors="replace")
    try:
        return json.loads(text)
    except ValueError:
        return text
