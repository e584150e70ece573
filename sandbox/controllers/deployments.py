"""Deployments: one ReplicaSet for each pod template, and the conditions that tell how far it is."""

import time
from collections.abc import Sequence

from sandbox.api import Obj
from sandbox.controllers.engine import Controller, Engine
from sandbox.controllers.events import Recorder
from sandbox.controllers.objects import (
    changed_copy,
    condition,
    controller_of,
    is_finished,
    is_going,
    moment,
    name_of,
    namespace_of,
    now,
    owner_reference,
    template_hash,
    uid_of,
    without_zeros,
)

HASH_LABEL = "pod-template-hash"
PREFIX = "deployment.kubernetes.io/"
REVISION = PREFIX + "revision"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


class Deployments(Controller):
    """The Deployment controller. Source of the rules: pkg/controller/deployment and recorded/*.json."""

    name = "deployment-controller"

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.events = Recorder(self.api, self.name)

    def observe(self, change: str, obj: Obj, before: Obj | None) -> None:
        if obj["kind"] == "Deployment":
            self.enqueue(namespace_of(obj), name_of(obj))
        elif obj["kind"] == "ReplicaSet":
            owner = controller_of(obj)
            if owner is not None and owner["kind"] == "Deployment":
                self.enqueue(namespace_of(obj), owner["name"])
        elif obj["kind"] == "Pod" and change == "DELETED":
            # Recreate waits for the last old pod, which the ReplicaSet no longer counts.
            owner = controller_of(obj)
            replica_set = owner and self.cache.get("ReplicaSet", namespace_of(obj), owner["name"])
            if replica_set and (owner := controller_of(replica_set)):
                self.enqueue(namespace_of(obj), owner["name"])

    def reconcile(self, namespace: str | None, name: str) -> float | None:
        deployment = self.cache.get("Deployment", namespace, name)
        if deployment is None:
            return None
        owned = [
            found
            for found in self.cache.owned(uid_of(deployment), "ReplicaSet")
            if (controller_of(found) or {}).get("uid") == uid_of(deployment)
        ]
        template = deployment["spec"]["template"]
        new = next((found for found in owned if _same_template(found, template)), None)
        if is_going(deployment) or deployment["spec"].get("paused"):
            return self._write_status(deployment, owned, new)
        old = [found for found in owned if found is not new and not is_going(found)]
        if deployment["spec"].get("strategy", {}).get("type") == "Recreate":
            settled = self._clear_old(deployment, old)
        else:
            settled = True
        if settled:
            new = self._bring_up(deployment, owned, new)
            if deployment["spec"].get("strategy", {}).get("type") != "Recreate":
                self._roll(deployment, old, new)
            self._clean_up(deployment, old)
        deployment = self.cache.get("Deployment", namespace, name) or deployment
        owned = [self.cache.get("ReplicaSet", namespace, name_of(found)) or found for found in owned]
        if new is not None and all(name_of(found) != name_of(new) for found in owned):
            owned.append(new)
        return self._write_status(deployment, owned, new)

    def _clear_old(self, deployment: Obj, old: Sequence[Obj]) -> bool:
        """Scale the old ReplicaSets down; True once none of their pods runs any more."""
        for replica_set in old:
            if replica_set["spec"].get("replicas", 1) > 0:
                self._scale(deployment, replica_set, 0)
        pods = [pod for replica_set in old for pod in self.cache.owned(uid_of(replica_set), "Pod")]
        return all(is_finished(pod) for pod in pods)

    def _bring_up(self, deployment: Obj, owned: Sequence[Obj], new: Obj | None) -> Obj:
        """The ReplicaSet of the present template, made or scaled as asked, with its revision."""
        replicas = int(deployment["spec"].get("replicas", 1))
        newest = max([_revision(found) for found in owned if found is not new], default=0)
        revision = str(max(newest + 1, _revision(new) if new is not None else 0))
        wanted = _copied_annotations(deployment) | {REVISION: revision} | _replica_annotations(replicas)
        if new is None:
            new = self.api.create(_new_replica_set(deployment, wanted))
            if replicas:
                self._scaled(deployment, new, 0, replicas)
            progressing = _condition("Progressing", "True", "NewReplicaSetCreated")
            progressing["message"] = f'Created new replica set "{name_of(new)}"'
            self._set_up(deployment, revision, progressing)
            return new
        if new["metadata"].get("annotations") != wanted:
            updated = changed_copy(new)
            updated["metadata"]["annotations"] = wanted
            new = self.api.update(updated)
        if new["spec"].get("replicas", 1) != replicas:
            new = self._scale(deployment, new, replicas)
        progressing = _condition("Progressing", "True", "FoundNewReplicaSet")
        progressing["message"] = f'Found new replica set "{name_of(new)}"'
        known = condition(deployment.get("status", {}).get("conditions") or [], "Progressing")
        self._set_up(deployment, revision, None if known else progressing)
        return new

    def _set_up(self, deployment: Obj, revision: str, progressing: Obj | None) -> None:
        """Note the revision, and the condition that a new ReplicaSet is there."""
        annotations = deployment["metadata"].get("annotations") or {}
        if annotations.get(REVISION) != revision:
            updated = changed_copy(deployment)
            updated["metadata"]["annotations"] = {**annotations, REVISION: revision}
            deployment = self.api.update(updated)
        if progressing is not None:
            updated = changed_copy(deployment)
            status = updated.setdefault("status", {})
            status["conditions"] = _with(status.get("conditions") or [], progressing)
            self.api.update_status(updated)

    def _roll(self, deployment: Obj, old: Sequence[Obj], new: Obj) -> None:
        """RollingUpdate, made simple: the old go when the new are available."""
        if new.get("status", {}).get("availableReplicas", 0) >= deployment["spec"].get("replicas", 1):
            for replica_set in old:
                if replica_set["spec"].get("replicas", 1) > 0:
                    self._scale(deployment, replica_set, 0)

    def _scale(self, deployment: Obj, replica_set: Obj, replicas: int) -> Obj:
        before = replica_set["spec"].get("replicas", 1)
        updated = changed_copy(replica_set)
        updated["spec"]["replicas"] = replicas
        annotations = updated["metadata"].setdefault("annotations", {})
        annotations |= _replica_annotations(int(deployment["spec"].get("replicas", 1)))
        updated = self.api.update(updated)
        self._scaled(deployment, updated, before, replicas)
        return updated

    def _scaled(self, deployment: Obj, replica_set: Obj, before: int, after: int) -> None:
        way = "up" if after > before else "down"
        message = f"Scaled {way} replica set {name_of(replica_set)} from {before} to {after}"
        self.events.event(deployment, "Normal", "ScalingReplicaSet", message)

    def _clean_up(self, deployment: Obj, old: Sequence[Obj]) -> None:
        """Delete empty old ReplicaSets beyond the history limit, the oldest first."""
        empty = [
            found
            for found in old
            if not found["spec"].get("replicas", 1) and not found.get("status", {}).get("replicas", 0)
        ]
        surplus = len(empty) - int(deployment["spec"].get("revisionHistoryLimit", 10))
        for replica_set in sorted(empty, key=_revision)[: max(surplus, 0)]:
            self.api.delete(replica_set)

    def _write_status(self, deployment: Obj, owned: Sequence[Obj], new: Obj | None) -> float | None:
        old = deployment.get("status") or {}
        status = _count(deployment, owned, new)
        conditions = list(old.get("conditions") or [])
        wanted = deployment["spec"].get("replicas", 1)
        available = status.get("availableReplicas", 0) >= wanted
        found = _condition(
            "Available",
            "True" if available else "False",
            "MinimumReplicasAvailable" if available else "MinimumReplicasUnavailable",
        )
        found["message"] = f"Deployment {'has' if available else 'does not have'} minimum availability."
        conditions = _with(conditions, found)
        conditions = _progress(deployment, status, conditions, new)
        failures = [condition(rs.get("status", {}).get("conditions") or [], "ReplicaFailure") for rs in owned]
        failure = next((one for one in failures if one is not None), None)
        if failure is None:
            conditions = [one for one in conditions if one["type"] != "ReplicaFailure"]
        else:
            found = _condition("ReplicaFailure", failure["status"], failure["reason"])
            found["message"] = failure["message"]
            conditions = _with(conditions, found)
        status["conditions"] = conditions
        if status != old:
            self.api.update_status({**deployment, "status": status})
        return _next_look(deployment, status)


def _same_template(replica_set: Obj, template: Obj) -> bool:
    found = changed_copy(replica_set["spec"]["template"])
    (found.get("metadata", {}).get("labels") or {}).pop(HASH_LABEL, None)
    return found == template


def _new_replica_set(deployment: Obj, annotations: dict[str, str]) -> Obj:
    template = changed_copy(deployment["spec"]["template"])
    digest = template_hash(template)
    labels = template.setdefault("metadata", {}).setdefault("labels", {})
    labels[HASH_LABEL] = digest
    selector = changed_copy(deployment["spec"]["selector"])
    selector.setdefault("matchLabels", {})[HASH_LABEL] = digest
    spec: Obj = {
        "replicas": deployment["spec"].get("replicas", 1),
        "selector": selector,
        "template": template,
    }
    if deployment["spec"].get("minReadySeconds"):
        spec["minReadySeconds"] = deployment["spec"]["minReadySeconds"]
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": f"{name_of(deployment)}-{digest}",
            "namespace": namespace_of(deployment),
            "labels": dict(labels),
            "annotations": annotations,
            "ownerReferences": [owner_reference(deployment)],
        },
        "spec": spec,
    }


def _copied_annotations(deployment: Obj) -> dict[str, str]:
    annotations = deployment["metadata"].get("annotations") or {}
    return {k: v for k, v in annotations.items() if k != LAST_APPLIED and not k.startswith(PREFIX)}


def _replica_annotations(replicas: int) -> dict[str, str]:
    return {PREFIX + "desired-replicas": str(replicas), PREFIX + "max-replicas": str(replicas)}


def _revision(replica_set: Obj) -> int:
    return int((replica_set["metadata"].get("annotations") or {}).get(REVISION, 0))


def _count(deployment: Obj, owned: Sequence[Obj], new: Obj | None) -> Obj:
    def total(field: str) -> int:
        return sum(found.get("status", {}).get(field, 0) for found in owned)

    asked = sum(found["spec"].get("replicas", 1) for found in owned)
    return without_zeros(
        {
            "observedGeneration": deployment["metadata"].get("generation", 1),
            "replicas": total("replicas"),
            "updatedReplicas": (new or {}).get("status", {}).get("replicas", 0),
            "readyReplicas": total("readyReplicas"),
            "availableReplicas": total("availableReplicas"),
            "unavailableReplicas": max(asked - total("availableReplicas"), 0),
            "terminatingReplicas": total("terminatingReplicas"),
        },
        keep=("terminatingReplicas",),
    )


def _condition(type_: str, status: str, reason: str) -> Obj:
    moment_ = now()
    return {
        "type": type_,
        "status": status,
        "reason": reason,
        "message": "",
        "lastUpdateTime": moment_,
        "lastTransitionTime": moment_,
    }


def _with(conditions: Sequence[Obj], found: Obj) -> list[Obj]:
    """``conditions`` with ``found`` set, as deploymentutil.SetDeploymentCondition does it."""
    known = condition(conditions, found["type"])
    if known is not None and (known["status"], known["reason"]) == (found["status"], found["reason"]):
        return list(conditions)
    if known is not None and known["status"] == found["status"]:
        found["lastTransitionTime"] = known["lastTransitionTime"]
    return [one for one in conditions if one["type"] != found["type"]] + [found]


def _progress(deployment: Obj, status: Obj, conditions: list[Obj], new: Obj | None) -> list[Obj]:
    """The Progressing condition, as syncRolloutStatus sets it."""
    if deployment["spec"].get("progressDeadlineSeconds") is None:
        return [one for one in conditions if one["type"] != "Progressing"]
    known = condition(conditions, "Progressing")
    replicas, updated = status.get("replicas", 0), status.get("updatedReplicas", 0)
    if known is not None and known["reason"] == "NewReplicaSetAvailable" and replicas == updated:
        return conditions
    subject = f'ReplicaSet "{name_of(new)}"' if new else f'Deployment "{name_of(deployment)}"'
    wanted, old = deployment["spec"].get("replicas", 1), deployment.get("status") or {}
    if new is not None and updated == replicas == status.get("availableReplicas", 0) == wanted:
        found = _condition("Progressing", "True", "NewReplicaSetAvailable")
        found["message"] = f"{subject} has successfully progressed."
        return _with(conditions, found)
    moved = (
        updated > old.get("updatedReplicas", 0)
        or replicas - updated < old.get("replicas", 0) - old.get("updatedReplicas", 0)
        or status.get("readyReplicas", 0) > old.get("readyReplicas", 0)
        or status.get("availableReplicas", 0) > old.get("availableReplicas", 0)
    )
    if moved:
        found = _condition("Progressing", "True", "ReplicaSetUpdated")
        found["message"] = f"{subject} is progressing."
        if known is not None and known["status"] == "True":
            found["lastTransitionTime"] = known["lastTransitionTime"]
        return [one for one in conditions if one["type"] != "Progressing"] + [found]
    if _deadline(deployment, known) <= time.time():
        found = _condition("Progressing", "False", "ProgressDeadlineExceeded")
        found["message"] = f"{subject} has timed out progressing."
        return _with(conditions, found)
    return conditions


def _deadline(deployment: Obj, progressing: Obj | None) -> float:
    """When the rollout counts as stuck, in seconds since the epoch."""
    if progressing is None or progressing["reason"] == "NewReplicaSetAvailable":
        return float("inf")
    start = moment(str(progressing["lastUpdateTime"]))
    return start + float(deployment["spec"]["progressDeadlineSeconds"])


def _next_look(deployment: Obj, status: Obj) -> float | None:
    """Seconds until the progress deadline of an unfinished rollout, None where there is none to wait for."""
    progressing = condition(status["conditions"], "Progressing")
    if progressing is None or progressing["status"] == "False":
        return None
    wait = _deadline(deployment, progressing) - time.time()
    return max(wait, 0.0) + 1.0 if wait != float("inf") else None
