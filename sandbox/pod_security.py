"""Pod security admission, profile ``restricted``: what its namespaces refuse of a pod."""

from collections.abc import Callable, Iterator
from typing import Any

from sandbox.api import Obj
from sandbox.kinds import Kind
from sandbox.refusals import forbidden

_LABEL = "pod-security.kubernetes.io/enforce"
_VOLUMES = {
    "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim", "projected",
    "secret",
}  # fmt: skip


def _containers(spec: Obj) -> list[Obj]:
    return [
        *spec.get("initContainers", []),
        *spec.get("containers", []),
        *spec.get("ephemeralContainers", []),
    ]


def _listed(containers: list[Obj], verb: str) -> str:
    names = ", ".join(f'"{container["name"]}"' for container in containers)
    return f"container{'s' if len(containers) > 1 else ''} {names} must {verb}"


def _bad(spec: Obj, wrong: Callable[[Obj], bool]) -> list[Obj]:
    return [container for container in _containers(spec) if wrong(container.get("securityContext", {}))]


def _added(context: Obj) -> set[str]:
    return set(context.get("capabilities", {}).get("add", [])) - {"NET_BIND_SERVICE"}


def _capabilities(spec: Obj) -> Iterator[str]:
    if found := _bad(spec, lambda context: "ALL" not in context.get("capabilities", {}).get("drop", [])):
        yield _listed(found, 'set securityContext.capabilities.drop=["ALL"]')
    if found := _bad(spec, lambda context: bool(_added(context))):
        names = sorted(set().union(*(_added(container["securityContext"]) for container in found)))
        quoted = ", ".join(f'"{name}"' for name in names)
        yield _listed(found, f"not include {quoted} in securityContext.capabilities.add")


def _violations(spec: Obj) -> Iterator[str]:
    pod: Obj = spec.get("securityContext", {})
    if hosts := [name for name in ("hostNetwork", "hostPID", "hostIPC") if spec.get(name)]:
        yield f"host namespaces ({', '.join(f'{name}=true' for name in hosts)})"
    if found := _bad(spec, lambda context: bool(context.get("privileged"))):
        yield f"privileged ({_listed(found, 'not set securityContext.privileged=true')})"
    if found := _bad(spec, lambda context: context.get("allowPrivilegeEscalation") is not False):
        verb = "set securityContext.allowPrivilegeEscalation=false"
        yield f"allowPrivilegeEscalation != false ({_listed(found, verb)})"
    if problems := list(_capabilities(spec)):
        yield f"unrestricted capabilities ({'; '.join(problems)})"
    for volume in spec.get("volumes", []):
        kinds = sorted(set(volume) - {"name"} - _VOLUMES)
        if kinds:
            yield f'restricted volume types (volume "{volume["name"]}" uses restricted volume type "{kinds[0]}")'

    def effective(context: Obj, name: str) -> Any:
        return context.get(name, pod.get(name))

    if found := _bad(spec, lambda context: effective(context, "runAsNonRoot") is not True):
        verb = "set securityContext.runAsNonRoot=true"
        yield f"runAsNonRoot != true (pod or {_listed(found, verb)})"
    roots = (["pod"] if pod.get("runAsUser") == 0 else []) + (
        [_listed(found, "").removesuffix(" must ")]
        if (found := _bad(spec, lambda context: context.get("runAsUser") == 0))
        else []
    )
    if roots:
        yield f"runAsUser=0 ({' and '.join(roots)} must not set runAsUser=0)"

    def profile(context: Obj) -> object:
        return (context.get("seccompProfile") or pod.get("seccompProfile") or {}).get("type")

    if found := _bad(spec, lambda context: profile(context) not in ("RuntimeDefault", "Localhost")):
        verb = 'set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost"'
        yield f"seccompProfile (pod or {_listed(found, verb)})"


def check(kind: Kind, pod: Obj, namespace: Obj | None) -> None:
    """Refuse with 403 a pod that the namespace's level does not allow (only ``restricted`` is known)."""
    labels = (namespace or {}).get("metadata", {}).get("labels", {})
    if labels.get(_LABEL) != "restricted":
        return
    problems = list(_violations(pod["spec"]))
    if problems:
        version = labels.get("pod-security.kubernetes.io/enforce-version", "latest")
        why = f'violates PodSecurity "restricted:{version}": {", ".join(problems)}'
        raise forbidden(kind, pod["metadata"]["name"], why)
