"""etcd, API server, controller manager and scheduler as child processes, on loopback ports, with data in a folder."""

from __future__ import annotations

import base64
import json
import os
import secrets
import signal
import socket
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from dev import processes
from dev.controlplane import certificates
from dev.controlplane.build import Programs
from dev.controlplane.client import Client

HOST = "127.0.0.1"
START_SECONDS = 90.0

_ORDER = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")

_USERS = {
    # name of the token -> user, groups
    "admin": ("admin", "system:masters"),
    "manager": ("system:kube-controller-manager", ""),
    "scheduler": ("system:kube-scheduler", ""),
    "kubelet": ("system:node:sandbox", "system:masters"),
}


class StartError(Exception):
    """A part of the control plane did not start; the text names its log."""


class ControlPlane:
    """The four processes. Use as a context manager, or `start()` and `stop()`. Data is kept in `folder`."""

    def __init__(
        self, programs: Programs, folder: Path, say: Callable[[str], None] = lambda line: None
    ) -> None:
        self._programs = programs
        self.folder = folder.resolve()
        self._say = say
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._state: dict[str, Any] = {}

    @property
    def server(self) -> str:
        """The API server's address."""
        return f"https://{HOST}:{self._state['ports']['apiserver']}"

    @property
    def authority(self) -> str:
        """The certificate of the authority that the API server's certificate is signed by (PEM)."""
        return (self.folder / "pki" / "ca.crt").read_text()

    def token(self, user: str) -> str:
        """The token of `admin`, `manager`, `scheduler` or `kubelet`."""
        return str(self._state["tokens"][user])

    def client(self, user: str = "admin") -> Client:
        """A client for one of the users of :meth:`token`."""
        return Client(self.server, self.token(user), self.authority)

    def kubeconfig(self, name: str, token: str) -> Path:
        """Write a kubeconfig (mode 0600) for a token and return its path."""
        path = self.folder / f"{name}.kubeconfig"
        cluster = {
            "server": self.server,
            "certificate-authority-data": base64.b64encode(self.authority.encode()).decode(),
        }
        config = {
            "apiVersion": "v1", "kind": "Config", "current-context": name,
            "clusters": [{"name": "controlplane", "cluster": cluster}],
            "users": [{"name": name, "user": {"token": token}}],
            "contexts": [{"name": name, "context": {"cluster": "controlplane", "user": name}}],
        }  # fmt: skip
        _write_private(path, json.dumps(config, indent=1))
        return path

    def start(self) -> None:
        """Start all four and wait until they answer. Raises StartError."""
        self.folder.mkdir(parents=True, exist_ok=True)
        certificates.make(self.folder / "pki")
        self._load_state()
        try:
            self.start_etcd()
            self.start_api()
            self.start_controllers()
        except BaseException:
            self.stop()
            raise

    def start_etcd(self) -> None:
        """Start the store. Raises StartError."""
        ports = self._state["ports"]
        client, peer = f"http://{HOST}:{ports['etcd']}", f"http://{HOST}:{ports['peer']}"
        self._launch(
            "etcd", self._programs.etcd,
            "--data-dir", self.folder / "etcd", "--unsafe-no-fsync",
            "--listen-client-urls", client, "--advertise-client-urls", client,
            "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
            "--initial-cluster", f"default={peer}", "--log-level", "warn",
        )  # fmt: skip
        self._wait("etcd", f"{client}/health")

    def start_api(self) -> None:
        """Start the API server (again) and wait until it is ready. Raises StartError."""
        pki, ports = self.folder / "pki", self._state["ports"]
        self._launch(
            "kube-apiserver", self._programs.apiserver,
            "--etcd-servers", f"http://{HOST}:{ports['etcd']}",
            "--bind-address", HOST, "--secure-port", ports["apiserver"],
            "--tls-cert-file", pki / "server.crt", "--tls-private-key-file", pki / "server.key",
            "--service-account-issuer", "https://kubernetes.default.svc",
            "--service-account-key-file", pki / "tokens.key",
            "--service-account-signing-key-file", pki / "tokens.key",
            "--token-auth-file", self.folder / "tokens.csv",
            "--authorization-mode", "RBAC", "--anonymous-auth=true",
            "--service-cluster-ip-range", "10.96.0.0/16", "--endpoint-reconciler-type", "none",
            "--allow-privileged=true", "--profiling=false",
            "--kubelet-preferred-address-types", "InternalIP",
            "--shutdown-delay-duration", "0s",
        )  # fmt: skip
        self._wait("kube-apiserver", f"{self.server}/readyz")

    def start_controllers(self) -> None:
        """Start controller manager and scheduler, again where they run.

        After the API server was away they would come back by themselves, but pause up to half a minute first.
        """
        for name in ("kube-controller-manager", "kube-scheduler"):
            if name in self._children:
                processes.stop(self._children.pop(name))
        pki = self.folder / "pki"
        manager = self.kubeconfig("manager", self.token("manager"))
        scheduler = self.kubeconfig("scheduler", self.token("scheduler"))
        self._launch(
            "kube-controller-manager", self._programs.manager,
            "--kubeconfig", manager, "--use-service-account-credentials=true",
            "--service-account-private-key-file", pki / "tokens.key", "--root-ca-file", pki / "ca.crt",
            "--leader-elect=false", "--secure-port=0", "--node-monitor-grace-period=40s",
        )  # fmt: skip
        self._launch(
            "kube-scheduler", self._programs.scheduler,
            "--kubeconfig", scheduler, "--leader-elect=false", "--secure-port=0",
        )  # fmt: skip

    def stop_api(self) -> None:
        """Kill the API server, as a power failure would."""
        processes.stop(self._children.pop("kube-apiserver"), first=signal.SIGKILL)

    def compact(self) -> None:
        """Forget all old versions: a watch from any version before now is answered with 410.

        The API server keeps a window of versions of its own, so it is started again. Raises StartError.
        """
        etcd = f"http://{HOST}:{self._state['ports']['etcd']}/v3/kv"
        head = _post(f"{etcd}/range", {"key": base64.b64encode(b"\0").decode(), "count_only": True})["header"]
        _post(f"{etcd}/compaction", {"revision": head["revision"], "physical": True})
        if "kube-apiserver" in self._children:
            self.stop_api()
            self.start_api()
            self.start_controllers()

    def check(self) -> None:
        """Raise StartError where one of the processes has ended."""
        for name, child in self._children.items():
            if processes.exit_code(child) is not None:
                raise StartError(f"{name} has ended.\n{self._tail(name)}")

    def stop(self) -> None:
        """End what was started here, the store last. The API server would wait long for its watchers."""
        for name in reversed(_ORDER):
            if name in self._children:
                first = signal.SIGKILL if name == "kube-apiserver" else signal.SIGTERM
                processes.stop(self._children.pop(name), first=first)

    def __enter__(self) -> ControlPlane:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _launch(self, name: str, program: Path, *arguments: object) -> None:
        self._say(f"{name}: starting")
        self._children[name] = processes.spawn(
            [str(program), *map(str, arguments)], log=self._log(name), cwd=self.folder
        )

    def _wait(self, name: str, url: str) -> None:
        context = ssl.create_default_context(cadata=self.authority) if url.startswith("https") else None
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if processes.exit_code(self._children[name]) is not None:
                break
            try:
                with urllib.request.urlopen(url, timeout=5, context=context):  # noqa: S310
                    return
            except OSError:  # refused, or answered 500 because it is not ready
                time.sleep(0.1)
        raise StartError(f"{name} did not start.\n{self._tail(name)}")

    def _log(self, name: str) -> Path:
        return self.folder / "logs" / f"{name}.log"

    def _tail(self, name: str) -> str:
        log = self._log(name)
        last = log.read_text(errors="replace").splitlines()[-8:] if log.exists() else []
        return "\n".join([f"Log: {log}", *(f"  | {line[:300]}" for line in last)])

    def _load_state(self) -> None:
        path = self.folder / "state.json"
        if path.exists():
            self._state = json.loads(path.read_text())
        else:
            self._state = {"ports": {}, "tokens": {user: secrets.token_urlsafe(24) for user in _USERS}}
        kept = self._state["ports"]
        # Kept from the last start, so that a kubeconfig stays good, unless somebody else has one of them by now.
        self._state["ports"] = {name: _free(kept.get(name, 0)) for name in ("etcd", "peer", "apiserver")}
        _write_private(path, json.dumps(self._state))
        lines = [f'{self.token(name)},{user},{name},"{group}"\n' for name, (user, group) in _USERS.items()]
        _write_private(self.folder / "tokens.csv", "".join(lines))


def _free(port: int) -> int:
    for candidate in (port, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, candidate))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise StartError("no free port")


def _post(url: str, body: dict[str, Any]) -> dict[str, Any]:
    request = urllib.request.Request(url, json.dumps(body).encode())  # noqa: S310
    with urllib.request.urlopen(request, timeout=10) as response:  # noqa: S310
        answer: dict[str, Any] = json.loads(response.read())
        return answer


def _write_private(path: Path, text: str) -> None:
    fresh = path.with_name(f"{path.name}.new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
        out.write(text)
    fresh.replace(path)
