"""What the API server adds to a new object beside the defaults: admission plug-ins and generated values."""

import secrets
from collections.abc import Callable

from sandbox import quota
from sandbox.api import Obj
from sandbox.kinds import BY_KIND
from sandbox.refusals import forbidden
from sandbox.store import Store

_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"


def random_suffix(length: int = 5) -> str:
    """The end of a generated name, from Kubernetes' alphabet, which cannot spell words."""
    return "".join(secrets.choice(_SUFFIX) for _ in range(length))


def qos_class(pod: Obj) -> str:
    """Guaranteed, Burstable or BestEffort, from requests and limits of CPU and memory."""
    requests: set[str] = set()
    limits: set[str] = set()
    full = True
    for container in [*pod["spec"].get("containers", []), *pod["spec"].get("initContainers", [])]:
        resources = container.get("resources", {})
        given = {part: {n: v for n, v in resources.get(part, {}).items() if n in ("cpu", "memory")} for part in
                 ("requests", "limits")}  # fmt: skip
        requests |= given["requests"].keys()
        limits |= given["limits"].keys()
        full = full and len(given["limits"]) == 2 and given["requests"] == given["limits"]
    if not requests and not limits:
        return "BestEffort"
    return "Guaranteed" if full else "Burstable"


def _pod(pod: Obj, store: Store) -> None:
    namespace = pod["metadata"]["namespace"]
    quota.apply_limit_ranges(pod, [stored.obj for stored in store.select("LimitRange", namespace)])
    spec = pod["spec"]
    spec.setdefault("serviceAccountName", "default")
    spec["serviceAccount"] = account_name = spec["serviceAccountName"]
    account = store.get("ServiceAccount", namespace, account_name)
    if account is None:
        why = f'error looking up service account {namespace}/{account_name}: serviceaccount "{account_name}" not found'
        raise forbidden(BY_KIND["Pod"], pod["metadata"]["name"], why)
    if spec.get("automountServiceAccountToken", account.obj.get("automountServiceAccountToken", True)):
        _mount_token(spec)
    tolerations = spec.setdefault("tolerations", [])
    for condition in ("not-ready", "unreachable"):
        key = f"node.kubernetes.io/{condition}"
        if not any(item.get("key") == key for item in tolerations):
            tolerations.append(
                {"effect": "NoExecute", "key": key, "operator": "Exists", "tolerationSeconds": 300}
            )
    spec.setdefault("priority", 0)
    spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
    pod["status"] = {"phase": "Pending", "qosClass": qos_class(pod)}


def _mount_token(spec: Obj) -> None:
    path = "/var/run/secrets/kubernetes.io/serviceaccount"
    waiting = [
        container
        for container in [*spec.get("containers", []), *spec.get("initContainers", [])]
        if not any(mount.get("mountPath") == path for mount in container.get("volumeMounts", []))
    ]
    if not waiting:
        return
    name = f"kube-api-access-{random_suffix()}"
    field = {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
    certificate = {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}
    sources = [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": certificate},
        {"downwardAPI": {"items": [field]}},
    ]
    spec.setdefault("volumes", []).append(
        {"name": name, "projected": {"defaultMode": 420, "sources": sources}}
    )
    for container in waiting:
        mount = {"mountPath": path, "name": name, "readOnly": True}
        container.setdefault("volumeMounts", []).append(mount)


def _job(job: Obj, _: Store) -> None:
    spec = job["spec"]
    if not spec["manualSelector"]:
        _select_own_pods(job, spec)
    if labels := spec["template"]["metadata"].get("labels"):
        job["metadata"].setdefault("labels", labels)


def _select_own_pods(job: Obj, spec: Obj) -> None:
    uid, name = job["metadata"]["uid"], job["metadata"]["name"]
    spec["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    labels = spec["template"]["metadata"].setdefault("labels", {})
    labels |= {
        "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-name": name,
        "controller-uid": uid,
        "job-name": name,
    }


def _service(service: Obj, store: Store) -> None:
    spec = service["spec"]
    if spec["type"] == "ExternalName":
        return
    if "clusterIP" not in spec:
        taken = {stored.obj["spec"].get("clusterIP") for stored in store.select("Service")}
        numbers = (f"10.96.{number // 254}.{number % 254 + 1}" for number in range(1, 65_000))
        spec["clusterIP"] = next(address for address in numbers if address not in taken)
    spec["clusterIPs"] = [spec["clusterIP"]]
    spec.setdefault("ipFamilies", ["IPv4"])
    spec.setdefault("ipFamilyPolicy", "SingleStack")
    service["status"] = {"loadBalancer": {}}


def _volume_claim(claim: Obj, store: Store) -> None:
    finalizers = claim["metadata"].setdefault("finalizers", [])
    if "kubernetes.io/pvc-protection" not in finalizers:
        finalizers.append("kubernetes.io/pvc-protection")
    if "storageClassName" not in claim["spec"]:
        for stored in store.select("StorageClass"):
            annotations = stored.obj["metadata"].get("annotations", {})
            if annotations.get("storageclass.kubernetes.io/is-default-class") == "true":
                claim["spec"]["storageClassName"] = stored.obj["metadata"]["name"]
    claim["status"] = {"phase": "Pending"}


def _namespace(namespace: Obj, _: Store) -> None:
    namespace["status"] = {"phase": "Active"}


def _replica_set(replica_set: Obj, _: Store) -> None:
    replica_set["status"] = {"replicas": 0}


_ON_CREATE: dict[str, Callable[[Obj, Store], None]] = {
    "Job": _job,
    "Namespace": _namespace,
    "PersistentVolumeClaim": _volume_claim,
    "Pod": _pod,
    "ReplicaSet": _replica_set,
    "Service": _service,
}


def on_create(kind: str, obj: Obj, store: Store) -> None:
    """Complete a new object in place; 403 where a plug-in refuses it."""
    function = _ON_CREATE.get(kind)
    if function is not None:
        function(obj, store)


def on_update(kind: str, new: Obj, old: Obj) -> None:
    """Carry over what the server gave an object and the caller may leave out."""
    if kind == "Service":
        for name in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"):
            if name in old["spec"]:
                new["spec"].setdefault(name, old["spec"][name])
    if kind == "PersistentVolumeClaim":
        for name in ("storageClassName", "volumeName"):
            if name in old["spec"]:
                new["spec"].setdefault(name, old["spec"][name])
    if kind == "Job" and "selector" in old["spec"]:
        new["spec"].setdefault("selector", old["spec"]["selector"])
        labels = old["spec"]["template"]["metadata"].get("labels", {})
        given = new["spec"]["template"]["metadata"].setdefault("labels", {})
        for name in (
            "batch.kubernetes.io/controller-uid",
            "batch.kubernetes.io/job-name",
            "controller-uid",
            "job-name",
        ):
            if name in labels:
                given.setdefault(name, labels[name])
