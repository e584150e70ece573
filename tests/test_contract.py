"""The contract's rules: each fault is found, at its place, and nothing is found where nothing is wrong."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpu import contract, templates_catalogue
from gpu.images import Ceiling
from gpu.manifests import EnvVar, Probe, Probes, VolumeSpec, WorkloadSpec, render
from gpu.messages import Text
from tests.specs import DIGEST, PACKAGES, PLAIN
from tests.specs import slice_spec as spec

Document = dict[str, Any]
WITH_VOLUME = replace(PLAIN, volume=VolumeSpec("20Gi", "/data"), port=8080)
POD = "/1/spec/template/spec"
CONTAINER = f"{POD}/containers/0"
REQUEST = "/0/spec/spec/devices/requests/0"


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


LABELS = "/metadata/labels"
ANNOTATIONS = "/metadata/annotations"

# What is changed, the rule that must be found, where, and who refuses.
FAULTS = [
    # Claim template
    (
        f"/0{LABELS}/app.kubernetes.io~1name",
        None,
        "label-name",
        f"/0{LABELS}/app.kubernetes.io~1name",
        "policy",
    ),
    (f"/0{LABELS}/app.kubernetes.io~1managed-by", "me", "label-managed-by", None, "policy"),
    (
        f"/0{LABELS}/kube-dc.com~1gpu-backend",
        None,
        "label-backend",
        f"/0{LABELS}/kube-dc.com~1gpu-backend",
        "policy",
    ),
    (f"/0{LABELS}/kube-dc.com~1gpu-profile", "nvidia-a100", "label-profile", None, "policy"),
    (f"/0{LABELS}/team", "blue", "label-maps-differ", "/0/spec/metadata/labels", "policy"),
    ("/0/spec/metadata", None, "label-maps-differ", "/0/spec/metadata/labels", "policy"),
    ("/0/metadata/name", "other-gpu", "template-name", "/0/metadata/name", "policy"),
    (f"/0{ANNOTATIONS}/kube-dc.com~1gpu-workload-hash", "0" * 63, "annotation-hash", None, "policy"),
    (f"/0{ANNOTATIONS}/kube-dc.com~1gpu-workload-hash", "A" * 64, "annotation-hash", None, "policy"),
    (f"/0{ANNOTATIONS}/kube-dc.com~1gpu-workload-hash", "0" * 64, "annotations-differ", None, "policy"),
    (
        f"/0{ANNOTATIONS}/kube-dc.com~1gpu-memory-mib",
        "16384",
        "annotation-size",
        f"/0{ANNOTATIONS}",
        "policy",
    ),
    (f"/0{ANNOTATIONS}/kube-dc.com~1gpu-core-percent", None, "annotation-size", f"/0{ANNOTATIONS}", "policy"),
    (f"/0{ANNOTATIONS}/kube-dc.com~1gpu-memory-mib", 8192, "malformed", f"/0{ANNOTATIONS}", "platform"),
    ("/0/spec/spec/devices/constraints", [{"requests": ["gpu"]}], "template-constraints", None, "policy"),
    ("/0/spec/spec/devices/config", [{"opaque": {}}], "template-config", None, "policy"),
    ("/0/spec/spec/devices/requests", [], "one-request", "/0/spec/spec/devices/requests", "policy"),
    ("/0/spec/spec/devices", None, "one-request", "/0/spec/spec/devices/requests", "policy"),
    (f"{REQUEST}/name", "card", "request-name", f"{REQUEST}/name", "policy"),
    (f"{REQUEST}/firstAvailable", [{"name": "a"}], "request-firstAvailable", None, "policy"),
    (f"{REQUEST}/exactly/selectors", [{"cel": {}}], "request-selectors", None, "policy"),
    (f"{REQUEST}/exactly/tolerations", [{"key": "a"}], "request-tolerations", None, "policy"),
    (f"{REQUEST}/exactly/adminAccess", False, "request-adminAccess", None, "policy"),
    (f"{REQUEST}/exactly/allocationMode", "All", "request-allocation-mode", None, "policy"),
    (f"{REQUEST}/exactly/count", 2, "request-count", f"{REQUEST}/exactly/count", "policy"),
    (f"{REQUEST}/exactly/deviceClassName", PACKAGES[1].device_class, "device-class", None, "policy"),
    (f"{REQUEST}/exactly/capacity/requests/memory", "8191Mi", "capacity-memory", None, "policy"),
    (f"{REQUEST}/exactly/capacity/requests/cores", "50", "capacity-cores", None, "policy"),
    (f"{REQUEST}/exactly/capacity/requests/cores", None, "capacity-keys", None, "policy"),
    (f"{REQUEST}/exactly/capacity/requests/shares", "1", "capacity-keys", None, "policy"),
    (
        f"{REQUEST}/exactly/capacity",
        None,
        "capacity-memory",
        f"{REQUEST}/exactly/capacity/requests/memory",
        "policy",
    ),
    (f"{REQUEST}/exactly/capacity", "8Gi", "malformed", f"{REQUEST}/exactly/capacity", "platform"),
    # Deployment
    (
        f"/1{LABELS}/kube-dc.com~1gpu-profile",
        None,
        "label-profile",
        f"/1{LABELS}/kube-dc.com~1gpu-profile",
        "policy",
    ),
    (
        "/1/spec/template/metadata/labels/team",
        "blue",
        "label-maps-differ",
        "/1/spec/template/metadata/labels",
        "policy",
    ),
    (f"/1{ANNOTATIONS}/kube-dc.com~1gpu-workload-hash", None, "annotation-hash", None, "policy"),
    ("/1/spec/template/metadata/annotations", None, "annotations-differ", None, "policy"),
    (f"/1{ANNOTATIONS}/kube-dc.com~1gpu-core-percent", "50", "annotation-size", f"/1{ANNOTATIONS}", "policy"),
    ("/1/spec/strategy", None, "strategy", "/1/spec/strategy/type", "policy"),
    ("/1/spec/strategy/type", "RollingUpdate", "strategy", "/1/spec/strategy/type", "policy"),
    ("/1/spec/strategy/rollingUpdate", {"maxSurge": 1}, "strategy-rolling-update", None, "policy"),
    (f"{POD}/initContainers", [{"name": "a"}], "one-container", f"{POD}/initContainers", "policy"),
    (f"{POD}/ephemeralContainers", [{"name": "a"}], "one-container", f"{POD}/ephemeralContainers", "policy"),
    (f"{POD}/resourceClaims", None, "pod-claim", f"{POD}/resourceClaims", "policy"),
    (f"{POD}/resourceClaims/0/name", "card", "pod-claim", f"{POD}/resourceClaims", "policy"),
    (
        f"{POD}/resourceClaims/0/resourceClaimTemplateName",
        "other-gpu",
        "pod-claim",
        f"{POD}/resourceClaims",
        "policy",
    ),
    (f"{POD}/resourceClaims", [{"name": "gpu", "resourceClaimName": "x"}], "pod-claim", None, "policy"),
    (f"{CONTAINER}/resources/claims", None, "container-claim", f"{CONTAINER}/resources/claims", "policy"),
    (f"{CONTAINER}/resources/claims", [{"name": "gpu", "request": "x"}], "container-claim", None, "policy"),
    (f"{CONTAINER}/resources/limits/nvidia.com~1gpu", "1", "nvidia-gpu", None, "policy"),
    (
        f"{CONTAINER}/resources/requests/deviceclass.resource.kubernetes.io~1x",
        "1",
        "nvidia-gpu",
        None,
        "policy",
    ),
    (f"{POD}/schedulerName", "mine", "placement", f"{POD}/schedulerName", "policy"),
    (f"{POD}/nodeName", "gpu-node-1", "placement", f"{POD}/nodeName", "policy"),
    (f"{POD}/nodeSelector", {"a": "b"}, "placement", f"{POD}/nodeSelector", "policy"),
    (f"{POD}/affinity", {"nodeAffinity": {}}, "placement", f"{POD}/affinity/nodeAffinity", "policy"),
    (f"{POD}/runtimeClassName", "nvidia", "placement", f"{POD}/runtimeClassName", "policy"),
    (f"{POD}/hostNetwork", True, "host-access", f"{POD}/hostNetwork", "policy"),
    (f"{POD}/hostPID", True, "host-access", f"{POD}/hostPID", "policy"),
    (f"{POD}/hostIPC", True, "host-access", f"{POD}/hostIPC", "policy"),
    (
        f"{POD}/volumes",
        [{"name": "a", "hostPath": {"path": "/"}}],
        "host-access",
        f"{POD}/volumes/0/hostPath",
        "policy",
    ),
    (f"{CONTAINER}/securityContext/privileged", True, "privileged", None, "policy"),
    (f"{CONTAINER}/securityContext/capabilities/add", ["NET_ADMIN"], "privileged", None, "policy"),
    (f"{CONTAINER}/volumeDevices", [{"name": "a"}], "container-volumeDevices", None, "policy"),
    (f"{CONTAINER}/envFrom", [{"secretRef": {"name": "a"}}], "container-envFrom", None, "policy"),
    # Accepted by the policies and refused in another way, or later
    (f"/1{LABELS}/app.kubernetes.io~1name", "a" * 64, "label-value-invalid", None, "platform"),
    ("/1/metadata/name", "3d", "name-invalid", "/1/metadata/name", "platform"),
    ("/1/metadata/name", "other", "name-differs-from-label", "/1/metadata/name", "platform"),
    ("/1/spec/selector/matchLabels", {"app": "x"}, "selector", "/1/spec/selector", "platform"),
    (
        f"{CONTAINER}/resources/limits/cpu",
        None,
        "requests-missing",
        f"{CONTAINER}/resources/limits/cpu",
        "platform",
    ),
    (f"{CONTAINER}/resources/requests", None, "requests-missing", None, "platform"),
    (f"{CONTAINER}/resources/limits/memory", "512Mi", "limit-below-request", None, "platform"),
    (f"{CONTAINER}/resources/limits/cpu", "lots", "quantity-invalid", None, "platform"),
    (
        f"{CONTAINER}/env",
        [{"name": "A", "value": 16384}],
        "malformed",
        f"{CONTAINER}/env/0/value",
        "platform",
    ),
    (f"{CONTAINER}/image", "", "image-invalid", f"{CONTAINER}/image", "platform"),
    (f"{POD}/securityContext", None, "pod-security", None, "platform"),
    (f"{POD}/securityContext/runAsNonRoot", None, "pod-security", None, "platform"),
    (
        f"{CONTAINER}/securityContext/runAsUser",
        0,
        "pod-security",
        f"{CONTAINER}/securityContext/runAsUser",
        "platform",
    ),
    (f"{CONTAINER}/securityContext", None, "pod-security", None, "platform"),
    (f"{CONTAINER}/securityContext/capabilities/drop", [], "pod-security", None, "platform"),
    (f"{POD}/volumes", [{"name": "a", "nfs": {}}], "volume-type", f"{POD}/volumes/0/nfs", "platform"),
    (f"{POD}/containers", None, "missing", f"{POD}/containers", "platform"),
    ("/1/spec/template", None, "missing", "/1/spec/template", "platform"),
    ("/1/metadata", {}, "missing", "/1/metadata", "platform"),
    # Nobody refuses it
    (f"{CONTAINER}/image", "a/b:1.0", "image-not-by-digest", f"{CONTAINER}/image", "advice"),
    ("/1/spec/replicas", 2, "replicas-not-one", "/1/spec/replicas", "advice"),
]


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


def test_the_recorded_running_objects_are_within_the_contract() -> None:
    recorded = json.loads((Path(__file__).parent / "data" / "recorded" / "running.json").read_text())
    deployment = recorded["DeploymentList"][0]
    assert [(f.rule, f.level) for f in contract.check([deployment], PACKAGES)] == [
        ("template-missing", "warning")
    ]


def rules_of(workload: WorkloadSpec, **options: Any) -> set[tuple[str, str, str]]:
    return {(f.rule, f.place, f.level) for f in contract.check_workload(workload, **options)}


def with_env(*pairs: tuple[str, str], template: str = "custom") -> WorkloadSpec:
    return replace(PLAIN, env=tuple(EnvVar(*pair) for pair in pairs), template=template)


def with_volume(**fields: Any) -> WorkloadSpec:
    return replace(PLAIN, volume=VolumeSpec(**{"size": "20Gi", "mount_path": "/data", **fields}))


NAME = ("refused", "env.0.name")
FORM_FAULTS = [
    (replace(PLAIN, image=""), "image-invalid", "image", "refused"),
    (replace(PLAIN, image="ollama/ollama"), "image-not-pinned", "image", "refused"),
    (replace(PLAIN, image="a/b:latest"), "image-not-pinned", "image", "refused"),
    (replace(PLAIN, image="a/b:1"), "image-not-by-digest", "image", "warning"),
    (replace(PLAIN, image="ollama/ollama:0.30.0"), "image-bad", "image", "warning"),
    (replace(PLAIN, image="ollama/ollama:0.30.5"), "image-bad", "image", "warning"),
    (replace(PLAIN, image="ollama/ollama:0.26.0"), "image-untested", "image", "warning"),
    (replace(PLAIN, image=f"ollama/ollama@{DIGEST}"), "image-version-unknown", "image", "warning"),
    (replace(PLAIN, template="other"), "template-unknown", "template", "refused"),
    (replace(PLAIN, command=("sh", "a\x00b")), "control-characters", "command.1", "refused"),
    (replace(PLAIN, args=("\ud800",)), "control-characters", "args.0", "refused"),
    (replace(PLAIN, args=("x" * 32769,)), "value-too-long", "args.0", "refused"),
    (replace(PLAIN, args=("x",) * 65), "too-many-words", "args", "refused"),
    (with_env(("1A", "x")), "env-name-invalid", "env.0.name", "refused"),
    (with_env(("A", "x"), ("", "x")), "env-name-invalid", "env.1.name", "refused"),
    (with_env(("A=B", "x")), "env-name-invalid", "env.0.name", "refused"),
    (with_env(("A\n", "x")), "env-name-invalid", "env.0.name", "refused"),
    (with_env(("A" * 129, "x")), "env-name-invalid", "env.0.name", "refused"),
    (with_env(("A", "x"), ("A", "y")), "env-name-twice", "env.1.name", "refused"),
    (with_env(("NVIDIA_VISIBLE_DEVICES", "all")), "env-name-reserved", "env.0.name", "refused"),
    (with_env(("CUDA_DEVICE_MEMORY_LIMIT_0", "32g")), "env-name-reserved", "env.0.name", "refused"),
    (with_env(("A", "\x1b[0m")), "control-characters", "env.0.value", "refused"),
    (with_env(("A", "ä" * 16385)), "value-too-long", "env.0.value", "refused"),
    (with_env(*((f"A{n}", "") for n in range(101))), "too-many-variables", "env", "refused"),
    (with_env(*((f"A{n}", "x" * 30000) for n in range(5))), "workload-too-large", "env", "refused"),
    (
        with_env(("OLLAMA_CONTEXT_LENGTH", "16.384"), template="ollama"),
        "setting-invalid",
        "env.0.value",
        "refused",
    ),
    (replace(PLAIN, port=0), "port-invalid", "port", "refused"),
    (replace(PLAIN, port=65536), "port-invalid", "port", "refused"),
    (replace(PLAIN, port=80), "port-privileged", "port", "warning"),
    (replace(PLAIN, cpu_limit=""), "requests-missing", "cpu_limit", "refused"),
    (replace(PLAIN, cpu_request="lots"), "quantity-invalid", "cpu_request", "refused"),
    (replace(PLAIN, cpu_request="0"), "quantity-not-positive", "cpu_request", "refused"),
    (replace(PLAIN, memory_limit="-1Gi"), "quantity-not-positive", "memory_limit", "refused"),
    (replace(PLAIN, cpu_request="0.0005"), "quantity-too-fine", "cpu_request", "refused"),
    (replace(PLAIN, cpu_limit="500Mi"), "quantity-too-large", "cpu_limit", "refused"),
    (replace(PLAIN, memory_limit="2Ei"), "quantity-too-large", "memory_limit", "refused"),
    (replace(PLAIN, memory_request="512m"), "quantity-too-small", "memory_request", "refused"),
    (replace(PLAIN, memory_limit="8589934592.5"), "quantity-too-fine", "memory_limit", "refused"),
    (replace(PLAIN, cpu_limit="250m"), "limit-below-request", "cpu_limit", "refused"),
    (replace(PLAIN, memory_limit="1023Mi"), "limit-below-request", "memory_limit", "refused"),
    (
        replace(PLAIN, template="ollama", memory_limit="2Gi"),
        "memory-below-template",
        "memory_limit",
        "warning",
    ),
    (replace(PLAIN, template="ollama"), "volume-missing", "volume", "warning"),
    (with_volume(size="20"), "quantity-too-small", "volume.size", "refused"),
    (with_volume(size="big"), "quantity-invalid", "volume.size", "refused"),
    (with_volume(mount_path="data"), "mount-path-invalid", "volume.mount_path", "refused"),
    (with_volume(mount_path=""), "mount-path-invalid", "volume.mount_path", "refused"),
    (with_volume(mount_path="/a/../etc"), "mount-path-invalid", "volume.mount_path", "refused"),
    (with_volume(mount_path="/a:b"), "mount-path-invalid", "volume.mount_path", "refused"),
    (with_volume(mount_path="/a\n"), "mount-path-invalid", "volume.mount_path", "refused"),
    (with_volume(mount_path="/a//b"), "mount-path-invalid", "volume.mount_path", "refused"),
    (with_volume(mount_path="/"), "mount-path-system", "volume.mount_path", "refused"),
    (with_volume(mount_path="/etc/"), "mount-path-system", "volume.mount_path", "refused"),
    (with_volume(mount_path="/proc/1"), "mount-path-system", "volume.mount_path", "refused"),
    (with_volume(mount_path="/var/run/secrets/x"), "mount-path-system", "volume.mount_path", "refused"),
    (with_volume(storage_class="Fast!"), "storage-class-invalid", "volume.storage_class", "refused"),
    (
        replace(PLAIN, probes=Probes(startup=Probe(path="/"))),
        "probe-without-port",
        "probes.startup.port",
        "refused",
    ),
    (
        replace(PLAIN, port=8080, probes=Probes(startup=Probe(path="x"))),
        "probe-path-invalid",
        "probes.startup.path",
        "refused",
    ),
    (
        replace(PLAIN, probes=Probes(liveness=Probe(port=0))),
        "port-invalid",
        "probes.liveness.port",
        "refused",
    ),
    (
        replace(PLAIN, port=8080, probes=Probes(readiness=Probe(period=0))),
        "probe-number-invalid",
        "probes.readiness.period",
        "refused",
    ),
    (
        replace(PLAIN, port=8080, probes=Probes(liveness=Probe(failures=1))),
        "liveness-hasty",
        "probes.liveness.failures",
        "warning",
    ),
]


@pytest.mark.parametrize(("workload", "rule", "place", "level"), FORM_FAULTS)
def test_a_fault_in_the_form_is_found_at_its_field(
    workload: WorkloadSpec, rule: str, place: str, level: str
) -> None:
    assert (rule, place, level) in rules_of(workload)


@pytest.mark.parametrize(
    "workload",
    [
        PLAIN,
        with_env(("A.b-C_1", "line\nline\ttab"), ("-x", "")),
        with_volume(mount_path="/data/models/"),
        with_volume(mount_path="/home/jovyan", storage_class="ceph.rbd-1"),
        replace(PLAIN, cpu_request="0.5", cpu_limit="1e0", memory_limit="2G", memory_request="1000M"),
        replace(PLAIN, image=f"ollama/ollama:0.9.6@{DIGEST}", port=1024),
        replace(PLAIN, template="ollama", memory_limit="4Gi", volume=VolumeSpec("1Mi", "/data")),
    ],
)
def test_nothing_is_found_where_nothing_is_wrong(workload: WorkloadSpec) -> None:
    assert contract.check_workload(workload) == ()


@pytest.mark.parametrize(
    ("workload", "place", "suggest"),
    [
        (replace(PLAIN, image="ollama/ollama:0.30.0"), "image", "ollama/ollama:0.24.0"),
        (replace(PLAIN, image="ollama/ollama"), "image", "ollama/ollama:0.24.0"),
        (
            replace(PLAIN, template="ollama", memory_limit="512Mi", memory_request="512Mi"),
            "memory_limit",
            "4Gi",
        ),
        (replace(PLAIN, memory_limit="512m"), "memory_limit", "512Mi"),
        (replace(PLAIN, memory_limit="4 GB"), "memory_limit", "4Gi"),
        (replace(PLAIN, memory_limit="4g"), "memory_limit", "4Gi"),
        (replace(PLAIN, cpu_limit="500Mi"), "cpu_limit", "500m"),
        (replace(PLAIN, cpu_request="2"), "cpu_limit", "2"),
        (with_volume(mount_path="/etc"), "volume.mount_path", "/data"),
    ],
)
def test_a_mend_is_offered_that_mends(workload: WorkloadSpec, place: str, suggest: str) -> None:
    (finding,) = [f for f in contract.check_workload(workload) if f.suggest and f.place == place]
    assert finding.suggest == suggest
    mended = (
        replace(workload, volume=replace(workload.volume, mount_path=suggest))
        if workload.volume and "." in place
        else replace(workload, **{place: suggest})
    )
    assert finding.rule not in {f.rule for f in contract.check_workload(mended)}


def test_the_image_matrix_is_an_argument() -> None:
    workload = replace(PLAIN, image=f"a/b:2@{DIGEST}")
    assert contract.check_workload(workload) == ()
    ceiling = Ceiling("a/b", "V100", "1", "2", "a/b:1", "It needs a newer card.")
    (finding,) = contract.check_workload(workload, ceilings=[ceiling])
    assert (finding.rule, finding.suggest) == ("image-bad", "a/b:1")
    assert "It needs a newer card." in str(finding.sentence)
    assert contract.check_workload(replace(PLAIN, image=f"ollama/ollama:0.30.0@{DIGEST}"), ceilings=[]) == ()


def test_an_operator_may_demand_digests() -> None:
    workload = replace(PLAIN, image="a/b:1")
    assert ("image-not-by-digest", "image", "warning") in rules_of(workload)
    assert ("image-not-by-digest", "image", "refused") in rules_of(workload, require_digest=True)
    assert rules_of(PLAIN, require_digest=True) == set()


def test_the_form_refuses_two_replicas() -> None:
    """Case C-06."""
    for workload in (PLAIN, WITH_VOLUME):
        assert rules_of(workload, replicas=2) == {("replicas-not-one", "replicas", "refused")}
        assert rules_of(workload, replicas=0) == set()


def test_an_accepted_workload_stays_below_256_kib() -> None:
    value = 'x"\\\n' * 2000
    workload = with_env(*((f"A{n}", value) for n in range(7)))
    workload = replace(workload, args=("y" * 20000,))
    assert contract.check_workload(workload) == ()
    assert len(json.dumps(render(spec(workload)))) < 256 * 1024


def test_a_template_as_it_is_offered_has_only_the_advice_of_a_digest() -> None:
    for template in templates_catalogue.TEMPLATES.values():
        rules = {f.rule for f in contract.check_workload(template.first())}
        assert rules == ({"image-not-by-digest"} if template.defaults.image else {"image-invalid"}), (
            template.code
        )


def test_every_sentence_can_be_shown() -> None:
    for workload, *_ in FORM_FAULTS:
        for finding in contract.check_workload(workload):
            assert isinstance(finding.sentence, Text)
            assert str(finding.sentence)
            assert "%(" not in str(finding.sentence) + str(finding.mend)
