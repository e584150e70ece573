"""Runs the stand-in for Ollama in place of a container of its image, and lets agents of Jobs find it.

Pods have no network here. Each workload gets a loopback port that it keeps across restarts, and the address of a
Service in an agent's environment is replaced by that of the workload behind it.
"""

import re
import socket
import sys
import tempfile
import urllib.parse
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from sandbox.api import Obj
from sandbox.controllers.objects import name_of, namespace_of, uid_of
from sandbox.options import Options
from sandbox.quantity import parse

ROOT = Path(__file__).resolve().parent.parent
APP = "app.kubernetes.io/name"
PORT = 11434
LAST_GOOD = (0, 30)
"""The first release whose builds have dropped the V100."""

_VERSION = re.compile(r":(\d+)\.(\d+)\.(\d+)")
_NOWHERE = "http://127.0.0.1:1"


class Reader(Protocol):
    """What is needed of the API."""

    def get(self, kind: str, namespace: str | None, name: str) -> Obj | None:
        """The object, or None."""


class OllamaPods:
    """Ports and volumes of the pretended Ollama servers."""

    def __init__(self, api: Reader, options: Options) -> None:
        self._api, self._options = api, options
        self._ports: dict[tuple[str, str], int] = {}
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def command(self, pod: Obj, spec: Obj, env: Mapping[str, str], card_mib: int | None) -> list[str]:
        """The command that stands for the container."""
        image = str(spec["image"])
        version = _VERSION.search(image.rpartition("/")[2])
        limit = ((spec.get("resources") or {}).get("limits") or {}).get("memory")
        models, capacity = self._volume(pod, spec, env)
        command = [sys.executable, "-m", "sandbox.ollama", "--models", models]
        command += ["--port", str(self._port(str(namespace_of(pod)), _app(pod)))]
        command += ["--seconds", str(self._options.ollama_seconds), "--card-memory", str(card_mib or 0)]
        if capacity is not None:
            command += ["--capacity", str(capacity)]
        if limit is not None:
            command += ["--memory", str(int(parse(limit)))]
        if version is not None:
            command += ["--version", version[0][1:]]
            if (int(version[1]), int(version[2])) >= LAST_GOOD:
                command.append("--unusable-card")
        return command

    def address(self, namespace: str, url: str) -> str:
        """Where the workload behind a Service of that address listens on this machine."""
        parts = urllib.parse.urlsplit(url)
        if parts.hostname in (None, "127.0.0.1", "localhost"):
            return url
        service = self._api.get("Service", namespace, str(parts.hostname).partition(".")[0])
        app = ((service or {}).get("spec") or {}).get("selector", {}).get(APP)
        ports = ((service or {}).get("spec") or {}).get("ports") or []
        if app is None or (parts.port or 80) not in [one["port"] for one in ports]:
            return _NOWHERE  # a name that nobody knows, or a port that nobody serves
        return f"http://127.0.0.1:{self._port(namespace, app)}"

    def _port(self, namespace: str, app: str) -> int:
        key = (namespace, app)
        if key not in self._ports:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                self._ports[key] = probe.getsockname()[1]
        return self._ports[key]

    def _volume(self, pod: Obj, spec: Obj, env: Mapping[str, str]) -> tuple[str, int | None]:
        """The folder in which the container's models are, and the bytes of its volume."""
        inside = env.get("OLLAMA_MODELS") or f"{env.get('HOME', '/root')}/.ollama/models"
        mounts = [
            one
            for one in spec.get("volumeMounts") or []
            if f"{inside}/".startswith(one["mountPath"].rstrip("/") + "/")
        ]
        names = {one["name"] for one in mounts}
        for volume in pod["spec"].get("volumes") or []:
            if volume["name"] not in names:
                continue
            if claim := volume.get("persistentVolumeClaim"):
                return self._claimed(str(namespace_of(pod)), claim["claimName"])
            return str(self._base() / f"{name_of(pod)}-{uid_of(pod)}"), None
        return "models", None  # in the container: gone with it

    def _claimed(self, namespace: str, name: str) -> tuple[str, int | None]:
        claim = self._api.get("PersistentVolumeClaim", namespace, name) or {}
        metadata, status = claim.get("metadata") or {}, claim.get("status") or {}
        asked = ((claim.get("spec") or {}).get("resources") or {}).get("requests") or {}
        size = (status.get("capacity") or asked).get("storage")
        folder = self._base() / namespace / f"{name}-{metadata.get('uid', '')}"
        return str(folder), int(parse(size)) if size else None

    def _base(self) -> Path:
        if self._options.volumes:
            return Path(self._options.volumes)
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="sandbox-volumes-")
        return Path(self._folder.name)


def _app(pod: Obj) -> str:
    return str((pod["metadata"].get("labels") or {}).get(APP) or name_of(pod))
