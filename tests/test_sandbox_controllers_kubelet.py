"""The pretended kubelet: images, probes, restarts, logs."""

import time
from collections.abc import Iterator

import pytest

from sandbox.containers import Container
from sandbox.images import behaviour, segments
from sandbox.options import Options
from tests.sandbox_world import World, condition, until

REGISTRY = "registry.example.test"


@pytest.fixture
def world() -> Iterator[World]:
    world = World(crash_after=0.1, crash_backoff=1.0, pull_backoff=1.0, slow_seconds=0.6)
    world.namespace()
    yield world
    world.close()


def waiting(world: World, app: str) -> dict[str, str]:
    return world.container(app).get("state", {}).get("waiting", {})


def test_missing_image(world: World) -> None:
    world.slice("chat", image=f"{REGISTRY}/missing/app:1")
    until(lambda: waiting(world, "chat").get("reason") == "ErrImagePull")
    until(lambda: waiting(world, "chat").get("reason") == "ImagePullBackOff")
    assert "not found" in waiting(world, "chat")["message"]
    pod = world.pods("chat")[0]
    assert pod["status"]["phase"] == "Pending"
    messages = [event["message"] for event in world.events("chat", "Failed")]
    assert any(message.startswith(f'Failed to pull image "{REGISTRY}/missing/app:1"') for message in messages)
    assert "Error: ErrImagePull" in messages
    event = until(lambda: world.events("chat", "BackOff"))[0]
    assert event["message"].startswith("Back-off pulling image")


def test_crash_loop(world: World) -> None:
    world.slice("chat", image=f"{REGISTRY}/crash/app:1")
    until(lambda: world.restarts("chat") >= 2)
    until(lambda: waiting(world, "chat").get("reason") == "CrashLoopBackOff")
    status = world.container("chat")
    assert status["lastState"]["terminated"]["exitCode"] == 1
    assert status["state"]["waiting"]["message"].startswith(
        "back-off 1s restarting failed container=workload pod=chat"
    )
    assert world.pods("chat")[0]["status"]["phase"] == "Running"
    assert condition(world.pods("chat")[0], "Ready")["status"] == "False"
    assert until(lambda: world.events("chat", "BackOff"))[0]["type"] == "Warning"
    assert "fatal: configuration is not valid" in world.log("chat", previous=True)


def test_killed_for_memory(world: World) -> None:
    world.slice("chat", image=f"{REGISTRY}/oom/app:1")
    ended = until(lambda: world.container("chat").get("lastState", {}).get("terminated"))
    assert (ended["exitCode"], ended["reason"]) == (137, "OOMKilled")


def test_slow_image_and_probes(world: World) -> None:
    probe = {"readinessProbe": {"httpGet": {"port": 8080}, "periodSeconds": 1}}
    world.slice("chat", image=f"{REGISTRY}/slow/app:1", container=probe)
    until(lambda: waiting(world, "chat").get("reason") == "ContainerCreating")
    until(lambda: "running" in world.container("chat").get("state", {}))
    assert world.container("chat")["ready"] is False
    assert condition(world.pods("chat")[0], "Ready")["reason"] == "ContainersNotReady"
    world.running("chat")
    event = until(lambda: world.events("chat", "Unhealthy"))[0]
    assert event["message"].startswith("Readiness probe failed")


def test_probe_delays_are_kept(world: World) -> None:
    probe = {"readinessProbe": {"tcpSocket": {"port": 8080}, "initialDelaySeconds": 1}}
    start = time.monotonic()
    world.slice("chat", container=probe)
    world.running("chat")
    assert time.monotonic() - start > 1.0


def test_cuda_check_shows_the_slice_and_no_identity(world: World) -> None:
    world.slice(
        "check",
        size="8g",
        image=f"{REGISTRY}/nvidia/cuda:12.4.1-base",
        command=["sh", "-c", "nvidia-smi && sleep infinity"],
    )
    world.running("check")
    log = until(lambda: world.log("check"))
    assert "Tesla V100-PCIE-32GB" in log
    assert "8192MiB" in log
    assert "UUID" not in log
    assert "00000000:" not in log


def test_without_a_claim_there_is_no_card(world: World) -> None:
    world.deployment("check", claim=False, image=f"{REGISTRY}/team/cuda-check:1")
    world.running("check")
    assert "couldn't communicate with the NVIDIA driver" in until(lambda: world.log("check"))


def test_deleted_pod_is_ended_and_replaced(world: World) -> None:
    world.slice("chat")
    old = world.running("chat")
    world.api.delete("Pod", "acme-ai", old["metadata"]["name"])
    until(lambda: world.api.get("Pod", "acme-ai", old["metadata"]["name"]) is None)
    assert world.running("chat")["metadata"]["uid"] != old["metadata"]["uid"]
    until(lambda: world.events("chat", "Killing"))


@pytest.mark.parametrize(
    ("image", "path"),
    [
        ("ubuntu", ["ubuntu"]),
        ("ubuntu:24.04", ["ubuntu"]),
        ("team/app@sha256:00", ["team", "app"]),
        ("registry.example.test:5000/a/b:1@sha256:00", ["a", "b"]),
        ("localhost/crash", ["crash"]),
        ("missing.example.test/app", ["app"]),
    ],
)
def test_segments(image: str, path: list[str]) -> None:
    assert segments(image) == path


@pytest.mark.parametrize(
    ("command", "runs", "code"),
    [
        ([], None, 0),
        (["sleep", "3"], 3.0, 0),
        (["sh", "-c", "sleep 1 && sleep 2"], 3.0, 0),
        (["sh", "-c", "nvidia-smi; sleep infinity"], None, 0),
        (["sh", "-c", "exit 2"], 0.0, 2),
    ],
)
def test_commands(command: list[str], runs: float | None, code: int) -> None:
    found = behaviour({"image": "app", "command": command}, Options(), None)
    assert (found.runs, found.exit_code) == (runs, code)


def test_back_off_grows_and_is_forgotten_after_a_calm_time() -> None:
    options = Options(crash_after=1.0, pull_seconds=0.0)
    spec = {"name": "c", "image": "x/crash"}
    container = Container(spec, behaviour(spec, options, None), options, "Always", "p_n(u)")
    at, pauses = 0.0, []
    while container.restarts < 9:
        container.step(at, lambda *_: None)
        if container.stage == "back-off":
            pauses.append(container.due - at)
        at = max(container.due, at)
    assert pauses == [0.0, 10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 300.0, 300.0]
    container.step(at, lambda *_: None)
    container.end(at + 700, 1, "Error", "", lambda *_: None)
    assert container.due == at + 700


def test_log_lines_come_once_each() -> None:
    options = Options(log_seconds=5.0)
    spec = {"name": "c", "image": "app"}
    container = Container(spec, behaviour(spec, options, None), options, "Always", "p_n(u)")
    container.step(0.0, lambda *_: None)
    container.step(0.1, lambda *_: None)
    lines: list[str] = []
    for tenth in range(1, 3000):
        lines += container.words(container.started + tenth / 10)
    assert len(lines) == len(set(lines))
    assert len(lines) == 2 + 5 + 4  # opening, one a second for five seconds, one a minute after that
