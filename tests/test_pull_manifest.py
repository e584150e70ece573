"""The Job of a pull (C-03, C-07, C-10, C-13): its shape, and that policies, quota and pod security take it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from gpu import contract
from gpu.pull_manifest import BACKOFF, DEADLINES, TTL_S, PullSpec, render
from gpu.pull_runner import LOOK_S, agent_source
from tests.clusters import Target, eventually

SPEC = PullSpec(
    namespace="acme-ai",
    app="chat",
    port=11434,
    slice_id="sl_1",
    pull_id="pl_1",
    job_name="chat-pull-abc12345",
    mode="pull",
    model="llama3.2:3b",
    image="registry.example.test/job-ok/pull:1",
    source="print('x')",
)
MODES = sorted(DEADLINES)
COMPUTE = {"requests.cpu": "4", "requests.memory": "8Gi", "limits.cpu": "8", "limits.memory": "16Gi"}


@pytest.mark.parametrize("mode", MODES)
def test_the_job_says_what_it_needs_and_ends_by_itself(mode: str) -> None:
    job = render(replace(SPEC, mode=mode))
    spec = job["spec"]
    pod = spec["template"]["spec"]
    [container] = pod["containers"]
    for amounts in container["resources"].values():
        assert set(amounts) == {"cpu", "memory"}
    assert set(container["resources"]) == {"requests", "limits"}
    assert pod["restartPolicy"] == "Never"
    assert 0 < spec["backoffLimit"] == BACKOFF[mode] < 6
    assert 0 < spec["activeDeadlineSeconds"] <= 21_600
    assert spec["ttlSecondsAfterFinished"] == TTL_S >= 2 * LOOK_S
    assert spec["podFailurePolicy"]["rules"][0]["onExitCodes"]["values"] == [2]


def test_it_has_no_claim_no_gpu_label_and_no_proxy() -> None:
    text = json.dumps(render(SPEC))
    for word in (
        "resourceClaims",
        "gpu-backend",
        "gpu-profile",
        "claims",
        "PROXY",
        "proxy",
        "OLLAMA_CONTEXT",
    ):
        assert word not in text


def test_the_agent_is_told_where_the_server_is_and_ends_before_its_job() -> None:
    [container] = render(replace(SPEC, insecure=True))["spec"]["template"]["spec"]["containers"]
    env = {item["name"]: item["value"] for item in container["env"]}
    assert env["OLLAMA_URL"] == "http://chat:11434"
    assert (env["AGENT_MODE"], env["MODEL"], env["INSECURE"]) == ("pull", "llama3.2:3b", "1")
    assert int(env["DEADLINE_SECONDS"]) < DEADLINES["pull"]
    assert all(isinstance(item["value"], str) for item in container["env"])


def test_the_services_traffic_does_not_go_to_the_job() -> None:
    labels = render(SPEC)["spec"]["template"]["metadata"]["labels"]
    assert labels["app.kubernetes.io/name"] != "chat"
    assert all(len(value) <= 63 for value in labels.values())


def test_the_agent_fits_into_a_job() -> None:
    assert len(json.dumps(render(replace(SPEC, source=agent_source())))) < 64 * 1024


def test_the_contract_says_nothing_against_it() -> None:
    assert contract.check([render(SPEC)], []) == ()


def sent(cluster: Target, namespace: str, **values: Any) -> dict[str, Any]:
    """Apply a Job as the portal's account."""
    job = render(replace(SPEC, namespace=namespace, source=agent_source(), **values))
    answer = cluster.client("portal").apply(job)
    assert answer.ok, answer.message
    return job


@pytest.mark.cluster
def test_a_project_with_quota_and_restricted_pods_runs_it(cluster: Target) -> None:
    namespace = cluster.make_namespace("pulls", quota=COMPUTE)
    sent(cluster, namespace)
    admin = cluster.client()

    def complete() -> bool:
        job = admin.get("batch/v1", "Job", namespace, SPEC.job_name).body
        conditions = (job.get("status") or {}).get("conditions") or []
        return any(item["type"] == "Complete" and item["status"] == "True" for item in conditions)

    eventually(complete, "the end of the Job")
    cluster.drop_namespace(namespace)


@pytest.mark.cluster
def test_without_room_the_job_is_there_and_an_event_tells_why(cluster: Target) -> None:
    namespace = cluster.make_namespace("pulls", quota={**COMPUTE, "requests.cpu": "50m"})
    sent(cluster, namespace)
    admin = cluster.client()

    def refusal() -> str:
        found = [
            event["message"]
            for event in admin.items("v1", "Event", namespace)
            if event["reason"] == "FailedCreate"
        ]
        return found[0] if found else ""

    message = eventually(refusal, "the refusal of the pod")
    assert "exceeded quota: plan-quota, requested: requests.cpu=100m, used: requests.cpu=0" in message
    assert not (admin.get("batch/v1", "Job", namespace, SPEC.job_name).body["status"] or {}).get("active")
    cluster.drop_namespace(namespace)
