"""Rules that claim templates and Deployments share: labels, annotations, the products on sale."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from gpu import names
from gpu.contract.finding import By, Finding, Level
from gpu.contract.tree import Node, pointer_of
from gpu.manifest_spec import PackageTerms
from gpu.manifests import ANNOTATION_CORES, ANNOTATION_HASH, ANNOTATION_MEMORY
from gpu.messages import Count, Text, gettext_noop

ANNOTATIONS = (ANNOTATION_HASH, ANNOTATION_MEMORY, ANNOTATION_CORES)
_HASH = re.compile(r"[0-9a-f]{64}")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")


def finding(
    rule: str,
    place: Node | str,
    sentence: Text,
    mend: Text,
    *,
    by: By = "policy",
    level: Level = "refused",
    suggest: str | None = None,
) -> Finding:
    """Make a finding at a node or JSON pointer."""
    pointer = place if isinstance(place, str) else place.pointer
    return Finding(rule, pointer, sentence, mend, level, by, suggest)


def remove_it() -> Text:
    """Return the mend of every field that must not be there."""
    return Text(gettext_noop("Remove it."))


def products(metadata: Node, packages: Sequence[PackageTerms]) -> list[PackageTerms]:
    """Return the packages that the profile label names; several may share a profile."""
    profile = metadata["labels"].texts.get(names.LABEL_PROFILE)
    return [terms for terms in packages if terms.profile_id == profile]


def check_labels(metadata: Node, packages: Sequence[PackageTerms]) -> Iterator[Finding]:
    """Yield what is wrong with the four labels of an object."""
    labels = metadata["labels"]
    found = labels.texts
    if names.LABEL_NAME not in found:
        yield finding(
            "label-name",
            pointer_of(labels, names.LABEL_NAME),
            Text(gettext_noop("The label %(label)s is missing."), {"label": names.LABEL_NAME}),
            Text(gettext_noop("Set it to the workload's name.")),
        )
    for label, wanted, rule in (
        (names.LABEL_MANAGED_BY, names.MANAGED_BY, "label-managed-by"),
        (names.LABEL_BACKEND, names.BACKEND, "label-backend"),
    ):
        if found.get(label) != wanted:
            yield finding(
                rule,
                pointer_of(labels, label),
                Text(
                    gettext_noop("The label %(label)s has to be “%(wanted)s”."),
                    {"label": label, "wanted": wanted},
                ),
                Text(gettext_noop("Set it to %(wanted)s."), {"wanted": wanted}),
                suggest=wanted,
            )
    if not products(metadata, packages):
        profiles = ", ".join(sorted({terms.profile_id for terms in packages}))
        yield finding(
            "label-profile",
            pointer_of(labels, names.LABEL_PROFILE),
            Text(
                gettext_noop("The label %(label)s names no package on sale."), {"label": names.LABEL_PROFILE}
            ),
            Text(gettext_noop("Set it to one of: %(profiles)s."), {"profiles": profiles}),
        )


def check_same_labels(outer: Node, inner: Node) -> Iterator[Finding]:
    """Yield a finding when the label map handed on is not the object's own, as a whole."""
    if outer["labels"].texts != inner["labels"].texts:
        yield finding(
            "label-maps-differ",
            inner["labels"],
            Text(gettext_noop("The labels here and on the object itself have to be the same, all of them.")),
            Text(gettext_noop("Copy the object's labels; one more on one side only is refused.")),
        )


def check_label_values(metadata: Node) -> Iterator[Finding]:
    """Yield a finding for each label value that Kubernetes itself does not take."""
    for node in metadata["labels"].map.values():
        if len(node.text) > names.MAX_LABEL_LENGTH or not _LABEL_VALUE.fullmatch(node.text):
            yield finding(
                "label-value-invalid",
                node,
                Text(
                    gettext_noop("A label's value has at most %(limit)s letters, digits, “-”, “_” and “.”."),
                    {"limit": Count(names.MAX_LABEL_LENGTH)},
                ),
                Text(gettext_noop("Choose a shorter or plainer name.")),
                by="platform",
            )


def check_annotations(outer: Node, inner: Node, offered: Sequence[PackageTerms]) -> Iterator[Finding]:
    """Yield what is wrong with the three annotations of an object and of what it hands on."""
    found = outer["annotations"].texts
    if not _HASH.fullmatch(found.get(ANNOTATION_HASH, "")):
        yield finding(
            "annotation-hash",
            pointer_of(outer["annotations"], ANNOTATION_HASH),
            Text(
                gettext_noop("The annotation %(name)s has to be 64 digits 0-9 and a-f."),
                {"name": ANNOTATION_HASH},
            ),
            Text(gettext_noop("Set it to the SHA-256 of the manifest, on the object and inside.")),
        )
    handed_on = inner["annotations"].texts
    for name in ANNOTATIONS:
        if name not in handed_on or handed_on[name] != found.get(name):
            yield finding(
                "annotations-differ",
                pointer_of(inner["annotations"], name),
                Text(
                    gettext_noop("The annotation %(name)s has to be the same here and on the object."),
                    {"name": name},
                ),
                Text(gettext_noop("Copy it from the object.")),
            )
    size = (found.get(ANNOTATION_MEMORY), found.get(ANNOTATION_CORES))
    if offered and size not in [(str(terms.memory_mib), str(terms.compute_percent)) for terms in offered]:
        terms = offered[0]
        yield finding(
            "annotation-size",
            outer["annotations"],
            Text(
                gettext_noop(
                    "The annotations of the slice's size do not match the package of the profile label."
                )
            ),
            Text(
                gettext_noop(
                    "Set gpu-memory-mib to “%(memory)s” and gpu-core-percent to “%(cores)s”, in quotes."
                ),
                {"memory": str(terms.memory_mib), "cores": str(terms.compute_percent)},
            ),
        )
