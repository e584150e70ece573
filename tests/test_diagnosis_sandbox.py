"""The diagnosis follows slices through the stand-in cluster: each stop on the way is one that a person expects."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from gpu.diagnosis import Diagnosis, Seen, explain
from sandbox.node import SILENT
from tests.diagnosis_kit import DEVICES, intent
from tests.sandbox_world import DEFAULT_HARD, World

REGISTRY = "registry.example.test"
KINDS = (
    "Deployment",
    "ReplicaSet",
    "Pod",
    "ResourceClaim",
    "ResourceClaimTemplate",
    "PersistentVolumeClaim",
    "Event",
    "ResourceQuota",
)
ON_THE_WAY = {"ordered", "starting", "pulling_image"}


@pytest.fixture
def world() -> Iterator[World]:
    world = World(
        crash_after=0.05,
        crash_backoff=0.3,
        pull_backoff=0.3,
        slow_seconds=0.5,
        lease_renewal=0.2,
        node_grace=0.6,
    )
    world.namespace(hard=DEFAULT_HARD | {DEVICES: "4"})
    yield world
    world.close()


def look(world: World, app: str = "chat", **changes: object) -> Diagnosis:
    objects = {kind: world.api.list(kind, "acme-ai") for kind in KINDS}
    now = datetime.now(UTC)
    changes.setdefault("ordered_at", now - timedelta(seconds=1))
    return explain(intent(app, **changes), Seen(objects, now, True), now)


def follow(
    world: World, state: str, app: str = "chat", seconds: float = 20.0, **changes: object
) -> list[str]:
    """Look until `state` comes; give every state on the way, each once in a row."""
    way: list[str] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = look(world, app, **changes).state
        if not way or way[-1] != found:
            way.append(found)
        if found == state:
            return way
        time.sleep(0.01)
    pytest.fail(f"{state} did not come within {seconds} s: {way}")


def test_from_order_to_running_and_back(world: World) -> None:
    world.slice("chat", image=f"{REGISTRY}/slow/app:1")
    way = follow(world, "running")
    assert set(way) <= ON_THE_WAY | {"running"}
    assert way.index("pulling_image") < way.index("running")
    assert [step.state for step in look(world).steps] == ["done"] * 7
    world.change("Deployment", "chat", lambda obj: obj["spec"].update(replicas=0))
    assert set(follow(world, "stopped", wanted="stop")) <= {"stopping", "stopped"}
    world.change("Deployment", "chat", lambda obj: obj["spec"].update(replicas=1))
    assert set(follow(world, "running")) <= ON_THE_WAY | {"running"}
    world.api.delete("Deployment", "acme-ai", "chat")
    world.api.delete("ResourceClaimTemplate", "acme-ai", "chat-gpu")
    assert set(follow(world, "released", wanted="release")) <= {"releasing", "released"}


def test_a_restart_never_looks_like_a_fault(world: World) -> None:
    world.quota("acme-ai", DEFAULT_HARD | {DEVICES: "1"})
    world.slice("chat")
    follow(world, "running")
    world.change(
        "Deployment",
        "chat",
        lambda obj: obj["spec"]["template"]["metadata"].update(annotations={"gpu-portal/restart": "1"}),
    )
    pod = world.running("chat")["metadata"]["uid"]
    way, end = [], time.monotonic() + 20
    while time.monotonic() < end:
        found = look(world)
        way.append(found.state)
        pods = world.pods("chat")
        if pods and pods[0]["metadata"]["uid"] != pod and found.state == "running":
            break
        time.sleep(0.01)
    assert way[-1] == "running"
    assert set(way) <= ON_THE_WAY | {"running"}


@pytest.mark.parametrize(
    ("segment", "state", "reason", "allowed"),
    [
        ("missing", "image_failed", "image_not_found", ON_THE_WAY),
        ("crash", "crashing", "exit_code", ON_THE_WAY | {"running", "running_degraded"}),
        ("oom", "out_of_memory", "oom_killed", ON_THE_WAY | {"running", "running_degraded"}),
    ],
)
def test_what_the_pretended_images_do(
    world: World, segment: str, state: str, reason: str, allowed: set[str]
) -> None:
    world.slice("chat", image=f"{REGISTRY}/{segment}/app:1")
    assert set(follow(world, state)) <= allowed | {state}
    assert look(world).reason == reason


def test_cards_entitlement_and_pool_are_told_apart(world: World) -> None:
    world.slice("big", size="32g")
    follow(world, "running", "big")
    world.slice("chat")
    assert set(follow(world, "waiting_for_card")) <= {"ordered", "waiting_for_card"}
    world.quota("acme-ai", DEFAULT_HARD | {DEVICES: "1"})
    world.slice("second")
    assert set(follow(world, "entitlement_used_up", "second")) <= {"ordered", "entitlement_used_up"}
    world.quota("acme-ai", DEFAULT_HARD | {"requests.cpu": "1500m"})
    world.slice("third")
    follow(world, "blocked_by_quota", "third")
    found = look(world, "third")
    assert (found.reason, str(found.sentence.params["short"])) == ("quota_cpu", "500m")
    world.api.delete("Deployment", "acme-ai", "big")
    follow(world, "running")


def test_a_template_that_is_gone_and_a_deployment_that_is_gone(world: World) -> None:
    world.deployment("chat")
    follow(world, "missing")
    assert look(world).reason == "claim_template_missing"
    long_ago = datetime.now(UTC) - timedelta(hours=1)
    found = look(world, "nobody", ordered_at=long_ago)
    assert (found.state, found.reason) == ("missing", "deployment_gone")


def test_a_silent_server(world: World) -> None:
    world.slice("chat")
    follow(world, "running")
    world.change(
        "Node",
        "gpu-node-1",
        lambda obj: obj["metadata"].setdefault("annotations", {}).update({SILENT: "true"}),
        None,
    )
    assert set(follow(world, "node_lost")) <= {"running", "node_lost"}
    found = look(world)
    assert "gpu-node-1" not in f"{found.sentence}{found.next_step}{found.causes}"
    world.change("Node", "gpu-node-1", lambda obj: obj["metadata"]["annotations"].pop(SILENT), None)
    assert set(follow(world, "running")) <= {"running", "node_lost", "starting"}
