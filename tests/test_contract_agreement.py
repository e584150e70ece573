"""gpu.contract and the admission policies of deploy/ agree on thousands of manifests gone wrong.

The policies are evaluated by the sandbox's own write path: decoding, defaults, validation, then admission. What
decoding or validation refuses never reaches a policy, so there is nothing to compare.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest
import yaml

from gpu import contract
from sandbox.api import ApiError
from sandbox.kinds import BY_KIND
from sandbox.registry import Registry
from sandbox.schema import Schema
from sandbox.store import Store
from sandbox.writes import Call
from tests.mutations import Mutant, generate, pod_of
from tests.specs import PACKAGES

POLICIES = Path(__file__).parent.parent / "deploy" / "policies"
ADMIN = Call({"username": "admin", "groups": ["system:masters"]})
PORTAL = Call(
    {
        "username": "system:serviceaccount:gpu-portal:gpu-portal",
        "groups": ["system:serviceaccounts", "system:serviceaccounts:gpu-portal", "system:authenticated"],
    },
    dry_run=True,
)
COUNT = 4000
KINDS = ("ResourceClaimTemplate", "Deployment", "Pod")


@pytest.fixture(scope="module")
def registry() -> Registry:
    """An API with the policies of deploy/ and the project namespace acme-ai."""
    registry = Registry(Store(None), Schema())
    namespace = {"metadata": {"name": "acme-ai", "labels": {"kube-dc.com/project": ""}}}
    registry.create(BY_KIND["Namespace"], "", namespace, ADMIN)
    for path in sorted(POLICIES.glob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8")):
            registry.create(BY_KIND[document["kind"]], "", document, ADMIN)
    return registry


def verdict(registry: Registry, document: dict[str, object]) -> tuple[str, str]:
    """Return "accepted", "policy" or "invalid", and what the API says."""
    try:
        registry.create(BY_KIND[str(document["kind"])], "acme-ai", document, PORTAL)
    except ApiError as error:
        message = str(error.body["message"])
        return ("policy" if "ValidatingAdmissionPolicy" in message else "invalid"), message
    return "accepted", ""


def compare(registry: Registry, mutant: Mutant, counts: Counter[str], seen: set[str]) -> list[str]:
    """Judge each document of a mutant both ways, each once; what differs."""
    differences = []
    pods = [
        pod_of(document, mutant.seed) for document in mutant.documents if document["kind"] == "Deployment"
    ]
    for document in [*mutant.documents, *pods]:
        if document is None or document["kind"] not in KINDS:
            continue
        text = json.dumps(document, sort_keys=True)
        if text in seen:
            continue
        seen.add(text)
        says, message = verdict(registry, document)
        findings = contract.check([document], PACKAGES)
        refusing = [finding for finding in findings if finding.by == "policy"]
        counts[says] += 1
        if says == "invalid":
            counts["invalid, found"] += any(f.level == "refused" for f in findings)
            continue
        if (says == "policy") != bool(refusing):
            told = [(finding.rule, finding.place) for finding in findings]
            differences.append(
                f"{document['kind']} {mutant.steps} seed {mutant.seed}: {says} {message}; we say {told}"
            )
    return differences


def test_contract_and_policies_agree(registry: Registry) -> None:
    counts: Counter[str] = Counter()
    seen: set[str] = set()
    differences = [line for mutant in generate(1, COUNT) for line in compare(registry, mutant, counts, seen)]
    judged = counts["accepted"] + counts["policy"]
    print(f"\n{judged} different documents judged, {len(differences)} not alike: {dict(counts)}")  # noqa: T201
    assert differences == []
    assert judged > 2000
    assert counts["policy"] > 1000
    assert counts["accepted"] > 500


def test_good_slices_are_accepted(registry: Registry) -> None:
    for mutant in generate(1, 9):
        assert mutant.steps == ()
        for document in mutant.documents:
            assert verdict(registry, document) == ("accepted", "")


def test_every_rule_of_the_policies_is_reached(registry: Registry) -> None:
    """Mutants that never hit a rule would prove nothing about it."""
    policies = [
        d for path in POLICIES.glob("*.yaml") for d in yaml.safe_load_all(path.read_text(encoding="utf-8"))
    ]
    wanted = {
        re.sub(r"\s+", " ", rule["message"]).strip()
        for policy in policies
        if policy["metadata"]["name"] in ("kube-dc-dra-gpu-claim-templates", "kube-dc-dra-gpu-deployments")
        and policy["kind"] == "ValidatingAdmissionPolicy"
        for rule in policy["spec"]["validations"]
    }
    said: set[str] = set()
    for mutant in generate(2, 2000):
        for document in mutant.documents:
            said.add(verdict(registry, document)[1].partition("denied request: ")[2])
        if wanted <= said:
            break
    assert wanted - said == set()
