"""A slice without a running container: C-04, C-05, C-15 and what stands beside them."""

from datetime import timedelta
from decimal import Decimal

import pytest

from gpu.diagnosis import explain_volume
from gpu.diagnosis.view import event_time
from gpu.messages import Count, Memory
from tests.diagnosis_kit import DEVICES, NOW, Slice, at

FORBIDDEN = 'pods "chat-9998974bf-x2x7p" is forbidden: '


def refused(message, *, told_by="Deployment", event=True):
    """C-04: a Deployment without a pod, told by a condition or by an event alone."""
    it = Slice().without_pod()
    it.condition("Progressing", "True", obj=it.deployment, reason="NewReplicaSetCreated")
    it.condition("Available", "False", obj=it.deployment, reason="MinimumReplicasUnavailable")
    if told_by:
        obj = it.deployment if told_by == "Deployment" else it.replica_set
        it.condition("ReplicaFailure", "True", 20, obj, reason="FailedCreate", message=FORBIDDEN + message)
    if event:
        it.event(it.replica_set, "FailedCreate", "Error creating: " + FORBIDDEN + message, time=50)
    it.objects["ResourceQuota"] = []
    return it


def exceeded(key, requested, used, limited):
    return f"exceeded quota: plan-quota, requested: {key}={requested}, used: {key}={used}, limited: {key}={limited}"


@pytest.mark.parametrize("told_by", ["Deployment", "ReplicaSet", ""])
@pytest.mark.parametrize("event", [True, False])
def test_c04_no_pod_because_of_the_memory_limit(told_by, event):
    found = refused(exceeded("limits.memory", "4Gi", "22Gi", "24Gi"), told_by=told_by, event=event).judge()
    if not told_by and not event:
        assert (found.state, found.reason) == ("ordered", "pod_coming")
        return
    assert (found.state, found.reason, found.who) == ("blocked_by_quota", "quota_memory_limit", "member")
    assert found.sentence.params["short"] == Memory(2 * 2**30, round_up=True)
    assert found.steps[2].state == "failed"


def test_c04_the_shortfall_does_not_mix_units():
    found = refused(exceeded("requests.memory", "1500M", "7500M", "8Gi")).judge()
    assert found.reason == "quota_memory"
    assert found.sentence.params["short"] == Memory(410065408, round_up=True)
    assert found.shortage.short_by == 410065408


def test_c04_a_missing_request_is_no_shortfall():
    found = refused("failed quota: plan-quota: must specify requests.memory for: ollama").judge()
    assert (found.state, found.reason) == ("blocked_by_policy", "values_missing")
    assert "memory request is missing" in str(found.sentence)
    assert found.shortage is None


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("requests.cpu", "quota_cpu"),
        ("cpu", "quota_cpu"),
        ("limits.cpu", "quota_cpu_limit"),
        ("requests.memory", "quota_memory"),
        ("limits.memory", "quota_memory_limit"),
        ("pods", "quota_pods"),
        ("count/pods", "quota_other"),
    ],
)
def test_every_dimension_has_its_own_reason(key, reason):
    found = refused(exceeded(key, 2, 3, 4)).judge()
    assert (found.state, found.reason) == ("blocked_by_quota", reason)
    assert found.shortage.short_by == 1


def test_several_dimensions_are_all_told_the_entitlement_first():
    found = refused(
        f"exceeded quota: q, requested: requests.cpu=1,{DEVICES}=1, used: requests.cpu=8,{DEVICES}=2, "
        f"limited: requests.cpu=8,{DEVICES}=2"
    ).judge()
    assert (found.state, len(found.causes)) == ("entitlement_used_up", 1)


@pytest.mark.parametrize(
    ("message", "state", "reason", "who"),
    [
        ("status unknown for quota: q, resources: pods", "ordered", "quota_not_counted", "nobody"),
        (
            'violates PodSecurity "restricted:latest": runAsNonRoot != true',
            "blocked_by_policy",
            "pod_security",
            "operator",
        ),
        (
            "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: must be managed through the kube-dc API",
            "blocked_by_policy",
            "backend_only",
            "operator",
        ),
        (
            "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: "
            "expression 'a' resulted in error: no such key: k",
            "blocked_by_policy",
            "policy_misses_key",
            "operator",
        ),
        (
            "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: expression 'a' resulted in error: overflow",
            "blocked_by_policy",
            "policy_failed",
            "operator",
        ),
        (
            "minimum memory usage per Container is 1Gi, but request is 512Mi",
            "blocked_by_policy",
            "limit_range",
            "member",
        ),
        (
            "cpu max limit to request ratio per Container is 2, but provided ratio is 4.000000",
            "blocked_by_policy",
            "limit_range",
            "member",
        ),
        (
            'error looking up service account acme-ai/default: serviceaccount "default" not found',
            "blocked_by_policy",
            "creation_failed",
            "operator",
        ),
    ],
)
def test_other_refusals_of_the_pod(message, state, reason, who):
    found = refused(message).judge()
    assert (found.state, found.reason, found.who) == (state, reason, who)
    assert "%(" not in str(found.sentence)


def test_the_newest_refusal_is_told_not_the_first():
    it = refused(exceeded("requests.cpu", 1, 8, 8))
    it.event(
        it.replica_set, "FailedCreate", FORBIDDEN + exceeded("limits.memory", "4Gi", "22Gi", "24Gi"), time=90
    )
    assert it.judge().reason == "quota_memory_limit"


def test_a_refusal_of_the_replica_set_before_is_no_present_reason():
    it = refused(exceeded("requests.cpu", 1, 8, 8), event=False)
    it.replica_set["metadata"]["name"] = "chat-77777"
    assert it.judge().reason == "pod_coming"


def test_a_refusal_that_was_overcome_is_no_present_reason():
    it = refused(exceeded("requests.cpu", 1, 8, 8), told_by="")
    it.event(it.replica_set, "SuccessfulCreate", "Created pod: chat-1", kind="Normal", time=90)
    assert it.judge().reason == "pod_coming"


def test_room_again_is_told_only_where_the_quota_says_so():
    it = refused(exceeded("requests.cpu", 1, 8, 8))
    it.objects["ResourceQuota"] = [it.quota]
    assert it.judge().reason == "room_again"
    it.quota["status"]["used"]["requests.cpu"] = "7500m"
    assert it.judge().reason == "quota_cpu"
    del it.quota["status"]
    assert it.judge().reason == "quota_cpu"


def test_a_pod_just_made_is_being_set_up():
    assert Slice().without_claim().judge().reason == "claim_coming"
    it = Slice().without_claim()
    it.objects["ResourceClaim"] = [it.claim]
    it.claim["status"] = {}
    assert (it.judge().state, it.judge().reason) == ("ordered", "scheduling")


CLAIM_REFUSED = 'create ResourceClaim : resourceclaims.resource.k8s.io "x" is forbidden: '


def test_c05_a_in_the_words_of_the_case():
    it = Slice().without_claim()
    it.event(it.pod, "FailedResourceClaimCreation", CLAIM_REFUSED + exceeded(DEVICES, 1, 1, 1))
    found = it.judge()
    assert (found.state, found.who) == ("entitlement_used_up", "owner")
    assert (found.sentence.params["used"], found.sentence.params["hard"]) == (Count(1), Count(1))


def test_c05_both_forms_of_the_device_key():
    it = Slice().without_claim()
    key = DEVICES.removesuffix(".deviceclass.resource.k8s.io/devices")
    newer = f"requests.deviceclass.resource.k8s.io/{key}"
    it.event(it.pod, "FailedResourceClaimCreation", CLAIM_REFUSED + exceeded(newer, 1, 1, 1))
    assert (it.judge().state, it.judge().shortage.key) == ("entitlement_used_up", DEVICES)


def test_c05_c_a_second_cause_is_named_and_is_not_the_tenants_quota():
    it = Slice().unschedulable(
        "0/3 nodes are available: 1 Insufficient cpu, 2 cannot allocate all claims. preemption: 0/3 nodes are "
        "available: 1 Insufficient memory, 2 Preemption is not helpful for scheduling."
    )
    found = it.judge()
    assert (found.state, found.reason) == ("waiting_for_card", "cards_busy")
    assert [str(cause) for cause in found.causes] == ["Some servers also have too little free CPU."]
    assert found.shortage is None


def test_a_claim_refused_while_the_former_pod_holds_it_is_a_restart():
    it = Slice()
    it.pod["metadata"]["deletionTimestamp"] = at(90)
    new = it.second_pod()
    it.event(new, "FailedResourceClaimCreation", CLAIM_REFUSED + exceeded(DEVICES, 1, 1, 1), time=101)
    assert (it.judge().state, it.judge().reason) == ("starting", "replacing")
    it.objects["Pod"].remove(it.pod)
    assert (it.judge().state, it.judge().reason) == ("starting", "replacing")
    it.objects["ResourceClaim"] = []
    it.quota["status"]["used"][DEVICES] = "0"
    assert (it.judge().state, it.judge().reason) == ("ordered", "room_again")
    it.quota["status"]["used"][DEVICES] = "1"
    assert it.judge().state == "entitlement_used_up"


@pytest.mark.parametrize(
    ("message", "state", "reason", "who"),
    [
        ("1 Insufficient cpu.", "waiting_for_node", "node_cpu", "operator"),
        ("1 Insufficient memory.", "waiting_for_node", "node_memory", "operator"),
        ("1 Insufficient ephemeral-storage.", "waiting_for_node", "node_disk", "operator"),
        ("1 Too many pods.", "waiting_for_node", "node_pods", "operator"),
        ("1 node(s) had untolerated taint(s).", "waiting_for_node", "node_taint", "operator"),
        (
            "1 node(s) had untolerated taint {node.kubernetes.io/unreachable: }.",
            "waiting_for_node",
            "node_taint",
            "operator",
        ),
        ("1 node(s) were unschedulable.", "waiting_for_node", "node_cordoned", "operator"),
        (
            "1 node(s) didn't match Pod's node affinity/selector.",
            "waiting_for_node",
            "node_mismatch",
            "operator",
        ),
        ("no nodes available to schedule pods", "waiting_for_node", "no_nodes", "operator"),
        ("1 something new.", "waiting_for_node", "unschedulable", "operator"),
        (
            "1 node(s) had volume node affinity conflict.",
            "waiting_for_volume",
            "volume_elsewhere",
            "operator",
        ),
        ('persistentvolumeclaim "chat-data" not found.', "waiting_for_volume", "volume_missing", "operator"),
        (
            "pod has unbound immediate PersistentVolumeClaims.",
            "waiting_for_volume",
            "volume_unbound",
            "nobody",
        ),
    ],
)
def test_what_the_scheduler_says(message, state, reason, who):
    it = Slice().unschedulable(f"0/1 nodes are available: {message}")
    found = it.judge(now=NOW - timedelta(minutes=3))
    assert (found.state, found.reason, found.who) == (state, reason, who)


def test_other_reasons_of_the_scheduler():
    assert Slice().unschedulable("gated", "SchedulingGated").judge().reason == "scheduling_gated"
    assert Slice().unschedulable("Insufficient cpu", "SchedulerError").judge().reason == "unschedulable"


def test_a_volume_is_an_operators_matter_after_five_minutes():
    it = Slice().unschedulable("0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims.")
    assert it.judge(now=NOW - timedelta(minutes=1)).who == "nobody"
    assert it.judge(now=NOW + timedelta(minutes=5)).who == "operator"


def test_cards_come_before_a_volume_with_a_fault():
    it = Slice().unschedulable("0/1 nodes are available: 1 cannot allocate all claims.")
    claim = it.volume()
    it.event(claim, "ProvisioningFailed", "storage is full")
    found = it.judge()
    assert (found.state, [str(each) for each in found.causes]) == (
        "waiting_for_card",
        ["The storage cannot make its volume: storage is full"],
    )


def test_a_volume_not_ready_is_a_second_cause_of_busy_cards():
    it = Slice().unschedulable(
        "0/2 nodes are available: 1 cannot allocate all claims, pod has unbound immediate PersistentVolumeClaims."
    )
    assert [str(cause) for cause in it.judge().causes] == ["Its volume is not ready yet."]


def test_a_ratio_is_a_plain_number():
    found = refused(
        "cpu max limit to request ratio per Container is 2, but provided ratio is 4.000000"
    ).judge()
    assert found.sentence.params == {"resource": "cpu", "bound": "ratio", "allowed": Decimal(2)}


@pytest.mark.parametrize(
    ("event", "second"),
    [
        ({"series": {"lastObservedTime": at(4)}, "eventTime": at(3), "lastTimestamp": at(2)}, 4),
        ({"series": None, "eventTime": at(3), "lastTimestamp": at(2)}, 3),
        ({"eventTime": None, "lastTimestamp": at(2)}, 2),
        ({"eventTime": "never", "lastTimestamp": None}, 1),
    ],
)
def test_the_time_of_an_event(event, second):
    assert event_time({"metadata": {"creationTimestamp": at(1)}, **event}).second == second


def volume_events(*reasons):
    it = Slice()
    claim = it.volume()
    for index, reason in enumerate(reasons):
        kind = "Warning" if reason == "ProvisioningFailed" else "Normal"
        it.event(claim, reason, f"says {reason} on node gpu-node-1", kind=kind, time=10 * index)
    return explain_volume(claim, it.objects["Event"])


@pytest.mark.parametrize(
    ("reasons", "state"),
    [
        (["WaitForFirstConsumer"], "made_at_first_start"),
        (["ProvisioningFailed"], "fault"),
        (["WaitForFirstConsumer", "ProvisioningFailed"], "fault"),
        (["ProvisioningFailed", "Provisioning"], "fault"),
        (["ProvisioningFailed", "ProvisioningSucceeded"], "waiting"),
        ([], "waiting"),
    ],
)
def test_c15_what_a_volume_waits_for(reasons, state):
    found = volume_events(*reasons)
    assert (found.state, found.size) == (state, 20 * 2**30)
    assert "gpu-node-1" not in str(found.sentence)
    if state == "fault":
        assert "says ProvisioningFailed" in str(found.sentence)


def test_c15_a_bound_volume_has_the_size_it_got():
    claim = Slice().volume("Bound", capacity={"storage": "21474836480"})
    found = explain_volume(claim, [])
    assert (found.state, found.size) == ("ready", Decimal(20 * 2**30))
    assert found.sentence.params["size"] == Memory(20 * 2**30)


def test_c15_a_volume_of_the_same_second_is_a_fault_if_one_is_told():
    it = Slice()
    claim = it.volume()
    it.event(claim, "ProvisioningFailed", "x", time=5).event(
        claim, "WaitForFirstConsumer", kind="Normal", time=5
    )
    assert explain_volume(claim, it.objects["Event"]).state == "fault"


def test_c15_a_late_bound_volume_does_not_hide_what_the_scheduler_says():
    it = Slice().unschedulable("0/1 nodes are available: 1 Insufficient cpu.")
    it.event(it.volume(), "WaitForFirstConsumer", kind="Normal")
    assert it.judge().state == "waiting_for_node"


def test_a_lost_volume_is_told():
    it = Slice().unschedulable("0/1 nodes are available: 1 Insufficient cpu.")
    it.volume("Lost")
    found = it.judge()
    assert (found.state, found.reason, found.who) == ("waiting_for_volume", "volume_lost", "operator")
    assert [str(cause) for cause in found.causes] == ["No server has enough free CPU for it."]
