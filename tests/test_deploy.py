"""What an operator installs: complete, consistent, and with no right that the portal does not need."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from dev.controlplane import install
from gpu.entitlements import QUOTA_NAME
from gpu.manifests import ANNOTATION_SLICE
from sandbox.cel import Cel

DEPLOY = Path(__file__).resolve().parent.parent / "deploy"
DOCUMENTS = install.documents()
POLICIES = [document for document in DOCUMENTS if document["kind"] == "ValidatingAdmissionPolicy"]
PORTAL = "system:serviceaccount:gpu-portal:gpu-portal"

type Doc = dict[str, Any]


def of_kind(kind: str) -> list[Doc]:
    return [document for document in DOCUMENTS if document["kind"] == kind]


def named(name: str) -> Doc:
    return next(policy for policy in POLICIES if policy["metadata"]["name"] == name)


def expressions(policy: Doc) -> list[str]:
    spec = policy["spec"]
    parts = [*spec.get("matchConditions", []), *spec.get("variables", []), *spec["validations"]]
    return [part["expression"] for part in parts]


def products(policy: Doc) -> dict[str, str]:
    """The literal map of products in a policy."""
    [text] = [one["expression"] for one in policy["spec"]["variables"] if one["name"] == "products"]
    found = Cel().evaluate(text, {})
    assert isinstance(found, dict)
    return found


def test_kustomize_gives_every_document() -> None:
    kubectl = Path(sys.executable).with_name("kubectl")
    answer = subprocess.run([kubectl, "kustomize", DEPLOY], capture_output=True, text=True, check=True)
    built = {(one["kind"], one["metadata"]["name"]) for one in yaml.safe_load_all(answer.stdout)}
    assert built == {(one["kind"], one["metadata"]["name"]) for one in DOCUMENTS}


def test_every_file_is_listed() -> None:
    listed = set(yaml.safe_load((DEPLOY / "kustomization.yaml").read_text())["resources"])
    files = {
        str(path.relative_to(DEPLOY))
        for folder in ("policies", "rbac", "deviceclasses")
        for path in (DEPLOY / folder).glob("*.yaml")
    }
    assert files <= listed


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy["metadata"]["name"])
class TestPolicy:
    def test_it_is_bound_and_denies(self, policy: Doc) -> None:
        [binding] = [
            one
            for one in of_kind("ValidatingAdmissionPolicyBinding")
            if one["spec"]["policyName"] == policy["metadata"]["name"]
        ]
        assert binding["metadata"]["name"] == policy["metadata"]["name"]
        assert binding["spec"]["validationActions"] == ["Deny"]
        assert policy["spec"]["failurePolicy"] == "Fail"

    def test_it_concerns_projects_by_their_label(self, policy: Doc) -> None:
        selector = policy["spec"]["matchConstraints"]["namespaceSelector"]
        outside = {"matchExpressions": [{"key": "kube-dc.com/project", "operator": "DoesNotExist"}]}
        assert selector in ({"matchLabels": {"kube-dc.com/project": ""}}, outside)

    def test_its_expressions_are_plain_cel(self, policy: Doc) -> None:
        for expression in expressions(policy):
            Cel().compile(expression)
            assert not re.search(
                r"\b(quantity|isQuantity|url|authorizer|find|findAll|sum|cel\.bind)\s*\(", expression
            )

    def test_every_refusal_is_a_sentence(self, policy: Doc) -> None:
        for rule in policy["spec"]["validations"]:
            assert re.fullmatch(r"[A-Z].{20,250}\.", rule["message"]), rule["message"]


def test_both_policies_know_the_same_products() -> None:
    first, second = (
        products(named(f"kube-dc-dra-gpu-{part}")) for part in ("claim-templates", "deployments")
    )
    assert first == second
    classes = {
        one["metadata"]["labels"]["kube-dc.com/gpu-profile"]: one["metadata"]["name"]
        for one in of_kind("DeviceClass")
    }
    assert {profile: text.split()[0] for profile, text in first.items()} == classes


def test_device_classes_select_the_cards_of_the_inventory() -> None:
    for device_class in of_kind("DeviceClass"):
        [selector] = device_class["spec"]["selectors"]
        assert 'device.driver == "hami-core-gpu.project-hami.io"' in selector["cel"]["expression"]
        assert '.productName == "Tesla V100-PCIE-32GB"' in selector["cel"]["expression"]


def test_the_portal_is_called_the_same_everywhere() -> None:
    [account] = of_kind("ServiceAccount")
    assert (account["metadata"]["namespace"], account["metadata"]["name"]) == install.ACCOUNT
    [binding] = of_kind("ClusterRoleBinding")
    assert binding["subjects"] == [
        {"kind": "ServiceAccount", "name": "gpu-portal", "namespace": "gpu-portal"}
    ]
    for name in ("kube-dc-dra-gpu-managed-writes", "gpu-portal-project-namespaces", "gpu-portal-own-objects"):
        assert any(PORTAL in expression for expression in expressions(named(name))), name


def test_quota_and_annotation_are_those_of_the_portal() -> None:
    text = " ".join(expressions(named("gpu-portal-own-objects")))
    assert f"request.name == '{QUOTA_NAME}'" in text
    assert f"'{ANNOTATION_SLICE}' in" in text
    [role] = of_kind("ClusterRole")
    names = [rule["resourceNames"] for rule in role["rules"] if "resourceNames" in rule]
    assert names == [[QUOTA_NAME]]


def test_the_role_is_least() -> None:
    [role] = of_kind("ClusterRole")
    granted: dict[str, set[str]] = {}
    for rule in role["rules"]:
        assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]
        for resource in rule["resources"]:
            granted.setdefault(resource, set()).update(rule["verbs"])
    for verbs in granted.values():
        assert not verbs & {"update", "deletecollection", "escalate", "bind", "impersonate"}
    assert granted["secrets"] == {"create", "patch", "delete"}, "written, never read"
    assert granted["pods"] == {"get", "list", "watch", "delete"}
    assert granted["resourceclaims"] == {"get", "list", "watch"}
    never = {"nodes", "configmaps", "serviceaccounts", "pods/exec", "pods/attach", "pods/portforward"}
    assert not never & granted.keys()
