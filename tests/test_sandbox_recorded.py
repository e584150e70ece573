"""The sandbox gives what a real control plane gave: whole statuses, metadata and events are compared.

Names, times, uids and addresses are replaced before comparing. What differs on purpose: the recorded pods
ran on a stand-in that wrote no events and left Ready=True on pods that had ended; generations are not compared.
"""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from sandbox.api import Obj
from tests.sandbox_world import DEVICES, World, condition, recorded, until

KUBELET_EVENTS = {"Pulling", "Pulled", "Created", "Started", "Killing"}
SERVER_METADATA = {
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "generation",
    "managedFields",
    "ownerReferences",
}
_REPLACED = (
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"), "TIME"),
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "UID"),
    (re.compile(r"\b10\.1\.\d+\.\d+\b"), "ADDRESS"),
    (re.compile(r"\b([a-z]+)-[a-z0-9]{8,10}(-[a-z0-9]{5})(-gpu-[a-z0-9]{5})\b"), r"\1-HASH-POD-gpu-CLAIM"),
    (re.compile(r"\b([a-z]+)-(?=[a-z]*\d|[a-z]{10}\b)[a-z0-9]{8,10}(-[a-z0-9]{5})\b"), r"\1-HASH-POD"),
    (re.compile(r"\b([a-z]+)-(?=[a-z]*\d|[a-z]{10}\b)[a-z0-9]{8,10}\b"), r"\1-HASH"),
    (re.compile(r"\b(pull-ok|pull-bad|pull-bare|jobclaim)-[a-z0-9]{5}\b"), r"\1-POD"),
)


@pytest.fixture
def world() -> Iterator[World]:
    world = World(policies=True, job_seconds=1.0, job_backoff=0.2)
    yield world
    world.close()


def plain(value: Any) -> Any:
    """``value`` without what differs from run to run."""
    if isinstance(value, dict):
        # null is how Go writes an empty time
        kept = {k: entry for k, entry in value.items() if k != "observedGeneration" and entry is not None}
        if "pod-template-hash" in kept:
            kept["pod-template-hash"] = "HASH"
        return {plain(key): plain(entry) for key, entry in kept.items()}
    if isinstance(value, list):
        return [plain(entry) for entry in value]
    if isinstance(value, str):
        for pattern, replacement in _REPLACED:
            value = pattern.sub(replacement, value)
    return value


def shape(obj: Obj) -> Any:
    """What is compared of an object: its status, labels, annotations and finalizers."""
    metadata = {key: value for key, value in obj["metadata"].items() if key not in SERVER_METADATA}
    metadata.pop("generateName", None)
    return plain({"metadata": metadata, "status": obj.get("status") or {}})


def told(events: list[Obj], names: tuple[str, ...]) -> set[tuple[Any, ...]]:
    """What is compared of the events about the objects with these names in front."""
    return {
        (
            event["type"],
            event["reason"],
            event["involvedObject"]["kind"],
            plain(event["message"]),
            (event.get("source") or {}).get("component") or event.get("reportingComponent"),
            "count" in event,
            bool(event.get("eventTime")),
            event.get("action"),
        )
        for event in events
        if event["involvedObject"]["name"].startswith(names) and event["reason"] not in KUBELET_EVENTS
    }


def given(world: World, scenario: Any) -> str:
    """The namespace of a scenario with its quotas and limits; returns its name."""
    quota = scenario["ResourceQuotaList"][0]
    name = str(quota["metadata"]["namespace"])
    world.namespace(name, quota["spec"]["hard"], project=True)
    for limits in scenario.get("LimitRangeList", []):
        world.api.create(remade(limits))
    return name


def remade(obj: Obj) -> Obj:
    """The object as somebody would create it."""
    metadata = {
        key: value for key, value in obj["metadata"].items() if key in ("name", "namespace", "labels")
    }
    annotations = obj["metadata"].get("annotations", {})
    metadata["annotations"] = {k: v for k, v in annotations.items() if not k.startswith("deployment.")}
    made: Obj = {
        "apiVersion": obj["apiVersion"],
        "kind": obj["kind"],
        "metadata": metadata,
        "spec": obj["spec"],
    }
    if obj["kind"] == "Job":
        spec = dict(obj["spec"])
        del spec["selector"]
        labels = spec["template"]["metadata"].get("labels") or {}
        kept = {
            k: v for k, v in labels.items() if k not in ("controller-uid", "job-name") and "batch." not in k
        }
        metadata_of_pod = {**spec["template"]["metadata"], "labels": kept}
        made["spec"] = {**spec, "template": {**spec["template"], "metadata": metadata_of_pod}}
    return made


def template_of(deployment: Obj) -> Obj:
    """The claim template that belongs to a recorded workload."""
    metadata = remade(deployment)["metadata"]
    both = {"labels": metadata["labels"], "annotations": metadata["annotations"]}
    exactly = {
        "deviceClassName": "kube-dc-nvidia-v100-shared-8g",
        "allocationMode": "ExactCount",
        "count": 1,
        "capacity": {"requests": {"memory": "8192Mi", "cores": "25"}},
    }
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": f"{metadata['name']}-gpu", "namespace": metadata["namespace"], **both},
        "spec": {"metadata": both, "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}},
    }


def one(scenario: Any, kind: str, name: str) -> Obj:
    """The recorded object whose name begins so."""
    return next(obj for obj in scenario[f"{kind}List"] if obj["metadata"]["name"].startswith(name))


def order(world: World, scenario: Any, app: str, template: bool = True) -> None:
    """Create a recorded workload, its claim template first."""
    deployment = one(scenario, "Deployment", app)
    if template:
        world.api.create(template_of(deployment))
    world.api.create(remade(deployment))


def settled(world: World, scenario: Any, app: str, kinds: tuple[str, ...], namespace: str) -> None:
    """Wait until the app's objects look as recorded; where they never do, show the difference."""
    for kind in kinds:
        wanted = [shape(obj) for obj in scenario[f"{kind}List"] if obj["metadata"]["name"].startswith(app)]

        def present(kind: str = kind) -> list[Any]:
            return [
                shape(o) for o in world.api.list(kind, namespace) if o["metadata"]["name"].startswith(app)
            ]

        try:
            until(lambda w=wanted, p=present: p() == w)
        except AssertionError:
            assert present() == wanted
            raise


def quota_settled(world: World, scenario: Any, namespace: str) -> None:
    wanted = scenario["ResourceQuotaList"][0]["status"]
    until(lambda: world.api.list("ResourceQuota", namespace)[0].get("status") == wanted)


WORKLOAD = ("Deployment", "ReplicaSet", "Pod", "ResourceClaim")


def test_inventory(world: World) -> None:
    found = world.api.list("ResourceSlice")[0]
    assert found["spec"] == recorded("inventory")["ResourceSliceList"][0]["spec"]


def test_running(world: World) -> None:
    scenario = recorded("running")
    namespace = given(world, scenario)
    order(world, scenario, "chat")
    settled(world, scenario, "chat", WORKLOAD, namespace)
    quota_settled(world, scenario, namespace)
    assert told(world.events("chat", namespace=namespace), ("chat",)) == told(
        scenario["EventList"], ("chat",)
    )


def test_entitlement_used_up(world: World) -> None:
    scenario = recorded("entitlement-used-up")
    namespace = given(world, scenario)
    order(world, scenario, "chat")
    world.running("chat", namespace)
    order(world, scenario, "notebook")
    settled(world, scenario, "notebook", WORKLOAD, namespace)
    quota_settled(world, scenario, namespace)
    until(lambda: len(world.events("notebook", "FailedResourceClaimCreation", namespace)) == 10)
    events = told(world.events("notebook", namespace=namespace), ("notebook",))
    assert events == told(scenario["EventList"], ("notebook",))


def test_cards_busy_then_running(world: World) -> None:
    scenario = recorded("cards-busy")
    world.namespace("birch-lab", {DEVICES.format("32g"): "1"})
    world.slice("whole", "birch-lab", "32g")
    world.running("whole", "birch-lab")
    namespace = given(world, scenario)
    order(world, scenario, "chat")
    settled(world, scenario, "chat", WORKLOAD, namespace)
    quota_settled(world, scenario, namespace)
    assert told(world.events("chat", "FailedScheduling", namespace), ("chat",)) <= told(
        scenario["EventList"], ("chat",)
    )
    claim = world.api.list("ResourceClaim", namespace)[0]["metadata"]["uid"]
    world.api.delete("Deployment", "birch-lab", "whole")
    scenario = recorded("cards-busy-then-running")
    world.running("chat", namespace)
    settled(world, scenario, "chat", WORKLOAD, namespace)
    assert world.api.list("ResourceClaim", namespace)[0]["metadata"]["uid"] == claim
    assert told(world.events("chat", namespace=namespace), ("chat",)) == told(
        scenario["EventList"], ("chat",)
    )


def test_released(world: World) -> None:
    scenario = recorded("running")
    namespace = given(world, scenario)
    order(world, scenario, "chat")
    world.running("chat", namespace)
    world.api.delete("Deployment", namespace, "chat")
    world.api.delete("ResourceClaimTemplate", namespace, "chat-gpu")
    settled(world, recorded("released"), "chat", WORKLOAD, namespace)
    quota_settled(world, recorded("released"), namespace)
    until(lambda: world.events("chat", "Scheduled", namespace))  # events outlive their object


@pytest.mark.parametrize(("name", "app"), [("cpu-quota-exceeded", "chat"), ("requests-missing", "bare")])
def test_pods_refused_by_quota(world: World, name: str, app: str) -> None:
    scenario = recorded(name)
    namespace = given(world, scenario)
    order(world, scenario, "big")
    world.running("big", namespace)
    order(world, scenario, app)
    settled(world, scenario, app, WORKLOAD, namespace)
    quota_settled(world, scenario, namespace)
    until(lambda: len(world.events(app, "FailedCreate", namespace)) == 10)
    assert told(world.events(app, namespace=namespace), (app,)) == told(scenario["EventList"], (app,))


def test_limit_range_defaults(world: World) -> None:
    scenario = recorded("limitrange-defaults")
    namespace = given(world, scenario)
    order(world, scenario, "bare")
    settled(world, scenario, "bare", WORKLOAD, namespace)
    quota_settled(world, scenario, namespace)
    resources = world.api.list("Pod", namespace)[0]["spec"]["containers"][0]["resources"]
    assert resources == one(scenario, "Pod", "bare")["spec"]["containers"][0]["resources"]


def test_limit_range_maximum(world: World) -> None:
    scenario = recorded("limitrange-max")
    scenario["LimitRangeList"] = recorded("limitrange-defaults")["LimitRangeList"]
    namespace = given(world, scenario)
    order(world, scenario, "toobig")
    settled(world, scenario, "toobig", WORKLOAD, namespace)
    until(lambda: len(world.events("toobig", "FailedCreate", namespace)) == 10)
    assert told(world.events("toobig", namespace=namespace), ("toobig",)) == told(
        scenario["EventList"], ("toobig",)
    )


def test_template_missing(world: World) -> None:
    scenario = recorded("template-missing")
    scenario.setdefault("ResourceClaimList", [])
    namespace = given(world, scenario)
    order(world, scenario, "orphan", template=False)
    settled(world, scenario, "orphan", WORKLOAD, namespace)
    quota_settled(world, scenario, namespace)
    until(lambda: world.events("orphan", "FailedResourceClaimCreation", namespace))
    assert told(world.events("orphan", namespace=namespace), ("orphan",)) == told(
        scenario["EventList"], ("orphan",)
    )


def test_pods_denied_by_policy(world: World) -> None:
    scenario = recorded("pods-denied-by-policy")
    namespace = given(world, scenario)
    order(world, scenario, "other", template=False)
    settled(world, scenario, "other", WORKLOAD, namespace)
    quota_settled(world, scenario, namespace)
    until(lambda: len(world.events("other", "FailedCreate", namespace)) == 10)
    assert told(world.events("other", namespace=namespace), ("other",)) == told(
        scenario["EventList"], ("other",)
    )


@pytest.mark.parametrize(
    ("name", "job"), [("job-with-claim-denied", "jobclaim"), ("job-requests-missing", "pull-bare")]
)
def test_jobs_whose_pods_are_refused(world: World, name: str, job: str) -> None:
    scenario = recorded(name)
    namespace = given(world, scenario)
    world.api.create(remade(one(scenario, "Job", job)))
    settled(world, scenario, job, ("Job",), namespace)
    quota_settled(world, scenario, namespace)
    until(lambda: world.events(job, "FailedCreate", namespace))
    ours, theirs = (
        told(events, (job,)) for events in (world.events(job, namespace=namespace), scenario["EventList"])
    )
    assert {event for event in ours if not event[3].startswith("(combined")} == theirs


def as_pretended(job: Obj, segment: str) -> Obj:
    """The recorded Job with an image that makes the pretended kubelet end it so."""
    made = remade(job)
    made["spec"]["template"]["spec"]["containers"][0]["image"] = f"registry.example.test/{segment}/portal:1"
    return made


def test_job_running_and_complete(world: World) -> None:
    running, complete = recorded("job-running"), recorded("job-complete")
    namespace = given(world, running)
    world.api.create(as_pretended(one(running, "Job", "pull-ok"), "job-ok"))
    settled(world, running, "pull-ok", ("Job",), namespace)
    quota_settled(world, running, namespace)
    assert world.api.list("Pod", namespace)[0]["metadata"]["finalizers"] == [
        "batch.kubernetes.io/job-tracking"
    ]
    settled(world, complete, "pull-ok", ("Job",), namespace)
    quota_settled(world, complete, namespace)
    pod, wanted = world.api.list("Pod", namespace)[0], one(complete, "Pod", "pull-ok")
    assert plain(pod["status"]["containerStatuses"][0]["state"]) == plain(
        wanted["status"]["containerStatuses"][0]["state"]
    )
    assert shape(pod)["metadata"] == shape(wanted)["metadata"]
    until(lambda: world.events("pull-ok", "Completed", namespace))
    assert told(world.events("pull-ok", namespace=namespace), ("pull-ok",)) == told(
        complete["EventList"], ("pull-ok",)
    )


def test_job_failed(world: World) -> None:
    scenario = recorded("job-failed")
    namespace = given(world, scenario)
    world.api.create(as_pretended(one(scenario, "Job", "pull-bad"), "job-fail"))
    settled(world, scenario, "pull-bad", ("Job",), namespace)
    for pod in world.api.list("Pod", namespace):
        wanted = one(scenario, "Pod", "pull-bad")["status"]
        assert pod["status"]["phase"] == wanted["phase"]
        state, wanted_state = (status["containerStatuses"][0]["state"] for status in (pod["status"], wanted))
        assert plain(state) == plain(wanted_state)
        assert condition(pod, "Ready")["reason"] == "PodFailed"
    until(lambda: world.events("pull-bad", "BackoffLimitExceeded", namespace))
    assert told(world.events("pull-bad", namespace=namespace), ("pull-bad",)) == told(
        scenario["EventList"], ("pull-bad",)
    )


def test_volume_pending_without_a_class() -> None:
    world = World(policies=True, default_storage_class=None)
    scenario = recorded("pvc-pending")
    namespace = given(world, scenario)
    world.api.create(remade(scenario["PersistentVolumeClaimList"][0]))
    settled(world, scenario, "models", ("PersistentVolumeClaim",), namespace)
    quota_settled(world, scenario, namespace)
    until(lambda: world.events("models", "FailedBinding", namespace))
    assert told(world.events("models", namespace=namespace), ("models",)) == told(
        scenario["EventList"], ("models",)
    )
    world.close()
