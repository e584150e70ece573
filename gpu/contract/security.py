"""What else stops a pod: pod security `restricted`, quantities, quota, and what is only advice."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

from gpu import images, quantities
from gpu.contract.finding import Finding
from gpu.contract.rules import finding
from gpu.contract.tree import Node, pointer_of
from gpu.messages import Text, gettext_noop

# The volume types that Kubernetes' pod security standard `restricted` allows.
_VOLUMES = frozenset(
    {
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "persistentVolumeClaim",
        "projected",
        "secret",
    }
)


def check_security(pod: Node) -> Iterator[Finding]:
    """Yield what pod security `restricted` refuses and no GPU policy does."""
    for container in [*pod["containers"].list, *pod["initContainers"].list]:
        yield from _rights(container, pod["securityContext"])
    for volume in pod["volumes"].list:
        for key, node in volume.map.items():
            # hostPath is a rule of its own.
            if key not in _VOLUMES and key not in ("name", "hostPath") and node.present:
                yield finding(
                    "volume-type",
                    node,
                    Text(
                        gettext_noop("A volume of the type %(type)s is refused in projects."), {"type": key}
                    ),
                    Text(gettext_noop("Use a PersistentVolumeClaim or an emptyDir.")),
                    by="platform",
                )


def _rights(container: Node, pod_security: Node) -> Iterator[Finding]:
    own = container["securityContext"]
    for key, wanted in (("runAsNonRoot", True), ("seccompProfile", None)):
        node = own[key] if own[key].present else pod_security[key]
        if key == "seccompProfile":
            good, text = node["type"].text in ("RuntimeDefault", "Localhost"), "{type: RuntimeDefault}"
        else:
            good, text = node.value is wanted, "true"
        if not good:
            yield _restricted(node, key, text)
    if (own["runAsUser"] if own["runAsUser"].present else pod_security["runAsUser"]).value == 0:
        yield _restricted(own["runAsUser"], "runAsUser", "65532")
    if own["allowPrivilegeEscalation"].value is not False:
        yield _restricted(own["allowPrivilegeEscalation"], "allowPrivilegeEscalation", "false")
    if "ALL" not in [node.value for node in own["capabilities/drop"].list]:
        yield _restricted(own["capabilities/drop"], "capabilities.drop", "[ALL]")


def _restricted(node: Node, field: str, wanted: str) -> Finding:
    return finding(
        "pod-security",
        node,
        Text(
            gettext_noop("Projects run containers without special rights: %(field)s has to say so."),
            {"field": field},
        ),
        Text(gettext_noop("Set %(field)s to %(wanted)s."), {"field": field, "wanted": wanted}),
        by="platform",
        suggest=wanted,
    )


def check_amounts(pod: Node) -> Iterator[Finding]:
    """Yield a finding for each amount of CPU and memory that is missing, is none, or exceeds its limit."""
    for container in pod["containers"].list:
        for key in ("cpu", "memory"):
            yield from _amount(container["resources"], key)


def _amount(resources: Node, key: str) -> Iterator[Finding]:
    amounts: dict[str, Decimal] = {}
    for kind in ("requests", "limits"):
        node = resources[kind].map.get(key)
        if node is None or not node.present:
            yield _missing(resources, kind, key)
            continue
        value = _value(node)
        if value is None or value < 0:
            yield finding(
                "quantity-invalid",
                node,
                Text(gettext_noop("This is no amount.")),
                Text(gettext_noop("Write cores such as 500m, or a size such as 2Gi.")),
                by="platform",
            )
        else:
            amounts[kind] = value
    if len(amounts) == 2 and amounts["limits"] < amounts["requests"]:
        yield finding(
            "limit-below-request",
            pointer_of(resources["limits"], key),
            Text(gettext_noop("The limit is below the request.")),
            Text(gettext_noop("Raise the limit or lower the request.")),
            by="platform",
        )


def _missing(resources: Node, kind: str, key: str) -> Finding:
    """Return the finding for an amount left out; Kubernetes takes a limit for the request where only that is set."""
    from_limit = kind == "requests" and key in resources["limits"].map
    return finding(
        "requests-missing",
        pointer_of(resources[kind], key),
        Text(gettext_noop("Without it, the limit counts as the request."))
        if from_limit
        else Text(
            gettext_noop("Without %(kind)s.%(key)s a project with a quota does not start it."),
            {"kind": kind, "key": key},
        ),
        Text(gettext_noop("Set CPU and memory, requests and limits.")),
        by="platform",
        level="warning" if from_limit else "refused",
    )


def _value(node: Node) -> Decimal | None:
    try:
        return quantities.parse(str(node.value))
    except quantities.QuantityError:
        return None


def check_image(pod: Node) -> Iterator[Finding]:
    """Yield what is to be said of the images; nothing on the platform refuses a tag."""
    for container in pod["containers"].list:
        node = container["image"]
        try:
            image = images.parse(node.text)
        except images.ImageRefused as error:
            mend = Text(gettext_noop("Write it as repository:version, such as ollama/ollama:0.24.0."))
            yield finding("image-invalid", node, error.text, mend, by="platform")
            continue
        if image.digest is None:
            yield finding(
                "image-not-by-digest",
                node,
                Text(gettext_noop("The image is named by a version, which its publisher may change.")),
                Text(gettext_noop("Add @sha256: and the digest to keep it as it is.")),
                by="advice",
                level="warning",
            )
