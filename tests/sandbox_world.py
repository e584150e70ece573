"""A sandbox without HTTP for tests of its controllers: store, API and controllers in one process."""

import copy
import json
import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sandbox.api import Api, ApiError, Obj
from sandbox.auth import ADMIN
from sandbox.controllers import run_all
from sandbox.local import LocalApi
from sandbox.options import NodeSpec, Options
from sandbox.registry import Registry
from sandbox.schema import Schema
from sandbox.seeding import seed
from sandbox.store import Store

DEPLOY = Path(__file__).parent.parent / "deploy"
RECORDED = Path(__file__).parent / "data" / "recorded"
CLASSES = {"8g": ("8Gi", "25"), "16g": ("16Gi", "50"), "32g": ("32Gi", "100")}
DEVICES = "kube-dc-nvidia-v100-shared-{}.deviceclass.resource.k8s.io/devices"
IMAGE = "registry.example.test/team/app@sha256:" + "a" * 64
DEFAULT_HARD = {
    DEVICES.format("8g"): "4",
    "limits.cpu": "8",
    "limits.memory": "24Gi",
    "pods": "100",
    "requests.cpu": "8",
    "requests.memory": "24Gi",
    "requests.storage": "160Gi",
}
SCHEMA = Schema()


def recorded(name: str) -> Any:
    """One recorded scenario."""
    return json.loads((RECORDED / f"{name}.json").read_text())


def until[T](question: Callable[[], T], seconds: float = 10.0) -> T:
    """The first truthy answer; the last one fails the test when time is up."""
    end = time.monotonic() + seconds
    while True:
        answer = question()
        if answer:
            return answer
        assert time.monotonic() < end, f"not within {seconds} s: {answer!r}"
        time.sleep(0.01)


class Faults(logging.Handler):
    """Collects what the controllers log as their own failure."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


class World:
    """The pretended cluster, with short pauses."""

    def __init__(
        self, path: Path | None = None, nodes: int = 1, policies: bool = False, **options: Any
    ) -> None:
        self.policies = policies
        options.setdefault("nodes", tuple(NodeSpec(f"gpu-node-{n + 1}") for n in range(nodes)))
        options.setdefault("pull_seconds", 0.02)
        self.options = Options(**options)
        self.path = path
        self.start()

    def start(self) -> None:
        self.store = Store(self.path)
        registry = Registry(self.store, SCHEMA)
        seed(registry, DEPLOY if self.policies else DEPLOY / "deviceclasses")
        self.api: Api = LocalApi(registry, ADMIN)
        self.stop = threading.Event()
        self.faults = Faults()
        logging.getLogger("sandbox").addHandler(self.faults)
        self.threads = run_all(self.api, self.stop, self.options)

    def close(self) -> None:
        self.stop.set()
        self.store.wake()
        for thread in self.threads:
            thread.join(5.0)
        assert not any(thread.is_alive() for thread in self.threads)
        self.store.close()
        logging.getLogger("sandbox").removeHandler(self.faults)
        assert not self.faults.lines

    def namespace(
        self, name: str = "acme-ai", hard: dict[str, str] | None = None, project: bool = False
    ) -> None:
        """A namespace with a quota. In a ``project`` the policies of deploy/ hold, if the world has them."""
        labels = {"kube-dc.com/project": ""} if project else {}
        self.api.create(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
        )
        self.quota(name, DEFAULT_HARD if hard is None else hard)

    def quota(self, namespace: str, hard: dict[str, str]) -> None:
        if self.api.get("ResourceQuota", namespace, "plan-quota") is not None:
            self.change("ResourceQuota", "plan-quota", lambda obj: obj.update(spec={"hard": hard}), namespace)
            return
        self.api.create(
            {
                "apiVersion": "v1",
                "kind": "ResourceQuota",
                "metadata": {"name": "plan-quota", "namespace": namespace},
                "spec": {"hard": hard},
            }
        )

    def template(self, app: str, namespace: str = "acme-ai", size: str = "8g") -> None:
        memory, cores = CLASSES[size]
        exactly = {
            "deviceClassName": f"kube-dc-nvidia-v100-shared-{size}",
            "allocationMode": "ExactCount",
            "count": 1,
            "capacity": {"requests": {"memory": memory, "cores": cores}},
        }
        spec = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
        self.api.create(
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaimTemplate",
                "metadata": {"name": f"{app}-gpu", "namespace": namespace},
                "spec": {"metadata": {"labels": {"app.kubernetes.io/name": app}}, "spec": spec},
            }
        )

    def deployment(self, app: str, namespace: str = "acme-ai", **changes: Any) -> Obj:
        """A slice's Deployment. ``changes``: claim, image, command, resources, replicas, pod, container."""
        container: Obj = {"name": "workload", "image": changes.get("image", IMAGE)}
        if changes.get("claim", True):
            container["resources"] = {"claims": [{"name": "gpu"}]}
        if "command" in changes:
            container["command"] = changes["command"]
        container.setdefault("resources", {}).update(
            copy.deepcopy(
                changes.get(
                    "resources",
                    {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "2Gi"}},
                )
            )
        )
        container |= changes.get("container", {})
        pod: Obj = {"containers": [container], **changes.get("pod", {})}
        if changes.get("claim", True):
            pod["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": f"{app}-gpu"}]
        labels = {"app.kubernetes.io/name": app}
        return self.api.create(
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {"name": app, "namespace": namespace, "labels": labels},
                "spec": {
                    "replicas": changes.get("replicas", 1),
                    "revisionHistoryLimit": changes.get("history", 2),
                    "progressDeadlineSeconds": changes.get("deadline", 600),
                    "strategy": {"type": "Recreate"},
                    "selector": {"matchLabels": labels},
                    "template": {"metadata": {"labels": labels}, "spec": pod},
                },
            }
        )

    def slice(self, app: str, namespace: str = "acme-ai", size: str = "8g", **changes: Any) -> None:
        """A template and its Deployment."""
        self.template(app, namespace, size)
        self.deployment(app, namespace, **changes)

    def job(self, name: str, image: str, namespace: str = "acme-ai", **spec: Any) -> Obj:
        container: Obj = {"name": "pull", "image": image}
        if (resources := spec.pop("resources", True)) is True:
            resources = {
                "requests": {"cpu": "100m", "memory": "128Mi"},
                "limits": {"cpu": "500m", "memory": "256Mi"},
            }
        container["resources"] = resources
        container |= spec.pop("container", {})
        pod = {"restartPolicy": "Never", "containers": [container], **spec.pop("pod", {})}
        return self.api.create(
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": {"name": name, "namespace": namespace},
                "spec": {"backoffLimit": 1, "template": {"spec": pod}, **spec},
            }
        )

    def volume(self, name: str, storage_class: str | None = None, namespace: str = "acme-ai") -> None:
        spec: Obj = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "20Gi"}}}
        if storage_class is not None:
            spec["storageClassName"] = storage_class
        self.api.create(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": name, "namespace": namespace},
                "spec": spec,
            }
        )

    def change(
        self, kind: str, name: str, change: Callable[[Obj], object], namespace: str | None = "acme-ai"
    ) -> None:
        """Change an object's spec or metadata; again if a controller wrote to it in between."""
        while True:
            obj = self.api.get(kind, namespace, name)
            assert obj is not None
            change(obj)
            try:
                self.api.update(obj)
                return
            except ApiError as error:
                if error.status != 409:
                    raise

    def pods(self, app: str, namespace: str = "acme-ai") -> list[Obj]:
        labels = {"app.kubernetes.io/name": app}
        pods = [
            pod
            for pod in self.api.list("Pod", namespace)
            if labels.items() <= pod["metadata"]["labels"].items()
        ]
        return [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]

    def running(self, app: str, namespace: str = "acme-ai", seconds: float = 10.0) -> Obj:
        """The app's pod, once it is ready."""

        def found() -> Obj | None:
            return next(
                (pod for pod in self.pods(app, namespace) if condition(pod, "Ready").get("status") == "True"),
                None,
            )

        pod = until(found, seconds)
        assert pod is not None
        return pod

    def container(self, app: str) -> Obj:
        """The status of the first container of the app's pod, {} where there is none yet."""
        pods = self.pods(app)
        statuses = pods[0]["status"].get("containerStatuses") if pods else None
        return statuses[0] if statuses else {}

    def restarts(self, app: str) -> int:
        return self.container(app).get("restartCount", 0)

    def log(self, app: str, previous: bool = False) -> str:
        name = self.pods(app)[0]["metadata"]["name"]
        return self.store.log("acme-ai", name, "workload", previous)

    def events(self, name: str, reason: str | None = None, namespace: str = "acme-ai") -> list[Obj]:
        return [
            event
            for event in self.api.list("Event", namespace)
            if event["involvedObject"]["name"].startswith(name) and reason in (None, event["reason"])
        ]


def condition(obj: Obj | None, type_: str) -> Obj:
    """The condition of that type, {} where there is none."""
    conditions = ((obj or {}).get("status") or {}).get("conditions") or []
    return next((one for one in conditions if one["type"] == type_), {})
