"""The situations that a real platform was recorded in (tests/data/recorded), played again on each kind of cluster.

What counts is what diagnosis reads: conditions, reasons, quota keys and fixed phrases.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.clusters import eventually
from tests.controlplane.documents import GONE, changed, deployment, slice_documents
from tests.controlplane.play import DEVICES, PLAN, Project, condition

pytestmark = pytest.mark.cluster

BOX = "/spec/template/spec/containers/0"

type Doc = dict[str, Any]
type MakeProject = Callable[..., Project]


def test_running(project: MakeProject) -> None:
    acme = project()
    acme.order("chat")
    pod = acme.running("chat")
    assert pod["status"]["phase"] == "Running"
    [claim] = acme.claims()
    [result] = claim["status"]["allocation"]["devices"]["results"]
    assert result["consumedCapacity"] == {"memory": "8Gi", "cores": "25"}
    assert claim["spec"]["devices"]["requests"][0]["exactly"]["capacity"]["requests"] == {
        "memory": "8Gi",
        "cores": "25",
    }
    [holder] = claim["status"]["reservedFor"]
    assert (holder["resource"], holder["name"], holder["uid"]) == (
        "pods",
        pod["metadata"]["name"],
        pod["metadata"]["uid"],
    )
    assert pod["status"]["resourceClaimStatuses"] == [
        {"name": "gpu", "resourceClaimName": claim["metadata"]["name"]}
    ]
    assert claim["metadata"]["labels"]["app.kubernetes.io/name"] == "chat"
    assert acme.used(DEVICES) == "1"

    def settled() -> Doc | None:
        found = acme.all("apps/v1", "Deployment", "chat")[0]
        return found if condition(found, "Available").get("status") == "True" else None

    available = eventually(settled, "an available Deployment")
    assert condition(available, "Available")["reason"] == "MinimumReplicasAvailable"
    eventually(
        lambda: (
            condition(acme.all("apps/v1", "Deployment", "chat")[0], "Progressing")["reason"]
            == "NewReplicaSetAvailable"
        ),
        "a finished roll-out",
    )


def test_entitlement_used_up(project: MakeProject) -> None:
    acme = project(PLAN | {DEVICES: "1"})
    acme.order("chat")
    acme.running("chat")
    acme.order("notebook")
    event = acme.warning(
        "Pod", "notebook-", "FailedResourceClaimCreation", "exceeded quota: plan-quota, requested: "
    )
    assert f"{DEVICES}=1, used: {DEVICES}=1, limited: {DEVICES}=1" in event["message"]
    pod = acme.pod("notebook")
    assert pod is not None
    assert pod["status"]["phase"] == "Pending"
    assert condition(pod, "PodScheduled") == {}
    assert len(acme.claims()) == 1
    held = acme.all("apps/v1", "Deployment", "notebook")[0]
    assert condition(held, "Available")["status"] == "False"
    assert condition(held, "ReplicaFailure") == {}


def test_raised_quota_and_a_deleted_pod(project: MakeProject) -> None:
    acme = project(PLAN | {DEVICES: "0"})
    acme.order("chat")
    acme.warning("Pod", "chat-", "FailedResourceClaimCreation", "exceeded quota")
    raised = {"apiVersion": "v1", "kind": "ResourceQuota",
              "metadata": {"name": "plan-quota", "namespace": acme.namespace}, "spec": {"hard": PLAN}}  # fmt: skip
    assert acme.admin.apply(raised).ok
    eventually(
        lambda: (
            acme.admin.get("v1", "ResourceQuota", acme.namespace, "plan-quota").body["status"]["hard"][
                DEVICES
            ]
            == "2"
        ),
        "the raised quota",
    )
    waiting = acme.pod("chat")
    assert waiting is not None
    assert acme.portal.delete("v1", "Pod", acme.namespace, waiting["metadata"]["name"]).ok
    assert acme.running("chat")["metadata"]["uid"] != waiting["metadata"]["uid"]


def test_cards_busy_then_running(project: MakeProject) -> None:
    hard = {key.replace("8g", "32g"): value for key, value in PLAN.items()}
    birch, acme = project(hard), project()
    birch.order("one", package="32g")
    birch.order("two", package="32g")
    birch.running("one")
    birch.running("two")
    acme.order("chat")
    event = acme.warning(
        "Pod", "chat-", "FailedScheduling", "0/2 nodes are available: 2 cannot allocate all claims."
    )
    assert event["eventTime"]
    pod = acme.pod("chat")
    assert pod is not None
    scheduled = condition(pod, "PodScheduled")
    assert (scheduled["status"], scheduled["reason"]) == ("False", "Unschedulable")
    assert scheduled["message"].startswith("0/2 nodes are available: 2 cannot allocate all claims.")
    [claim] = acme.claims()
    assert "allocation" not in claim.get("status", {})
    assert acme.used(DEVICES) == "1", "charged when the claim is made, not when it is allocated"
    birch.release("two")
    assert acme.running("chat")["metadata"]["uid"] == pod["metadata"]["uid"]


@pytest.mark.real
@pytest.mark.parametrize("cluster", ["controlplane"], indirect=True)
def test_no_container_joins_a_slice(project: MakeProject) -> None:
    """The sandbox knows no ephemeral containers."""
    acme = project()
    acme.order("chat")
    name = acme.running("chat")["metadata"]["name"]
    debug = {"name": "debug", "image": "busybox:1", "targetContainerName": "workload",
             "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}}  # fmt: skip
    answer = acme.admin.call(
        "PATCH",
        f"/api/v1/namespaces/{acme.namespace}/pods/{name}/ephemeralcontainers",
        {"spec": {"ephemeralContainers": [debug]}},
        content_type="application/strategic-merge-patch+json",
    )
    assert "and no init or ephemeral containers." in answer.message
    assert answer.status == 422


def test_released(project: MakeProject) -> None:
    acme = project()
    acme.order("chat")
    acme.running("chat")
    acme.release("chat")
    eventually(lambda: not acme.claims(), "the end of the claim")
    eventually(lambda: acme.used(DEVICES) == "0", "the quota's count")
    assert acme.pod("chat") is None
    assert acme.all("v1", "Event"), "events outlive their objects"


def test_deleting_only_the_pod_takes_the_slice_again(project: MakeProject) -> None:
    acme = project()
    acme.order("chat")
    before = acme.running("chat")
    assert acme.portal.delete("v1", "Pod", acme.namespace, before["metadata"]["name"]).ok
    eventually(
        lambda: len(acme.all("v1", "Pod", "chat")) == 1 and acme.running("chat") != before, "another pod"
    )


def test_cpu_quota_exceeded(project: MakeProject) -> None:
    acme = project(PLAN | {"requests.cpu": "1"})
    acme.order("chat", cpu_request="2", cpu_limit="2")
    phrase = (
        "exceeded quota: plan-quota, requested: requests.cpu=2, used: requests.cpu=0, limited: requests.cpu=1"
    )
    acme.warning("ReplicaSet", "chat-", "FailedCreate", phrase)
    assert acme.pod("chat") is None
    failed = eventually(
        lambda: condition(acme.all("apps/v1", "Deployment", "chat")[0], "ReplicaFailure"), "ReplicaFailure"
    )
    assert (failed["status"], failed["reason"]) == ("True", "FailedCreate")
    assert phrase in failed["message"]


def test_requests_missing(project: MakeProject) -> None:
    acme = project()
    acme.apply(
        changed(
            deployment(acme.namespace, "bare"),
            (f"{BOX}/resources/limits", GONE),
            (f"{BOX}/resources/requests", GONE),
        )
    )
    acme.warning(
        "ReplicaSet",
        "bare-",
        "FailedCreate",
        "failed quota: plan-quota: must specify limits.cpu for: workload",
    )
    assert acme.pod("bare") is None


def test_limit_range_defaults(project: MakeProject) -> None:
    container = {"type": "Container", "default": {"cpu": "500m", "memory": "512Mi"},
                 "defaultRequest": {"cpu": "250m", "memory": "256Mi"}}  # fmt: skip
    acme = project(PLAN, [container])
    documents = slice_documents(acme.namespace, "bare")
    acme.apply(documents[0])
    acme.apply(changed(documents[1], (f"{BOX}/resources/limits", GONE), (f"{BOX}/resources/requests", GONE)))
    pod = acme.running("bare")
    resources = pod["spec"]["containers"][0]["resources"]
    assert resources["limits"] == {"cpu": "500m", "memory": "512Mi"}
    assert resources["requests"] == {"cpu": "250m", "memory": "256Mi"}
    used = {key: acme.used(key) for key in ("limits.cpu", "requests.cpu", "limits.memory", "requests.memory")}
    assert used == {
        "limits.cpu": "500m",
        "requests.cpu": "250m",
        "limits.memory": "512Mi",
        "requests.memory": "256Mi",
    }


def test_limit_range_max(project: MakeProject) -> None:
    acme = project(PLAN, [{"type": "Container", "max": {"cpu": "4", "memory": "8Gi"}}])
    acme.order("chat", cpu_request="1", cpu_limit="5")
    acme.warning(
        "ReplicaSet", "chat-", "FailedCreate", "maximum cpu usage per Container is 4, but limit is 5"
    )
    assert acme.pod("chat") is None


def test_template_missing(project: MakeProject) -> None:
    acme = project()
    acme.order("orphan", without=("ResourceClaimTemplate",))
    event = acme.warning("Pod", "orphan-", "FailedResourceClaimCreation", '"orphan-gpu"')
    assert event["message"].endswith("not found")
    pod = acme.pod("orphan")
    assert pod is not None
    assert pod["status"]["phase"] == "Pending"
    assert condition(pod, "PodScheduled") == {}


def test_name_differs_from_label(project: MakeProject) -> None:
    acme = project()
    acme.apply(
        changed(
            deployment(acme.namespace, "named"),
            ("/metadata/name", "other"),
            ("/spec/template/spec/resourceClaims/0/resourceClaimTemplateName", "other-gpu"),
        )
    )
    acme.warning(
        "ReplicaSet", "other-", "FailedCreate", "DRA GPU Pods must reference the canonical generated claim."
    )
    assert acme.pod("named") is None


def test_volume_claim_without_a_class(project: MakeProject) -> None:
    acme = project()
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim",
             "metadata": {"name": "lost", "namespace": acme.namespace},
             "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "",
                      "resources": {"requests": {"storage": "20Gi"}}}}  # fmt: skip
    acme.apply(claim)
    eventually(lambda: acme.used("requests.storage") == "20Gi", "the charged storage")
    assert acme.all("v1", "PersistentVolumeClaim")[0]["status"]["phase"] == "Pending"
    huge = changed(claim, ("/metadata/name", "huge"), ("/spec/resources/requests/storage", "500Gi"))
    answer = acme.portal.create(huge)
    assert answer.status == 403
    assert answer.message == (
        'persistentvolumeclaims "huge" is forbidden: exceeded quota: plan-quota, '
        "requested: requests.storage=500Gi, used: requests.storage=20Gi, limited: requests.storage=160Gi"
    )
    assert answer.body["details"] == {"kind": "persistentvolumeclaims", "name": "huge"}
