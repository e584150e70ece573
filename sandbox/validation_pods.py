"""Ordinary validation of pods and pod templates."""

import re

from sandbox import quantity
from sandbox.api import Obj
from sandbox.field_errors import Errors

_CLAIM_FIELDS = ("name", "resourceClaimName", "resourceClaimTemplateName")
_PORT = "must be between 1 and 65535, inclusive"


def pod_template(field: str, template: Obj, errors: Errors, restart: tuple[str, ...]) -> None:
    """A pod template whose pods must have one of the given restart policies."""
    errors.labels(f"{field}.labels", template["metadata"].get("labels", {}))
    spec = template["spec"]
    pod_spec(f"{field}.spec", spec, errors)
    if spec["restartPolicy"] == "Always" and "Always" not in restart:
        errors.required(f"{field}.spec.restartPolicy", 'valid values: "OnFailure", "Never"')
    else:
        errors.supported(f"{field}.spec.restartPolicy", spec["restartPolicy"], restart)


def pod_spec(field: str, spec: Obj, errors: Errors) -> None:
    """A pod's spec: containers, volumes, claims."""
    volumes = _volumes(field, spec.get("volumes", []), errors)
    claims: set[str] = set()
    for index, claim in enumerate(spec.get("resourceClaims", [])):
        place = f"{field}.resourceClaims[{index}]"
        _named(place, claim, errors)
        if claim.get("name", "") in claims:
            errors.duplicate(f"{place}.name", claim["name"])
        claims.add(claim.get("name", ""))
        sources = [name for name in ("resourceClaimName", "resourceClaimTemplateName") if name in claim]
        if len(sources) != 1:
            why = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
            if sources:
                why = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            shown = {key[0].upper() + key[1:]: claim.get(key) for key in _CLAIM_FIELDS}
            errors.invalid(place, shown, why)
        for name in sources:
            errors.name(f"{place}.{name}", claim[name], "subdomain")
    if not spec.get("containers"):
        errors.required(f"{field}.containers")
    seen: set[str] = set()
    for group in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(group, [])):
            place = f"{field}.{group}[{index}]"
            if container.get("name") in seen:
                errors.duplicate(f"{place}.name", container["name"])
            seen.add(container.get("name", ""))
            _container(place, container, volumes, claims, errors)
    errors.supported(
        f"{field}.dnsPolicy",
        spec["dnsPolicy"],
        ("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"),
    )
    errors.supported(f"{field}.restartPolicy", spec["restartPolicy"], ("Always", "Never", "OnFailure"))
    security = spec["securityContext"]
    if "fsGroupChangePolicy" in security:
        allowed = ("Always", "OnRootMismatch")
        errors.supported(
            f"{field}.securityContext.fsGroupChangePolicy", security["fsGroupChangePolicy"], allowed
        )
    _seccomp(f"{field}.securityContext", security, errors)
    for name in ("runAsUser", "runAsGroup", "fsGroup"):
        value = security.get(name)
        if value is not None and not 0 <= value <= 2147483647:
            why = "must be between 0 and 2147483647, inclusive"
            errors.invalid(f"{field}.securityContext.{name}", value, why)


def _volumes(field: str, volumes: list[Obj], errors: Errors) -> dict[str, bool]:
    """The names of the sound volumes, and whether each may be a raw device."""
    found: dict[str, bool] = {}
    for index, volume in enumerate(volumes):
        place = f"{field}.volumes[{index}]"
        _named(place, volume, errors)
        name = volume.get("name", "")
        sound = bool(name)
        if name in found:
            errors.duplicate(f"{place}.name", name)
        if len(volume) > 2:
            extra = sorted(set(volume) - {"name"})[1]
            errors.forbidden(f"{place}.{extra}", "may not specify more than 1 volume type")
        claim = volume.get("persistentVolumeClaim")
        if claim is not None and not claim.get("claimName"):
            errors.required(f"{place}.persistentVolumeClaim.claimName")
            sound = False
        if sound:
            found[name] = claim is not None
    return found


def _seccomp(field: str, security: Obj, errors: Errors) -> None:
    profile = security.get("seccompProfile")
    if profile is None:
        return
    if not profile.get("type"):
        errors.required(f"{field}.seccompProfile.type", "type is required when seccompProfile is set")
    else:
        errors.supported(
            f"{field}.seccompProfile.type", profile["type"], ("Localhost", "RuntimeDefault", "Unconfined")
        )


def _probe(field: str, probe: Obj, errors: Errors) -> None:
    if not probe.keys() & {"httpGet", "exec", "tcpSocket", "grpc"}:
        errors.required(field, "must specify a handler type")
    for handler in ("httpGet", "tcpSocket"):
        port = probe.get(handler, {}).get("port", 0)
        if handler in probe and (not port or (isinstance(port, int) and not 1 <= port <= 65535)):
            errors.invalid(f"{field}.{handler}.port", port or 0, _PORT)
    if "httpGet" in probe:
        errors.supported(f"{field}.httpGet.scheme", probe["httpGet"]["scheme"], ("HTTP", "HTTPS"))


def _devices(field: str, container: Obj, volumes: dict[str, bool], errors: Errors) -> None:
    mounted = {mount.get("name") for mount in container.get("volumeMounts", [])}
    for index, device in enumerate(container.get("volumeDevices", [])):
        place, name = f"{field}.volumeDevices[{index}]", device.get("name", "")
        if name not in volumes:
            errors.missing(f"{place}.name", name)
        elif not volumes[name]:
            errors.invalid(
                f"{place}.name",
                name,
                "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode",
            )
        if name in mounted:
            errors.invalid(f"{place}.name", name, "must not already exist in volumeMounts")
        if not device.get("devicePath"):
            errors.required(f"{place}.devicePath")


def _named(field: str, item: Obj, errors: Errors) -> None:
    if not item.get("name"):
        errors.required(f"{field}.name")
    else:
        errors.name(f"{field}.name", item["name"], "label")


def _container(
    field: str, container: Obj, volumes: dict[str, bool], claims: set[str], errors: Errors
) -> None:
    _named(field, container, errors)
    if not container.get("image"):
        errors.required(f"{field}.image")
    elif container["image"] != container["image"].strip():
        errors.invalid(f"{field}.image", container["image"], "must not have leading or trailing whitespace")
    errors.supported(
        f"{field}.imagePullPolicy", container["imagePullPolicy"], ("Always", "IfNotPresent", "Never")
    )
    port_names: set[str] = set()
    for index, port in enumerate(container.get("ports", [])):
        place = f"{field}.ports[{index}]"
        if not port.get("containerPort"):
            errors.required(f"{place}.containerPort")
        elif not 1 <= port["containerPort"] <= 65535:
            errors.invalid(f"{place}.containerPort", port["containerPort"], _PORT)
        errors.supported(f"{place}.protocol", port["protocol"], ("SCTP", "TCP", "UDP"))
        name = port.get("name")
        if name in port_names:
            errors.duplicate(f"{place}.name", name)
        if name:
            port_names.add(name)
        if name and not (
            len(name) <= 15
            and re.fullmatch("[a-z0-9]([-a-z0-9]*[a-z0-9])?", name)
            and re.search("[a-z]", name)
            and "--" not in name
        ):
            why = "must be no more than 15 characters" if len(name) > 15 else "must be a valid port name"
            errors.invalid(f"{place}.name", name, why)
    for index, variable in enumerate(container.get("env", [])):
        place = f"{field}.env[{index}]"
        name = variable.get("name", "")
        if not name:
            errors.required(f"{place}.name")
        elif not all(" " <= letter <= "~" and letter != "=" for letter in name):
            why = "a valid environment variable name must consist only of printable ASCII characters other than '='"
            errors.invalid(f"{place}.name", name, why)
        if variable.get("value") and "valueFrom" in variable:
            errors.invalid(f"{place}.valueFrom", "", "may not be specified when `value` is not empty")
    mounts: set[str] = set()
    for index, mount in enumerate(container.get("volumeMounts", [])):
        place = f"{field}.volumeMounts[{index}]"
        if not mount.get("name"):
            errors.required(f"{place}.name")
        elif mount["name"] not in volumes:
            errors.missing(f"{place}.name", mount["name"])
        if not mount.get("mountPath"):
            errors.required(f"{place}.mountPath")
        elif mount["mountPath"] in mounts:
            errors.invalid(f"{place}.mountPath", mount["mountPath"], "must be unique")
        mounts.add(mount.get("mountPath", ""))
    _devices(field, container, volumes, errors)
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        if probe in container:
            _probe(f"{field}.{probe}", container[probe], errors)
    _resources(f"{field}.resources", container["resources"], claims, errors)
    context = container.get("securityContext", {})
    _seccomp(f"{field}.securityContext", context, errors)
    if context.get("privileged") and context.get("allowPrivilegeEscalation") is False:
        why = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"
        errors.invalid(f"{field}.securityContext", context, why)


def _resources(field: str, resources: Obj, claims: set[str], errors: Errors) -> None:
    limits, requests = resources.get("limits", {}), resources.get("requests", {})
    for part, values in (("limits", limits), ("requests", requests)):
        for name, text in values.items():
            if quantity.parse(text) < 0:
                errors.invalid(f"{field}.{part}[{name}]", text, "must be greater than or equal to 0")
            if (
                "/" not in name
                and name not in ("cpu", "memory", "ephemeral-storage")
                and not name.startswith("hugepages-")
            ):
                why = "must be a standard resource type or fully qualified"
                errors.invalid(f"{field}.{part}[{name}]", name, why)
    for name, text in requests.items():
        extended = "/" in name and "kubernetes.io/" not in name
        if name in limits and quantity.parse(text) > quantity.parse(limits[name]):
            errors.invalid(
                f"{field}.requests", text, f"must be less than or equal to {name} limit of {limits[name]}"
            )
        elif extended and text != limits.get(name):
            errors.required(f"{field}.limits", "Limit must be set for non overcommitable resources")
    names: set[str] = set()
    for index, claim in enumerate(resources.get("claims", [])):
        name = claim.get("name", "")
        if not name:
            errors.required(f"{field}.claims[{index}].name")
        elif name in names:
            errors.duplicate(f"{field}.claims[{index}]", name)
        elif name not in claims:
            why = "must be one of the names in pod.spec.resourceClaims" + (
                "" if claims else " which is empty"
            )
            errors.missing(f"{field}.claims[{index}]", name, why)
        names.add(name)
