"""The values the API server fills in where a manifest leaves them out, as the recorded objects show them."""

import base64
from collections.abc import Callable
from typing import Any

from sandbox.api import Obj

_ALWAYS: Obj = {"terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"}
_PROBE: Obj = {"failureThreshold": 3, "periodSeconds": 10, "successThreshold": 1, "timeoutSeconds": 1}


def _set(target: Obj, **values: Any) -> None:
    for name, value in values.items():
        target.setdefault(name, value)


def pull_policy(image: str) -> str:
    """Always for an image without a tag or with ``latest``, unless it is named by digest."""
    if "@" in image:
        return "IfNotPresent"
    tag = image.rsplit("/", 1)[-1].partition(":")[2]
    return "Always" if tag in ("", "latest") else "IfNotPresent"


def _container(container: Obj) -> None:
    _set(container, imagePullPolicy=pull_policy(container.get("image", "")), resources={}, **_ALWAYS)
    for port in container.get("ports", []):
        _set(port, protocol="TCP")
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        if probe in container:
            _set(container[probe], **_PROBE)
            if "httpGet" in container[probe]:
                _set(container[probe]["httpGet"], path="/", scheme="HTTP")
            if "grpc" in container[probe]:
                _set(container[probe]["grpc"], service="")
    for variable in container.get("env", []):
        if "fieldRef" in variable.get("valueFrom", {}):
            _set(variable["valueFrom"]["fieldRef"], apiVersion="v1")


def pod_spec(spec: Obj) -> None:
    """Defaults of a pod's or a pod template's spec."""
    for name in ("containers", "initContainers", "ephemeralContainers"):
        for container in spec.get(name, []):
            _container(container)
    for volume in spec.get("volumes", []):
        if len(volume) == 1:
            volume["emptyDir"] = {}
        for source in ("configMap", "secret", "projected", "downwardAPI"):
            if source in volume:
                _set(volume[source], defaultMode=420)
    _set(
        spec,
        dnsPolicy="ClusterFirst",
        restartPolicy="Always",
        schedulerName="default-scheduler",
        securityContext={},
        terminationGracePeriodSeconds=30,
    )
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if account:
        spec["serviceAccountName"] = spec["serviceAccount"] = account


def _template(obj: Obj) -> None:
    template = obj["spec"].setdefault("template", {})
    template.setdefault("metadata", {})
    pod_spec(template.setdefault("spec", {}))


def _pod(obj: Obj) -> None:
    spec = obj.setdefault("spec", {})
    pod_spec(spec)
    _set(spec, enableServiceLinks=True)
    for container in [*spec.get("containers", []), *spec.get("initContainers", [])]:
        resources = container["resources"]
        for name, limit in resources.get("limits", {}).items():
            resources.setdefault("requests", {}).setdefault(name, limit)


def _deployment(obj: Obj) -> None:
    spec = obj.setdefault("spec", {})
    _set(spec, replicas=1, revisionHistoryLimit=10, progressDeadlineSeconds=600, strategy={})
    _set(spec["strategy"], type="RollingUpdate")
    if spec["strategy"]["type"] == "RollingUpdate":
        _set(spec["strategy"], rollingUpdate={})
        _set(spec["strategy"]["rollingUpdate"], maxSurge="25%", maxUnavailable="25%")
    _template(obj)


def _replica_set(obj: Obj) -> None:
    _set(obj.setdefault("spec", {}), replicas=1)
    _template(obj)


def _job(obj: Obj) -> None:
    spec = obj.setdefault("spec", {})
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    _set(
        spec,
        parallelism=1,
        backoffLimit=6,
        completionMode="NonIndexed",
        suspend=False,
        manualSelector=False,
        podReplacementPolicy="Failed" if "podFailurePolicy" in spec else "TerminatingOrFailed",
    )
    _template(obj)


def _service(obj: Obj) -> None:
    spec = obj.setdefault("spec", {})
    _set(spec, type="ClusterIP", sessionAffinity="None", internalTrafficPolicy="Cluster")
    for port in spec.get("ports", []):
        _set(port, protocol="TCP", targetPort=port.get("port"))


def _claim_devices(devices: Obj) -> None:
    for request in devices.get("requests", []):
        for part in [request.get("exactly"), *request.get("firstAvailable", [])]:
            if part is not None:
                _set(part, allocationMode="ExactCount")
                if part["allocationMode"] == "ExactCount":
                    _set(part, count=1)


def _claim(obj: Obj) -> None:
    _claim_devices(obj.setdefault("spec", {}).get("devices", {}))


def _claim_template(obj: Obj) -> None:
    _claim_devices(obj.setdefault("spec", {}).setdefault("spec", {}).get("devices", {}))


def _volume_claim(obj: Obj) -> None:
    _set(obj.setdefault("spec", {}), volumeMode="Filesystem")


def _limit_range(obj: Obj) -> None:
    for item in obj.setdefault("spec", {}).get("limits", []):
        if item.get("type") == "Container":
            maximum, minimum = item.get("max", {}), item.get("min", {})
            default = {**maximum, **item.get("default", {})}
            requests = {**minimum, **default, **item.get("defaultRequest", {})}
            if default:
                item["default"] = default
            if requests:
                item["defaultRequest"] = requests


def _match(constraints: Obj) -> None:
    _set(constraints, matchPolicy="Equivalent", namespaceSelector={}, objectSelector={})
    for rule in [*constraints.get("resourceRules", []), *constraints.get("excludeResourceRules", [])]:
        _set(rule, scope="*")


def _policy(obj: Obj) -> None:
    spec = obj.setdefault("spec", {})
    _set(spec, failurePolicy="Fail")
    _match(spec.setdefault("matchConstraints", {}))


def _binding(obj: Obj) -> None:
    if "matchResources" in obj.setdefault("spec", {}):
        _match(obj["spec"]["matchResources"])


def _namespace(obj: Obj) -> None:
    metadata = obj["metadata"]
    if "name" in metadata:
        metadata["labels"] = metadata.get("labels", {}) | {"kubernetes.io/metadata.name": metadata["name"]}
    if "deletionTimestamp" not in metadata:  # the namespace controller takes it away at the end
        _set(obj.setdefault("spec", {}), finalizers=["kubernetes"])


def _secret(obj: Obj) -> None:
    _set(obj, type="Opaque")
    for key, text in obj.pop("stringData", {}).items():
        obj.setdefault("data", {})[key] = base64.b64encode(text.encode()).decode()


def _storage_class(obj: Obj) -> None:
    _set(obj, reclaimPolicy="Delete", volumeBindingMode="Immediate")


_DEFAULTS: dict[str, Callable[[Obj], None]] = {
    "Deployment": _deployment,
    "Job": _job,
    "LimitRange": _limit_range,
    "Namespace": _namespace,
    "PersistentVolumeClaim": _volume_claim,
    "Pod": _pod,
    "ReplicaSet": _replica_set,
    "ResourceClaim": _claim,
    "ResourceClaimTemplate": _claim_template,
    "Secret": _secret,
    "Service": _service,
    "StorageClass": _storage_class,
    "ValidatingAdmissionPolicy": _policy,
    "ValidatingAdmissionPolicyBinding": _binding,
}


def apply(kind: str, obj: Obj) -> None:
    """Fill in the defaults of one object, in place."""
    function = _DEFAULTS.get(kind)
    if function is not None:
        function(obj)
