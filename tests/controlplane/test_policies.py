"""Every row of the GPU contract, as the admission policies of `deploy/` judge it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.clusters import Target, refusal
from tests.controlplane.documents import GONE, changed, claim_template, deployment, pod

DATA = Path(__file__).resolve().parent.parent / "data" / "recorded"

pytestmark = pytest.mark.cluster

L, A = "/metadata/labels", "/metadata/annotations"
NAME, BACKEND, PROFILE = "app.kubernetes.io~1name", "kube-dc.com~1gpu-backend", "kube-dc.com~1gpu-profile"
MANAGED = "app.kubernetes.io~1managed-by"
HASH, MIB, CORES = (f"kube-dc.com~1gpu-{part}" for part in ("workload-hash", "memory-mib", "core-percent"))
REQUEST = "/spec/spec/devices/requests/0"
EXACTLY = f"{REQUEST}/exactly"
POD = "/spec/template/spec"
BOX = f"{POD}/containers/0"

LABELS = "must carry the labels app.kubernetes.io/name, app.kubernetes.io/managed-by=kube-dc"
ANNOTATIONS = "must carry the annotations kube-dc.com/gpu-workload-hash (64 hex digits)"
SAME = "must carry the same labels"
FIXED = "must match the selected fixed product."
PRODUCT = "DRA GPU claim capacity and DeviceClass must match the selected fixed product."
REQUESTS = "must hold exactly one request named gpu for exactly one device"
RECREATE = "must use Recreate so quota is released before a replacement claim is requested."
CLAIM = "must reference the canonical generated claim."
ONE = "must have exactly one container, and no init or ephemeral containers."
PLACE = "must not set schedulerName, nodeName, nodeSelector, nodeAffinity or runtimeClassName."
HOST = "must not use host namespaces or hostPath volumes."
PRIVILEGED = "must not be privileged or add capabilities."
ENV = "must not use volumeDevices or envFrom."
NVIDIA = "must not request nvidia.com/gpu"

CLASS = {"deviceClassName": "kube-dc-nvidia-v100-shared-8g"}
PLAIN = {"app.kubernetes.io/name": "probe"}
CARD = {"nvidia.com/gpu": "1"}
RESTRICTED = {"securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}}

Changes = tuple[tuple[str, Any], ...]

TEMPLATE_ROWS: dict[str, tuple[Changes, str]] = {
    "as rendered": ((), ""),
    "defaults left out": (((f"{EXACTLY}/allocationMode", GONE), (f"{EXACTLY}/count", GONE)), ""),
    "one more label on both": (((f"{L}/team", "a"), ("/spec/metadata/labels/team", "a")), ""),
    "one more label on one": (((f"{L}/team", "a"),), SAME),
    "one more label under spec": ((("/spec/metadata/labels/team", "a"),), SAME),
    "no labels": (((L, GONE),), LABELS),
    "no name label": (((f"{L}/{NAME}", GONE),), LABELS),
    "no managed-by": (((f"{L}/{MANAGED}", GONE),), LABELS),
    "other managed-by": (((f"{L}/{MANAGED}", "helm"),), LABELS),
    "no backend": (((f"{L}/{BACKEND}", GONE),), LABELS),
    "other backend": (((f"{L}/{BACKEND}", "hami"),), LABELS),
    "no profile": (((f"{L}/{PROFILE}", GONE),), LABELS),
    "unknown profile": (((f"{L}/{PROFILE}", "nvidia-a100"),), LABELS),
    "profile of another product": (
        ((f"{L}/{PROFILE}", "nvidia-v100-hami-16g"), (f"/spec/metadata/labels/{PROFILE}", "nvidia-v100-hami-16g")),
        PRODUCT,
    ),
    "other name": ((("/metadata/name", "probe"),), "must be named after their app.kubernetes.io/name"),
    "no spec.metadata": ((("/spec/metadata", GONE),), SAME),
    "no spec labels": ((("/spec/metadata/labels", GONE),), SAME),
    "no annotations": (((A, GONE),), ANNOTATIONS),
    "no spec annotations": ((("/spec/metadata/annotations", GONE),), ANNOTATIONS),
    "no hash": (((f"{A}/{HASH}", GONE),), ANNOTATIONS),
    "short hash": (((f"{A}/{HASH}", "ab"), (f"/spec/metadata/annotations/{HASH}", "ab")), ANNOTATIONS),
    "hashes differ": (((f"{A}/{HASH}", "0" * 64),), ANNOTATIONS),
    "no memory": (((f"{A}/{MIB}", GONE),), ANNOTATIONS),
    "no cores": (((f"{A}/{CORES}", GONE),), ANNOTATIONS),
    "another annotation": (((f"{A}/note", "mine"),), ""),
    "annotations of another size": (
        ((f"{A}/{MIB}", "16384"), (f"/spec/metadata/annotations/{MIB}", "16384")), PRODUCT,
    ),
    "another size": (((f"{EXACTLY}/capacity/requests/memory", "16Gi"),), PRODUCT),
    "the same size in Gi": (((f"{EXACTLY}/capacity/requests/memory", "8Gi"),), ""),
    "the same size in bytes": (((f"{EXACTLY}/capacity/requests/memory", "8589934592"),), ""),
    "other cores": (((f"{EXACTLY}/capacity/requests/cores", "50"),), PRODUCT),
    "no cores asked": (((f"{EXACTLY}/capacity/requests/cores", GONE),), PRODUCT),
    "no memory asked": (((f"{EXACTLY}/capacity/requests/memory", GONE),), PRODUCT),
    "a third capacity": (((f"{EXACTLY}/capacity/requests/bandwidth", "1"),), PRODUCT),
    "no capacity": (((f"{EXACTLY}/capacity", GONE),), PRODUCT),
    "other class": (((f"{EXACTLY}/deviceClassName", "kube-dc-nvidia-v100-shared-16g"),), PRODUCT),
    "two devices": (((f"{EXACTLY}/count", 2),), REQUESTS),
    "all devices": (((f"{EXACTLY}/allocationMode", "All"), (f"{EXACTLY}/count", GONE)), REQUESTS),
    "other request name": (((f"{REQUEST}/name", "card"),), REQUESTS),
    "selectors": (((f"{EXACTLY}/selectors", [{"cel": {"expression": "true"}}]),), REQUESTS),
    "tolerations": (((f"{EXACTLY}/tolerations", [{"operator": "Exists"}]),), REQUESTS),
    "adminAccess false": (((f"{EXACTLY}/adminAccess", False),), REQUESTS),
    "constraints": (
        (("/spec/spec/devices/constraints", [{"requests": ["gpu"], "matchAttribute": "a.example.test/b"}]),), REQUESTS,
    ),
    "config": (
        (("/spec/spec/devices/config", [{"opaque": {"driver": "a.example.test", "parameters": {"a": 1}}}]),), REQUESTS,
    ),
    "no requests": ((("/spec/spec/devices", GONE),), REQUESTS),
    "two requests": ((("/spec/spec/devices/requests/-", {"name": "b", "exactly": CLASS}),), REQUESTS),
    "firstAvailable": (((REQUEST, {"name": "gpu", "firstAvailable": [{"name": "a", **CLASS}]}),), REQUESTS),
}  # fmt: skip

DEPLOYMENT_ROWS: dict[str, tuple[Changes, str]] = {
    "as rendered": ((), ""),
    "one more label on both": (((f"{L}/team", "a"), (f"/spec/template{L}/team", "a")), ""),
    "one more label on one": (((f"{L}/team", "a"),), SAME),
    "one more label on the pod": (((f"/spec/template{L}/team", "a"),), SAME),
    "no labels": (((L, GONE),), LABELS),
    "no managed-by": (((f"{L}/{MANAGED}", GONE),), LABELS),
    "no backend": (((f"{L}/{BACKEND}", GONE),), LABELS),
    "no backend on the pod": (((f"/spec/template{L}/{BACKEND}", GONE),), SAME),
    "no profile": (((f"{L}/{PROFILE}", GONE),), LABELS),
    "unknown profile": (((f"{L}/{PROFILE}", "nvidia-a100"),), LABELS),
    "only the claim tells": (((L, PLAIN), (f"/spec/template{L}", PLAIN)), LABELS),
    "no annotations": (((A, GONE),), ANNOTATIONS),
    "no pod annotations": (((f"/spec/template{A}", GONE),), ANNOTATIONS),
    "hashes differ": (((f"{A}/{HASH}", "0" * 64),), ANNOTATIONS),
    "short hash": (((f"{A}/{HASH}", "0"), (f"/spec/template{A}/{HASH}", "0")), ANNOTATIONS),
    "another size": (((f"{A}/{MIB}", "16384"), (f"/spec/template{A}/{MIB}", "16384")), FIXED),
    "RollingUpdate": ((("/spec/strategy", {"type": "RollingUpdate"}),), RECREATE),
    "no strategy": ((("/spec/strategy", GONE),), RECREATE),
    "two containers": (((f"{POD}/containers/-", {"name": "b", "image": "b:1"}),), ONE),
    "init container": (((f"{POD}/initContainers", [{"name": "b", "image": "b:1"}]),), ONE),
    "no claim in the pod": (((f"{POD}/resourceClaims", GONE), (f"{BOX}/resources/claims", GONE)), CLAIM),
    "no claim in the container": (((f"{BOX}/resources/claims", GONE),), CLAIM),
    "other claim name": (((f"{POD}/resourceClaims/0/name", "card"), (f"{BOX}/resources/claims/0/name", "card")), CLAIM),
    "other template": (((f"{POD}/resourceClaims/0/resourceClaimTemplateName", "other-gpu"),), CLAIM),
    "a claim of its own": (((f"{POD}/resourceClaims/0", {"name": "gpu", "resourceClaimName": "mine"}),), CLAIM),
    "two claims": (((f"{POD}/resourceClaims/-", {"name": "b", "resourceClaimTemplateName": "b-gpu"}),), CLAIM),
    "request of a claim": (((f"{BOX}/resources/claims/0/request", "gpu"),), CLAIM),
    "name differs from label": (
        (("/metadata/name", "other"), (f"{POD}/resourceClaims/0/resourceClaimTemplateName", "other-gpu")), "",
    ),
    "schedulerName": (((f"{POD}/schedulerName", "mine"),), PLACE),
    "default schedulerName": (((f"{POD}/schedulerName", "default-scheduler"),), ""),
    "nodeName": (((f"{POD}/nodeName", "gpu-node-1"),), PLACE),
    "nodeSelector": (((f"{POD}/nodeSelector", {"a": "b"}),), PLACE),
    "empty nodeSelector": (((f"{POD}/nodeSelector", {}),), ""),
    "nodeAffinity": (
        ((f"{POD}/affinity", {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]}}}),), PLACE,
    ),
    "podAntiAffinity": (
        ((f"{POD}/affinity", {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"a": "b"}}}]}}),), "",
    ),
    "runtimeClassName": (((f"{POD}/runtimeClassName", "nvidia"),), PLACE),
    "hostNetwork": (((f"{POD}/hostNetwork", True),), HOST),
    "hostNetwork false": (((f"{POD}/hostNetwork", False),), ""),
    "hostPID": (((f"{POD}/hostPID", True),), HOST),
    "hostIPC": (((f"{POD}/hostIPC", True),), HOST),
    "hostPath": (((f"{POD}/volumes", [{"name": "a", "hostPath": {"path": "/"}}]),), HOST),
    "emptyDir": (((f"{POD}/volumes", [{"name": "a", "emptyDir": {}}]),), ""),
    "secret volume": (((f"{POD}/volumes", [{"name": "a", "secret": {"secretName": "a"}}]),), ""),
    "configMap volume": (((f"{POD}/volumes", [{"name": "a", "configMap": {"name": "a"}}]),), ""),
    "volume claim": (((f"{POD}/volumes", [{"name": "a", "persistentVolumeClaim": {"claimName": "a"}}]),), ""),
    "privileged": (
        ((f"{BOX}/securityContext/privileged", True), (f"{BOX}/securityContext/allowPrivilegeEscalation", GONE)),
        PRIVILEGED,
    ),
    "added capability": (((f"{BOX}/securityContext/capabilities/add", ["NET_BIND_SERVICE"]),), PRIVILEGED),
    "volumeDevices": (
        ((f"{POD}/volumes", [{"name": "a", "persistentVolumeClaim": {"claimName": "a"}}]),
         (f"{BOX}/volumeDevices", [{"name": "a", "devicePath": "/dev/a"}])), ENV,
    ),
    "envFrom": (((f"{BOX}/envFrom", [{"secretRef": {"name": "a"}}]),), ENV),
    "env": (((f"{BOX}/env", [{"name": "A", "value": "1"}]),), ""),
    "nvidia.com/gpu": (((f"{BOX}/resources/limits/nvidia.com~1gpu", "1"),), NVIDIA),
    "implicit device class": (
        ((f"{BOX}/resources/limits/deviceclass.resource.kubernetes.io~1kube-dc-nvidia-v100-shared-8g", "1"),), NVIDIA,
    ),
    "no requests": (((f"{BOX}/resources/limits", GONE), (f"{BOX}/resources/requests", GONE)), ""),
    "a tag alone": (((f"{BOX}/image", "ollama/ollama:0.24.0"),), ""),
}  # fmt: skip

POD_ROWS: dict[str, tuple[str | None, Changes, str]] = {
    "as the ReplicaSet makes it": ("ReplicaSet", (), ""),
    "with the hash of its template": ("ReplicaSet", ((f"{L}/pod-template-hash", "5d9c"),), ""),
    "of nobody": (None, (), "DRA GPU Pods must have a controlling ReplicaSet owner."),
    "of a Job": ("Job", (), "DRA GPU Pods must have a controlling ReplicaSet owner."),
    "of a StatefulSet": ("StatefulSet", (), "DRA GPU Pods must have a controlling ReplicaSet owner."),
    "owned, not controlled": (
        "ReplicaSet", (("/metadata/ownerReferences/0/controller", False),), "must have a controlling ReplicaSet owner.",
    ),
    "label of another app": ("ReplicaSet", ((f"{L}/{NAME}", "named"),), f"DRA GPU Pods {CLAIM}"),
    "no backend": ("ReplicaSet", ((f"{L}/{BACKEND}", GONE),), LABELS),
    "nodeName": ("ReplicaSet", (("/spec/nodeName", "gpu-node-1"),), PLACE),
    "envFrom": ("ReplicaSet", (("/spec/containers/0/envFrom", [{"secretRef": {"name": "a"}}]),), ENV),
    "nvidia.com/gpu beside the claim": (
        "ReplicaSet", (("/spec/containers/0/resources/limits/nvidia.com~1gpu", "1"),), NVIDIA,
    ),
    "nvidia.com/gpu alone": (
        None,
        ((L, {}), ("/spec/resourceClaims", GONE), ("/spec/containers/0/resources", {"limits": CARD})),
        NVIDIA,
    ),
    "nvidia.com/gpu in an init container": (
        None,
        ((L, {}), ("/spec/resourceClaims", GONE), ("/spec/containers/0/resources", GONE),
         ("/spec/initContainers", [{"name": "i", "image": "a:1", "resources": {"limits": CARD}, **RESTRICTED}])),
        NVIDIA,
    ),
    "no GPU at all": (
        None, ((L, {"app": "web"}), ("/spec/resourceClaims", GONE), ("/spec/containers/0/resources", GONE)), "",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def project(cluster: Target) -> str:
    return cluster.make_namespace("policies")


def judge(cluster: Target, document: dict[str, Any], sentence: str, policy: str, who: str = "portal") -> None:
    """Create by dry-run: accepted where no sentence is given, else refused with 422 by that policy."""
    answer = cluster.client(who).create(document, dry_run=True)
    if not sentence:
        assert answer.ok, answer.message
        return
    assert sentence in refusal(answer)
    assert f"ValidatingAdmissionPolicy '{policy}' with binding '{policy}' denied request: " in answer.message
    assert (answer.status, answer.body["reason"]) == (422, "Invalid")
    assert answer.message.endswith(answer.body["details"]["causes"][0]["message"])


@pytest.mark.parametrize("row", TEMPLATE_ROWS)
def test_claim_template(cluster: Target, project: str, row: str) -> None:
    changes, sentence = TEMPLATE_ROWS[row]
    judge(cluster, changed(claim_template(project), *changes), sentence, "kube-dc-dra-gpu-claim-templates")


@pytest.mark.parametrize("row", DEPLOYMENT_ROWS)
def test_deployment(cluster: Target, project: str, row: str) -> None:
    changes, sentence = DEPLOYMENT_ROWS[row]
    judge(cluster, changed(deployment(project), *changes), sentence, "kube-dc-dra-gpu-deployments")


@pytest.mark.parametrize("row", POD_ROWS)
def test_pod(cluster: Target, project: str, row: str) -> None:
    owner, changes, sentence = POD_ROWS[row]
    judge(
        cluster, changed(pod(project, owner=owner), *changes), sentence, "kube-dc-dra-gpu-pods", who="admin"
    )


@pytest.mark.parametrize("package", ["8g", "16g", "32g"])
def test_every_product_as_rendered(cluster: Target, project: str, package: str) -> None:
    judge(cluster, claim_template(project, package=package), "", "")
    judge(cluster, deployment(project, package=package), "", "")


@pytest.mark.parametrize("recorded", ["template-wrong-capacity", "deployment-rolling-update"])
def test_the_answer_is_the_recorded_one(cluster: Target, project: str, recorded: str) -> None:
    """Body and status of a refusal as a platform gave them."""
    expected = json.loads((DATA / f"{recorded}.json").read_text())
    if recorded.startswith("template"):
        document = changed(claim_template(project), (f"{EXACTLY}/capacity/requests/memory", "16Gi"))
    else:
        document = changed(deployment(project), ("/spec/strategy", {"type": "RollingUpdate"}))
    answer = cluster.client("portal").create(document)
    assert {"http_status": answer.status, "body": answer.body} == expected


def test_a_namespace_that_is_no_project_is_left_alone(cluster: Target) -> None:
    other = cluster.make_namespace("elsewhere", labels={})
    wrong = changed(claim_template(other), (f"{EXACTLY}/count", 2))
    answer = cluster.client().create(wrong, dry_run=True)
    assert answer.ok, answer.message
