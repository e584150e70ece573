"""Resource claims: made from templates for pods, given back when the pod is gone."""

from sandbox.api import ApiError, Obj
from sandbox.controllers.engine import Controller, Engine, Retry
from sandbox.controllers.events import Recorder
from sandbox.controllers.objects import (
    changed_copy,
    controller_of,
    is_finished,
    is_going,
    name_of,
    namespace_of,
    owner_reference,
    uid_of,
)

PROTECTION = "resource.kubernetes.io/delete-protection"
POD_CLAIM_NAME = "resource.kubernetes.io/pod-claim-name"


class PodClaims(Controller):
    """Makes the claims that a pod's templates ask for. Source: pkg/controller/resourceclaim.

    Like the original it is not woken when quota is freed: it tries again after growing pauses.
    """

    name = "resource_claim"
    actor = "resource-claim-controller"

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.events = Recorder(self.api, self.name)

    def observe(self, change: str, obj: Obj, before: Obj | None) -> None:
        if obj["kind"] == "Pod" and obj["spec"].get("resourceClaims") and change == "ADDED":
            self.enqueue(namespace_of(obj), name_of(obj))
        elif obj["kind"] == "ResourceClaim" and change == "DELETED":
            owner = controller_of(obj)
            if owner is not None and owner["kind"] == "Pod":
                self.enqueue(namespace_of(obj), owner["name"])

    def reconcile(self, namespace: str | None, name: str) -> float | None:
        pod = self.cache.get("Pod", namespace, name)
        if pod is None or is_going(pod) or is_finished(pod):
            return None
        statuses = []
        for entry in pod["spec"].get("resourceClaims") or []:
            claim_name = entry.get("resourceClaimName")
            if claim_name is None:
                try:
                    claim_name = name_of(self._claim(pod, entry))
                except ApiError as error:
                    message = f"PodResourceClaim {entry['name']}: {error.message}"
                    self.events.event(pod, "Warning", "FailedResourceClaimCreation", message)
                    raise Retry from error
                statuses.append({"name": entry["name"], "resourceClaimName": claim_name})
        if statuses and (pod.get("status") or {}).get("resourceClaimStatuses") != statuses:
            updated = changed_copy(pod)
            updated.setdefault("status", {})["resourceClaimStatuses"] = statuses
            self.api.update_status(updated)
        return None

    def _claim(self, pod: Obj, entry: Obj) -> Obj:
        for claim in self.cache.owned(uid_of(pod), "ResourceClaim"):
            if (claim["metadata"].get("annotations") or {}).get(POD_CLAIM_NAME) == entry["name"]:
                return claim
        wanted = entry["resourceClaimTemplateName"]
        template = self.cache.get("ResourceClaimTemplate", namespace_of(pod), wanted)
        if template is None:
            sentence = f'resourceclaimtemplate.resource.k8s.io "{wanted}" not found'
            raise ApiError(404, {"message": f'resource claim template "{wanted}": {sentence}'})
        metadata = template["spec"].get("metadata") or {}
        claim = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {
                "generateName": f"{name_of(pod)}-{entry['name']}-",
                "namespace": namespace_of(pod),
                "labels": dict(metadata.get("labels") or {}),
                "annotations": {**(metadata.get("annotations") or {}), POD_CLAIM_NAME: entry["name"]},
                "ownerReferences": [owner_reference(pod, block=False)],
            },
            "spec": changed_copy(template["spec"]["spec"]),
        }
        try:
            return self.api.create(claim)
        except ApiError as error:  # the name was to be generated, so Kubernetes' sentence has none here
            message = f"create ResourceClaim : {error.message}"
            raise ApiError(error.status, {**error.body, "message": message}) from error


class ClaimRelease(Controller):
    """Takes reservations of gone pods away, then the allocation, then the claim."""

    name = "resource_claim_release"
    actor = "resource-claim-controller"

    def observe(self, change: str, obj: Obj, before: Obj | None) -> None:
        if obj["kind"] == "ResourceClaim" and change != "DELETED":
            self.enqueue(namespace_of(obj), name_of(obj))
        elif obj["kind"] == "Pod" and (change == "DELETED" or is_finished(obj) or is_going(obj)):
            for status in (obj.get("status") or {}).get("resourceClaimStatuses") or []:
                self.enqueue(namespace_of(obj), status["resourceClaimName"])

    def reconcile(self, namespace: str | None, name: str) -> float | None:
        claim = self.cache.get("ResourceClaim", namespace, name)
        if claim is None:
            return None
        owner = controller_of(claim)
        own_pod = owner if owner is not None and owner["kind"] == "Pod" else None
        status = claim.get("status") or {}
        reserved = status.get("reservedFor") or []
        kept = [entry for entry in reserved if self._in_use(namespace, entry["name"], entry["uid"])]
        wanted = {**status, "reservedFor": kept}
        ownerless = own_pod is not None and not self._in_use(namespace, own_pod["name"], own_pod["uid"])
        if not kept:
            wanted.pop("reservedFor")
            if is_going(claim) or ownerless:
                wanted.pop("allocation", None)
        if wanted != status:
            claim = self.api.update_status({**claim, "status": wanted})
        if not kept and "allocation" not in wanted and PROTECTION in _finalizers(claim):
            updated = changed_copy(claim)
            updated["metadata"]["finalizers"] = [one for one in _finalizers(claim) if one != PROTECTION]
            claim = self.api.update(updated)
        if ownerless and not is_going(claim):
            self.api.delete(claim)
        return None

    def _in_use(self, namespace: str | None, pod_name: str, uid: str) -> bool:
        """Whether that very pod still needs its claim: it does until it is finished or gone."""
        pod = self.cache.get("Pod", namespace, pod_name)
        if pod is None or uid_of(pod) != uid or is_finished(pod):
            return False
        return not (is_going(pod) and not pod["spec"].get("nodeName"))


def _finalizers(claim: Obj) -> list[str]:
    return list(claim["metadata"].get("finalizers") or [])
