"""The controllers' way to the objects without HTTP."""

import json
import queue
import threading
from collections.abc import Iterator, Sequence

from sandbox import logs
from sandbox.api import ApiError, Obj
from sandbox.auth import User, component
from sandbox.kinds import BY_KIND
from sandbox.registry import Registry
from sandbox.store import Stored
from sandbox.writes import Call, Deletion


class LocalApi:
    """``sandbox.api.Api`` on the registry of the same process, in the name of one user."""

    def __init__(self, registry: Registry, user: User, manager: str = "kube-controller-manager") -> None:
        self._registry = registry
        self._store = registry.store
        self._user = user
        self._manager = manager

    def acting(self, name: str) -> "LocalApi":
        """The same API as another part of the cluster."""
        manager = name if name in ("kubelet", "kube-scheduler") else "kube-controller-manager"
        return LocalApi(self._registry, component(name), manager)

    def _call(self, dry_run: bool = False) -> Call:
        return Call(self._user.info(), self._manager, dry_run=dry_run)

    def get(self, kind: str, namespace: str | None, name: str) -> Obj | None:
        """See :class:`sandbox.api.Api`."""
        stored = self._store.get(kind, namespace or "", name)
        return _own(stored) if stored else None

    def list(
        self, kind: str, namespace: str | None = None, labels: dict[str, str] | None = None
    ) -> list[Obj]:
        """See :class:`sandbox.api.Api`."""
        found = self._store.select(kind, namespace)
        wanted = (labels or {}).items()
        return [
            _own(stored) for stored in found if wanted <= stored.obj["metadata"].get("labels", {}).items()
        ]

    def create(self, obj: Obj, dry_run: bool = False) -> Obj:
        """See :class:`sandbox.api.Api`."""
        kind, namespace = BY_KIND[obj["kind"]], obj["metadata"].get("namespace", "")
        return _own(self._registry.create(kind, namespace, json.loads(json.dumps(obj)), self._call(dry_run)))

    def update(self, obj: Obj) -> Obj:
        """See :class:`sandbox.api.Api`."""
        return self._update(obj, "")

    def update_status(self, obj: Obj) -> Obj:
        """See :class:`sandbox.api.Api`."""
        return self._update(obj, "status")

    def _update(self, obj: Obj, sub: str) -> Obj:
        metadata = obj["metadata"]
        kind, namespace = BY_KIND[obj["kind"]], metadata.get("namespace", "")
        copied = json.loads(json.dumps(obj))
        return _own(self._registry.update(kind, namespace, metadata["name"], copied, self._call(), sub))

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
        options = Deletion(uid=uid, propagation=propagation, grace_seconds=grace_seconds)
        try:
            self._registry.delete(BY_KIND[kind], namespace or "", name, self._call(), options)
        except ApiError as error:
            if error.status == 404:
                return False
            raise
        return True

    def watch(self, kinds: Sequence[str], stop: threading.Event | None = None) -> Iterator[tuple[str, Obj]]:
        """See :class:`sandbox.api.Api`."""
        present, _, subscription = self._store.subscribe(kinds, None, None)
        try:
            for stored in present:
                yield "ADDED", _own(stored)
            while stop is None or not stop.is_set():
                try:
                    change = subscription.queue.get(timeout=0.5)
                except queue.Empty:
                    continue
                if change is None:
                    return
                yield change.type, _own(change.new)
        finally:
            self._store.unsubscribe(subscription)

    def append_log(self, namespace: str, pod: str, container: str, text: str) -> None:
        """See :class:`sandbox.api.Api`."""
        self._store.append_log(namespace, pod, container, logs.stamped(text))

    def rotate_log(self, namespace: str, pod: str, container: str) -> None:
        """See :class:`sandbox.api.Api`."""
        self._store.rotate_log(namespace, pod, container)


def _own(stored: Stored) -> Obj:
    obj: Obj = json.loads(stored.text)
    return obj
