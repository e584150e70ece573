"""The sandbox's scheduler: claims onto cards, pods onto nodes, and what it says of those that wait."""

import time
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.api import Obj
from sandbox.devices import Device, allocate, devices_of, matches, used_by
from sandbox.node import slice_object
from sandbox.options import NodeSpec
from sandbox.scheduler import tolerates
from tests.sandbox_world import CLASSES, DEVICES, World, condition, until

HARD = {DEVICES.format(size): "9" for size in CLASSES}
LARGE = {"requests": {"cpu": "12", "memory": "1Gi"}, "limits": {"cpu": "12", "memory": "1Gi"}}
SMALL = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}}


@pytest.fixture
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    world = World(**getattr(request, "param", {}))
    world.namespace(hard=HARD)
    world.namespace("birch-lab", hard=HARD)
    yield world
    world.close()


def scheduled(world: World, app: str, namespace: str = "acme-ai") -> Obj:
    """The app's PodScheduled condition."""
    pods = world.pods(app, namespace)
    return condition(pods[0], "PodScheduled") if pods else {}


def test_cards_busy_then_running(world: World) -> None:
    """A freed card goes to the waiting pod within two seconds, and that pod is the same one."""
    world.slice("whole", "birch-lab", "32g")
    world.running("whole", "birch-lab")
    world.slice("chat")
    told = until(lambda: scheduled(world, "chat"))
    assert (told["status"], told["reason"]) == ("False", "Unschedulable")
    assert told["message"] == (
        "0/1 nodes are available: 1 cannot allocate all claims. still not schedulable, preemption: "
        "0/1 nodes are available: 1 Preemption is not helpful for scheduling."
    )
    waiting = world.pods("chat")[0]["metadata"]["uid"]
    event = world.events("chat", "FailedScheduling")[0]
    assert event["eventTime"]
    assert "count" not in event
    world.api.delete("Deployment", "birch-lab", "whole")
    assert world.running("chat")["metadata"]["uid"] == waiting
    assert len(world.events("chat", "FailedScheduling")) == 1


def test_four_quarters_share_a_card_and_the_fifth_waits(world: World) -> None:
    for number in range(4):
        world.slice(f"quarter-{number}")
        world.running(f"quarter-{number}")
    world.slice("fifth")
    assert until(lambda: scheduled(world, "fifth"))["reason"] == "Unschedulable"
    results = [claim["status"].get("allocation") for claim in world.api.list("ResourceClaim")]
    shares = [r["devices"]["results"][0]["shareID"] for r in results if r]
    assert len(set(shares)) == 4


def test_memory_decides_where_cores_would_suffice(world: World) -> None:
    world.slice("half", size="16g")
    world.slice("quarter", size="8g")
    world.running("half")
    world.running("quarter")
    world.slice("other-half", size="16g")
    assert until(lambda: scheduled(world, "other-half"))["status"] == "False"


@pytest.mark.parametrize("world", [{"nodes": 2}], indirect=True)
def test_two_nodes_have_two_cards(world: World) -> None:
    for app in ("one", "two"):
        world.slice(app, size="32g")
    nodes = {world.running(app)["spec"]["nodeName"] for app in ("one", "two")}
    assert nodes == {"gpu-node-1", "gpu-node-2"}
    world.slice("three")
    message = until(lambda: scheduled(world, "three"))["message"]
    assert message.startswith("0/2 nodes are available: 2 cannot allocate all claims. ")


@pytest.mark.parametrize("world", [{"nodes": 2}], indirect=True)
def test_reasons_are_counted_by_node(world: World) -> None:
    """One node has no CPU left, the other no card: case C-05 c."""
    world.deployment("large", claim=False, resources=LARGE)
    busy = world.running("large")["spec"]["nodeName"]
    world.slice("whole", "birch-lab", "32g", resources=SMALL)
    assert world.running("whole", "birch-lab")["spec"]["nodeName"] != busy
    world.slice(
        "chat", resources={"requests": {"cpu": "6", "memory": "1Gi"}, "limits": {"cpu": "6", "memory": "1Gi"}}
    )
    told = until(lambda: scheduled(world, "chat"))
    assert told["message"].startswith(
        "0/2 nodes are available: 1 Insufficient cpu, 1 cannot allocate all claims. "
    )
    assert told["message"].endswith(
        " still not schedulable, preemption: 0/2 nodes are available: "
        "1 No preemption victims found for incoming pod, 1 Preemption is not helpful for scheduling."
    )


def test_no_cpu_is_told_with_preemption_in_vain(world: World) -> None:
    world.deployment("large", claim=False, resources=LARGE)
    world.running("large")
    world.deployment("late", claim=False, resources=LARGE)
    assert until(lambda: scheduled(world, "late"))["message"] == (
        "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: "
        "0/1 nodes are available: 1 No preemption victims found for incoming pod."
    )
    world.api.delete("Deployment", "acme-ai", "large")
    world.running("late")


def test_what_fits_no_node_at_all_is_beyond_preemption(world: World) -> None:
    """The sentences are those of a real kube-scheduler 1.36.3."""
    huge = {"requests": {"cpu": "100", "memory": "200Gi"}, "limits": {"cpu": "100", "memory": "200Gi"}}
    world.deployment("huge", claim=False, resources=huge)
    assert until(lambda: scheduled(world, "huge"))["message"] == (
        "0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient memory. no new claims to deallocate, "
        "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
    )


def test_unknown_device_class_is_told(world: World) -> None:
    world.template("chat")
    world.api.delete("DeviceClass", None, "kube-dc-nvidia-v100-shared-8g")
    world.deployment("chat")
    assert until(lambda: scheduled(world, "chat"))["message"] == (
        "0/1 nodes are available: request gpu: device class kube-dc-nvidia-v100-shared-8g does not exist. "
        "no new claims to deallocate, preemption: 0/1 nodes are available: "
        "1 Preemption is not helpful for scheduling."
    )


def test_a_new_card_lets_waiting_pods_run(world: World) -> None:
    world.slice("one", size="32g")
    world.running("one")
    world.slice("two", size="32g")
    until(lambda: scheduled(world, "two"))
    spare = slice_object(NodeSpec("spare"))
    spare["metadata"]["name"] = "gpu-node-1-second"
    spare["spec"] |= {"nodeName": "gpu-node-1", "pool": spare["spec"]["pool"] | {"name": "second"}}
    world.api.create(spare)
    world.running("two")


def test_the_longest_waiting_pod_is_served_first(world: World) -> None:
    world.slice("whole", size="32g")
    world.running("whole")
    for app in ("first", "second"):
        world.slice(app, size="32g")
        until(lambda app=app: scheduled(world, app))
        time.sleep(1.0 if app == "first" else 0.0)  # creation times have whole seconds
    world.api.delete("Deployment", "acme-ai", "whole")
    world.running("first")
    assert scheduled(world, "second")["status"] == "False"


def test_missing_volume_and_node_troubles_are_told(world: World) -> None:
    volumes = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "nowhere"}}]}
    world.deployment("web", claim=False, pod=volumes)
    assert until(lambda: scheduled(world, "web"))["message"] == (
        '0/1 nodes are available: persistentvolumeclaim "nowhere" not found. not found'
    )
    world.change(
        "Node", "gpu-node-1", lambda node: node.setdefault("spec", {}).update(unschedulable=True), None
    )
    world.deployment("plain", claim=False)
    assert "1 node(s) were unschedulable" in until(lambda: scheduled(world, "plain"))["message"]
    world.change("Node", "gpu-node-1", lambda node: node["spec"].pop("unschedulable"), None)
    world.running("plain")


def test_silent_node_is_tainted_and_its_pods_are_not_ready() -> None:
    world = World(lease_renewal=0.2, node_grace=1.0)
    world.namespace(hard=HARD)
    world.slice("chat")
    world.running("chat")
    world.change(
        "Node",
        "gpu-node-1",
        lambda n: n["metadata"].update(annotations={"sandbox.gpu-portal/silent": "true"}),
        None,
    )
    pod = until(
        lambda: next((p for p in world.pods("chat") if condition(p, "Ready")["status"] == "False"), None)
    )
    assert pod["status"]["phase"] == "Running"
    node = world.api.get("Node", None, "gpu-node-1")
    assert condition(node, "Ready")["status"] == "Unknown"
    world.slice("late")
    assert "1 node(s) had untolerated taint(s)" in until(lambda: scheduled(world, "late"))["message"]
    world.change("Node", "gpu-node-1", lambda n: n["metadata"].update(annotations={}), None)
    world.running("late")
    world.running("chat")
    assert not world.api.get("Node", None, "gpu-node-1")["spec"].get("taints")
    world.close()


def test_pods_leave_a_lost_node_after_the_time_they_tolerate() -> None:
    world = World(nodes=2, lease_renewal=0.2, node_grace=0.8)
    world.namespace(hard=HARD)
    tolerated = [{"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"}]
    tolerations = [{**one, "tolerationSeconds": 1} for one in tolerated]
    world.deployment("web", claim=False, pod={"tolerations": tolerations})
    old = world.running("web")
    silent = {"sandbox.gpu-portal/silent": "true"}
    world.change("Node", old["spec"]["nodeName"], lambda n: n["metadata"].update(annotations=silent), None)
    new = until(
        lambda: next(
            (p for p in world.pods("web") if p["spec"].get("nodeName") != old["spec"]["nodeName"]), None
        ),
        8.0,
    )
    assert new is not None
    gone = world.api.get("Pod", "acme-ai", old["metadata"]["name"])
    assert gone is not None
    assert gone["metadata"]["deletionTimestamp"]  # only its kubelet could end it
    world.change("Node", old["spec"]["nodeName"], lambda n: n["metadata"].update(annotations={}), None)
    until(lambda: world.api.get("Pod", "acme-ai", old["metadata"]["name"]) is None)
    world.close()


# The pure part.


def card(memory: str = "32Gi", **changes: Any) -> Device:
    found = devices_of([slice_object(NodeSpec("n", card_memory=memory))])["n"][0]
    return Device(found.driver, found.pool, found.node, {**found.spec, **changes})


def claim(**capacity: str) -> Obj:
    exactly = {"deviceClassName": "any", "allocationMode": "ExactCount", "count": 1}
    if capacity:
        exactly["capacity"] = {"requests": capacity}
    return {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}}


CLASS = {"any": {"spec": {"selectors": []}}}


@given(st.lists(st.tuples(st.integers(1, 33_000), st.integers(1, 101)), max_size=12))
def test_a_card_is_never_given_away_twice(wanted: list[tuple[int, int]]) -> None:
    held: list[Obj] = []
    for memory, cores in wanted:
        asked = claim(memory=f"{memory}Mi", cores=str(cores))
        results = allocate(asked, [card()], CLASS, used_by(held))
        taken = used_by(held).get(card().id, {})
        fits = memory * 2**20 + taken.get("memory", 0) <= 32 * 2**30 and cores + taken.get("cores", 0) <= 100
        assert (results is not None) == fits
        if results is not None:
            held.append({**asked, "status": {"allocation": {"devices": {"results": results}}}})
    total = used_by(held).get(card().id, {})
    assert total.get("memory", Decimal(0)) <= 32 * 2**30
    assert total.get("cores", Decimal(0)) <= 100


def test_requests_follow_the_policy_of_the_card() -> None:
    results = allocate(claim(memory="1", cores="7"), [card()], CLASS, {})
    assert results is not None
    assert results[0]["consumedCapacity"] == {"cores": "7", "memory": "1Mi"}  # rounded up to the step
    whole = allocate(claim(), [card()], CLASS, {})
    assert whole is not None
    assert whole[0]["consumedCapacity"] == {"cores": "100", "memory": "32Gi"}
    assert allocate(claim(memory="40Gi"), [card()], CLASS, {}) is None
    assert allocate(claim(bandwidth="1"), [card()], CLASS, {}) is None
    assert allocate(claim(), [card()], {}, {}) is None


def test_a_card_that_is_not_shared_is_taken_whole() -> None:
    alone = card(allowMultipleAllocations=False)
    first = allocate(claim(), [alone], CLASS, {})
    assert first is not None
    assert "shareID" not in first[0]
    held = {"status": {"allocation": {"devices": {"results": first}}}}
    assert allocate(claim(), [alone], CLASS, used_by([held])) is None


@pytest.mark.parametrize(
    ("expression", "met"),
    [
        ('device.driver == "hami-core-gpu.project-hami.io"', True),
        ("device.allowMultipleAllocations == true", True),
        ('device.attributes["hami-core-gpu.project-hami.io"].productName == "Tesla V100-PCIE-32GB"', True),
        ('device.attributes["hami-core-gpu.project-hami.io"].productName == "A100"', False),
        ('device.attributes["other.example"].productName == "A100"', False),
        (
            'device.capacity["hami-core-gpu.project-hami.io"].memory.compareTo(quantity("32768Mi")) == 0',
            True,
        ),
        (
            'device.capacity["hami-core-gpu.project-hami.io"].memory.isGreaterThan(quantity("32Gi"))',
            False,
        ),
        ("this is no expression", False),
    ],
)
def test_selectors(expression: str, met: bool) -> None:
    assert matches(expression, card()) is met


@pytest.mark.parametrize(
    ("toleration", "covers"),
    [
        ({"operator": "Exists"}, True),
        ({"key": "lost", "operator": "Exists", "effect": "NoExecute"}, True),
        ({"key": "lost", "operator": "Exists", "effect": "NoSchedule"}, False),
        ({"key": "lost", "value": "yes"}, True),
        ({"key": "lost", "value": "no"}, False),
        ({"key": "other", "operator": "Exists"}, False),
    ],
)
def test_tolerations(toleration: Obj, covers: bool) -> None:
    assert tolerates(toleration, {"key": "lost", "value": "yes", "effect": "NoExecute"}) is covers
