"""ReplicaSets: as many pods as asked, made one by one, with the server's sentence where it refuses."""

from sandbox.api import ApiError, Obj
from sandbox.controllers.engine import Controller, Engine, Retry
from sandbox.controllers.events import Recorder
from sandbox.controllers.objects import (
    changed_copy,
    condition,
    controller_of,
    is_active,
    is_finished,
    is_going,
    is_ready,
    moment,
    name_of,
    namespace_of,
    now,
    owner_reference,
    uid_of,
    without_zeros,
)

FREED_PAUSE = 0.05


class ReplicaSets(Controller):
    """The ReplicaSet controller. Source of the rules: pkg/controller/replicaset and recorded/*.json."""

    name = "replicaset-controller"

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.events = Recorder(self.api, self.name)

    def observe(self, change: str, obj: Obj, before: Obj | None) -> None:
        if obj["kind"] == "ReplicaSet":
            self.enqueue(namespace_of(obj), name_of(obj))
        elif obj["kind"] == "Pod":
            owner = controller_of(obj)
            if owner is not None and owner["kind"] == "ReplicaSet":
                self.enqueue(namespace_of(obj), owner["name"])
            if change == "DELETED":
                self._freed(namespace_of(obj))
        elif obj["kind"] in ("ResourceQuota", "LimitRange") and (
            before is None or before.get("spec") != obj.get("spec") or change == "DELETED"
        ):
            self._freed(namespace_of(obj))

    def _freed(self, namespace: str | None) -> None:
        """Room may have been made: those that were refused need not wait for the end of their pause."""
        for replica_set in self.cache.list("ReplicaSet", namespace):
            if condition(replica_set.get("status", {}).get("conditions") or [], "ReplicaFailure"):
                self.enqueue(namespace, name_of(replica_set), FREED_PAUSE)

    def reconcile(self, namespace: str | None, name: str) -> float | None:
        replica_set = self.cache.get("ReplicaSet", namespace, name)
        if replica_set is None:
            return None
        failure: ApiError | None = None
        if not is_going(replica_set):
            failure = self._adjust(replica_set)
        again = self._write_status(replica_set, failure)
        if failure is not None:
            raise Retry
        return again

    def _pods(self, replica_set: Obj) -> list[Obj]:
        return [
            pod
            for pod in self.cache.owned(uid_of(replica_set), "Pod")
            if (controller_of(pod) or {}).get("uid") == uid_of(replica_set)
        ]

    def _adjust(self, replica_set: Obj) -> ApiError | None:
        pods = [pod for pod in self._pods(replica_set) if is_active(pod)]
        missing = replica_set["spec"].get("replicas", 1) - len(pods)
        for _ in range(missing):
            try:
                pod = self.api.create(self._new_pod(replica_set))
            except ApiError as error:
                causes = (error.body.get("details") or {}).get("causes") or []
                if not any(cause.get("reason") == "NamespaceTerminating" for cause in causes):
                    self.events.event(
                        replica_set, "Warning", "FailedCreate", f"Error creating: {error.message}"
                    )
                return error
            self.events.event(replica_set, "Normal", "SuccessfulCreate", f"Created pod: {name_of(pod)}")
        if missing < 0:
            # Those that never ran go first, then the youngest.
            pods.sort(key=lambda pod: pod["metadata"]["creationTimestamp"], reverse=True)
            pods.sort(key=lambda pod: (bool(pod["spec"].get("nodeName")), is_ready(pod)))
            for pod in pods[:-missing]:
                self.api.delete(pod)
                self.events.event(replica_set, "Normal", "SuccessfulDelete", f"Deleted pod: {name_of(pod)}")
        return None

    def _new_pod(self, replica_set: Obj) -> Obj:
        template = changed_copy(replica_set["spec"]["template"])
        metadata = template.get("metadata") or {}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "generateName": f"{name_of(replica_set)}-",
                "namespace": namespace_of(replica_set),
                "labels": metadata.get("labels") or {},
                "annotations": metadata.get("annotations") or {},
                "ownerReferences": [owner_reference(replica_set)],
            },
            "spec": template["spec"],
        }

    def _write_status(self, replica_set: Obj, failure: ApiError | None) -> float | None:
        pods = self._pods(replica_set)
        active = [pod for pod in pods if is_active(pod)]
        labels = (replica_set["spec"]["template"].get("metadata") or {}).get("labels") or {}
        ready = [pod for pod in active if is_ready(pod)]
        settle = replica_set["spec"].get("minReadySeconds", 0)
        available, again = _available(ready, settle)
        old = replica_set.get("status") or {}
        conditions = list(old.get("conditions") or [])
        failed = condition(conditions, "ReplicaFailure")
        if failure is not None and failed is None:
            conditions.append(
                {
                    "type": "ReplicaFailure",
                    "status": "True",
                    "lastTransitionTime": now(),
                    "reason": "FailedCreate",
                    "message": failure.message,
                }
            )
        elif failure is None and failed is not None:
            conditions.remove(failed)
        status = without_zeros(
            {
                "replicas": len(active),
                "fullyLabeledReplicas": sum(
                    labels.items() <= (pod["metadata"].get("labels") or {}).items() for pod in active
                ),
                "readyReplicas": len(ready),
                "availableReplicas": available,
                "terminatingReplicas": sum(is_going(pod) and not is_finished(pod) for pod in pods),
                "observedGeneration": replica_set["metadata"].get("generation", 1),
                "conditions": conditions or None,
            },
            keep=("replicas", "terminatingReplicas"),
        )
        if status != old:
            self.api.update_status({**replica_set, "status": status})
        return again


def _available(ready: list[Obj], settle: float) -> tuple[int, float | None]:
    """How many of the ready pods have been so for ``settle`` seconds, and when the next one will have."""
    if not settle:
        return len(ready), None
    since = [
        moment(state["lastTransitionTime"])
        for pod in ready
        if (state := condition(pod["status"]["conditions"], "Ready")) is not None
    ]
    waits = [wait for start in since if (wait := start + settle - moment(now())) > 0]
    return len(ready) - len(waits), min(waits, default=None)
