"""The controllers' way to a real API server: the protocol of :mod:`sandbox.api` over HTTP."""

import http.client
import json
import logging
import queue
import ssl
import threading
import urllib.parse
from collections.abc import Iterator, Sequence
from typing import Any

from sandbox.api import ApiError, Obj
from sandbox.kinds import BY_KIND
from sandbox.logbook import Logbook

log = logging.getLogger(__name__)

TIMEOUT = 30.0
WATCH_SECONDS = 300
PAGE = 500


class HttpApi:
    """Speaks JSON to ``server`` with a bearer token; ``ca`` is the path of the certificate to trust.

    Without ``ca`` a server with https is not verified: it is for loopback only. Logs stay in
    ``logbook``, for the kubelet that serves them.
    """

    def __init__(self, server: str, token: str, ca: str | None = None) -> None:
        self._url = urllib.parse.urlsplit(server)
        self._headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
        self._context: ssl.SSLContext | None = None
        if self._url.scheme == "https":
            self._context = ssl.create_default_context(cafile=ca)
            if ca is None:
                self._context.check_hostname = False
                self._context.verify_mode = ssl.CERT_NONE
        self._local = threading.local()
        self.logbook = Logbook()

    def get(self, kind: str, namespace: str | None, name: str) -> Obj | None:
        """See :class:`sandbox.api.Api`."""
        try:
            return self._request("GET", _path(kind, namespace, name))
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def list(
        self, kind: str, namespace: str | None = None, labels: dict[str, str] | None = None
    ) -> list[Obj]:
        """See :class:`sandbox.api.Api`."""
        return [*self._list(kind, namespace, labels)[0]]

    def _list(
        self, kind: str, namespace: str | None = None, labels: dict[str, str] | None = None
    ) -> tuple[Sequence[Obj], str]:
        query = {"limit": str(PAGE)}
        if labels:
            query["labelSelector"] = ",".join(f"{key}={value}" for key, value in labels.items())
        found: Sequence[Obj] = ()
        while True:
            page = self._request("GET", f"{_path(kind, namespace)}?{urllib.parse.urlencode(query)}")
            version = {"kind": kind, "apiVersion": BY_KIND[kind].api_version}
            found = [*found, *(version | item for item in page["items"])]
            if not page["metadata"].get("continue"):
                return found, str(page["metadata"]["resourceVersion"])
            query["continue"] = page["metadata"]["continue"]

    def create(self, obj: Obj, dry_run: bool = False) -> Obj:
        """See :class:`sandbox.api.Api`."""
        path = _path(obj["kind"], obj["metadata"].get("namespace"))
        return self._request("POST", path + ("?dryRun=All" if dry_run else ""), obj)

    def update(self, obj: Obj) -> Obj:
        """See :class:`sandbox.api.Api`."""
        metadata = obj["metadata"]
        return self._request("PUT", _path(obj["kind"], metadata.get("namespace"), metadata["name"]), obj)

    def update_status(self, obj: Obj) -> Obj:
        """See :class:`sandbox.api.Api`."""
        metadata = obj["metadata"]
        path = _path(obj["kind"], metadata.get("namespace"), metadata["name"])
        return self._request("PUT", f"{path}/status", obj)

    def delete(
        self,
        kind: str,
        namespace: str | None,
        name: str,
        uid: str | None = None,
        propagation: str = "Background",
        grace_seconds: int | None = None,
    ) -> bool:
        """See :class:`sandbox.api.Api`."""
        options: Obj = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": propagation}
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        try:
            self._request("DELETE", _path(kind, namespace, name), options)
        except ApiError as error:
            if error.status == 404:
                return False
            raise
        return True

    def watch(self, kinds: Sequence[str], stop: threading.Event | None = None) -> Iterator[tuple[str, Obj]]:
        """See :class:`sandbox.api.Api`. Each kind has a thread that lists, streams and lists again."""
        stop = stop or threading.Event()
        changes: queue.SimpleQueue[tuple[str, Obj]] = queue.SimpleQueue()
        for kind in kinds:
            threading.Thread(
                target=self._follow, args=(kind, changes, stop), name=f"watch-{kind}", daemon=True
            ).start()
        while not stop.is_set():
            try:
                yield changes.get(timeout=0.5)
            except queue.Empty:
                continue

    def _follow(
        self, kind: str, changes: "queue.SimpleQueue[tuple[str, Obj]]", stop: threading.Event
    ) -> None:
        known: dict[str, Obj] = {}
        while not stop.is_set():
            try:
                items, version = self._list(kind)
                present = {item["metadata"]["uid"]: item for item in items}
                for uid in known.keys() - present.keys():
                    self._gone(known[uid])
                    changes.put(("DELETED", known[uid]))
                for uid, item in present.items():
                    changes.put(("MODIFIED" if uid in known else "ADDED", item))
                known = present
                while version and not stop.is_set():
                    version = self._stream(kind, version, known, changes, stop)
            except (ApiError, OSError, http.client.HTTPException, ValueError) as error:
                log.info("watch of %s broke (%s); listing again", kind, error)
                stop.wait(1.0)

    def _stream(
        self,
        kind: str,
        version: str,
        known: dict[str, Obj],
        changes: "queue.SimpleQueue[tuple[str, Obj]]",
        stop: threading.Event,
    ) -> str:
        """Follow one watch request; the version to go on from, "" where the server has forgotten it."""
        query = urllib.parse.urlencode(
            {
                "watch": "1",
                "resourceVersion": version,
                "allowWatchBookmarks": "true",
                "timeoutSeconds": str(WATCH_SECONDS),
            }
        )
        connection = self._connect(WATCH_SECONDS + TIMEOUT)
        try:
            connection.request("GET", f"{self._url.path}{_path(kind, None)}?{query}", headers=self._headers)
            answer = connection.getresponse()
            if answer.status == 410:
                return ""
            if answer.status != 200:
                raise _error(answer.status, answer.read())
            for line in answer:
                if stop.is_set():
                    return ""
                change = json.loads(line)
                obj = change["object"]
                if change["type"] == "ERROR":
                    return ""
                version = str(obj["metadata"]["resourceVersion"])
                if change["type"] == "BOOKMARK":
                    continue
                if change["type"] == "DELETED":
                    known.pop(obj["metadata"]["uid"], None)
                    self._gone(obj)
                else:
                    known[obj["metadata"]["uid"]] = obj
                changes.put((change["type"], obj))
        finally:
            connection.close()
        return version

    def _gone(self, obj: Obj) -> None:
        if obj["kind"] == "Pod":
            self.logbook.forget(obj["metadata"]["namespace"], obj["metadata"]["name"])

    def acting(self, component: str) -> "HttpApi":
        """A real server knows the token's account and no other."""
        return self

    def append_log(self, namespace: str, pod: str, container: str, text: str) -> None:
        """See :class:`sandbox.api.Api`."""
        self.logbook.append(namespace, pod, container, text)

    def rotate_log(self, namespace: str, pod: str, container: str) -> None:
        """See :class:`sandbox.api.Api`."""
        self.logbook.rotate(namespace, pod, container)

    def _connect(self, timeout: float) -> http.client.HTTPConnection:
        host, port = self._url.hostname or "", self._url.port
        if self._context is not None:
            return http.client.HTTPSConnection(host, port, timeout=timeout, context=self._context)
        return http.client.HTTPConnection(host, port, timeout=timeout)

    def _request(self, method: str, path: str, body: Obj | None = None) -> Obj:
        """One request on this thread's connection; a broken one is opened anew, once where that is safe."""
        payload = None if body is None else json.dumps(body).encode()
        headers = self._headers | ({"Content-Type": "application/json"} if payload else {})
        for fresh in (False, True):
            connection: http.client.HTTPConnection | None = getattr(self._local, "connection", None)
            if connection is None:
                connection = self._local.connection = self._connect(TIMEOUT)
                fresh = True
            try:
                connection.request(method, self._url.path + path, payload, headers)
                answer = connection.getresponse()
                data = answer.read()
                break
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                self._local.connection = None
                if fresh:
                    raise ApiError(503, {"message": f"{method} {path}: {error}"}) from error
        if answer.status >= 300:
            raise _error(answer.status, data)
        found: Obj = json.loads(data)
        return found


def _error(status: int, data: bytes) -> ApiError:
    try:
        body: Any = json.loads(data)
    except ValueError:
        body = {"message": data.decode(errors="replace")[:500]}
    return ApiError(status, body if isinstance(body, dict) else {"message": str(body)})


def _path(kind: str, namespace: str | None, name: str | None = None) -> str:
    known = BY_KIND[kind]
    parts = [f"/apis/{known.api_version}" if known.group else f"/api/{known.version}"]
    if namespace and known.namespaced:
        parts.append(f"namespaces/{urllib.parse.quote(namespace)}")
    parts.append(known.plural)
    if name is not None:
        parts.append(urllib.parse.quote(name))
    return "/".join(parts)
