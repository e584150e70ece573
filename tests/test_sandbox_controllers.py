"""The sandbox's controllers for workloads: Deployments, ReplicaSets, claims, volumes, garbage, namespaces."""

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.devices import used_by
from tests.sandbox_world import CLASSES, DEFAULT_HARD, DEVICES, IMAGE, World, condition, until


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    world.namespace()
    yield world
    world.close()


def test_a_slice_runs_within_a_second(world: World) -> None:
    world.slice("chat")
    pod = world.running("chat")
    assert pod["spec"]["nodeName"] == "gpu-node-1"
    deployment = until(
        lambda: (
            condition(world.api.get("Deployment", "acme-ai", "chat"), "Progressing").get("reason")
            == "NewReplicaSetAvailable"
        )
    )
    assert deployment
    reasons = {event["reason"] for event in world.events("chat")}
    assert {
        "ScalingReplicaSet",
        "SuccessfulCreate",
        "Scheduled",
        "Pulling",
        "Pulled",
        "Created",
        "Started",
    } <= reasons


def test_stop_gives_the_slice_back_and_start_takes_it_again(world: World) -> None:
    world.slice("chat")
    first = world.running("chat")
    world.change("Deployment", "chat", lambda obj: obj["spec"].update(replicas=0))
    until(lambda: not world.api.list("ResourceClaim") and not world.api.list("Pod"))
    used = DEVICES.format("8g")
    until(lambda: world.api.list("ResourceQuota")[0]["status"]["used"][used] == "0")
    assert [event["message"] for event in world.events("chat", "ScalingReplicaSet")][-1].endswith(
        "from 1 to 0"
    )
    world.change("Deployment", "chat", lambda obj: obj["spec"].update(replicas=1))
    second = world.running("chat")
    assert second["metadata"]["uid"] != first["metadata"]["uid"]
    assert len(world.api.list("ReplicaSet")) == 1


def test_recreate_ends_the_old_pod_before_the_new_one_begins(world: World) -> None:
    """With one slice entitled, a new pod that came too early would be refused its claim."""
    world.quota("acme-ai", {DEVICES.format("8g"): "1"})
    world.slice("chat")
    old = world.running("chat")

    def newer(obj: dict) -> None:
        obj["spec"]["template"]["spec"]["containers"][0]["image"] = IMAGE.replace("app@", "next@")

    world.change("Deployment", "chat", newer)
    new = until(
        lambda: next(
            (pod for pod in world.pods("chat") if pod["metadata"]["uid"] != old["metadata"]["uid"]), None
        )
    )
    assert world.api.get("Pod", "acme-ai", old["metadata"]["name"]) is None
    assert world.running("chat")["metadata"]["uid"] == new["metadata"]["uid"]
    assert not world.events("chat", "FailedResourceClaimCreation")
    deployment = world.api.get("Deployment", "acme-ai", "chat")
    assert deployment["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "2"


def test_old_replica_sets_beyond_the_history_go(world: World) -> None:
    world.deployment("web", claim=False, history=1)
    for number in range(3):
        before = world.running("web")["metadata"]["uid"]
        world.change(
            "Deployment",
            "web",
            lambda obj, n=number: obj["spec"]["template"]["metadata"].update(annotations={"try": str(n)}),
        )
        until(lambda uid=before: (pods := world.pods("web")) and pods[0]["metadata"]["uid"] != uid)
    world.running("web")
    until(lambda: len(world.api.list("ReplicaSet")) == 2)


def test_rollout_that_never_gets_ready_says_so(world: World) -> None:
    world.deployment("web", claim=False, image="registry.example.test/unready/app:1", deadline=1)
    reason = until(
        lambda: (
            condition(world.api.get("Deployment", "acme-ai", "web"), "Progressing").get("reason")
            == "ProgressDeadlineExceeded"
        ),
        8.0,
    )
    assert reason


def test_refused_pods_are_told_and_made_once_there_is_room(world: World) -> None:
    world.quota("acme-ai", DEFAULT_HARD | {"requests.cpu": "1"})
    world.deployment(
        "web",
        claim=False,
        resources={"requests": {"cpu": "800m", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "2Gi"}},
    )
    world.running("web")
    world.deployment("late", claim=False)
    failure = until(lambda: condition(world.api.get("Deployment", "acme-ai", "late"), "ReplicaFailure"))
    assert failure["reason"] == "FailedCreate"
    assert (
        "exceeded quota: plan-quota, requested: requests.cpu=500m, used: requests.cpu=800m"
        in failure["message"]
    )
    world.api.delete("Deployment", "acme-ai", "web")
    world.running("late")
    until(lambda: not condition(world.api.get("Deployment", "acme-ai", "late"), "ReplicaFailure"))


def test_missing_template_is_told_on_the_pod_and_found_when_it_comes(world: World) -> None:
    world.deployment("chat")
    event = until(lambda: world.events("chat", "FailedResourceClaimCreation"))[0]
    assert event["message"].endswith('resourceclaimtemplate.resource.k8s.io "chat-gpu" not found')
    assert "conditions" not in world.pods("chat")[0]["status"]
    world.template("chat")
    world.running("chat")


def test_repeated_events_fold_into_one_with_a_count(world: World) -> None:
    world.deployment("chat")
    until(
        lambda: (
            max((event["count"] for event in world.events("chat", "FailedResourceClaimCreation")), default=0)
            > 3
        )
    )
    assert len(world.events("chat", "FailedResourceClaimCreation")) == 1


def test_different_events_of_a_kind_are_combined_after_ten(world: World) -> None:
    world.quota("acme-ai", {"pods": "0"})
    world.deployment("chat", claim=False)
    combined = until(
        lambda: [
            e
            for e in world.events("chat", "FailedCreate")
            if e["message"].startswith("(combined from similar events): Error creating: ")
        ],
        8.0,
    )
    assert len(combined) == 1
    assert len(world.events("chat", "FailedCreate")) == 10


def test_events_expire() -> None:
    world = World(event_ttl=0.3)
    world.namespace()
    world.deployment("web", claim=False)
    world.running("web")
    until(lambda: world.events("web"))
    until(lambda: not world.events("web"))
    world.close()


def test_deleted_deployment_takes_all_with_it(world: World) -> None:
    world.slice("chat")
    world.running("chat")
    world.api.delete("Deployment", "acme-ai", "chat")
    for kind in ("Deployment", "ReplicaSet", "Pod", "ResourceClaim"):
        until(lambda kind=kind: not world.api.list(kind))


def test_orphaned_pods_stay(world: World) -> None:
    world.deployment("web", claim=False)
    world.running("web")
    world.api.delete("Deployment", "acme-ai", "web", propagation="Orphan")
    until(lambda: not world.api.list("Deployment"))
    replica_set = until(lambda: world.api.list("ReplicaSet"))[0]
    assert not replica_set["metadata"].get("ownerReferences")
    assert world.running("web")


def test_foreground_deletion_ends_with_the_owner(world: World) -> None:
    world.deployment("web", claim=False)
    world.running("web")
    world.api.delete("Deployment", "acme-ai", "web", propagation="Foreground")
    until(lambda: not world.api.list("Deployment"))
    assert not world.api.list("ReplicaSet")
    assert not world.api.list("Pod")


def test_a_claim_in_use_outlives_its_deletion(world: World) -> None:
    world.slice("chat")
    world.running("chat")
    claim = world.api.list("ResourceClaim")[0]
    world.api.delete("ResourceClaim", "acme-ai", claim["metadata"]["name"])
    held = world.api.get("ResourceClaim", "acme-ai", claim["metadata"]["name"])
    assert held is not None
    assert held["status"]["allocation"]
    world.api.delete("Deployment", "acme-ai", "chat")
    until(lambda: not world.api.list("ResourceClaim"))


def test_namespace_goes_with_everything_in_it(world: World) -> None:
    world.slice("chat")
    world.volume("models")
    world.job("pull", "registry.example.test/job-ok:1")
    world.running("chat")
    world.api.delete("Namespace", None, "acme-ai")
    until(lambda: world.api.get("Namespace", None, "acme-ai") is None)
    for kind in (
        "Deployment",
        "Pod",
        "ResourceClaim",
        "Job",
        "PersistentVolumeClaim",
        "Event",
        "ResourceQuota",
    ):
        assert not world.api.list(kind, "acme-ai")


def test_volume_waits_for_its_first_consumer(world: World) -> None:
    world.volume("models")
    until(lambda: world.events("models", "WaitForFirstConsumer"))
    assert world.api.list("PersistentVolumeClaim")[0]["status"] == {"phase": "Pending"}
    volumes = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "models"}}]}
    world.slice("chat", pod=volumes)
    world.running("chat")
    volume = world.api.list("PersistentVolumeClaim")[0]
    assert volume["status"]["phase"] == "Bound"
    assert volume["status"]["capacity"] == {"storage": "20Gi"}
    world.api.delete("PersistentVolumeClaim", "acme-ai", "models")
    assert world.api.get("PersistentVolumeClaim", "acme-ai", "models") is not None
    world.api.delete("Deployment", "acme-ai", "chat")
    until(lambda: not world.api.list("PersistentVolumeClaim"))


def test_volume_of_an_unknown_class_never_binds(world: World) -> None:
    world.volume("models", storage_class="missing")
    event = until(lambda: world.events("models", "ProvisioningFailed"))[0]
    assert event["type"] == "Warning"
    assert event["message"] == 'storageclass.storage.k8s.io "missing" not found'
    volumes = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "models"}}]}
    world.slice("chat", pod=volumes)
    waiting = until(lambda: world.pods("chat") and condition(world.pods("chat")[0], "PodScheduled"))
    assert "pod has unbound immediate PersistentVolumeClaims" in waiting["message"]


def test_running_pods_go_on_after_a_restart(tmp_path: Path) -> None:
    world = World(tmp_path / "store.sqlite")
    world.namespace()
    world.slice("chat")
    world.deployment("bad", claim=False, image="registry.example.test/crash/app:1")
    before = world.running("chat")
    until(lambda: world.restarts("bad"))
    world.close()
    world.start()
    world.slice("second")
    world.running("second")
    after = world.running("chat")
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["status"] == before["status"]
    assert len(world.api.list("ResourceClaim")) == 2
    assert world.restarts("bad")
    world.close()


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_whatever_is_done_the_cluster_settles(seed: int) -> None:
    """Forty random acts of two tenants at once; then every card, claim, pod and quota must add up."""
    chance = random.Random(seed)  # noqa: S311
    world = World(nodes=2, crash_after=0.05, crash_backoff=0.1)
    world.namespace(hard={DEVICES.format(size): "4" for size in CLASSES} | {"pods": "6"})
    asked: dict[str, int] = {}
    for number in range(40):
        act = chance.choice(("order", "order", "stop", "start", "change", "kill", "release"))
        app = chance.choice(sorted(asked)) if asked else ""
        if act == "order" or not app:
            app = f"app-{number}"
            world.slice(app, size=chance.choice(sorted(CLASSES)))
            asked[app] = 1
        elif act in ("stop", "start"):
            asked[app] = 0 if act == "stop" else 1
            world.change("Deployment", app, lambda obj, n=asked[app]: obj["spec"].update(replicas=n))
        elif act == "change":
            image = f"registry.example.test/team/app:{number}"
            world.change(
                "Deployment",
                app,
                lambda obj, i=image: obj["spec"]["template"]["spec"]["containers"][0].update(image=i),
            )
        elif act == "kill":
            for pod in world.pods(app):
                world.api.delete("Pod", "acme-ai", pod["metadata"]["name"])
        else:
            world.api.delete("Deployment", "acme-ai", app)
            world.api.delete("ResourceClaimTemplate", "acme-ai", f"{app}-gpu")
            del asked[app]
        time.sleep(chance.choice((0.0, 0.01, 0.05)))
    until(lambda: _is_settled(world, asked), 20.0)
    world.close()


def _is_settled(world: World, asked: dict[str, int]) -> bool:
    pods, claims = world.api.list("Pod"), world.api.list("ResourceClaim")
    taken = used_by(claims)
    assert all(amounts["memory"] <= 32 * 2**30 and amounts["cores"] <= 100 for amounts in taken.values())
    allocated = [claim for claim in claims if (claim.get("status") or {}).get("allocation")]
    running = [pod for pod in pods if condition(pod, "Ready").get("status") == "True"]
    waiting = [pod for pod in pods if condition(pod, "PodScheduled").get("status") == "False"]
    refused = [pod for pod in pods if not (pod["status"].get("resourceClaimStatuses"))]
    quota = world.api.list("ResourceQuota")[0]["status"]["used"]
    wanted = sum(asked.values())
    return (
        len(pods) == min(wanted, 6)
        and len(running) + len(waiting) + len(refused) == len(pods)
        and len(allocated) == len(running)
        and len(claims) == len(running) + len(waiting)
        and sum(int(quota[DEVICES.format(size)]) for size in CLASSES) == len(claims)
        and int(quota["pods"]) == len(pods)
        and {d["metadata"]["name"] for d in world.api.list("Deployment")} == set(asked)
    )
