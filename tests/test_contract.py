"""The contract's rules: each fault is found, at its place, and nothing is found where nothing is wrong."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu import contract
from gpu.manifests import VolumeSpec, WorkloadSpec, render
from tests.contract_faults import CONTAINER, FAULTS, LABELS, POD, REQUEST
from tests.specs import PACKAGES, PLAIN
from tests.specs import slice_spec as spec

Document = dict[str, Any]
WITH_VOLUME = replace(PLAIN, volume=VolumeSpec("20Gi", "/data"), port=8080)


FIELDS = st.sampled_from(
    [
        *("apiVersion", "kind", "metadata", "spec", "name", "namespace", "labels", "annotations", "template"),
        *(
            "containers",
            "resources",
            "claims",
            "limits",
            "requests",
            "env",
            "image",
            "volumes",
            "strategy",
            "type",
        ),
        *(
            "devices",
            "exactly",
            "capacity",
            "memory",
            "cores",
            "securityContext",
            "capabilities",
            "drop",
            "affinity",
        ),
        *(
            "replicas",
            "selector",
            "matchLabels",
            "resourceClaims",
            "initContainers",
            "ownerReferences",
            "count",
        ),
    ]
)


def at(documents: list[Document], pointer: str) -> Any:
    """Return what stands at a JSON pointer."""
    value: Any = documents
    for step in pointer.split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        value = value[int(key)] if isinstance(value, list) else value[key]
    return value


def put(pointer: str, value: object) -> Callable[[list[Document]], None]:
    """Return a change that sets `value` at `pointer`; None as value takes the key out."""

    def change(documents: list[Document]) -> None:
        parent, _, last = pointer.rpartition("/")
        key = last.replace("~1", "/")
        if value is None:
            del at(documents, parent)[key]
        else:
            at(documents, parent)[key] = value

    return change


def found(change: Callable[[list[Document]], None], workload: WorkloadSpec = PLAIN) -> list[contract.Finding]:
    documents = copy.deepcopy(list(render(spec(workload))))
    change(documents)
    return list(contract.check(documents, PACKAGES))


@pytest.mark.parametrize(("pointer", "value", "rule", "place", "by"), FAULTS)
def test_a_fault_is_found_at_its_place(
    pointer: str, value: object, rule: str, place: str | None, by: str
) -> None:
    findings = [finding for finding in found(put(pointer, value)) if finding.rule == rule]
    assert findings, rule
    assert findings[0].by == by
    assert findings[0].place == (place or findings[0].place)
    assert findings[0].place.startswith(pointer[:2])
    for text in (findings[0].sentence, findings[0].mend):
        assert str(text).endswith((".", "]."))
        assert "%(" not in str(text)


def test_two_containers_are_refused() -> None:
    def change(documents: list[Document]) -> None:
        containers = at(documents, f"{POD}/containers")
        containers.append({**containers[0], "name": "second"})

    assert [f.rule for f in found(change)] == ["one-container"]


def test_two_requests_are_refused() -> None:
    def change(documents: list[Document]) -> None:
        requests = at(documents, "/0/spec/spec/devices/requests")
        requests.append({**requests[0], "name": "second"})

    assert [f.rule for f in found(change)] == ["one-request"]


@pytest.mark.parametrize(
    ("pointer", "value"),
    [
        (f"{REQUEST}/exactly/capacity/requests/memory", "8Gi"),
        (f"{REQUEST}/exactly/capacity/requests/memory", 8589934592),
        (f"{REQUEST}/exactly/capacity/requests/cores", 25),
        (f"{REQUEST}/exactly/count", None),
        (f"{REQUEST}/exactly/allocationMode", None),
        (f"{POD}/schedulerName", "default-scheduler"),
        (f"{POD}/nodeSelector", {}),
        (f"{POD}/initContainers", []),
        (f"{POD}/hostNetwork", False),
        (f"{CONTAINER}/envFrom", []),
        (f"{POD}/affinity", {"podAntiAffinity": {}}),
        (f"{POD}/volumes", [{"name": "a", "emptyDir": {}}, {"name": "b", "secret": {"secretName": "x"}}]),
        (f"{CONTAINER}/env", [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}}}]),
    ],
)
def test_what_the_platform_takes_is_not_refused(pointer: str, value: object) -> None:
    assert found(put(pointer, value)) == []


def test_a_null_counts_as_nothing_set() -> None:
    def change(documents: list[Document]) -> None:
        at(documents, f"{REQUEST}/exactly/capacity/requests")["cores"] = None
        at(documents, "/1/metadata/labels")["kube-dc.com/gpu-backend"] = None

    assert {"capacity-cores", "label-backend"} <= {finding.rule for finding in found(change)}


def test_one_more_label_on_both_sides_is_fine() -> None:
    def change(documents: list[Document]) -> None:
        for pointer in (
            f"/0{LABELS}",
            "/0/spec/metadata/labels",
            f"/1{LABELS}",
            "/1/spec/template/metadata/labels",
        ):
            at(documents, pointer)["team"] = "blue"

    assert found(change) == []


@pytest.mark.parametrize("package", [0, 1, 2])
def test_a_package_that_is_not_on_sale_is_refused(package: int) -> None:
    documents = render(spec(package=package))
    others = tuple(terms for terms in PACKAGES if terms != PACKAGES[package])
    assert contract.check(documents, PACKAGES) == ()
    assert {f.rule for f in contract.check(documents, others)} == {"label-profile"}
    assert contract.check(documents, ()) != ()


def test_packages_that_share_a_profile_are_told_apart_by_their_size() -> None:
    double = replace(PACKAGES[0], memory_mib=16384, compute_percent=50, device_class="other-class")
    for terms in (PACKAGES[0], double):
        documents = render(replace(spec(), terms=terms))
        assert contract.check(documents, (PACKAGES[0], double)) == ()


def test_two_replicas_with_a_volume_are_refused_and_without_one_warned() -> None:
    """Case C-06."""
    (without,) = found(put("/1/spec/replicas", 2))
    assert (without.rule, without.level) == ("replicas-not-one", "warning")
    (with_volume,) = found(put("/2/spec/replicas", 2), WITH_VOLUME)
    assert (with_volume.rule, with_volume.level, with_volume.place) == (
        "replicas-not-one",
        "refused",
        "/2/spec/replicas",
    )


def test_documents_are_compared_with_each_other() -> None:
    template, deployment = render(spec())
    (alone,) = contract.check([deployment], PACKAGES)
    assert (alone.rule, alone.level) == ("template-missing", "warning")
    other = render(spec(package=1))[0]
    assert {f.rule for f in contract.check([other, deployment], PACKAGES)} == {"template-of-another-package"}
    assert [f.rule for f in contract.check([template, deployment, template], PACKAGES)] == ["object-twice"]


def pod_owner(kind: str, pod: Document) -> Document:
    template = {"metadata": {}, "spec": pod}
    owner = {"jobTemplate": {"spec": {"template": template}}} if kind == "CronJob" else {"template": template}
    return {"apiVersion": "batch/v1", "kind": kind, "metadata": {"name": "pull"}, "spec": owner}


@pytest.mark.parametrize("kind", ["Job", "CronJob", "StatefulSet", "DaemonSet", "ReplicaSet"])
def test_a_claim_outside_a_deployment_never_works(kind: str) -> None:
    pod = copy.deepcopy(render(spec())[1]["spec"]["template"]["spec"])
    (finding,) = contract.check([pod_owner(kind, pod)], PACKAGES)
    assert (finding.rule, finding.by, finding.level) == ("not-a-deployment", "platform", "refused")
    del pod["resourceClaims"]
    assert contract.check([pod_owner(kind, pod)], PACKAGES) == ()
    pod["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = "1"
    (finding,) = contract.check([pod_owner(kind, pod)], PACKAGES)
    assert (finding.rule, finding.by) == ("nvidia-gpu", "platform")


def test_a_bare_pod_on_a_slice_is_refused() -> None:
    template = render(spec())[1]["spec"]["template"]
    pod = {"apiVersion": "v1", "kind": "Pod", **copy.deepcopy(template)}
    pod["metadata"]["name"] = "chat-1"
    assert [f.rule for f in contract.check([pod], PACKAGES)] == ["not-a-deployment"]
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "chat-1", "controller": True}
    pod["metadata"]["ownerReferences"] = [owner]
    assert contract.check([pod], PACKAGES) == ()
    pod["metadata"]["labels"] = {"app.kubernetes.io/name": "chat"}
    assert {"label-backend", "label-managed-by", "pod-labels"} <= {
        f.rule for f in contract.check([pod], PACKAGES)
    }


def test_what_only_the_platform_writes() -> None:
    claim = {"kind": "ResourceClaim", "metadata": {"name": "a"}}
    quota = {"kind": "ResourceQuota", "metadata": {"name": "project-quota"}}
    assert [f.rule for f in contract.check([claim, quota], PACKAGES)] == ["claim-written", "quota-reserved"]
    assert contract.check([{"kind": "ResourceQuota", "metadata": {"name": "gpu-portal"}}], PACKAGES) == ()


def test_a_deployment_without_a_slice_is_only_asked_for_cards() -> None:
    document = copy.deepcopy(render(spec())[1])
    for metadata in (document["metadata"], document["spec"]["template"]["metadata"]):
        metadata["labels"] = {"app.kubernetes.io/name": "chat"}
        metadata["annotations"] = {}
    pod = document["spec"]["template"]["spec"]
    del pod["resourceClaims"]
    document["spec"]["strategy"] = {"type": "RollingUpdate"}
    assert contract.check([document], PACKAGES) == ()
    pod["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = "1"
    assert [(f.rule, f.by) for f in contract.check([document], PACKAGES)] == [("nvidia-gpu", "platform")]


@pytest.mark.parametrize(
    "document", [{}, {"kind": 7}, {"kind": "Deployment", "spec": []}, {"kind": "Pod", "metadata": "x"}]
)
def test_anything_can_be_asked(document: Document) -> None:
    assert contract.check([document], PACKAGES)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-1, 3)
    | st.floats(0, 1)
    | st.sampled_from(["", "gpu", "x/y~z", "8Gi"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner, max_size=4),
    max_leaves=12,
)


@given(
    st.sampled_from(["/0", "/1", "/0/metadata", "/0/spec/spec", REQUEST, "/1/spec", POD, CONTAINER]),
    FIELDS,
    json_values,
)
def test_any_json_anywhere_gets_an_answer(pointer: str, field: str, value: object) -> None:
    documents = copy.deepcopy(list(render(spec())))
    target = at(documents, pointer)
    target[field] = value
    for finding in contract.check(documents, PACKAGES):
        assert finding.place.startswith(("/0", "/1"))
        assert str(finding.sentence)


def test_the_recorded_running_objects_are_within_the_contract() -> None:
    recorded = json.loads((Path(__file__).parent / "data" / "recorded" / "running.json").read_text())
    deployment = recorded["DeploymentList"][0]
    assert [(f.rule, f.level) for f in contract.check([deployment], PACKAGES)] == [
        ("template-missing", "warning")
    ]
