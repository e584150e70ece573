"""The rules for a pod on a slice, the same for a Deployment's template and for a pod itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpu import names
from gpu.contract.finding import Finding
from gpu.contract.rules import finding, remove_it
from gpu.contract.tree import Node
from gpu.manifests import CLAIM
from gpu.messages import Text, gettext_noop

_CARD_RESOURCES = ("nvidia.com/gpu",)
# Kubernetes can turn such a resource into a claim by itself, past the claim template.
_CARD_BEGINNINGS = ("deviceclass.resource.kubernetes.io/",)


def uses_a_slice(metadata: Node, pod: Node) -> bool:
    """Tell whether the policies take a pod, or what makes it, for one on a slice: by a GPU label or by a claim."""
    labels = metadata["labels"].texts
    return names.LABEL_BACKEND in labels or names.LABEL_PROFILE in labels or pod["resourceClaims"].given


def asks_for_a_card(pod: Node) -> list[Node]:
    """Return the places where a pod asks for a whole card in the old way."""
    found = []
    for container in [*pod["containers"].list, *pod["initContainers"].list]:
        for kind in ("limits", "requests"):
            for key, node in container[f"resources/{kind}"].map.items():
                if key in _CARD_RESOURCES or key.startswith(_CARD_BEGINNINGS):
                    found.append(node)
    return found


def check_no_card(pod: Node) -> Iterator[Finding]:
    """Yield a finding for each place where a pod asks for a card past the claims."""
    for node in asks_for_a_card(pod):
        yield finding(
            "nvidia-gpu",
            node,
            Text(gettext_noop("A whole card cannot be asked for; slices only come through claims.")),
            Text(gettext_noop("Remove it. The slice comes with the claim named gpu.")),
        )


def check_pod(pod: Node, template_name: str) -> Iterator[Finding]:
    """Yield what is wrong with a pod that uses a slice; `template_name` is the claim template it has to name."""
    yield from check_no_card(pod)
    yield from _one_container(pod)
    yield from _claim(pod, template_name)
    yield from _placement(pod)
    yield from _host(pod)
    for container in pod["containers"].list:
        yield from _container(container)


def as_later_refusal(findings: Iterator[Finding]) -> Iterator[Finding]:
    """Turn what a policy says of pods into what befalls an object that is accepted but whose pods are refused."""
    for found in findings:
        yield replace(found, by="platform")


def _one_container(pod: Node) -> Iterator[Finding]:
    more = [pod[key] for key in ("initContainers", "ephemeralContainers") if pod[key].given]
    if len(pod["containers"].list) != 1:
        more.insert(0, pod["containers"])
    for node in more:
        yield finding(
            "one-container",
            node,
            Text(
                gettext_noop(
                    "A workload on a slice has exactly one container, without any beside or before it."
                )
            ),
            Text(gettext_noop("Put what the others do into the one image.")),
        )


def _claim(pod: Node, template_name: str) -> Iterator[Finding]:
    claims = pod["resourceClaims"].list
    good = (
        len(claims) == 1
        and claims[0]["name"].text == CLAIM
        and claims[0]["resourceClaimTemplateName"].text == template_name
        and not claims[0]["resourceClaimName"].present
    )
    if not good:
        yield finding(
            "pod-claim",
            pod["resourceClaims"],
            Text(
                gettext_noop("The pod has to name one claim, gpu, made from %(template)s."),
                {"template": template_name},
            ),
            Text(
                gettext_noop("Set it to [{name: gpu, resourceClaimTemplateName: %(template)s}]."),
                {"template": template_name},
            ),
        )
    for container in pod["containers"].list:
        used = container["resources/claims"].list
        if len(used) != 1 or used[0]["name"].text != CLAIM or used[0]["request"].given:
            yield finding(
                "container-claim",
                container["resources/claims"],
                Text(gettext_noop("The container does not use the slice's claim.")),
                Text(gettext_noop("Set resources.claims to [{name: gpu}].")),
            )


def _placement(pod: Node) -> Iterator[Finding]:
    unwanted = [pod[key] for key in ("nodeName", "nodeSelector", "runtimeClassName") if pod[key].given]
    if pod["schedulerName"].text not in ("", "default-scheduler"):
        unwanted.append(pod["schedulerName"])
    if pod["affinity/nodeAffinity"].present:
        unwanted.append(pod["affinity/nodeAffinity"])
    for node in unwanted:
        field = node.pointer.rsplit("/", 1)[-1]
        yield finding(
            "placement",
            node,
            Text(
                gettext_noop("The platform chooses the server; %(field)s must not be set."), {"field": field}
            ),
            remove_it(),
        )


def _host(pod: Node) -> Iterator[Finding]:
    unwanted = [pod[key] for key in ("hostNetwork", "hostPID", "hostIPC") if pod[key].given]
    unwanted += [volume["hostPath"] for volume in pod["volumes"].list if volume["hostPath"].present]
    for node in unwanted:
        field = node.pointer.rsplit("/", 1)[-1]
        yield finding(
            "host-access",
            node,
            Text(
                gettext_noop("A workload must not reach into the server: %(field)s is refused."),
                {"field": field},
            ),
            remove_it(),
        )


def _container(container: Node) -> Iterator[Finding]:
    security = container["securityContext"]
    for node in (security["privileged"], security["capabilities/add"]):
        if node.given:
            yield finding(
                "privileged",
                node,
                Text(gettext_noop("The container must not ask for more rights than others have.")),
                remove_it(),
            )
    for key, mend in (
        ("volumeDevices", remove_it()),
        ("envFrom", Text(gettext_noop("List the variables one by one under env."))),
    ):
        if container[key].given:
            sentence = Text(gettext_noop("The container must not use %(field)s."), {"field": key})
            yield finding(f"container-{key}", container[key], sentence, mend)
