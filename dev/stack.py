"""The commands of the portal's processes and of the sandbox cluster: the same for the demo, the tests, the bench."""

from __future__ import annotations

import http.client
import json
import sys
from pathlib import Path
from typing import Any

from portal.gunicorn_conf import keepalive

ROOT = Path(__file__).resolve().parent.parent
HOST = "127.0.0.1"


def web(port: int, *, threads: int = 8) -> list[str]:
    """The web process on `port` of loopback."""
    command = [sys.executable, "-m", "gunicorn", "portal.wsgi", "--bind", f"{HOST}:{port}", "--workers", "1"]
    command += ["--threads", str(threads), "--keep-alive", str(keepalive)]
    return [*command, "--graceful-timeout", "5", "--access-logfile", "-"]


def worker(*, concurrency: int = 2) -> list[str]:
    """The worker, without the chatter between workers that nothing here needs."""
    command = [
        sys.executable,
        "-m",
        "celery",
        "-A",
        "portal",
        "worker",
        "--without-gossip",
        "--without-mingle",
    ]
    return [*command, "--concurrency", str(concurrency), "--loglevel", "INFO"]


def beat(folder: Path) -> list[str]:
    """The clock of the periodic tasks; its memory is in `folder`."""
    schedule = str(folder / "beat-schedule")
    command = [sys.executable, "-m", "celery", "-A", "portal", "beat", "--loglevel", "INFO"]
    return [*command, "--pidfile", "", "--schedule", schedule]


def watcher() -> list[str]:
    """The watcher."""
    return [sys.executable, "manage.py", "watch_cluster"]


def sandbox(folder: Path, port: int) -> list[str]:
    """The sandbox cluster on `port` of loopback, with its objects and kubeconfigs in `folder`."""
    command = [sys.executable, "-m", "sandbox", "--data", str(folder), "--port", str(port)]
    documents = ["--deploy", str(ROOT / "deploy"), "--also", str(ROOT / "sandbox" / "demo.yaml")]
    return [*command, *documents, "--kubeconfig-dir", str(folder)]


def control_plane(folder: Path) -> list[str]:
    """A real control plane with pretended nodes; built first where it is not there yet, which takes minutes."""
    command = [sys.executable, "-m", "dev.controlplane.run", "--data", str(folder)]
    return [*command, "--deploy", str(ROOT / "deploy")]


def kubeconfig(folder: Path, who: str = "portal") -> Path:
    """Where the cluster in `folder` puts the kubeconfig of `portal` (its account) or `admin`."""
    return folder / f"{who}.kubeconfig"


def answers(port: int, path: str) -> bool:
    """Whether an HTTP server on `port` of loopback answers `path` with something better than a server error."""
    connection = http.client.HTTPConnection(HOST, port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status < 500
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def ready(port: int) -> dict[str, Any]:
    """What the web process on `port` of loopback tells at /readyz; empty where it does not answer."""
    connection = http.client.HTTPConnection(HOST, port, timeout=5)
    try:
        connection.request("GET", "/readyz")
        told = json.loads(connection.getresponse().read())
    except (OSError, ValueError, http.client.HTTPException):
        return {}
    finally:
        connection.close()
    return told if isinstance(told, dict) else {}
