"""Ollama and the pull agent in the sandbox: a slice that serves, Jobs that find it by its Service."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpu.pull_lines import AgentLog, read_agent_log
from gpu.receipts import read_server_log
from sandbox.api import Obj
from tests.ollama_replay import SOURCE
from tests.sandbox_world import World, condition, until

PYTHON = "python:3.13-slim"
SECONDS = 30.0


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path / "objects.sqlite", ollama_seconds=0.6, volumes=str(tmp_path / "volumes"))
    world.namespace()
    yield world
    world.close()


def ollama(
    world: World, app: str = "chat", tag: str = "0.24.0", memory: str = "4Gi", volume: bool = True
) -> None:
    """A slice with Ollama and its Service, as the portal renders them."""
    container: Obj = {"env": [{"name": "OLLAMA_MODELS", "value": "/data/models"}]}
    pod: Obj = {}
    if volume:
        world.volume(f"{app}-data")
        container["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
        pod["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": f"{app}-data"}}]
    limits = {"cpu": "1", "memory": memory}
    resources = {"requests": limits, "limits": limits, "claims": [{"name": "gpu"}]}
    image = f"ollama/ollama:{tag}"
    world.slice(app, image=image, container=container, pod=pod, resources=resources)
    world.api.create(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": app, "namespace": "acme-ai"},
            "spec": {"selector": {"app.kubernetes.io/name": app}, "ports": [{"port": 11434}]},
        }
    )


def pod_of(world: World, owner: str) -> Obj | None:
    found = [
        one for one in world.api.list("Pod", "acme-ai") if one["metadata"]["name"].startswith(f"{owner}-")
    ]
    return found[0] if len(found) == 1 else None


def ready(world: World, app: str = "chat") -> Obj:
    def look() -> Obj | None:
        pod = pod_of(world, app)
        return pod if pod and condition(pod, "Ready").get("status") == "True" else None

    found = until(look, SECONDS)
    assert found is not None
    return found


def agent(world: World, name: str, url: str = "http://chat:11434", **settings: str) -> AgentLog:
    """Run the agent in a Job to its end."""
    env = {"OLLAMA_URL": url, "MODEL": "llama3.2:3b", **settings}
    container = {
        "command": ["python", "-c", SOURCE.read_text()],
        "env": [{"name": key, "value": value} for key, value in env.items()],
    }
    world.job(name, PYTHON, container=container, backoffLimit=0)

    def ended() -> Obj | None:
        pod = pod_of(world, name)
        return pod if pod and pod["status"].get("phase") in ("Succeeded", "Failed") else None

    pod = until(ended, SECONDS)
    assert pod is not None
    text = world.store.log("acme-ai", pod["metadata"]["name"], "pull")
    found = read_agent_log("\n".join(line.partition(" ")[2] for line in text.splitlines()))
    last = pod["status"]["containerStatuses"][0]["state"]["terminated"]["message"]
    assert found.verdict == read_agent_log(last).verdict
    return found


def outcome(found: AgentLog) -> str:
    assert found.verdict is not None
    return found.verdict.outcome


def names(found: AgentLog) -> list[str]:
    assert found.models is not None
    return [model.name for model in found.models.models]


def test_a_model_is_pulled_checked_and_kept(world: World) -> None:
    ollama(world)
    pod = ready(world)
    assert outcome(agent(world, "pull")) == "done"
    check = agent(world, "check", AGENT_MODE="check").check
    assert check is not None
    assert check.placement == "gpu"
    seen = read_server_log(world.store.log("acme-ai", pod["metadata"]["name"], "workload"))
    assert seen.card is not None
    assert (seen.card.memory, seen.on_gpu) == (8 * 1024**3, True)
    # Another pod with the same volume and at the same address.
    world.api.delete("Pod", "acme-ai", pod["metadata"]["name"])
    until(lambda: (pod_of(world, "chat") or pod)["metadata"]["uid"] != pod["metadata"]["uid"], SECONDS)
    ready(world)
    assert names(agent(world, "list", AGENT_MODE="list")) == ["llama3.2:3b"]
    assert outcome(agent(world, "again")) == "already_there"
    assert names(agent(world, "delete", AGENT_MODE="delete")) == []


def test_a_restart_of_the_sandbox_is_none_of_the_container(world: World) -> None:
    ollama(world)
    ready(world)
    agent(world, "pull")
    world.close()
    world.start()
    assert names(agent(world, "list", AGENT_MODE="list")) == ["llama3.2:3b"]
    assert ready(world)["status"]["containerStatuses"][0]["restartCount"] == 0


def test_without_a_volume_models_are_lost(world: World) -> None:
    ollama(world, volume=False)
    pod = ready(world)
    assert outcome(agent(world, "pull")) == "done"
    world.api.delete("Pod", "acme-ai", pod["metadata"]["name"])
    until(lambda: (pod_of(world, "chat") or pod)["metadata"]["uid"] != pod["metadata"]["uid"], SECONDS)
    assert names(agent(world, "list", AGENT_MODE="list")) == []


def test_a_model_larger_than_the_volume(world: World) -> None:
    ollama(world)
    found = agent(world, "pull", MODEL="huge")
    assert outcome(found) == "volume_full"
    assert found.verdict is not None
    assert found.verdict.total > 20 * 1024**3


def test_a_build_without_the_card_runs_on_the_cpu(world: World) -> None:
    ollama(world, tag="0.30.5")
    pod = ready(world)
    agent(world, "pull")
    check = agent(world, "check", AGENT_MODE="check").check
    assert check is not None
    assert check.placement == "cpu"
    seen = read_server_log(world.store.log("acme-ai", pod["metadata"]["name"], "workload"))
    assert (seen.cpu_only, seen.kernels_missing) == (True, True)


def test_too_little_memory_kills_the_container(world: World) -> None:
    ollama(world, memory="512Mi")
    ready(world)
    agent(world, "pull")
    assert outcome(agent(world, "check", AGENT_MODE="check")) == "interrupted"
    pod = until(
        lambda: (
            (found := pod_of(world, "chat"))
            and found["status"]["containerStatuses"][0]["restartCount"] == 1
            and found
        ),
        SECONDS,
    )
    ended = pod["status"]["containerStatuses"][0]["lastState"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (137, "OOMKilled")


def test_two_workloads_do_not_share_models(world: World) -> None:
    ollama(world, "one")
    ollama(world, "two")
    ready(world, "one")
    ready(world, "two")
    assert outcome(agent(world, "pull", "http://one:11434")) == "done"
    assert names(agent(world, "list", "http://two.acme-ai.svc:11434", AGENT_MODE="list")) == []


@pytest.mark.parametrize("url", ["http://nobody:11434", "http://chat:80", "http://chat"])
def test_an_address_that_nobody_serves(world: World, url: str) -> None:
    ollama(world)
    ready(world)
    assert outcome(agent(world, "pull", url, START_SECONDS="0")) == "unreachable"
