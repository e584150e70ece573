"""Thousands of manifests gone wrong: gpu.contract, the sandbox and the API server judge each of them alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from dev.controlplane.client import Client
from gpu import contract
from sandbox.registry import Registry
from tests.clusters import PROJECT_LABELS, Target
from tests.mutations import generate
from tests.specs import PACKAGES
from tests.test_contract_agreement import registry, verdict

__all__ = ["registry"]  # a fixture of that module, used here too

pytestmark = pytest.mark.cluster

COUNT = 2000
SEED = 7


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
    """Those that the contract speaks of; no policy looks at a Service or a volume claim."""
    return [document for document in documents if document["kind"] in ("ResourceClaimTemplate", "Deployment")]


@pytest.mark.real
@pytest.mark.parametrize("cluster", ["controlplane"], indirect=True)
def test_three_verdicts_agree(registry: Registry, portal: Client, cluster: Target) -> None:
    counts: Counter[str] = Counter()
    differences = []
    for mutant in generate(SEED, COUNT):
        for document in judged_kinds(mutant.documents):
            says, message = judge(portal, document)
            sandbox_says, sandbox_message = verdict(registry, document)
            counts[says] += 1
            where = f"{document['kind']} {mutant.steps} seed {mutant.seed}: {says} {message}"
            if (says, message if says == "policy" else "") != (
                sandbox_says,
                sandbox_message if says == "policy" else "",
            ):
                differences.append(f"{where}; the sandbox says {sandbox_says} {sandbox_message}")
            # What decoding or validation refuses never reaches a policy.
            refused = [finding for finding in contract.check([document], PACKAGES) if finding.by == "policy"]
            if says != "invalid" and (says == "policy") != bool(refused):
                differences.append(f"{where}; the contract says {[(one.rule, one.place) for one in refused]}")
    judged = sum(counts.values())
    print(f"\n{judged} documents judged three ways against the {cluster.name}: {dict(counts)}")  # noqa: T201
    assert differences == [], f"{len(differences)} differ"
    assert counts["policy"] > COUNT / 2
    assert counts["accepted"] > COUNT / 2
