"""Volume claims: bound at once or at their first consumer, by the class that is asked for."""

from sandbox.api import Obj
from sandbox.controllers.engine import Cache, Controller, Engine
from sandbox.controllers.events import Recorder
from sandbox.controllers.objects import changed_copy, is_finished, is_going, name_of, namespace_of, uid_of

SELECTED_NODE = "volume.kubernetes.io/selected-node"
PROTECTION = "kubernetes.io/pvc-protection"
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
PROVISIONER = "sandbox.local/volumes"
RETRY_SECONDS = 15.0  # the period of Kubernetes' volume controller


def find_class(cache: Cache, volume: Obj) -> Obj | None:
    """The StorageClass of a claim: the one it names, or else the default one."""
    name = volume["spec"].get("storageClassName")
    if name is not None:
        return cache.get("StorageClass", None, name) if name else None
    for found in cache.list("StorageClass"):
        if (found["metadata"].get("annotations") or {}).get(DEFAULT_CLASS) == "true":
            return found
    return None


def is_late(storage_class: Obj | None) -> bool:
    """Whether volumes of the class wait for their first consumer."""
    return storage_class is not None and storage_class.get("volumeBindingMode") == "WaitForFirstConsumer"


class Volumes(Controller):
    """Binds volume claims, as the volume controller and a provisioner do together."""

    name = "persistentvolume-controller"
    actor = "persistent-volume-binder"

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.events = Recorder(self.api, self.name)

    def start(self) -> None:
        name = self.options.default_storage_class
        if name and self.api.get("StorageClass", None, name) is None:
            self.api.create(
                {
                    "apiVersion": "storage.k8s.io/v1",
                    "kind": "StorageClass",
                    "metadata": {"name": name, "annotations": {DEFAULT_CLASS: "true"}},
                    "provisioner": PROVISIONER,
                    "reclaimPolicy": "Delete",
                    "volumeBindingMode": "WaitForFirstConsumer",
                }
            )

    def observe(self, change: str, obj: Obj, before: Obj | None) -> None:
        if obj["kind"] == "PersistentVolumeClaim" and change != "DELETED":
            self.enqueue(namespace_of(obj), name_of(obj))
        elif obj["kind"] == "StorageClass":
            for volume in self.cache.list("PersistentVolumeClaim"):
                self.enqueue(namespace_of(volume), name_of(volume))
        elif obj["kind"] == "Pod" and (change == "DELETED" or is_finished(obj)):
            for volume in self.cache.list("PersistentVolumeClaim", namespace_of(obj)):
                if is_going(volume):
                    self.enqueue(namespace_of(volume), name_of(volume))

    def reconcile(self, namespace: str | None, name: str) -> float | None:
        volume = self.cache.get("PersistentVolumeClaim", namespace, name)
        if volume is None:
            return None
        if is_going(volume):
            self._let_go(volume)
            return None
        if (volume.get("status") or {}).get("phase") == "Bound":
            return None
        found = find_class(self.cache, volume)
        wanted = volume["spec"].get("storageClassName")
        if found is None:
            if wanted:
                message = f'storageclass.storage.k8s.io "{wanted}" not found'
                self.events.event(volume, "Warning", "ProvisioningFailed", message)
            else:
                message = "no persistent volumes available for this claim and no storage class is set"
                self.events.event(volume, "Normal", "FailedBinding", message)
            return RETRY_SECONDS
        if is_late(found) and SELECTED_NODE not in (volume["metadata"].get("annotations") or {}):
            message = "waiting for first consumer to be created before binding"
            self.events.event(volume, "Normal", "WaitForFirstConsumer", message)
            return RETRY_SECONDS
        self._bind(volume, found)
        return None

    def _bind(self, volume: Obj, storage_class: Obj) -> None:
        updated = changed_copy(volume)
        updated["spec"]["volumeName"] = f"pvc-{uid_of(volume)}"
        updated["spec"].setdefault("storageClassName", name_of(storage_class))
        updated = changed_copy(self.api.update(updated))
        updated["status"] = {
            "phase": "Bound",
            "accessModes": updated["spec"]["accessModes"],
            "capacity": {"storage": updated["spec"]["resources"]["requests"]["storage"]},
        }
        self.api.update_status(updated)
        message = f"Successfully provisioned volume {updated['spec']['volumeName']}"
        self.events.event(volume, "Normal", "ProvisioningSucceeded", message)

    def _let_go(self, volume: Obj) -> None:
        """A claim that is being deleted goes once no pod uses it."""
        for pod in self.cache.list("Pod", namespace_of(volume)):
            for one in pod["spec"].get("volumes") or []:
                used = one.get("persistentVolumeClaim", {}).get("claimName") == name_of(volume)
                if used and not is_finished(pod):
                    return
        finalizers = volume["metadata"].get("finalizers") or []
        if PROTECTION in finalizers:
            updated = changed_copy(volume)
            updated["metadata"]["finalizers"] = [one for one in finalizers if one != PROTECTION]
            self.api.update(updated)
