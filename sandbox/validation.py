"""Ordinary validation: what is refused with 422 whatever the policies say."""

import json
import re
from collections.abc import Callable

from sandbox import quantity, selectors
from sandbox.api import Obj
from sandbox.field_errors import Errors
from sandbox.kinds import Kind
from sandbox.refusals import invalid
from sandbox.validation_devices import claim_template, device_class, resource_claim
from sandbox.validation_pods import pod_spec, pod_template

_QUOTA_KEYS = {
    "cpu", "memory", "ephemeral-storage", "requests.cpu", "requests.memory", "requests.storage",
    "requests.ephemeral-storage", "limits.cpu", "limits.memory", "limits.ephemeral-storage", "pods",
    "resourcequotas", "services", "replicationcontrollers", "secrets", "persistentvolumeclaims", "configmaps",
    "services.nodeports", "services.loadbalancers",
}  # fmt: skip
_PATH_NAMES = ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")


def _metadata(kind: Kind, obj: Obj, errors: Errors) -> None:
    metadata = obj["metadata"]
    form = {"Service": "label1035", "Namespace": "label"}.get(kind.kind, "subdomain")
    if kind.kind not in _PATH_NAMES:
        errors.name("metadata.name", metadata["name"], form)
    errors.labels("metadata.labels", metadata.get("labels", {}))
    for key in metadata.get("annotations", {}):
        errors.qualified("metadata.annotations", key.lower())
    for index, owner in enumerate(metadata.get("ownerReferences", [])):
        for field in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(field):
                errors.invalid(f"metadata.ownerReferences[{index}].{field}", "", f"{field} must not be empty")


def _workload(kind: Kind, obj: Obj, errors: Errors) -> None:
    spec = obj["spec"]
    errors.not_negative("spec.replicas", spec.get("replicas"))
    selector = spec.get("selector")
    labels = spec["template"]["metadata"].get("labels", {})
    empty = selector is not None and not selector.get("matchLabels") and not selector.get("matchExpressions")
    if selector is None:
        errors.required("spec.selector")
    else:
        errors.selector("spec.selector", selector)
        if empty:
            errors.invalid("spec.selector", selector, f"empty selector is invalid for {kind.kind.lower()}")
    if not empty and not selectors.matches(selector, labels):
        why = "`selector` does not match template `labels`"
        errors.invalid("spec.template.metadata.labels", dict(sorted(labels.items())) or None, why)
    pod_template("spec.template", spec["template"], errors, ("Always",))


def _deployment(kind: Kind, obj: Obj, errors: Errors) -> None:
    _workload(kind, obj, errors)
    strategy = obj["spec"]["strategy"]
    if strategy["type"] not in ("Recreate", "RollingUpdate"):
        errors.supported(
            "spec.strategy", {"Type": strategy["type"], "RollingUpdate": None}, ("Recreate", "RollingUpdate")
        )
    if strategy["type"] == "Recreate" and "rollingUpdate" in strategy:
        errors.forbidden(
            "spec.strategy.rollingUpdate", "may not be specified when strategy `type` is 'Recreate'"
        )
    for field in ("minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"):
        errors.not_negative(f"spec.{field}", obj["spec"].get(field))


def _job(_: Kind, obj: Obj, errors: Errors) -> None:
    spec = obj["spec"]
    for field in (
        "parallelism",
        "completions",
        "backoffLimit",
        "activeDeadlineSeconds",
        "ttlSecondsAfterFinished",
    ):
        errors.not_negative(f"spec.{field}", spec.get(field))
    pod_template("spec.template", spec["template"], errors, ("Never", "OnFailure"))


def _pod(_: Kind, obj: Obj, errors: Errors) -> None:
    pod_spec("spec", obj["spec"], errors)


def _service(_: Kind, obj: Obj, errors: Errors) -> None:
    spec = obj["spec"]
    ports = spec.get("ports", [])
    errors.supported("spec.type", spec["type"], ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort"))
    if not ports and spec.get("clusterIP") != "None" and spec["type"] != "ExternalName":
        errors.required("spec.ports")
    for index, port in enumerate(ports):
        field = f"spec.ports[{index}]"
        if len(ports) > 1 and not port.get("name"):
            errors.required(f"{field}.name")
        if "name" in port:
            errors.name(f"{field}.name", port["name"], "label")
        for name in ("port", "targetPort"):
            value = port.get(name, 0)
            if isinstance(value, int) and not 1 <= value <= 65535:
                errors.invalid(f"{field}.{name}", value, "must be between 1 and 65535, inclusive")
        errors.supported(f"{field}.protocol", port["protocol"], ("SCTP", "TCP", "UDP"))
    errors.labels("spec.selector", spec.get("selector", {}))


def _volume_claim(_: Kind, obj: Obj, errors: Errors) -> None:
    spec = obj["spec"]
    modes = spec.get("accessModes", [])
    if not modes:
        errors.required("spec.accessModes", "at least 1 access mode is required")
    for mode in modes:
        allowed = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
        errors.supported("spec.accessModes", mode, allowed)
    storage = spec.get("resources", {}).get("requests", {}).get("storage")
    if storage is None:
        errors.required("spec.resources[storage]")
    elif quantity.parse(storage) <= 0:
        errors.invalid("spec.resources[storage]", storage, "must be greater than zero")


def _quota(_: Kind, obj: Obj, errors: Errors) -> None:
    for key, text in obj.get("spec", {}).get("hard", {}).items():
        value = quantity.parse(text)
        if "/" not in key and key not in _QUOTA_KEYS:
            errors.invalid(f"spec.hard[{key}]", key, "must be a standard resource type or fully qualified")
            errors.invalid(f"spec.hard[{key}]", key, "must be a standard resource for quota")
        if value < 0:
            errors.invalid(f"spec.hard[{key}]", text, "must be greater than or equal to 0")
        whole = key.startswith(("pods", "services", "count/", "persistentvolumeclaims")) or key.endswith(
            "/devices"
        )
        if whole and value != value.to_integral_value():
            errors.invalid(f"spec.hard[{key}]", text, "must be an integer")


def _data_keys(_: Kind, obj: Obj, errors: Errors) -> None:
    for key in obj.get("data", {}):
        if not re.fullmatch(r"[-._a-zA-Z0-9]{1,253}", key):
            why = (
                "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or "
                "'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
            )
            errors.invalid(f"data[{key}]", key, why)


_CHECKS: dict[str, Callable[[Kind, Obj, Errors], None]] = {
    "ConfigMap": _data_keys,
    "Deployment": _deployment,
    "DeviceClass": device_class,
    "Job": _job,
    "PersistentVolumeClaim": _volume_claim,
    "Pod": _pod,
    "ReplicaSet": _workload,
    "ResourceClaim": resource_claim,
    "ResourceClaimTemplate": claim_template,
    "ResourceQuota": _quota,
    "Secret": _data_keys,
    "Service": _service,
}

_IMMUTABLE: dict[str, tuple[str, ...]] = {
    "Deployment": ("selector",),
    "Job": ("selector", "template", "completions"),
    "ReplicaSet": ("selector",),
    "Service": ("clusterIP",),
}


_POD_UPDATE = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def _fixed_part(spec: Obj) -> Obj:
    """What of a pod's spec cannot change; the node's name is the scheduler's to write."""
    free = ("activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds", "nodeName")
    fixed = {name: value for name, value in spec.items() if name not in free}
    for group in ("containers", "initContainers"):
        fixed[group] = [
            {name: value for name, value in container.items() if name not in ("image", "resources")}
            for container in spec.get(group, [])
        ]
    return fixed


def _unchangeable(kind: Kind, new: Obj, old: Obj, errors: Errors) -> None:
    for name in _IMMUTABLE.get(kind.kind, ()):
        before, after = old["spec"].get(name), new["spec"].get(name)
        if before != after:
            errors.invalid(f"spec.{name}", after, "field is immutable")
    if kind.kind in ("ResourceClaim", "ResourceClaimTemplate") and old["spec"] != new["spec"]:
        errors.invalid("spec", new["spec"], "field is immutable")
    if kind.kind == "PersistentVolumeClaim":
        before, after = json.loads(json.dumps([old["spec"], new["spec"]]))
        sizes = [
            quantity.parse(spec.get("resources", {}).get("requests", {}).pop("storage", "0"))
            for spec in (before, after)
        ]
        if "volumeName" not in before:  # the binder writes it once
            after.pop("volumeName", None)
        bound = old.get("status", {}).get("phase") == "Bound"
        if before != after or (sizes[0] != sizes[1] and not bound):
            errors.forbidden(
                "spec",
                "spec is immutable after creation except resources.requests and volumeAttributesClassName "
                "for bound claims",
            )
        elif sizes[1] < sizes[0]:
            why = "field can not be less than status.capacity"
            errors.forbidden("spec.resources.requests.storage", why)
    if kind.kind == "Pod" and _fixed_part(old["spec"]) != _fixed_part(new["spec"]):
        errors.forbidden("spec", _POD_UPDATE)


def check(kind: Kind, new: Obj, old: Obj | None) -> None:
    """Raise the 422 that names everything wrong with a new version of an object."""
    errors = Errors()
    _metadata(kind, new, errors)
    # The API server skips the other rules for a template that can no longer change.
    skip = old is not None and kind.kind in ("ResourceClaim", "ResourceClaimTemplate", "Pod")
    if kind.kind in _CHECKS and not skip:
        _CHECKS[kind.kind](kind, new, errors)
    if old is not None and "spec" in old and "spec" in new:
        _unchangeable(kind, new, old, errors)
    if old is not None and kind.kind == "Secret" and old.get("type") != new.get("type"):
        errors.invalid("type", new.get("type"), "field is immutable")
    if errors.found:
        raise invalid(kind, new["metadata"]["name"], errors.found)
