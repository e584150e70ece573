"""What a controller of the sandbox may ask of a cluster: the sandbox's own store or a real one."""

import threading
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

type Obj = dict[str, Any]


class ApiError(Exception):
    """A refusal by the API: the HTTP status and the Kubernetes ``Status`` object that came with it."""

    def __init__(self, status: int, body: Obj, headers: dict[str, str] | None = None) -> None:
        super().__init__(str(body.get("message", f"HTTP {status}")))
        self.status = status
        self.body = body
        self.headers = headers or {}

    @property
    def reason(self) -> str:
        """The machine-readable reason, such as ``Conflict`` or ``Forbidden``."""
        return str(self.body.get("reason", ""))

    @property
    def message(self) -> str:
        """The sentence of the answer."""
        return str(self.body.get("message", ""))


class Api(Protocol):
    """The calls of the controllers. Objects are plain dicts as Kubernetes writes them, and the caller's own.

    ``kind`` is the object's ``kind`` ("Pod"); ``namespace`` is None for cluster-wide kinds. Every call may
    raise :class:`ApiError`.
    """

    def get(self, kind: str, namespace: str | None, name: str) -> Obj | None:
        """The object, or None where there is none."""
        ...

    def list(
        self, kind: str, namespace: str | None = None, labels: dict[str, str] | None = None
    ) -> list[Obj]:
        """All objects of a kind, in every namespace where none is given, whose labels include ``labels``."""
        ...

    def create(self, obj: Obj, dry_run: bool = False) -> Obj:
        """Create; 409 AlreadyExists, 422 validation or policy, 403 quota or LimitRange, 404 no namespace."""
        ...

    def update(self, obj: Obj) -> Obj:
        """Replace all but the status; 409 where ``metadata.resourceVersion`` is set and not the present."""
        ...

    def update_status(self, obj: Obj) -> Obj:
        """Replace the status alone; 409 as in :meth:`update`."""
        ...

    def delete(
        self,
        kind: str,
        namespace: str | None,
        name: str,
        uid: str | None = None,
        propagation: str = "Background",
        grace_seconds: int | None = None,
    ) -> bool:
        """Ask for deletion; False where the object is gone already, 409 where it has another uid.

        A pod bound to a node only gets its ``deletionTimestamp``: the kubelet ends it with
        ``grace_seconds=0``. An object with finalizers stays until an update takes the last one away.
        """
        ...

    def watch(self, kinds: Sequence[str], stop: threading.Event | None = None) -> Iterator[tuple[str, Obj]]:
        """Changes as ("ADDED" | "MODIFIED" | "DELETED", object), beginning with what is there as ADDED.

        Ends within a second after ``stop`` is set. An error of the transport is raised: start again.
        """
        ...

    def acting(self, component: str) -> "Api":
        """The same API in the name of a controller ("replicaset-controller", "job-controller",
        "resource-claim-controller", "kube-scheduler", "kubelet", ...), as policies and managedFields see it.
        """
        ...

    def append_log(self, namespace: str, pod: str, container: str, text: str) -> None:
        """Add to the log of a pod's present container (text with its line ends)."""
        ...

    def rotate_log(self, namespace: str, pod: str, container: str) -> None:
        """A container starts again: its log so far becomes the one of ``previous=true``."""
        ...
