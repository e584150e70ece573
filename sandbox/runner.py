"""Starts and stops a whole sandbox: store, API server, controllers."""

import json
import os
import secrets
import threading
from dataclasses import replace
from pathlib import Path

from sandbox.api import Obj
from sandbox.auth import ADMIN, PORTAL, Auth, component, service_account
from sandbox.controllers import run_all
from sandbox.local import LocalApi
from sandbox.options import NodeSpec, Options
from sandbox.registry import Registry
from sandbox.schema import Schema
from sandbox.seeding import seed
from sandbox.server import Server
from sandbox.service import Service
from sandbox.store import Store

_JOIN_SECONDS = 1.5


class Sandbox:
    """A stand-in cluster on a loopback port. Several may run in one process.

    ``data_dir`` keeps the objects and tokens; ``deploy_dir`` holds policies, RBAC and DeviceClasses, ``also`` is one
    more file or folder of documents. With ``controllers=False`` only the API runs.
    """

    def __init__(
        self,
        data_dir: Path | str,
        deploy_dir: Path | str | None = None,
        port: int = 0,
        nodes: tuple[NodeSpec, ...] | None = None,
        options: Options | None = None,
        controllers: bool = True,
        bookmark_seconds: float = 5.0,
        kubeconfig_dir: Path | str | None = None,
        also: Path | None = None,
    ) -> None:
        self.data_dir = Path(data_dir)
        self._deploy_dir = Path(deploy_dir) if deploy_dir else None
        self._also = also
        self._kubeconfig_dir = Path(kubeconfig_dir) if kubeconfig_dir else self.data_dir
        self._port = port
        self._options = options or Options()
        if nodes is not None:
            self._options = replace(self._options, nodes=nodes)
        if self._options.volumes is None:
            self._options = replace(self._options, volumes=str(self.data_dir / "volumes"))
        self._controllers = controllers
        self._bookmark_seconds = bookmark_seconds
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._store: Store | None = None
        self._registry: Registry | None = None
        self._server: Server | None = None
        self._service: Service | None = None

    @property
    def url(self) -> str:
        """The address of the API, without a slash at the end."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def admin_token(self) -> str:
        """The bearer token of the cluster's administrator."""
        return self._tokens()["admin"]

    @property
    def portal_token(self) -> str:
        """The bearer token of the portal's service account."""
        return self._tokens()["portal"]

    @property
    def admin_kubeconfig(self) -> Path:
        """A kubeconfig of the administrator."""
        return self._kubeconfig_dir / "admin.kubeconfig"

    @property
    def portal_kubeconfig(self) -> Path:
        """A kubeconfig of the portal's service account."""
        return self._kubeconfig_dir / "portal.kubeconfig"

    @property
    def registry(self) -> Registry:
        """The objects, for those in the same process. RuntimeError while the sandbox does not run."""
        if self._registry is None:
            raise RuntimeError("the sandbox is not running")
        return self._registry

    def start(self) -> "Sandbox":
        """Start everything; returns when the API answers and the nodes are registered."""
        self.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._kubeconfig_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        tokens = self._tokens()
        self._store = Store(self.data_dir / "objects.sqlite")
        registry = self._registry = Registry(self._store, Schema())
        for folder in (self._deploy_dir, self._also):
            seed(registry, folder)
        users = {tokens["admin"]: ADMIN, tokens["portal"]: service_account(*PORTAL)}
        self._service = Service(registry, Auth(self._store, users), self._bookmark_seconds)
        self._server = Server(("127.0.0.1", self._port), self._service)
        self._port = self._server.server_address[1]
        for name, path in (("admin", self.admin_kubeconfig), ("portal", self.portal_kubeconfig)):
            _write_private(path, json.dumps(_kubeconfig(self.url, name, tokens[name]), indent=1))
        self._stop.clear()
        thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), name="api", daemon=True)
        thread.start()
        if self._controllers:
            api = LocalApi(registry, component("kube-controller-manager"))
            self._threads = run_all(api, self._stop, self._options)
        return self

    def stop(self) -> None:
        """Stop everything; the objects stay on disk."""
        if self._store is None or self._server is None or self._service is None:
            return
        self._stop.set()
        self._service.stop()
        self._store.wake()
        self._server.stop()
        for thread in self._threads:
            thread.join(_JOIN_SECONDS)
        self._store.close()
        self._store = self._registry = self._server = self._service = None

    def compact(self) -> int:
        """Forget the history of changes, so that older watches get 410."""
        return self.registry.store.compact()

    def __enter__(self) -> "Sandbox":
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _tokens(self) -> dict[str, str]:
        path = self.data_dir / "tokens.json"
        if not path.exists():
            self.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
            tokens = {name: secrets.token_urlsafe(32) for name in ("admin", "portal")}
            _write_private(path, json.dumps(tokens))
        found: dict[str, str] = json.loads(path.read_text(encoding="utf-8"))
        return found


def _write_private(path: Path, text: str) -> None:
    """Write a file only its owner can read, whole or not at all."""
    temporary = path.with_name(f".{path.name}.new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    temporary.replace(path)


def _kubeconfig(url: str, name: str, token: str) -> Obj:
    """A kubeconfig with one context; JSON is YAML too.

    The token stands in the address as well, because kubectl sends no other credentials over plain HTTP.
    """
    server = url.replace("://", f"://{name}:{token}@")
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "sandbox", "cluster": {"server": server}}],
        "users": [{"name": name, "user": {"token": token}}],
        "contexts": [{"name": "sandbox", "context": {"cluster": "sandbox", "user": name}}],
        "current-context": "sandbox",
    }
