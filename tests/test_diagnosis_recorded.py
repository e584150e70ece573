"""Every situation recorded from a real control plane, fed with those very objects."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from gpu.messages import Count, Cpu, Text
from tests.diagnosis_kit import DEVICES, NOW, RECORDED, judge, recorded, refusal

# file -> app, namespace, state, reason, who
SITUATIONS = {
    "running": ("chat", "acme-ai", "running", "ready", "nobody"),
    "entitlement-used-up": ("notebook", "acme-ai", "entitlement_used_up", "entitlement", "owner"),
    "cards-busy": ("chat", "acme-ai", "waiting_for_card", "cards_busy", "nobody"),
    "cards-busy-then-running": ("chat", "acme-ai", "running", "ready", "nobody"),
    "cpu-quota-exceeded": ("chat", "cedar-web", "blocked_by_quota", "quota_cpu", "member"),
    "requests-missing": ("bare", "cedar-web", "blocked_by_policy", "values_missing", "member"),
    "limitrange-defaults": ("bare", "delta-dev", "running", "ready", "nobody"),
    "limitrange-max": ("toobig", "delta-dev", "blocked_by_policy", "limit_range", "member"),
    "template-missing": ("orphan", "elm-lab", "missing", "claim_template_missing", "operator"),
    "pods-denied-by-policy": ("other", "elm-lab", "blocked_by_policy", "pod_policy", "operator"),
    "released": ("chat", "acme-ai", "missing", "deployment_gone", "operator"),
}
REFUSALS = {
    "template-wrong-capacity": ("policy", "member"),
    "deployment-rolling-update": ("policy", "member"),
    "template-missing-label": ("policy_misses_key", "operator"),
    "deployment-missing-label": ("policy_misses_key", "operator"),
    "pvc-over-quota": ("quota_storage", "member"),
    "label-too-long": ("invalid_object", "member"),
    "template-spec-immutable": ("immutable", "operator"),
    "namespace-not-found": ("namespace_missing", "operator"),
    "already-exists": ("conflict", "operator"),
}
# Jobs are pulls, the inventory is the cards, and the volume waits without a workload: each has its own test.
ELSEWHERE = {
    "inventory",
    "job-complete",
    "job-failed",
    "job-requests-missing",
    "job-running",
    "job-with-claim-denied",
    "pvc-pending",
}
CODES = {
    "label-too-long": "invalid_object",
    "template-spec-immutable": "invalid_object",
    "namespace-not-found": "namespace_missing",
    "already-exists": "conflict",
}


def situation(name):
    app, namespace, *_ = SITUATIONS[name]
    return judge(recorded(name), app=app, namespace=namespace)


def test_no_recorded_file_is_left_out():
    assert {path.stem for path in RECORDED.glob("*.json")} == {*SITUATIONS, *REFUSALS, *ELSEWHERE}


@pytest.mark.parametrize("name", SITUATIONS)
def test_a_recorded_situation_is_told(name):
    _, _, state, reason, who = SITUATIONS[name]
    found = situation(name)
    assert (found.state, found.reason, found.who) == (state, reason, who)


@pytest.mark.parametrize("name", REFUSALS)
def test_a_recorded_refusal_is_told(name):
    found = judge(
        {}, action="refused", action_message=refusal(name)["message"], action_code=CODES.get(name, "")
    )
    assert (found.state, found.reason, found.who) == ("refused", *REFUSALS[name])
    assert found.settled


def test_different_situations_never_give_the_same_answer():
    kinds: dict[tuple[str, str], set[str]] = {}
    for name in SITUATIONS:
        found = situation(name)
        kinds.setdefault((found.state, found.reason), set()).add(name)
    assert [names for names in kinds.values() if len(names) > 1] == [
        {"running", "cards-busy-then-running", "limitrange-defaults"}
    ]


def test_different_refusals_never_give_the_same_answer():
    reasons = sorted(reason for reason, _ in REFUSALS.values())
    twice = {reason for reason in reasons if reasons.count(reason) > 1}
    assert twice == {
        "policy",
        "policy_misses_key",
    }  # told apart by the policy's sentence, its name and the key
    sentences = {
        str(judge({}, action="refused", action_message=refusal(name)["message"]).sentence)
        for name in REFUSALS
    }
    assert len(sentences) == len(REFUSALS)


def test_two_situations_differ_in_words_too():
    sentences = {(found.state, found.reason): str(found.sentence) for found in map(situation, SITUATIONS)}
    assert len(set(sentences.values())) == len(sentences)


def test_the_neighbour_in_the_same_file_is_not_confused():
    objects = recorded("entitlement-used-up")
    assert judge(objects, app="chat").state == "running"
    assert judge(recorded("cpu-quota-exceeded"), app="big", namespace="cedar-web").state == "running"


def test_c05_a_entitlement_used_up_tells_how_many():
    found = situation("entitlement-used-up")
    assert found.sentence.params == {"package": "V100 25 %", "used": Count(1), "hard": Count(1)}
    assert found.platform_term == "Pending: FailedResourceClaimCreation"
    assert (found.shortage.key, found.shortage.needed, found.shortage.left) == (DEVICES, 1, 0)
    assert [step.state for step in found.steps] == ["done", "done", "failed", *["waiting"] * 4]


def test_c05_b_cards_busy_waits_since_the_scheduler_said_so_and_sells_nothing():
    found = situation("cards-busy")
    assert found.since == datetime(2026, 11, 30, 15, 51, 6, tzinfo=UTC)
    assert found.platform_term == "Pending: Unschedulable"
    assert (found.shortage, found.causes) == (None, ())
    assert "entitlement" not in f"{found.sentence}{found.next_step}"
    assert [step.state for step in found.steps] == [*["done"] * 3, "current", *["waiting"] * 3]
    assert not found.settled


def test_the_cpu_that_is_missing_is_told_exactly():
    found = situation("cpu-quota-exceeded")
    assert found.sentence.params == {
        "needed": Cpu(Decimal(1000)),
        "left": Cpu(Decimal(500)),
        "short": Cpu(Decimal(500)),
    }
    assert found.since == datetime(2026, 11, 30, 15, 51, 35, tzinfo=UTC)
    assert found.shortage.short_by == Decimal("0.5")


def test_every_missing_value_is_named():
    found = situation("requests-missing")
    assert "CPU limit is missing" in str(found.sentence)
    assert len(found.causes) == 3


def test_a_policy_of_the_pods_is_told_with_its_name():
    found = situation("pods-denied-by-policy")
    assert found.sentence.params["policy"] == "kube-dc-dra-gpu-pods"
    assert "canonical generated claim" in str(found.sentence)


def test_running_has_all_steps_with_their_times():
    found = situation("cards-busy-then-running")
    assert [step.state for step in found.steps] == ["done"] * 7
    times = [step.at for step in found.steps]
    assert times == sorted(times)
    assert times[3] == datetime(2026, 11, 30, 15, 51, 14, tzinfo=UTC)
    assert found.settled


def test_released_is_released_when_that_was_wanted():
    found = judge(recorded("released"), wanted="release")
    assert (found.state, found.settled) == ("released", True)


def test_releasing_lasts_until_the_claim_is_gone():
    objects = recorded("running")
    assert judge(objects, wanted="release").reason == "container_ending"
    objects |= {"Deployment": [], "ReplicaSet": [], "Pod": []}
    assert (judge(objects, wanted="release").state, judge(objects, wanted="release").reason) == (
        "releasing",
        "claim_held",
    )
    objects["ResourceClaim"] = []
    assert judge(objects, wanted="release").state == "released"


def test_pvc_pending_without_a_storage_class_is_a_fault_of_the_storage():
    objects = recorded("cards-busy") | {
        key: recorded("pvc-pending")[key] for key in ("PersistentVolumeClaim", "Event")
    }
    for item in objects["PersistentVolumeClaim"]:
        item["metadata"]["namespace"] = "acme-ai"
    for item in objects["Event"]:
        item["metadata"]["namespace"] = "acme-ai"
    told = objects["Pod"][0]["status"]["conditions"][0]
    told["message"] = "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims."
    found = judge(objects)
    assert (found.state, found.reason, found.who) == ("waiting_for_volume", "no_storage_class", "operator")


SECRETS = ("gpu-node-1", "hami-gpu", "10.1.0.", "GPU-", "-kpdss", "-n4qb2", "-hdjpn", "-c7w25", "share")


def texts(found):
    return " ".join(map(str, (found.sentence, found.next_step, *found.causes, found.platform_term)))


@pytest.mark.parametrize("name", SITUATIONS)
def test_nothing_internal_is_told(name):
    assert not [secret for secret in SECRETS if secret in texts(situation(name))]


@pytest.mark.parametrize("name", SITUATIONS)
def test_while_the_cluster_is_unreachable_the_last_known_state_is_told(name):
    app, namespace, state, *_ = SITUATIONS[name]
    found = judge(recorded(name), app=app, namespace=namespace, reachable=False)
    assert (found.state, found.reason, found.who) == ("cluster_unreachable", state, "operator")
    assert isinstance(found.sentence.params["last"], Text)
    assert not found.settled


@pytest.mark.parametrize("name", SITUATIONS)
def test_old_age_alone_changes_nothing(name):
    app, namespace, state, reason, _ = SITUATIONS[name]
    found = judge(recorded(name), app=app, namespace=namespace, now=NOW + timedelta(minutes=3))
    assert (found.state, found.reason) == (state, reason)


def test_an_event_of_a_deleted_pod_is_no_present_reason():
    objects = recorded("cards-busy")
    old = [
        e for e in recorded("entitlement-used-up")["Event"] if e["reason"] == "FailedResourceClaimCreation"
    ]
    objects["Event"] += old
    objects["ResourceClaim"] = []
    objects["Pod"][0]["status"] = {"phase": "Pending"}
    assert (judge(objects).state, judge(objects).reason) == ("ordered", "claim_coming")


def test_folded_events_are_read():
    objects = recorded("entitlement-used-up")
    objects["Event"] = [e for e in objects["Event"] if e["message"].startswith("(combined")]
    assert judge(objects, app="notebook").state == "entitlement_used_up"


def test_after_the_entitlement_was_raised_the_wait_is_told():
    objects = recorded("entitlement-used-up")
    for part in (objects["ResourceQuota"][0]["spec"], objects["ResourceQuota"][0]["status"]):
        part["hard"][DEVICES] = "2"
    found = judge(objects, app="notebook")
    assert (found.state, found.reason) == ("ordered", "room_again")
    assert "Restart" in str(found.next_step)


def test_a_reason_is_the_same_after_a_rewrite_of_the_intent():
    found = situation("running")
    assert replace(found, steps=()) == replace(
        judge(recorded("running"), has_volume=True, generation=7, package_label="x"), steps=()
    )
