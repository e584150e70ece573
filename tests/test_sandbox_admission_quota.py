"""What quota and LimitRange refuse. Sandbox and real alike."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from dev.controlplane.client import Client, path_of
from tests.admission_kit import (
    DEVICES,
    Doc,
    admin,
    namespace,
    pod,
    recorded,
    volume_claim,
)
from tests.clusters import Target, eventually
from tests.controlplane.documents import claim_template

__all__ = ["admin", "namespace"]  # fixtures

pytestmark = pytest.mark.cluster


class TestQuota:
    def test_sentence_and_status(self, cluster: Target, admin: Client) -> None:
        space = cluster.make_namespace("quota", quota={"requests.cpu": "2", "pods": "10"})
        assert admin.create(pod(space, "a", "1500m")).ok
        answer = admin.create(pod(space, "b", "1"))
        assert answer.status == 403
        assert answer.message == (
            'pods "b" is forbidden: exceeded quota: plan-quota, requested: requests.cpu=1, '
            "used: requests.cpu=1500m, limited: requests.cpu=2"
        )
        used = admin.get("v1", "ResourceQuota", space, "plan-quota").body["status"]["used"]
        assert used == {"pods": "1", "requests.cpu": "1500m"}
        assert admin.call("DELETE", path_of(pod(space, "a")), {"gracePeriodSeconds": 0}).ok

        def freed() -> bool:
            status = admin.get("v1", "ResourceQuota", space, "plan-quota").body["status"]
            return bool(status["used"] == {"pods": "0", "requests.cpu": "0"})

        eventually(freed, "the freed quota")
        assert admin.create(pod(space, "b", "1")).ok
        cluster.drop_namespace(space)

    def test_missing_requests(self, cluster: Target, admin: Client) -> None:
        space = cluster.make_namespace(
            "quota", quota={"requests.cpu": "2", "limits.cpu": "2", "requests.memory": "1Gi"}
        )
        answer = admin.create(pod(space, cpu=None))
        assert answer.status == 403
        assert answer.message == (
            'pods "p" is forbidden: failed quota: plan-quota: must specify limits.cpu for: main; '
            "requests.cpu for: main; requests.memory for: main"
        )
        cluster.drop_namespace(space)

    def test_devices_are_charged_with_the_claim(self, cluster: Target, admin: Client) -> None:
        space = cluster.make_namespace("quota", quota={DEVICES: "1"})
        controller = admin.acting_as(
            "system:serviceaccount:kube-system:resource-claim-controller", "system:masters"
        )
        spec = claim_template(space)["spec"]["spec"]

        def claim(name: str) -> Doc:
            metadata = {"name": name, "namespace": space}
            return {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaim",
                "metadata": metadata,
                "spec": spec,
            }

        assert controller.create(claim("a")).ok
        answer = controller.create(claim("b"))
        assert answer.status == 403
        assert answer.message == (
            f'resourceclaims.resource.k8s.io "b" is forbidden: exceeded quota: plan-quota, requested: {DEVICES}=1, '
            f"used: {DEVICES}=1, limited: {DEVICES}=1"
        )
        cluster.drop_namespace(space)

    def test_scoped_quota_counts_what_it_is_for(self, cluster: Target, admin: Client) -> None:
        space = cluster.make_namespace("quota")
        quota = {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "jobs", "namespace": space},
            "spec": {"hard": {"pods": "0"}, "scopes": ["Terminating"]},
        }
        assert admin.create(quota).ok
        look = lambda: admin.get("v1", "ResourceQuota", space, "jobs").body["status"].get("hard")  # noqa: E731
        eventually(look, "the quota's status")
        assert admin.create(pod(space, "stays")).ok
        answer = admin.create(pod(space, "ends", activeDeadlineSeconds=60))
        assert answer.status == 403
        assert "exceeded quota: jobs, requested: pods=1, used: pods=0, limited: pods=0" in answer.message
        cluster.drop_namespace(space)

    def test_dry_run_charges_nothing(self, cluster: Target, admin: Client) -> None:
        space = cluster.make_namespace("quota", quota={"pods": "1"})
        for _ in range(3):
            assert admin.create(pod(space), dry_run=True).ok
        assert admin.create(pod(space)).ok
        assert admin.create(pod(space, "q"), dry_run=True).status == 403
        cluster.drop_namespace(space)

    def test_race_for_the_last_places(self, cluster: Target, admin: Client) -> None:
        """20 pods at once for 3 places: exactly 3 are made, and quota says so."""
        space = cluster.make_namespace(
            "race", quota={"pods": "3", "requests.cpu": "100", "count/configmaps": "50"}
        )
        with ThreadPoolExecutor(20) as pool:
            answers = list(pool.map(lambda number: admin.create(pod(space, f"p{number}")), range(20)))
        assert sorted(answer.status for answer in answers) == [201] * 3 + [403] * 17
        assert all("exceeded quota: plan-quota" in answer.message for answer in answers if not answer.ok)
        assert len(admin.items("v1", "Pod", space)) == 3
        used = admin.get("v1", "ResourceQuota", space, "plan-quota").body["status"]["used"]
        assert used["pods"] == "3"
        cluster.drop_namespace(space)


class TestLimitRange:
    LIMITS = (
        {
            "type": "Container",
            "default": {"cpu": "500m", "memory": "512Mi"},
            "defaultRequest": {"cpu": "250m", "memory": "256Mi"},
            "max": {"cpu": "4", "memory": "8Gi"},
        },
    )

    def test_defaults(self, cluster: Target, admin: Client) -> None:
        space = cluster.make_namespace("limits", limit_range=self.LIMITS)
        made = admin.create(pod(space, cpu=None)).body
        assert made["spec"]["containers"][0]["resources"] == {
            "limits": {"cpu": "500m", "memory": "512Mi"},
            "requests": {"cpu": "250m", "memory": "256Mi"},
        }
        recorded_pod = recorded("limitrange-defaults")["PodList"][0]["metadata"]["annotations"]
        name = "kubernetes.io/limit-ranger"
        assert made["metadata"]["annotations"][name] == recorded_pod[name].replace("workload", "main")
        cluster.drop_namespace(space)

    def test_maximum(self, cluster: Target, admin: Client) -> None:
        space = cluster.make_namespace("limits", limit_range=self.LIMITS)
        answer = admin.create(pod(space, cpu="5"))
        assert answer.status == 403
        assert answer.message == (
            'pods "p" is forbidden: maximum cpu usage per Container is 4, but limit is 5'
        )
        cluster.drop_namespace(space)

    def test_volume_claims(self, cluster: Target, admin: Client) -> None:
        limits = {"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}, "max": {"storage": "10Gi"}}
        space = cluster.make_namespace("limits", limit_range=(limits,))
        for storage, phrase in {
            "20Gi": "maximum storage usage per PersistentVolumeClaim is 10Gi, but request is 20Gi",
            "500Mi": "minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 500Mi",
        }.items():
            answer = admin.create(volume_claim(space, storage))
            assert answer.status == 403
            assert answer.message == f'persistentvolumeclaims "huge" is forbidden: {phrase}'
        cluster.drop_namespace(space)
