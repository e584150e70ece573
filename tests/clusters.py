"""A cluster to test against, from one source for both kinds: the sandbox, and a real control plane.

A test that takes the fixture `cluster` runs once a kind. The control plane takes part only where GPU_PORTAL_REAL=1 is
set or the mark `real` is asked for (`pytest -m real`): its programs are built first, which takes minutes.
"""

from __future__ import annotations

import itertools
import os
import signal
import socket
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from dev import processes
from dev.controlplane import install
from dev.controlplane.build import provide
from dev.controlplane.client import Answer, Client, path_for
from dev.controlplane.cluster import ControlPlane
from dev.controlplane.nodes import Nodes

ROOT = Path(__file__).resolve().parent.parent
DEPLOY = ROOT / "deploy"
PROJECT_LABELS = {"kube-dc.com/project": "", "pod-security.kubernetes.io/enforce": "restricted"}

_numbers = itertools.count(1)


class Target(ABC):
    """A running cluster with everything of `deploy/` in it and two nodes with one V100 each."""

    name: str

    def __init__(self) -> None:
        self.namespaces: list[str] = []
        """All that were made here, in their order."""

    @abstractmethod
    def kubeconfig(self, who: str = "admin") -> Path:
        """The kubeconfig of `admin` (system:masters) or `portal` (the portal's service account)."""

    @abstractmethod
    def stop_api(self) -> None:
        """Kill the API server without warning; what it stored stays."""

    @abstractmethod
    def start_api(self) -> None:
        """Start the API server again at the same address and wait until it answers."""

    @abstractmethod
    def compact(self) -> None:
        """Afterwards a watch from any version before now is answered with 410."""

    @abstractmethod
    def stop(self) -> None:
        """End everything."""

    def client(self, who: str = "admin") -> Client:
        """A client with the rights of `admin` or `portal`."""
        return Client.from_kubeconfig(self.kubeconfig(who))

    def make_namespace(
        self,
        name: str,
        *,
        quota: Mapping[str, str] | None = None,
        limit_range: Sequence[Mapping[str, Any]] | None = None,
        labels: Mapping[str, str] = PROJECT_LABELS,
    ) -> str:
        """Make a namespace `<name>-<number>`, with a ResourceQuota `plan-quota` (its hard) and a LimitRange
        `limits` (its limits) where asked for, and return its name."""
        namespace = f"{name}-{os.getpid() % 10000}-{next(_numbers)}"
        self.namespaces.append(namespace)
        admin = self.client()
        made = [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": dict(labels)}}
        ]
        if quota is not None:
            made.append(_named("ResourceQuota", "plan-quota", namespace, {"hard": dict(quota)}))
        if limit_range is not None:
            made.append(
                _named("LimitRange", "limits", namespace, {"limits": [dict(one) for one in limit_range]})
            )
        for document in made:
            answer = admin.create(document)
            assert answer.ok, answer.message
        self._settle(namespace)
        if quota is not None:
            eventually(
                lambda: (
                    admin.get("v1", "ResourceQuota", namespace, "plan-quota")
                    .body.get("status", {})
                    .get("hard")
                ),
                "the quota's status",
            )
        return namespace

    def _settle(self, namespace: str) -> None:  # noqa: B027 (the sandbox needs no more)
        """Wait until pods can be made in a new namespace."""

    def drop_namespace(self, name: str) -> None:
        """Ask for the end of a namespace. Workloads first: the namespace's own end takes its time over pods."""
        admin = self.client()
        for api_version, kind in (("apps/v1", "Deployment"), ("batch/v1", "Job")):
            for one in admin.items(api_version, kind, name):
                admin.delete(api_version, kind, name, one["metadata"]["name"])
        admin.delete("v1", "Namespace", None, name)

    def give_back(self, namespaces: Sequence[str]) -> None:
        """Drop namespaces and wait until they hold no card."""
        admin = self.client()
        for name in namespaces:
            self.drop_namespace(name)
        for name in namespaces:
            path = path_for("resource.k8s.io/v1", "ResourceClaim", name)
            eventually(lambda at=path: not admin.call("GET", at).body["items"], f"no claim in {name}", 40)


class RealTarget(Target):
    """etcd, API server, controller manager, scheduler, and the sandbox's kubelet."""

    name = "controlplane"

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.plane = ControlPlane(provide(), folder)
        self.plane.start()
        self._nodes: Nodes | None = None
        try:
            install.install(self.plane.client(), install.documents(DEPLOY))
            self._kubeconfigs = {
                "admin": self.plane.kubeconfig("admin", self.plane.token("admin")),
                "portal": self.plane.kubeconfig("portal", install.portal_token(self.plane.client())),
            }
            self._nodes = Nodes(self.plane)
        except BaseException:
            self.stop()
            raise

    def kubeconfig(self, who: str = "admin") -> Path:
        return self._kubeconfigs[who]

    def _settle(self, namespace: str) -> None:
        admin = self.client()
        eventually(lambda: admin.get("v1", "ServiceAccount", namespace, "default").ok, "a service account")

    def stop_api(self) -> None:
        self.plane.stop_api()

    def start_api(self) -> None:
        self.plane.start_api()
        self.plane.start_controllers()

    def compact(self) -> None:
        self.plane.compact()

    def stop(self) -> None:
        if self._nodes is not None:
            self._nodes.stop()
        self.plane.stop()


class SandboxTarget(Target):
    """The sandbox, as `make demo` starts it."""

    name = "sandbox"

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = probe.getsockname()[1]
        self.start_api()

    def kubeconfig(self, who: str = "admin") -> Path:
        return self._folder / f"{who}.kubeconfig"

    def stop_api(self) -> None:
        processes.stop(self._child, first=signal.SIGKILL)

    def start_api(self) -> None:
        command = [
            sys.executable,
            "-m",
            "sandbox",
            "--data",
            self._folder,
            "--port",
            self._port,
            "--deploy",
            DEPLOY,
        ]
        self._child = processes.spawn(
            [str(part) for part in command], log=self._folder / "sandbox.log", cwd=ROOT
        )
        eventually(self._ready, f"the sandbox ({self._folder / 'sandbox.log'})")

    def _ready(self) -> bool:
        try:
            return self.client().call("GET", "/readyz").ok
        except OSError:
            assert processes.exit_code(self._child) is None, (self._folder / "sandbox.log").read_text()[
                -2000:
            ]
            return False

    def compact(self) -> None:
        answer = self.client().call("POST", "/sandbox/compact")
        assert answer.ok, answer.message

    def stop(self) -> None:
        processes.stop(self._child)


def _named(kind: str, name: str, namespace: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }


def eventually(look: Callable[[], Any], what: str, seconds: float = 40.0, pause: float = 0.1) -> Any:
    """Call `look` until it answers something true, and return that; fails after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < deadline, f"{what} did not come within {seconds} s"
        time.sleep(pause)


def refusal(answer: Answer) -> str:
    """The sentence of a refusal; fails where the request was carried out."""
    assert not answer.ok, f"accepted: {answer.body}"
    return answer.message


def wants_real(config: pytest.Config) -> bool:
    """Whether this run asked for the control plane."""
    chosen = str(config.getoption("-m") or "")
    return os.environ.get("GPU_PORTAL_REAL") == "1" or ("real" in chosen and "not real" not in chosen)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the control plane out of a run that did not ask for it."""
    if wants_real(config):
        return
    left_out = [
        item for item in items if item.get_closest_marker("real") and item.get_closest_marker("cluster")
    ]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]


@pytest.fixture(scope="session", params=["sandbox", pytest.param("controlplane", marks=pytest.mark.real)])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """The cluster to test against, once a kind; shared by all tests of a process."""
    make = {"sandbox": SandboxTarget, "controlplane": RealTarget}[request.param]
    target = make(tmp_path_factory.mktemp(request.param))
    yield target
    target.stop()


@pytest.fixture(autouse=True)
def _cards_given_back(request: pytest.FixtureRequest) -> Iterator[None]:
    """The cards are shared by all tests: what one has made is gone before the next begins."""
    target = request.getfixturevalue("cluster") if "cluster" in request.fixturenames else None
    if not isinstance(target, Target):  # some modules have a fixture of that name of their own
        yield
        return
    before = len(target.namespaces)  # those of fixtures of the module are older, and stay
    yield
    target.give_back(target.namespaces[before:])
