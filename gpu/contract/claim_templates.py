"""The rules for a ResourceClaimTemplate: one request for one device of a package on sale, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal

from gpu import names, quantities
from gpu.contract import rules
from gpu.contract.finding import Finding
from gpu.contract.rules import finding, remove_it
from gpu.contract.tree import Node, pointer_of
from gpu.manifest_spec import PackageTerms
from gpu.manifests import ANNOTATION_CORES, ANNOTATION_MEMORY, CLAIM
from gpu.messages import Text, gettext_noop


def check_claim_template(template: Node, packages: Sequence[PackageTerms]) -> Iterator[Finding]:
    """Yield what is wrong with a well-formed ResourceClaimTemplate."""
    metadata, handed_on = template["metadata"], template["spec/metadata"]
    offered = rules.products(metadata, packages)
    yield from rules.check_label_values(metadata)
    yield from rules.check_labels(metadata, packages)
    app = metadata["labels"].texts.get(names.LABEL_NAME)
    if app is not None and metadata["name"].text != names.claim_template_name(app):
        yield finding(
            "template-name",
            metadata["name"],
            Text(gettext_noop("The claim template is not named after the workload.")),
            Text(gettext_noop("Name it %(name)s."), {"name": names.claim_template_name(app)}),
            suggest=names.claim_template_name(app),
        )
    yield from rules.check_same_labels(metadata, handed_on)
    yield from rules.check_annotations(metadata, handed_on, offered)
    yield from _extras(template["spec/spec/devices"])
    requests = template["spec/spec/devices/requests"]
    if len(requests.list) != 1:
        yield finding(
            "one-request",
            requests,
            Text(gettext_noop("A claim asks for exactly one slice.")),
            Text(gettext_noop("Keep one request, named gpu. Order a second slice for a second one.")),
        )
        return
    yield from _request(requests.list[0], metadata, offered)


def _extras(devices: Node) -> Iterator[Finding]:
    for key in ("constraints", "config"):
        if devices[key].given:
            yield finding(
                f"template-{key}",
                devices[key],
                Text(gettext_noop("The claim template must not hold %(field)s."), {"field": key}),
                remove_it(),
            )


def _request(request: Node, metadata: Node, offered: Sequence[PackageTerms]) -> Iterator[Finding]:
    if request["name"].text != CLAIM:
        yield finding(
            "request-name",
            request["name"],
            Text(gettext_noop("The request has to be named gpu.")),
            Text(gettext_noop("Name it gpu.")),
            suggest=CLAIM,
        )
    exactly = request["exactly"]
    unwanted = [request["firstAvailable"], exactly["selectors"], exactly["tolerations"]]
    for node in [
        *(node for node in unwanted if node.given),
        *([exactly["adminAccess"]] * exactly["adminAccess"].present),
    ]:
        field = node.pointer.rsplit("/", 1)[-1]
        yield finding(
            f"request-{field}",
            node,
            Text(gettext_noop("The request must not hold %(field)s."), {"field": field}),
            remove_it(),
        )
    # Left out, both are filled in by the API server: ExactCount and 1.
    mode, count = exactly["allocationMode"], exactly["count"]
    if mode.value not in (None, "", "ExactCount"):
        yield finding(
            "request-allocation-mode",
            mode,
            Text(gettext_noop("The allocation mode has to be ExactCount.")),
            Text(gettext_noop("Set it to ExactCount.")),
            suggest="ExactCount",
        )
    if count.value not in (None, 0, 1):
        yield finding(
            "request-count",
            count,
            Text(gettext_noop("A slice is one device.")),
            Text(gettext_noop("Set the count to 1. Order a second slice for a second one.")),
            suggest="1",
        )
    yield from _size(exactly, metadata, offered)


def _size(exactly: Node, metadata: Node, offered: Sequence[PackageTerms]) -> Iterator[Finding]:
    """Compare DeviceClass and capacity with the packages of the profile label."""
    capacity = exactly["capacity/requests"]
    if set(capacity.map) != {"memory", "cores"}:
        yield finding(
            "capacity-keys",
            capacity,
            Text(gettext_noop("The capacity has to hold exactly two entries, memory and cores.")),
            Text(gettext_noop("Set both as the package has them, and nothing else.")),
        )
    if not offered:
        return
    annotations = metadata["annotations"].texts
    size = (annotations.get(ANNOTATION_MEMORY), annotations.get(ANNOTATION_CORES))
    # Several packages may share a profile: the one that the annotations name is meant.
    terms = next((t for t in offered if size == (str(t.memory_mib), str(t.compute_percent))), offered[0])
    if exactly["deviceClassName"].text != terms.device_class:
        yield finding(
            "device-class",
            exactly["deviceClassName"],
            Text(gettext_noop("The DeviceClass is not that of the package.")),
            Text(gettext_noop("Set it to %(name)s."), {"name": terms.device_class}),
            suggest=terms.device_class,
        )
    for key, wanted, written in (
        ("memory", Decimal(terms.memory_mib) * 1024**2, f"{terms.memory_mib}Mi"),
        ("cores", Decimal(terms.compute_percent), str(terms.compute_percent)),
    ):
        node = capacity.map.get(key)
        if node is not None and _value(node) != wanted:
            yield finding(
                f"capacity-{key}",
                node,
                Text(
                    gettext_noop("The package has %(wanted)s here; a slice has a fixed size."),
                    {"wanted": written},
                ),
                Text(gettext_noop("Set it to %(wanted)s, or choose another package."), {"wanted": written}),
                suggest=written,
            )
        elif node is None:
            yield finding(
                f"capacity-{key}",
                pointer_of(capacity, key),
                Text(gettext_noop("The capacity does not say how much %(key)s."), {"key": key}),
                Text(gettext_noop("Set it to %(wanted)s."), {"wanted": written}),
                suggest=written,
            )


def _value(node: Node) -> Decimal | None:
    try:
        return quantities.parse(str(node.value))
    except quantities.QuantityError:
        return None
