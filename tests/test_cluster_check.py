"""The look at a cluster before it is used: each line can fail by itself, and says how to mend it."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpu.cluster.check import RIGHTS, Line, check
from gpu.cluster.client import Cluster, ClusterSettings, connect
from gpu.entitlements import QUOTA_NAME
from gpu.manifests import PackageTerms
from tests.fake_api import Answer, Asked, FakeApi, Reply, as_json, status_object

TERMS = PackageTerms("class-8g", "nvidia-v100-hami", 8192, 25)
RBAC = Path(__file__).parent.parent / "deploy" / "rbac" / "portal.yaml"


def version(minor: str) -> Reply:
    return as_json({"major": "1", "minor": minor, "gitVersion": f"v1.{minor}.0"})


def echoed(asked: Asked) -> Reply:
    return as_json(asked.json, 201)


def without_capacity(asked: Asked) -> Reply:
    stored = copy.deepcopy(asked.json)
    del stored["spec"]["spec"]["devices"]["requests"][0]["exactly"]["capacity"]
    return as_json(stored, 201)


def allowed(asked: Asked) -> Reply:
    return as_json({**asked.json, "status": {"allowed": True}}, 201)


def no_secrets(asked: Asked) -> Reply:
    attributes = asked.json["spec"]["resourceAttributes"]
    denied = attributes["resource"] == "secrets" and attributes["verb"] == "patch"
    return as_json({**asked.json, "status": {"allowed": not denied}}, 201)


WELL: dict[str, Answer] = {
    "GET ^/version": version("36"),
    "GET ^/apis/resource.k8s.io/v1\\?": as_json({"kind": "APIResourceList"}),
    "PATCH /resourceclaimtemplates/gpu-portal-check-gpu": echoed,
    "GET /deviceclasses/class-8g": as_json({"metadata": {"name": "class-8g"}}),
    "POST /selfsubjectaccessreviews": allowed,
}


@pytest.fixture
def api() -> Iterator[FakeApi]:
    with FakeApi() as server:
        yield server


def look(api: FakeApi, folder: Path, **changed: Answer) -> tuple[Line, ...]:
    names = {"version": 0, "served": 1, "template": 2, "device_class": 3, "right": 4}
    answers = list(WELL.items())
    for name, answer in changed.items():
        answers[names[name]] = (answers[names[name]][0], answer)
    for rule, answer in answers:
        method, pattern = rule.split(" ")
        api.on(method, pattern, answer)
    return check(cluster_of(api, folder), [TERMS, TERMS], "acme-ai")


def cluster_of(api: FakeApi, folder: Path) -> Cluster:
    (folder / "kubeconfig").write_text(api.kubeconfig())
    return connect(ClusterSettings(str(folder / "kubeconfig")))


def test_all_is_well(api: FakeApi, tmp_path: Path) -> None:
    lines = look(api, tmp_path)
    assert len(lines) == 4 + len(RIGHTS)
    assert all(line.ok and line.mend is None for line in lines)
    writes = [each for each in api.asked if each.method == "PATCH"]
    assert [each.query["dryRun"] for each in writes] == ["All"]


@pytest.mark.parametrize(
    ("changed", "code", "words"),
    [
        ({"version": version("33+")}, "version", "1.34"),
        ({"served": Reply(404, b"404 page not found\n")}, "resource_api", "resource.k8s.io/v1"),
        ({"template": without_capacity}, "capacity", "DRAConsumableCapacity"),
        (
            {
                "template": status_object(
                    422,
                    "Invalid",
                    "ValidatingAdmissionPolicy 'writers' with binding 'writers' denied request: "
                    "GPU claim templates must be managed through the kube-dc API.",
                )
            },
            "capacity",
            "name the portal's service account in the policy writers",
        ),
        (
            {"device_class": status_object(404, "NotFound", "gone", name="class-8g", kind="deviceclasses")},
            "device_class",
            "class-8g",
        ),
        ({"right": no_secrets}, "right", "patch on secrets"),
    ],
)
def test_one_fault_is_one_line_with_its_mend(
    changed: dict[str, Any], code: str, words: str, api: FakeApi, tmp_path: Path
) -> None:
    bad = [line for line in look(api, tmp_path, **changed) if not line.ok]
    assert [line.code for line in bad] == [code]
    assert bad[0].ok is False
    assert words in str(bad[0].mend)


def test_a_cluster_that_does_not_answer_is_one_line(api: FakeApi, tmp_path: Path) -> None:
    (line,) = look(api, tmp_path, version=Reply(-1))
    assert (line.code, line.ok) == ("reachable", False)
    assert line.mend is not None


def test_a_question_without_an_answer_stays_open(api: FakeApi, tmp_path: Path) -> None:
    lines = look(api, tmp_path, right=Reply(500))
    assert {line.ok for line in lines if line.code == "right"} == {None}


def test_without_a_project_the_size_stays_open(api: FakeApi, tmp_path: Path) -> None:
    look(api, tmp_path)
    lines = check(cluster_of(api, tmp_path), [TERMS], None)
    assert [line.ok for line in lines if line.code == "capacity"] == [None]


def test_rights_are_those_that_deploy_grants() -> None:
    role = next(each for each in yaml.safe_load_all(RBAC.read_text()) if each["kind"] == "ClusterRole")
    granted = {
        (group, resource, verb, name)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        for name in rule.get("resourceNames", [""])
    }
    granted.remove(("authorization.k8s.io", "selfsubjectaccessreviews", "create", ""))  # what asks
    asked = {
        (right.group, "/".join(filter(None, (right.resource, right.subresource))), verb, right.name)
        for right in RIGHTS
        for verb in right.verbs
    }
    assert asked == granted


def test_the_named_quota_is_the_portals() -> None:
    assert {right.name for right in RIGHTS} == {"", QUOTA_NAME}
