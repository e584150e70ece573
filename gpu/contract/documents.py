"""Whole documents against the contract: each by itself, and those that are applied together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpu import names
from gpu.contract import pods, rules, security, shapes
from gpu.contract.claim_templates import check_claim_template
from gpu.contract.finding import Finding
from gpu.contract.rules import finding, remove_it
from gpu.contract.tree import Node, malformed
from gpu.manifest_spec import PackageTerms
from gpu.messages import Text, gettext_noop

RESERVED_QUOTAS = ("hrq.hnc.x-k8s.io", "project-quota")

_SHAPES = {
    "ResourceClaimTemplate": shapes.CLAIM_TEMPLATE,
    "Deployment": shapes.DEPLOYMENT,
    "Pod": shapes.POD,
    "CronJob": shapes.CRON_JOB,
    **dict.fromkeys(("Job", "StatefulSet", "DaemonSet", "ReplicaSet"), shapes.POD_OWNER),
}


def check(documents: Sequence[Mapping[str, Any]], packages: Sequence[PackageTerms]) -> tuple[Finding, ...]:
    """Return everything wrong with `documents`, which are applied together, given the packages on sale.

    A finding's place begins with the number of its document. Those with `by == "policy"` are what the admission
    policies of deploy/policies refuse when a project's member or the portal writes the document; those by the
    "platform" are refused in another way or later; those by "advice" are not refused at all.
    """
    nodes = [Node(document, f"/{number}") for number, document in enumerate(documents)]
    found: list[Finding] = []
    sound: list[Node] = []
    for node in nodes:
        faults = tuple(malformed(node, _SHAPES.get(node["kind"].text, shapes.OTHER)))
        found.extend(faults)
        if not faults:
            found.extend(_document(node, packages))
            sound.append(node)
    if len(sound) == len(nodes):
        found.extend(_together(sound))
    return tuple(found)


def _document(document: Node, packages: Sequence[PackageTerms]) -> Iterator[Finding]:
    kind = document["kind"].text
    if kind == "ResourceClaimTemplate":
        yield from check_claim_template(document, packages)
    elif kind == "Deployment":
        yield from _deployment(document, packages)
    elif kind == "Pod":
        yield from _pod(document)
    elif kind == "ResourceClaim":
        yield finding(
            "claim-written",
            document,
            Text(gettext_noop("Claims are made by the cluster from a template; nobody else writes them.")),
            remove_it(),
        )
    elif kind == "ResourceQuota" and document["metadata/name"].text in RESERVED_QUOTAS:
        yield finding(
            "quota-reserved",
            document["metadata/name"],
            Text(gettext_noop("This quota belongs to the platform's own accounts.")),
            Text(gettext_noop("Use another name.")),
        )
    elif kind == "CronJob":
        yield from _other_owner(document["spec/jobTemplate/spec/template"])
    elif kind in _SHAPES:
        yield from _other_owner(document["spec/template"])


def _deployment(document: Node, packages: Sequence[PackageTerms]) -> Iterator[Finding]:
    metadata, template = document["metadata"], document["spec/template"]
    pod = template["spec"]
    yield from _accepted(document)
    yield from security.check_security(pod)
    if not (pods.uses_a_slice(metadata, pod) or pods.uses_a_slice(template["metadata"], pod)):
        yield from pods.as_later_refusal(pods.check_no_card(pod))
        return
    offered = rules.products(metadata, packages)
    yield from rules.check_labels(metadata, packages)
    yield from rules.check_same_labels(metadata, template["metadata"])
    yield from rules.check_annotations(metadata, template["metadata"], offered)
    yield from _strategy(document["spec/strategy"])
    yield from pods.check_pod(pod, names.claim_template_name(metadata["name"].text))
    app = metadata["labels"].texts.get(names.LABEL_NAME)
    if app is not None and app != metadata["name"].text:
        yield finding(
            "name-differs-from-label",
            metadata["name"],
            Text(
                gettext_noop(
                    "Name and label differ: the Deployment is accepted, and every pod of it is refused."
                )
            ),
            Text(gettext_noop("Name the Deployment %(name)s."), {"name": app}),
            by="platform",
            suggest=app,
        )
    yield from security.check_amounts(pod)
    yield from security.check_image(pod)


def _accepted(document: Node) -> Iterator[Finding]:
    """Yield what Kubernetes itself does not take of a Deployment."""
    metadata, labels = document["metadata"], document["spec/template/metadata/labels"].texts
    if not names.is_object_name(metadata["name"].text):
        yield finding(
            "name-invalid",
            metadata["name"],
            Text(gettext_noop("The name does not do for a Service and a label as well.")),
            Text(gettext_noop("Use up to 63 small letters, digits and “-”, a letter first.")),
            by="platform",
        )
    yield from rules.check_label_values(metadata)
    selector = document["spec/selector/matchLabels"].texts
    if not selector or not selector.items() <= labels.items():
        yield finding(
            "selector",
            document["spec/selector"],
            Text(gettext_noop("The selector does not select the pods of this Deployment.")),
            Text(gettext_noop("Set matchLabels to app.kubernetes.io/name and the workload's name.")),
            by="platform",
        )


def _strategy(strategy: Node) -> Iterator[Finding]:
    if strategy["type"].text != "Recreate":
        yield finding(
            "strategy",
            strategy["type"],
            Text(gettext_noop("A slice has to be given back before its successor takes it.")),
            Text(gettext_noop("Set the strategy's type to Recreate.")),
            suggest="Recreate",
        )
    if strategy["rollingUpdate"].present:
        yield finding(
            "strategy-rolling-update",
            strategy["rollingUpdate"],
            Text(gettext_noop("With Recreate there is nothing to roll.")),
            remove_it(),
        )


def _pod(document: Node) -> Iterator[Finding]:
    metadata, pod = document["metadata"], document["spec"]
    yield from security.check_security(pod)
    if not pods.uses_a_slice(metadata, pod):
        yield from pods.check_no_card(pod)
        return
    owners = [o for o in metadata["ownerReferences"].list if o["controller"].value is True]
    if not any(o["kind"].text == "ReplicaSet" and o["apiVersion"].text.startswith("apps/") for o in owners):
        yield _not_a_deployment(document["kind"])
    app = metadata["labels"].texts.get(names.LABEL_NAME, "")
    # Of a pod the policy asks only that there is a profile, not which.
    yield from (f for f in rules.check_labels(metadata, ()) if f.rule != "label-profile")
    if not app or names.LABEL_PROFILE not in metadata["labels"].texts:
        yield finding(
            "pod-labels",
            metadata["labels"],
            Text(gettext_noop("A pod on a slice carries the workload's name and the profile as labels.")),
            Text(gettext_noop("Let a Deployment make the pod.")),
        )
    yield from pods.check_pod(pod, names.claim_template_name(app))


def _other_owner(template: Node) -> Iterator[Finding]:
    """Yield what is wrong with a Job or its like: it is accepted, and on a slice its pods are refused."""
    yield from security.check_security(template["spec"])
    yield from pods.as_later_refusal(pods.check_no_card(template["spec"]))
    if pods.uses_a_slice(template["metadata"], template["spec"]):
        yield from pods.as_later_refusal(iter([_not_a_deployment(template)]))


def _not_a_deployment(node: Node) -> Finding:
    return finding(
        "not-a-deployment",
        node,
        Text(gettext_noop("Only a Deployment can use a slice: pods made by anything else are refused.")),
        Text(gettext_noop("Use a Deployment. A Job beside it carries no claim and no GPU label.")),
    )


def _together(documents: Sequence[Node]) -> Iterator[Finding]:
    by_kind: dict[str, list[Node]] = {}
    for document in documents:
        by_kind.setdefault(document["kind"].text, []).append(document)
    seen: set[tuple[str, ...]] = set()
    for document in documents:
        key = tuple(document[path].text for path in ("kind", "metadata/namespace", "metadata/name"))
        if key in seen:
            yield finding(
                "object-twice",
                document["metadata/name"],
                Text(gettext_noop("The same object is there twice; the second would overwrite the first.")),
                remove_it(),
                by="platform",
            )
        seen.add(key)
    for deployment in by_kind.get("Deployment", ()):
        yield from _beside(deployment, by_kind)


def _beside(deployment: Node, by_kind: Mapping[str, Sequence[Node]]) -> Iterator[Finding]:
    """Compare a Deployment with its claim template and its volume."""
    pod = deployment["spec/template/spec"]
    replicas = deployment["spec/replicas"]
    templates = {node["metadata/name"].text: node for node in by_kind.get("ResourceClaimTemplate", ())}
    for claim in pod["resourceClaims"].list:
        template = templates.get(claim["resourceClaimTemplateName"].text)
        if template is None:
            yield finding(
                "template-missing",
                claim,
                Text(
                    gettext_noop(
                        "The claim template is not among these documents; without it the pod waits for ever."
                    )
                ),
                Text(gettext_noop("Apply it first, or see that it is there.")),
                by="platform",
                level="warning",
            )
        elif template["metadata/labels"].texts != deployment["metadata/labels"].texts:
            yield finding(
                "template-of-another-package",
                template["metadata/labels"],
                Text(gettext_noop("Claim template and Deployment do not carry the same labels.")),
                Text(gettext_noop("Give both the labels of one package.")),
                by="advice",
            )
    if not isinstance(replicas.value, int) or replicas.value <= 1:
        return
    writable = any(volume["persistentVolumeClaim"].present for volume in pod["volumes"].list)
    if writable:
        sentence = Text(gettext_noop("Two containers cannot share this volume: only one may write to it."))
    else:
        sentence = Text(gettext_noop("Each further container takes a slice of its own."))
    yield finding(
        "replicas-not-one",
        replicas,
        sentence,
        Text(gettext_noop("Order a second slice for a second container.")),
        by="platform" if writable else "advice",
        level="refused" if writable else "warning",
        suggest="1",
    )
