"""Thousands of manifests gone wrong: gpu.contract, the sandbox and the API server judge each of them alike."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dev.controlplane.client import Client
from gpu import contract
from gpu.manifests import SliceSpec, render
from sandbox.registry import Registry
from tests.clusters import PROJECT_LABELS, Target
from tests.mutations import bases, mutate
from tests.specs import PACKAGES
from tests.test_contract_agreement import registry, verdict

__all__ = ["registry"]  # a fixture of that module, used here too

pytestmark = pytest.mark.cluster

COUNT = 6000


@pytest.fixture
def portal(cluster: Target) -> Client:
    """The portal's client, in a cluster that has the namespace of the generated slices."""
    namespace = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "acme-ai", "labels": PROJECT_LABELS},
    }
    assert cluster.client().apply(namespace).ok
    return cluster.client("portal")


def judge(client: Client, document: Mapping[str, Any]) -> tuple[str, str]:
    """`accepted`, `policy` or `invalid`, and what the API says."""
    answer = client.create(dict(document), namespace="acme-ai", dry_run=True)
    if answer.ok:
        return "accepted", ""
    assert answer.status in (400, 403, 422), f"{answer.status} {answer.message}"
    return ("policy" if "ValidatingAdmissionPolicy" in answer.message else "invalid"), answer.message


def judged_kinds(documents: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Those that the contract speaks of; no policy looks at a Service or a volume claim.

    A generated name is left out: the contract wants one to be written, Kubernetes makes one up and judges that.
    """
    kinds = ("ResourceClaimTemplate", "Deployment")
    return [
        one for one in documents if one["kind"] in kinds and "generateName" not in one.get("metadata", {})
    ]


def disagreement(
    document: Mapping[str, Any], registry: Registry, portal: Client, counts: Counter[str]
) -> str:
    """What differs between the verdicts on a document; empty where all agree."""
    says, message = judge(portal, document)
    counts[says] += 1
    sandbox_says, sandbox_message = verdict(registry, dict(document))
    sentence, sandbox_sentence = (
        text.partition("ValidatingAdmissionPolicy")[2] for text in (message, sandbox_message)
    )
    if (says, sentence) != (sandbox_says, sandbox_sentence):  # what stands before may hold a generated name
        return f"{says} {message}; the sandbox says {sandbox_says} {sandbox_message}"
    # What decoding or validation refuses never reaches a policy.
    refused = [finding for finding in contract.check([document], PACKAGES) if finding.by == "policy"]
    if says != "invalid" and (says == "policy") != bool(refused):
        return f"{says} {message}; the contract says {[(one.rule, one.place) for one in refused]}"
    return ""


@pytest.mark.real
@pytest.mark.parametrize("cluster", ["controlplane"], indirect=True)
def test_three_verdicts_agree(registry: Registry, portal: Client, cluster: Target) -> None:
    counts: Counter[str] = Counter()
    seen: set[str] = set()

    # The same documents in every run: what differs is found where it was made, not in somebody else's commit.
    @settings(max_examples=COUNT, deadline=None, derandomize=True, database=None)
    @given(st.sampled_from(bases()), st.integers(0, 2**32 - 1))
    def agree(good: SliceSpec, seed: int) -> None:
        mutant = mutate(good, seed)
        for document in judged_kinds(mutant.documents):
            text = json.dumps(document, sort_keys=True)
            if text not in seen:
                assert disagreement(document, registry, portal, counts) == "", mutant.steps
                seen.add(text)

    agree()
    print(f"\n{len(seen)} different documents judged alike by three: {dict(counts)}")  # noqa: T201
    assert len(seen) > COUNT / 3
    assert counts["policy"] > COUNT / 10
    assert counts["accepted"] > COUNT / 20


def test_good_slices_are_accepted(portal: Client) -> None:
    for good in bases():
        for document in render(good):
            assert judge(portal, document) == ("accepted", "")
