"""The sandbox's Job controller, and commands run as real processes."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.api import Obj
from tests.sandbox_world import World, condition, until

OK, FAIL = "registry.example.test/job-ok/portal:1", "registry.example.test/job-fail/portal:1"


@pytest.fixture
def world() -> Iterator[World]:
    world = World(job_seconds=0.3, job_backoff=0.5)
    world.namespace()
    yield world
    world.close()


def job(world: World, name: str = "pull") -> Obj:
    found = world.api.get("Job", "acme-ai", name)
    assert found is not None
    return found


def reason(world: World, type_: str, seconds: float = 5.0) -> str:
    """Why the Job has that condition, once it has it."""
    return until(lambda: condition(job(world), type_), seconds)["reason"]


def test_a_job_that_succeeds(world: World) -> None:
    world.job("pull", OK)
    until(lambda: job(world).get("status", {}).get("active") == 1)
    assert reason(world, "Complete") == "CompletionsReached"
    status = job(world)["status"]
    assert [one["type"] for one in status["conditions"]] == ["SuccessCriteriaMet", "Complete"]
    assert (status["succeeded"], status.get("failed"), status.get("active")) == (1, None, None)
    assert status["completionTime"]
    pod = world.api.list("Pod", "acme-ai")[0]
    assert pod["status"]["phase"] == "Succeeded"
    assert not pod["metadata"].get("finalizers")
    until(lambda: world.events("pull", "Completed"))


def test_a_job_that_fails_again_and_again(world: World) -> None:
    world.job("pull", FAIL)
    assert reason(world, "Failed", 8.0) == "BackoffLimitExceeded"
    status = job(world)["status"]
    assert [one["type"] for one in status["conditions"]] == ["FailureTarget", "Failed"]
    assert status["failed"] == 2
    pods = world.api.list("Pod", "acme-ai")
    assert len(pods) == 2
    ended = pods[0]["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (3, "Error")
    assert ended["message"] == '{"error": "no space left on device"}'


def test_an_exit_code_of_the_failure_policy_is_not_tried_again(world: World) -> None:
    def policy(code: int) -> Obj:
        exits = {"operator": "In", "values": [code]}
        return {"rules": [{"action": "FailJob", "onExitCodes": exits}]}

    world.job("pull", FAIL, podFailurePolicy=policy(3), backoffLimit=3)
    assert reason(world, "Failed", 8.0) == "PodFailurePolicy"
    status = job(world)["status"]
    assert status["failed"] == 1
    assert "failed with exit code 3 matching FailJob rule at index 0" in status["conditions"][-1]["message"]
    world.job("other", FAIL, podFailurePolicy=policy(4), backoffLimit=0)
    until(lambda: condition(job(world, "other"), "Failed"), 8.0)
    assert condition(job(world, "other"), "Failed")["reason"] == "BackoffLimitExceeded"


def test_deadline_ends_the_pods(world: World) -> None:
    world.job("pull", "registry.example.test/portal:1", activeDeadlineSeconds=1)
    assert reason(world, "Failed") == "DeadlineExceeded"
    until(lambda: not [pod for pod in world.api.list("Pod") if pod["status"]["phase"] == "Running"])
    assert job(world)["status"].get("active") is None


def test_finished_jobs_go_after_their_time(world: World) -> None:
    world.job("pull", OK, ttlSecondsAfterFinished=1)
    reason(world, "Complete")
    until(lambda: not world.api.list("Job") and not world.api.list("Pod"))


def test_deleting_a_job_takes_its_running_pod(world: World) -> None:
    world.job("pull", "registry.example.test/portal:1")
    until(lambda: [pod for pod in world.api.list("Pod") if pod["status"]["phase"] == "Running"])
    world.api.delete("Job", "acme-ai", "pull")
    until(lambda: not world.api.list("Pod"))


def test_a_pod_deleted_early_counts_as_failed(world: World) -> None:
    world.job("pull", "registry.example.test/portal:1", backoffLimit=3)
    pod = until(lambda: [pod for pod in world.api.list("Pod") if pod["status"]["phase"] == "Running"])[0]
    world.api.delete("Pod", "acme-ai", pod["metadata"]["name"])
    until(lambda: job(world)["status"].get("failed") == 1)
    until(lambda: job(world)["status"].get("active") == 1)


def test_refused_pods_are_told_on_the_job_and_tried_again(world: World) -> None:
    world.quota("acme-ai", {"requests.cpu": "50m"})
    world.job("pull", OK)
    event = until(lambda: world.events("pull", "FailedCreate"))[0]
    assert event["involvedObject"]["kind"] == "Job"
    assert "exceeded quota: plan-quota, requested: requests.cpu=100m" in event["message"]
    assert not {"active", "failed", "succeeded", "conditions"} & job(world)["status"].keys()
    world.quota("acme-ai", {"requests.cpu": "1"})
    reason(world, "Complete")


def test_on_failure_restarts_in_place(world: World) -> None:
    world.job("pull", FAIL, pod={"restartPolicy": "OnFailure"})
    assert reason(world, "Failed", 8.0) == "BackoffLimitExceeded"


def test_sleep_and_exit_of_a_command(world: World) -> None:
    world.job(
        "pull",
        "registry.example.test/portal:1",
        container={"command": ["sh", "-c", "sleep 0.2; exit 4"]},
        backoffLimit=0,
    )
    reason(world, "Failed")
    pod = world.api.list("Pod")[0]
    assert pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 4


def test_suspended_jobs_run_once_resumed(world: World) -> None:
    world.job("pull", OK, suspend=True)
    paused = until(lambda: condition(job(world), "Suspended"))
    assert (paused["status"], paused["reason"], paused["message"]) == (
        "True",
        "JobSuspended",
        "Job suspended",
    )
    assert not world.api.list("Pod")
    assert "startTime" not in job(world)["status"]
    world.change("Job", "pull", lambda obj: obj["spec"].update(suspend=False))
    reason(world, "Complete")
    assert condition(job(world), "Suspended")["reason"] == "JobResumed"


SCRIPT = """
import os, pathlib, sys, time
print("layer 1 of", os.environ["LAYERS"], "with", os.environ["KEY"], flush=True)
pathlib.Path(os.environ["TERMINATION_LOG"]).write_text("last word")
time.sleep(float(os.environ.get("WAIT", "0")))
sys.exit(int(os.environ["CODE"]))
"""


def agent(world: World, code: int, **variables: str) -> None:
    """A Job whose image is the pull agent's: its command runs as a real process."""
    world.api.create(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "keys", "namespace": "acme-ai"},
            "stringData": {},
            "data": {"key": "c2VjcmV0"},
        }
    )
    env = [
        {"name": "LAYERS", "value": "3"},
        {"name": "CODE", "value": str(code)},
        {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "key"}}},
        *({"name": name, "value": value} for name, value in variables.items()),
    ]
    container = {"command": ["python", "-c", SCRIPT], "env": env}
    world.job("pull", "registry.example.test/pull-agent:1", container=container, backoffLimit=0)


@pytest.mark.parametrize(("code", "phase"), [(0, "Succeeded"), (5, "Failed")])
def test_pull_agent_runs_as_a_process(world: World, code: int, phase: str) -> None:
    agent(world, code)
    reason(world, "Failed" if code else "Complete")
    pod = world.api.list("Pod")[0]
    ended = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (pod["status"]["phase"], ended["exitCode"], ended["message"]) == (phase, code, "last word")
    assert "layer 1 of 3 with secret\n" in world.store.log("acme-ai", pod["metadata"]["name"], "pull")


def test_variables_and_folders_of_the_machine_win(tmp_path: Path) -> None:
    """A name that only a real cluster resolves is replaced, and so is a folder that only the image has."""
    (tmp_path / "agent.py").write_text("import os; print(os.environ['OLLAMA_URL'])")
    address = "http://127.0.0.1:11434"
    world = World(process_paths={"/agent/": f"{tmp_path}/"}, process_env={"OLLAMA_URL": address})
    world.namespace()
    env = [{"name": "OLLAMA_URL", "value": "http://chat:11434"}]
    container = {"command": ["python", "/agent/agent.py"], "env": env}
    world.job("pull", "registry.example.test/pull-agent:1", container=container)
    reason(world, "Complete")
    assert world.store.log("acme-ai", world.api.list("Pod")[0]["metadata"]["name"], "pull").endswith(
        f"{address}\n"
    )
    world.close()


def test_process_ends_with_its_pod(world: World, tmp_path_factory: pytest.TempPathFactory) -> None:
    mark = tmp_path_factory.mktemp("mark") / "pid"
    script = (
        f"import os, pathlib, time; pathlib.Path({str(mark)!r}).write_text(str(os.getpid())); time.sleep(60)"
    )
    world.job(
        "pull", "registry.example.test/pull-agent:1", container={"command": [sys.executable, "-c", script]}
    )
    pid = int(until(lambda: mark.exists() and mark.read_text()))
    world.api.delete("Job", "acme-ai", "pull")
    until(lambda: not world.api.list("Pod"))
    until(lambda: _is_gone(pid))


def _is_gone(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().split()[2] == "Z"
    except FileNotFoundError:
        return True


def test_command_that_cannot_start(world: World) -> None:
    world.job(
        "pull",
        "registry.example.test/pull-agent:1",
        container={"command": ["/nowhere/at/all"]},
        backoffLimit=0,
    )
    reason(world, "Failed")
    ended = world.api.list("Pod")[0]["status"]["containerStatuses"][0]["state"]["terminated"]
    assert ended["exitCode"] == 127
    assert "cannot start" in ended["message"]


def test_counting_is_not_disturbed_by_a_slow_look(world: World) -> None:
    """Every failed pod is counted once, however often the Job is looked at."""
    world.job("pull", FAIL, backoffLimit=2)
    reason(world, "Failed", 10.0)
    time.sleep(0.3)
    assert job(world)["status"]["failed"] == 3
    assert job(world)["status"]["uncountedTerminatedPods"] == {}
