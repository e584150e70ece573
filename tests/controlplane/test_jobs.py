"""One-shot Jobs, which pull models: how they end, and how they never begin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.clusters import eventually
from tests.controlplane.documents import IMAGE, changed, deployment
from tests.controlplane.play import Project, condition

pytestmark = pytest.mark.cluster

type Doc = dict[str, Any]
type MakeProject = Callable[..., Project]


def job(namespace: str, name: str, *, image: str = IMAGE, resources: Doc | None = None) -> Doc:
    """A one-shot Job as the portal pulls a model with: no claim, no GPU label."""
    security = {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}}
    box = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    amounts = {"cpu": "100m", "memory": "64Mi"}
    container = {"name": "pull", "image": image, "securityContext": box,
                 "resources": {"limits": amounts, "requests": amounts} if resources is None else resources}  # fmt: skip
    pod = {"restartPolicy": "Never", "securityContext": security, "containers": [container]}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "namespace": namespace},
            "spec": {"backoffLimit": 0, "template": {"metadata": {}, "spec": pod}}}  # fmt: skip


def test_job_with_a_claim(project: MakeProject) -> None:
    acme = project()
    template = deployment(acme.namespace, "jobclaim")["spec"]["template"]
    document = job(acme.namespace, "jobclaim")
    document["spec"]["template"] = changed(template, ("/spec/restartPolicy", "Never"))
    acme.apply(document)
    acme.warning("Job", "jobclaim", "FailedCreate", "DRA GPU Pods must have a controlling ReplicaSet owner.")
    assert acme.pod("jobclaim") is None


def test_job_without_requests(project: MakeProject) -> None:
    acme = project()
    acme.apply(job(acme.namespace, "pull", resources={}))
    acme.warning("Job", "pull", "FailedCreate", "failed quota: plan-quota: must specify limits.cpu for: pull")
    [found] = acme.all("batch/v1", "Job")
    assert not {"active", "failed", "succeeded"} & {key for key, value in found["status"].items() if value}


def test_job_fails(project: MakeProject) -> None:
    acme = project()
    acme.apply(job(acme.namespace, "pull", image="registry.example.test/crash/pull:1"))
    failed = eventually(lambda: condition(acme.all("batch/v1", "Job")[0], "Failed"), "a failed Job")
    assert (failed["status"], failed["reason"]) == ("True", "BackoffLimitExceeded")
    found = acme.all("batch/v1", "Job")[0]
    assert condition(found, "FailureTarget")["status"] == "True"
    assert found["status"]["failed"] == 1
    acme.warning("Job", "pull", "BackoffLimitExceeded", "Job has reached the specified backoff limit")


def test_job_completes(project: MakeProject) -> None:
    acme = project()
    acme.apply(job(acme.namespace, "pull", image="registry.example.test/job-ok/pull:1"))
    eventually(lambda: acme.all("batch/v1", "Job")[0].get("status", {}).get("active") == 1, "an active Job")
    complete = eventually(lambda: condition(acme.all("batch/v1", "Job")[0], "Complete"), "a complete Job")
    assert (complete["status"], complete["reason"]) == ("True", "CompletionsReached")
    found = acme.all("batch/v1", "Job")[0]
    assert condition(found, "SuccessCriteriaMet")["status"] == "True"
    assert found["status"]["succeeded"] == 1
    [pod] = acme.all("v1", "Pod")
    assert pod["status"]["phase"] == "Succeeded"
