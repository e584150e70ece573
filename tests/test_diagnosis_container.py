"""A slice that has a server: image, start, crashes, readiness, a silent server, a restart."""

from datetime import timedelta

import pytest

from gpu.diagnosis import explain
from gpu.messages import Memory
from tests.diagnosis_kit import NOW, Slice, at, ended, intent, running, seen

SOON = NOW - timedelta(minutes=3)


@pytest.mark.parametrize(
    ("reason", "message", "code", "who"),
    [
        ("InvalidImageName", 'Failed to apply default image tag "x//y"', "image_name_invalid", "member"),
        (
            "ErrImagePull",
            'failed to resolve reference "registry.example.test/a:b": not found',
            "image_not_found",
            "member",
        ),
        ("ImagePullBackOff", "manifest unknown", "image_not_found", "member"),
        ("ErrImagePull", "401 Unauthorized", "image_denied", "member"),
        (
            "ErrImagePull",
            "pull access denied, repository does not exist or may require authorization",
            "image_denied",
            "member",
        ),
        ("ErrImagePull", "429 Too Many Requests - toomanyrequests", "registry_limit", "member"),
        ("ErrImagePull", "dial tcp 10.1.2.3:443: i/o timeout", "registry_unreachable", "member"),
        ("ErrImagePull", "write /var/lib: no space left on device", "node_disk_full", "operator"),
        (
            "ErrImageNeverPull",
            "Container image is not present with pull policy of Never",
            "pull_failed",
            "member",
        ),
    ],
)
def test_an_image_that_cannot_be_fetched(reason, message, code, who):
    found = Slice().waits(reason, message).judge(now=SOON)
    assert (found.state, found.reason, found.who, found.platform_term) == ("image_failed", code, who, reason)
    assert "10.1.2.3" not in str(found.sentence)
    assert [step.state for step in found.steps][4] == "failed"


def test_a_backoff_takes_its_cause_from_the_event():
    it = Slice().waits("ImagePullBackOff", 'Back-off pulling image "registry.example.test/team/app:1"')
    it.event(it.pod, "Failed", 'Failed to pull image "x": manifest unknown', time=40)
    it.event(it.pod, "Failed", "Error: ImagePullBackOff", time=50)
    assert it.judge(now=SOON).reason == "image_not_found"


@pytest.mark.parametrize(
    ("reason", "state", "code"),
    [
        (None, "starting", "container_creating"),
        ("Scheduled", "starting", "container_creating"),
        ("Pulling", "pulling_image", "pulling"),
        ("Pulled", "starting", "container_creating"),
        ("FailedMount", "waiting_for_volume", "mount_failed"),
        ("FailedAttachVolume", "waiting_for_volume", "attach_failed"),
        ("FailedCreatePodSandBox", "waiting_for_node", "network_failed"),
        ("FailedPrepareDynamicResources", "waiting_for_node", "card_not_prepared"),
    ],
)
def test_before_the_container_starts(reason, state, code):
    it = Slice().creating()
    if reason:
        it.event(it.pod, reason, "on node gpu-node-1", time=5)
    found = it.judge(now=SOON)
    assert (found.state, found.reason) == (state, code)
    assert "gpu-node-1" not in str(found.sentence)


def test_the_newest_event_before_the_start_counts():
    it = Slice().creating()
    it.event(it.pod, "FailedMount", "timed out", time=10).event(it.pod, "Pulling", kind="Normal", time=20)
    assert it.judge(now=SOON).state == "pulling_image"
    it.event(it.pod, "Pulled", kind="Normal", time=30)
    found = it.judge(now=SOON)
    assert (found.state, found.steps[4].state, found.steps[5].state) == ("starting", "done", "current")


def test_scheduled_and_not_yet_taken_up_by_the_server():
    it = Slice()
    it.pod["status"] = {"phase": "Pending"}
    it.condition("PodScheduled", "True", 3)
    found = it.judge(now=SOON)
    assert (found.state, found.since.isoformat()) == ("starting", "2026-11-30T15:51:03+00:00")


@pytest.mark.parametrize(
    ("last", "state", "code"),
    [
        (ended(1), "crashing", "exit_code"),
        (ended(0, "Completed"), "crashing", "ends_at_once"),
        (ended(127), "crashing", "command_not_found"),
        (
            ended(128, "StartError", 'exec: "foo": executable file not found in $PATH'),
            "crashing",
            "command_not_found",
        ),
        (ended(128, "StartError", "cannot allocate memory"), "crashing", "exit_code"),
        (ended(2, "Error", "no such file or directory"), "crashing", "exit_code"),
        (ended(137), "crashing", "killed"),
        (ended(137, "OOMKilled"), "out_of_memory", "oom_killed"),
    ],
)
def test_a_crash_loop_tells_how_the_container_ended(last, state, code):
    waiting = Slice().waits("CrashLoopBackOff", "back-off 10s", last=last, restarts=3).judge(now=SOON)
    now = Slice().container_state(last, restarts=0).judge(now=SOON)
    for found in (waiting, now):
        assert (found.state, found.reason, found.who) == (state, code, "member")
        assert found.since.isoformat() == "2026-11-30T15:51:50+00:00"
        assert found.steps[-1].state == "failed"


def test_out_of_memory_names_the_limit_and_not_the_card():
    found = Slice().waits("CrashLoopBackOff", last=ended(137, "OOMKilled"), restarts=1).judge(now=SOON)
    assert found.sentence.params == {"limit": Memory(2 * 2**30)}
    assert found.platform_term == "OOMKilled (exit 137)"
    it = Slice().waits("CrashLoopBackOff", last=ended(137, "OOMKilled"), restarts=1)
    del it.pod["spec"]["containers"][0]["resources"]
    assert it.judge(now=SOON).state == "out_of_memory"


def test_last_words_are_kept_and_cleaned():
    last = ended(2, message="cannot open GPU-0a1b2c3d-1111-2222-3333-444455556666\n" + "x" * 900)
    found = Slice().waits("CrashLoopBackOff", last=last, restarts=2).judge(now=SOON)
    words = str(found.causes[0])
    assert words.startswith("Its last words: cannot open […] xxx")
    assert len(words) < 330
    assert found.platform_term == "CrashLoopBackOff (exit 2)"


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("Container workload failed liveness probe, will be restarted", "liveness_failed"),
        ("Container workload failed startup probe, will be restarted", "startup_failed"),
    ],
)
def test_a_container_killed_for_its_probe(message, code):
    it = Slice().waits("CrashLoopBackOff", last=ended(137), restarts=3)
    it.event(it.pod, "Killing", message, kind="Normal", time=49)
    assert it.judge(now=SOON).reason == code
    old = Slice().waits("CrashLoopBackOff", last=ended(137), restarts=3)
    old.event(old.pod, "Killing", message, kind="Normal", time=20)
    assert old.judge(now=SOON).reason == "killed"


@pytest.mark.parametrize(
    ("reason", "message", "code"),
    [
        ("RunContainerError", 'exec: "x": executable file not found in $PATH', "command_not_found"),
        (
            "CreateContainerConfigError",
            "container has runAsNonRoot and image will run as root",
            "image_wants_root",
        ),
        ("CreateContainerConfigError", 'secret "token" not found', "cannot_start"),
    ],
)
def test_a_container_that_cannot_be_started(reason, message, code):
    found = Slice().waits(reason, message).judge(now=SOON)
    assert (found.state, found.reason) == ("crashing", code)


def test_a_crash_loop_does_not_flicker_while_the_container_runs_for_a_moment():
    it = Slice().container_state(running(60), last=ended(1), ready=True, restarts=5)
    assert it.judge(now=NOW - timedelta(minutes=2, seconds=5)).state == "crashing"
    assert it.judge(now=NOW - timedelta(minutes=2)).state == "running_degraded"


def test_a_container_that_serves_again_is_limited_for_an_hour():
    it = Slice().container_state(running(60), last=ended(137, "OOMKilled"), ready=True, restarts=1)
    found = it.judge(now=SOON)
    assert (found.state, found.reason, found.settled) == ("running_degraded", "restarted_out_of_memory", True)
    it.container["lastState"] = ended(1)
    assert it.judge(now=SOON).reason == "restarted"
    assert it.judge(now=NOW + timedelta(hours=2)).state == "running"


def test_readiness_takes_its_time_and_then_is_the_members_matter():
    it = Slice().container_state(running(40))
    it.event(it.pod, "Unhealthy", "Readiness probe failed: Get http://10.1.0.5:8080/: 503", time=60)
    found = it.judge(now=SOON)
    assert (found.state, found.reason, found.who) == ("starting", "not_ready", "nobody")
    assert "10.1.0.5" not in str(found.causes[0])
    found = it.judge(now=NOW + timedelta(minutes=10))
    assert (found.state, found.reason, found.who) == ("starting", "never_ready", "member")
    assert len(found.causes) == 1


def test_a_check_from_before_the_last_start_is_no_present_cause():
    it = Slice().container_state(running(100))
    it.event(it.pod, "Unhealthy", "Startup probe failed", time=60)
    assert it.judge(now=SOON).causes == ()


def silent(it):
    """What a server's silence looks like: nobody but the node controller has changed the pod."""
    return it.condition("Ready", "False", 90)


def test_a_silent_server_is_told_and_is_not_a_container_that_is_not_ready():
    found = silent(Slice()).judge(now=SOON)
    assert (found.state, found.reason, found.who) == ("node_lost", "node_lost", "operator")
    assert found.since.isoformat() == "2026-11-30T15:52:30+00:00"
    assert Slice().container_state(running()).judge(now=SOON).state == "starting"


def test_a_pod_marked_lost():
    it = Slice().condition("Ready", "Unknown")
    it.pod["status"]["reason"] = "NodeLost"
    assert it.judge(now=SOON).state == "node_lost"


def test_a_new_pod_that_waits_for_what_a_silent_server_holds():
    it = silent(Slice())
    it.pod["metadata"]["deletionTimestamp"] = at(390)
    new = it.second_pod(time=391)
    it.event(new, "FailedResourceClaimCreation", "exceeded quota: q, requested: a=1, used: a=1, limited: a=1")
    found = it.judge(now=SOON)
    assert (found.state, found.reason) == ("node_lost", "replacement_waits")


def test_after_a_restart_the_new_pod_counts_not_the_old():
    it = Slice()
    it.pod["metadata"]["deletionTimestamp"] = at(90)
    found = it.judge(now=SOON)
    assert (found.state, found.reason) == ("starting", "replacing")
    assert [step.state for step in found.steps][:3] == ["done", "done", "current"]
    new = it.second_pod()
    new["status"] = {
        "phase": "Pending",
        "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": at(101)}],
        "containerStatuses": [
            {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "manifest unknown"}}}
        ],
    }
    assert it.judge(now=SOON).state == "image_failed"


def test_the_pod_of_the_newest_replica_set_counts():
    it = Slice()
    newest = {**it.replica_set, "metadata": {**it.replica_set["metadata"], "name": "chat-2", "uid": "set-2"}}
    newest["metadata"]["annotations"] = {"deployment.kubernetes.io/revision": "10"}
    it.replica_set["metadata"]["annotations"]["deployment.kubernetes.io/revision"] = "9"
    it.objects["ReplicaSet"].append(newest)
    new = it.second_pod(time=-100)  # older than the old one: its clock does not decide
    new["metadata"]["ownerReferences"] = [{"kind": "ReplicaSet", "controller": True, "uid": "set-2"}]
    assert it.judge(now=SOON).reason == "claim_coming"


@pytest.mark.parametrize(("reason", "code"), [("Evicted", "evicted"), ("OutOfcpu", "pod_failed")])
def test_an_ended_pod_is_told_until_its_successor_is_there(reason, code):
    it = Slice()
    it.pod["status"] = {
        "phase": "Failed",
        "reason": reason,
        "message": "The node was low on resource: memory.",
    }
    found = it.judge(now=SOON)
    assert (found.state, found.reason) == ("crashing", code)
    it.objects["ResourceQuota"] = []
    it.event(
        it.replica_set, "FailedCreate", "exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1"
    )
    assert it.judge(now=SOON).reason == "quota_pods"
    it.second_pod()
    assert it.judge(now=SOON).reason == "claim_coming"


def test_the_pod_of_a_pull_is_not_the_workload():
    it = Slice()
    pull = it.second_pod("chat-pull-1")
    pull["metadata"]["ownerReferences"] = [{"kind": "Job", "controller": True, "uid": "job-1"}]
    assert it.judge(now=SOON).state == "running"


def test_nothing_is_called_running_that_is_not_ready():
    for ready in ("False", "Unknown"):
        it = Slice().container_state(running()).condition("Ready", ready)
        assert it.judge(now=SOON).state != "running"
    it = Slice()
    it.pod["status"]["conditions"] = []
    assert it.judge(now=SOON).state != "running"


def test_bare_objects_do_not_break_it():
    it = Slice()
    for pod in ({"phase": "Running"}, {"containerStatuses": [{}]}, {"containerStatuses": None}, {}):
        it.pod["status"] = pod
        assert explain(intent(), seen(it.objects), NOW).state
