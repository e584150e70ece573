"""What kinds of values the fields have that the rules read. See `gpu.contract.tree.malformed`."""

_METADATA = {"": "map!", "/name": "text!", "/namespace": "text", "/labels": "texts", "/annotations": "texts"}
_POD_METADATA = {"": "map", "/labels": "texts", "/annotations": "texts"}

_CONTAINER = {
    "": "map!",
    "/name": "text!",
    "/image": "text",
    "/command": "list",
    "/args": "list",
    "/env": "list",
    "/env/*": "map!",
    "/env/*/name": "text!",
    "/env/*/value": "text",
    "/envFrom": "list",
    "/resources": "map",
    "/resources/requests": "quantities",
    "/resources/limits": "quantities",
    "/resources/claims": "list",
    "/resources/claims/*": "map!",
    "/resources/claims/*/name": "text!",
    "/resources/claims/*/request": "text",
    "/securityContext": "map",
    "/securityContext/privileged": "bool",
    "/securityContext/allowPrivilegeEscalation": "bool",
    "/securityContext/capabilities": "map",
    "/securityContext/capabilities/add": "list",
    "/securityContext/capabilities/drop": "list",
    "/volumeDevices": "list",
}

_POD = {
    "": "map!",
    "/containers": "list!",
    **{f"/containers/*{path}": kind for path, kind in _CONTAINER.items()},
    "/initContainers": "list",
    **{f"/initContainers/*{path}": kind for path, kind in _CONTAINER.items()},
    "/ephemeralContainers": "list",
    "/resourceClaims": "list",
    "/resourceClaims/*": "map!",
    "/resourceClaims/*/name": "text!",
    "/resourceClaims/*/resourceClaimTemplateName": "text",
    "/resourceClaims/*/resourceClaimName": "text",
    "/schedulerName": "text",
    "/nodeName": "text",
    "/nodeSelector": "texts",
    "/affinity": "map",
    "/affinity/nodeAffinity": "map",
    "/runtimeClassName": "text",
    "/hostNetwork": "bool",
    "/hostPID": "bool",
    "/hostIPC": "bool",
    "/securityContext": "map",
    "/volumes": "list",
    "/volumes/*": "map!",
    "/volumes/*/name": "text!",
    "/volumes/*/hostPath": "map",
}


def _under(prefix: str, shapes: dict[str, str]) -> dict[str, str]:
    return {f"{prefix}{path}": kind for path, kind in shapes.items()}


CLAIM_TEMPLATE = {
    **_under("metadata", _METADATA),
    "spec": "map",
    **_under("spec/metadata", _POD_METADATA),
    "spec/spec": "map",
    "spec/spec/devices": "map",
    "spec/spec/devices/requests": "list",
    "spec/spec/devices/requests/*": "map!",
    "spec/spec/devices/requests/*/name": "text!",
    "spec/spec/devices/requests/*/exactly": "map",
    "spec/spec/devices/requests/*/exactly/deviceClassName": "text!",
    "spec/spec/devices/requests/*/exactly/allocationMode": "text",
    "spec/spec/devices/requests/*/exactly/count": "number",
    "spec/spec/devices/requests/*/exactly/capacity": "map",
    "spec/spec/devices/requests/*/exactly/capacity/requests": "quantities",
    "spec/spec/devices/requests/*/exactly/selectors": "list",
    "spec/spec/devices/requests/*/exactly/tolerations": "list",
    "spec/spec/devices/requests/*/exactly/adminAccess": "bool",
    "spec/spec/devices/requests/*/firstAvailable": "list",
    "spec/spec/devices/constraints": "list",
    "spec/spec/devices/config": "list",
}

DEPLOYMENT = {
    **_under("metadata", _METADATA),
    "spec": "map!",
    "spec/replicas": "number",
    "spec/strategy": "map",
    "spec/strategy/type": "text",
    "spec/strategy/rollingUpdate": "map",
    "spec/selector": "map!",
    "spec/selector/matchLabels": "texts",
    "spec/template": "map!",
    **_under("spec/template/metadata", _POD_METADATA),
    **_under("spec/template/spec", _POD),
}

POD = {**_under("metadata", _METADATA), **_under("spec", _POD)}

POD_OWNER = {
    **_under("metadata", _METADATA),
    "spec": "map!",
    "spec/template": "map!",
    **_under("spec/template/metadata", _POD_METADATA),
    **_under("spec/template/spec", _POD),
}
"""Job, StatefulSet and whatever else makes pods from a template."""

CRON_JOB = {
    **_under("metadata", _METADATA),
    "spec": "map!",
    "spec/jobTemplate": "map!",
    "spec/jobTemplate/spec": "map!",
    "spec/jobTemplate/spec/template": "map!",
    **_under("spec/jobTemplate/spec/template/metadata", _POD_METADATA),
    **_under("spec/jobTemplate/spec/template/spec", _POD),
}

OTHER = _under("metadata", _METADATA)
