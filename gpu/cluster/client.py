"""The gateway to a cluster: the only import of `kubernetes`, plain dicts in and out, errors of `gpu.cluster.errors`.

What the library gives is its configuration (kubeconfig, in-cluster account, token renewal, TLS) and its connection
pool. Its typed models reject unknown fields and cost 130 MiB; its dynamic client would only add discovery requests
and a cache file to paths that `kinds` knows; its watch gives up an ERROR line and cannot be interrupted. So requests
go through `ApiClient.call_api` with JSON. Its retries are off: when to try again is decided by our own callers.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from urllib3.exceptions import HTTPError

from gpu.cluster.errors import (
    ClusterError,
    Garbled,
    NotConfigured,
    NotFound,
    NotServed,
    Unauthorized,
    Untrusted,
)
from gpu.cluster.kinds import KINDS
from gpu.cluster.responses import from_response
from gpu.cluster.stream import Object, WatchStream, parse, read_all, transport_error

FIELD_MANAGER = "gpu-portal"
METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
PAGE_SIZE = 500
"""Objects asked for in one page of a list; the number kubectl uses."""

Query = Sequence[tuple[str, str | int | bool]]


@dataclass(frozen=True)
class ClusterSettings:
    """How to reach a cluster.

    `kubeconfig` is a path; None means the account of the pod this runs in. The read timeout is the longest silence
    inside one answer. `cache_dir` keeps client certificates that the kubeconfig holds inline; it is made private.
    """

    kubeconfig: str | None = None
    context: str | None = None
    connect_timeout_s: float = 3.0
    read_timeout_s: float = 15.0
    cache_dir: str | None = None


def connect(settings: ClusterSettings) -> Cluster:
    """A client for the cluster; nothing is read or sent before the first call."""
    return Cluster(settings)


class Cluster:
    """Calls to one cluster. Safe to share between threads, not between processes.

    Every method raises a ClusterError and nothing else; objects are plain dicts as the API server sends them.
    """

    def __init__(self, settings: ClusterSettings) -> None:
        self.settings = settings
        self._lock = threading.Lock()
        self._api: Any = None

    def get(self, kind: str, namespace: str | None, name: str) -> Object | None:
        """One object, or None when there is none of that name."""
        try:
            return self._json("GET", KINDS[kind].path(namespace, name))
        except NotFound:
            return None

    def touch(self, kind: str, namespace: str | None, name: str) -> Object | None:
        """The metadata of an object that the account may patch but not read, or None when there is none.

        A patch that changes nothing, as a dry run; the answer carries no data.
        """
        query = [("fieldManager", FIELD_MANAGER), *_dry(True)]
        path, content_type = KINDS[kind].path(namespace, name), "application/merge-patch+json"
        try:
            return self._json("PATCH", path, query, {}, content_type, accept=METADATA_ONLY)
        except NotFound:
            return None

    def pages(
        self,
        kind: str,
        namespace: str | None = None,
        *,
        label_selector: str | None = None,
        limit: int = PAGE_SIZE,
    ) -> Iterator[tuple[list[Object], str]]:
        """The objects of a kind page by page, each page with the version of the list.

        No version is asked for, so the answer is the newest state. Raises Gone when the list takes so long that the
        cluster forgets its version: it must then begin again.
        """
        known = KINDS[kind]
        query: list[tuple[str, str | int | bool]] = [("limit", limit)]
        if label_selector:
            query.append(("labelSelector", label_selector))
        token = ""
        while True:
            answer = self._json(
                "GET", known.path(namespace), [*query, ("continue", token)] if token else query
            )
            items, metadata = answer.get("items"), answer.get("metadata")
            if not isinstance(items, list | None) or not isinstance(metadata, dict):
                raise Garbled(f"a list of {kind} without items")
            version = metadata.get("resourceVersion")
            if not version:
                raise Garbled(f"a list of {kind} without a version")
            for item in items or ():
                # Inside a list the API server leaves these two out; a watch has them.
                item.setdefault("kind", kind)
                item.setdefault("apiVersion", known.api_version)
            yield items or [], version
            token = metadata.get("continue") or ""
            if not token:
                return

    def list(
        self, kind: str, namespace: str | None = None, label_selector: str | None = None
    ) -> tuple[list[Object], str]:
        """All objects of a kind, and the version to watch from."""
        found: list[Object] = []
        version = ""
        for items, version in self.pages(kind, namespace, label_selector=label_selector):  # noqa: B007
            found += items
        return found, version

    def apply(self, document: Object, *, force: bool = True, dry_run: bool = False) -> Object:
        """Server-side apply; safe to repeat. Without `force` a field that another manager set is a Conflict."""
        query: Query = [("fieldManager", FIELD_MANAGER), ("force", force), *_dry(dry_run)]
        return self._json("PATCH", _path(document), query, document, "application/apply-patch+yaml")

    def make(self, document: Object) -> bool:
        """Server-side apply of what is not there yet; False when it was there and no field of it was in the way."""
        query: Query = [("fieldManager", FIELD_MANAGER), ("force", False)]
        response = self._send("PATCH", _path(document), query, document, "application/apply-patch+yaml")
        read_all(response)
        return bool(response.status == HTTPStatus.CREATED)

    def create(self, document: Object, *, dry_run: bool = False) -> Object:
        """Make a new object; Conflict when the name is taken. Not safe to repeat: prefer `apply`."""
        known = KINDS[document["kind"]]
        path = known.path(document["metadata"].get("namespace") if known.namespaced else None)
        return self._json("POST", path, [("fieldManager", FIELD_MANAGER), *_dry(dry_run)], document)

    def patch(self, kind: str, namespace: str | None, name: str, merge_patch: Object) -> Object:
        """JSON merge patch; a None removes the field. Raises NotFound when there is no such object."""
        path = KINDS[kind].path(namespace, name)
        return self._json(
            "PATCH", path, [("fieldManager", FIELD_MANAGER)], merge_patch, "application/merge-patch+json"
        )

    def delete(
        self,
        kind: str,
        namespace: str | None,
        name: str,
        propagation: str = "Background",
        *,
        uid: str | None = None,
    ) -> bool:
        """Delete an object; False when it was gone already.

        With `uid` only that very object is deleted: a later one of the same name raises Conflict.
        """
        options: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation}
        if uid:
            options["preconditions"] = {"uid": uid}
        try:
            self._json("DELETE", KINDS[kind].path(namespace, name), (), options)
        except NotFound:
            return False
        return True

    def watch(
        self,
        kind: str,
        resource_version: str,
        timeout_s: int = 240,
        *,
        silence_s: float | None = None,
        namespace: str | None = None,
        label_selector: str | None = None,
    ) -> WatchStream:
        """The changes of a kind after `resource_version`, as raw lines including BOOKMARK and ERROR.

        The server ends the stream after `timeout_s`; `silence_s` (by default a little more) without a byte raises
        Unreachable. Raises ValueError without a version: such a watch would miss or repeat things silently.
        """
        if not resource_version:
            raise ValueError("a watch needs the version it starts from")
        query: list[tuple[str, str | int | bool]] = [
            ("watch", True),
            ("resourceVersion", resource_version),
            ("allowWatchBookmarks", True),
            ("timeoutSeconds", timeout_s),
        ]
        if label_selector:
            query.append(("labelSelector", label_selector))
        silence = timeout_s + 15.0 if silence_s is None else silence_s
        response = self._send("GET", KINDS[kind].path(namespace), query, read_timeout_s=silence)
        return WatchStream(response)

    def pod_log(
        self,
        namespace: str,
        pod: str,
        container: str,
        *,
        tail_lines: int,
        limit_bytes: int,
        since_seconds: int | None = None,
        previous: bool = False,
    ) -> str:
        """The end of a container's log; at most `limit_bytes` bytes are read, whatever the server sends."""
        query: list[tuple[str, str | int | bool]] = [
            ("container", container),
            ("tailLines", tail_lines),
            ("limitBytes", limit_bytes),
            ("previous", previous),
        ]
        if since_seconds is not None:
            query.append(("sinceSeconds", since_seconds))
        response = self._send("GET", KINDS["Pod"].path(namespace, pod, "log"), query)
        try:
            data: bytes = response.read(limit_bytes)
        except (HTTPError, OSError) as error:
            raise transport_error(error) from error
        finally:
            response.close()
        return data.decode("utf-8", errors="replace")

    def version(self) -> Object:
        """What the API server says about its version (`major`, `minor`, `gitVersion`)."""
        return self._json("GET", "/version")

    def served(self, api_version: str) -> bool:
        """Whether the cluster offers a group and version such as "resource.k8s.io/v1"."""
        try:
            self._json("GET", f"/{'apis' if '/' in api_version else 'api'}/{api_version}")
        except (NotServed, NotFound):
            return False
        return True

    def close(self) -> None:
        """Drop the connections; the next call reads the configuration again."""
        with self._lock:
            api, self._api = self._api, None
        if api is not None:
            api.close()

    def _json(
        self,
        method: str,
        path: str,
        query: Query = (),
        body: Object | None = None,
        content_type: str = "application/json",
        accept: str = "application/json, */*",
    ) -> Object:
        response = self._send(method, path, query, body, content_type, accept=accept)
        answer = parse(read_all(response))
        if not isinstance(answer, dict):
            raise Garbled("the answer is no JSON object")
        return answer

    def _send(
        self,
        method: str,
        path: str,
        query: Query = (),
        body: Object | None = None,
        content_type: str = "application/json",
        read_timeout_s: float | None = None,
        accept: str = "application/json, */*",
    ) -> Any:
        """Send a request and return the open response when its status is 2xx."""
        api = self._client()
        timeout = (self.settings.connect_timeout_s, read_timeout_s or self.settings.read_timeout_s)
        headers = {"Accept": accept, "Content-Type": content_type}
        try:
            method, url, headers, _, _ = api.param_serialize(
                method,
                path,
                query_params=list(query),
                header_params=headers,
                auth_settings=["BearerToken"],
            )
            # The body goes past param_serialize: it would only copy it.
            response = api.call_api(method, url, headers, body, _request_timeout=timeout).response
        except (HTTPError, OSError) as error:
            raise transport_error(error) from error
        except Exception as error:
            raise self._library_error(error) from error
        if 200 <= response.status < 300:
            return response
        text = read_all(response).decode("utf-8", errors="replace")
        failure = from_response(response.status, text, response.headers)
        if isinstance(failure, Unauthorized):
            self.close()  # a renewed token is read from the kubeconfig by the next call
        raise failure

    def _library_error(self, error: Exception) -> ClusterError:
        from kubernetes.client.exceptions import ApiException
        from kubernetes.config.config_exception import ConfigException

        if isinstance(error, ApiException) and error.status == 0:
            return Untrusted(str(error.reason))  # this is how the library passes on a TLS failure
        if isinstance(error, ConfigException):
            return NotConfigured(str(error))
        raise error

    def _client(self) -> Any:
        with self._lock:
            if self._api is None:
                self._api = self._new_client()
            return self._api

    def _new_client(self) -> Any:
        from kubernetes.client.api_client import ApiClient
        from kubernetes.client.configuration import Configuration
        from kubernetes.config.config_exception import ConfigException
        from kubernetes.config.incluster_config import load_incluster_config
        from kubernetes.config.kube_config import load_kube_config
        from yaml import YAMLError

        configuration = Configuration(retries=False, connection_pool_maxsize=32)
        configuration.keep_alive = True
        settings = self.settings
        try:
            if settings.kubeconfig is None:
                load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
            else:
                load_kube_config(  # type: ignore[no-untyped-call]
                    config_file=settings.kubeconfig,
                    context=settings.context,
                    client_configuration=configuration,
                    persist_config=False,
                    temp_file_path=_private(settings.cache_dir),
                )
        except (ConfigException, OSError, ValueError, KeyError, TypeError, YAMLError) as error:
            raise NotConfigured(str(error)) from error
        if not configuration.verify_ssl:
            raise NotConfigured("insecure-skip-tls-verify is set; name the certificate authority instead")
        api = ApiClient(configuration)
        api.user_agent = FIELD_MANAGER
        return api


def _path(document: Mapping[str, Any]) -> str:
    metadata = document["metadata"]
    return KINDS[document["kind"]].path(metadata.get("namespace"), metadata["name"])


def _dry(dry_run: bool) -> list[tuple[str, str | int | bool]]:
    return [("dryRun", "All")] if dry_run else []


def _private(folder: str | None) -> str | None:
    """Make the folder, for this account only."""
    if folder is not None:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        os.chmod(folder, 0o700)
    return folder
