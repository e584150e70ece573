"""Our own action, stopping and releasing, unseen and unreachable; and what holds for every diagnosis."""

import copy
import json
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu.cluster.errors import ClusterError, ManagedByBackend, PolicyRefused
from gpu.diagnosis import STATES, explain
from gpu.messages import Text
from tests.diagnosis_kit import NOW, Slice, intent, judge, recorded, refusal, seen
from tests.test_diagnosis_recorded import SECRETS, SITUATIONS, texts

UX_CODES = [
    *("ordered", "waiting_for_card", "entitlement_used_up", "blocked_by_quota", "blocked_by_policy"),
    *("waiting_for_volume", "waiting_for_node", "pulling_image", "image_failed", "starting", "running"),
    *("running_degraded", "crashing", "out_of_memory", "node_lost", "stopping", "stopped", "releasing"),
    *("released", "refused", "cluster_unreachable", "missing"),
]


def test_the_table_has_every_state_of_the_design_each_with_its_own_face():
    assert list(STATES) == UX_CODES
    assert len({info.label for info in STATES.values()}) == len(STATES)
    assert len({info.icon for info in STATES.values()}) == len(STATES)
    assert [code for code, info in STATES.items() if info.colour == "green"] == ["running"]


def test_every_icon_is_among_those_of_the_pages():
    icons = Path(__file__).parent.parent / "static/vendor/tabler-icons/icons.txt"
    assert {info.icon for info in STATES.values()} <= set(icons.read_text().split())


def test_an_order_on_its_way():
    found = judge({}, action="pending", ordered_at=NOW)
    assert (found.state, found.reason, found.who) == ("ordered", "queued", "nobody")
    assert [step.state for step in found.steps] == ["done", "current", *["waiting"] * 5]


@pytest.mark.parametrize(
    ("code", "reason", "who"),
    [
        ("unreachable", "retry_unreachable", "nobody"),
        ("garbled_answer", "retry_unreachable", "nobody"),
        ("throttled", "retry_throttled", "nobody"),
        ("server_fault", "retry_server_fault", "nobody"),
        ("conflict", "retry_conflict", "nobody"),
        ("unauthorized", "retry_unauthorized", "operator"),
        ("quota_not_counted", "retry_quota_not_counted", "nobody"),
    ],
)
def test_an_order_that_is_tried_again_says_why(code, reason, who):
    found = judge({}, action="retrying", action_code=code)
    assert (found.state, found.reason, found.who) == ("ordered", reason, who)
    assert not found.settled


def every_error(cls=ClusterError):
    for error in cls.__subclasses__():
        yield error
        yield from every_error(error)


ONLY_WHILE_READING = {"gone", "no_log_yet"}
CANNOT_BE_REACHED = {"unreachable", "garbled_answer"}
TOLD_BY_THE_PLATFORM = {
    "managed_by_backend": "backend_only",
    "policy_refused": "policy",
    "policy_misses_key": "policy_misses_key",
    "policy_failed": "policy_failed",
    "quota_exceeded": "quota_cpu",
    "requests_missing": "values_missing",
    "limit_range": "limit_range",
}
DENIED = "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: "
MESSAGES = {
    "policy_misses_key": f"{DENIED}expression 'a' resulted in error: no such key: k",
    "policy_failed": f"{DENIED}expression 'a' resulted in error: overflow",
    "quota_exceeded": "exceeded quota: q, requested: cpu=1, used: cpu=1, limited: cpu=1",
    "requests_missing": "failed quota: q: must specify limits.cpu for: workload",
    "limit_range": "maximum cpu usage per Container is 4, but limit is 5",
}


@pytest.mark.parametrize("error", list(every_error()), ids=lambda error: error.code)
def test_every_error_of_the_gateway_has_an_answer_of_its_own(error):
    if error.code in ONLY_WHILE_READING:
        return
    if error.retry:
        found = judge({}, action="retrying", action_code=error.code)
        assert found.reason == f"retry_{'unreachable' if error.code in CANNOT_BE_REACHED else error.code}"
        return
    found = judge(
        {},
        action="refused",
        action_code=error.code,
        action_message=MESSAGES.get(error.code, "no"),
        action_policy="p" if issubclass(error, PolicyRefused | ManagedByBackend) else "",
    )
    assert found.reason == TOLD_BY_THE_PLATFORM.get(error.code, error.code)


def test_c14_a_policy_and_its_sentence_are_told_and_not_as_the_only_fault():
    message = (
        "ValidatingAdmissionPolicy 'gpu-slice-contract' with binding 'tenants' denied request: "
        "memory must be 8192Mi"
    )
    whole = judge({}, action="refused", action_message=message)
    apart = judge(
        {},
        action="refused",
        action_code="policy_refused",
        action_message="memory must be 8192Mi",
        action_policy="gpu-slice-contract",
    )
    assert whole == apart
    assert (whole.state, whole.reason) == ("refused", "policy")
    assert whole.sentence.params == {"detail": "memory must be 8192Mi", "policy": "gpu-slice-contract"}
    assert "may be more" in str(whole.sentence)
    assert whole.steps[1].state == "failed"


def test_a_platform_that_does_not_let_the_portal_write_yet():
    change = {
        "action_code": "managed_by_backend",
        "action_message": "GPU claims must be managed through the kube-dc API",
        "action_policy": "kube-dc-dra",
    }
    found = judge({}, action="needs_operator", **change)
    assert (found.state, found.reason, found.who) == ("blocked_by_policy", "backend_only", "operator")
    assert judge({}, action="refused", **change).reason == "backend_only"


@pytest.mark.parametrize(
    "code",
    ["namespace_missing", "namespace_terminating", "forbidden", "not_served", "worker_lost", "strange"],
)
def test_what_needs_an_operator(code):
    found = judge(
        {}, action="needs_operator", action_code=code, action_message="cannot do it on node gpu-node-1"
    )
    assert (found.state, found.who, found.settled) == ("blocked_by_policy", "operator", False)
    assert found.reason == ("other" if code == "strange" else code)
    assert "gpu-node-1" not in str(found.sentence)


def test_a_refused_change_leaves_the_running_slice_running():
    found = judge(
        recorded("running"), action="refused", action_message=refusal("template-wrong-capacity")["message"]
    )
    assert (found.state, found.settled) == ("running", False)
    assert str(found.causes[0]).startswith("The last change was not made. Refused by the platform:")
    assert judge(recorded("running"), action="retrying").causes
    rolled_back = judge(
        recorded("running"),
        action_code="change_refused",
        action_message="no",
        action_policy="gpu-slice-contract",
    )
    assert "“no” (policy gpu-slice-contract)" in str(rolled_back.causes[0])
    assert rolled_back.state == "running"


def test_what_takes_minutes_instead_of_seconds_is_an_operators_matter():
    late = NOW + timedelta(minutes=10)
    for it in (Slice().without_pod(), Slice().without_claim(), Slice().creating()):
        assert (it.judge(now=NOW - timedelta(minutes=3)).who, it.judge(now=late).who) == (
            "nobody",
            "operator",
        )
        assert it.judge(now=late).reason == it.judge().reason
    assert judge({}, action="pending", now=NOW - timedelta(minutes=1)).who == "nobody"
    assert judge({}, action="pending", now=late).who == "operator"
    assert Slice().judge(now=late).who == "nobody"


def test_a_start_that_is_not_sent_yet():
    it = Slice().without_pod()
    it.deployment["spec"]["replicas"] = 0
    assert (it.judge(action="pending").reason, it.judge(action="pending").who) == ("queued", "nobody")
    assert it.judge(action="applied").reason == "pod_coming"


def test_accepted_and_not_seen_yet_is_not_gone():
    sent = NOW - timedelta(seconds=10)
    assert judge({}, ordered_at=sent).reason == "accepted"
    assert judge({}, as_of=None).reason == "accepted"
    assert judge({}, action_at=NOW - timedelta(seconds=5)).reason == "accepted"
    assert (
        judge({}, action_at=NOW - timedelta(minutes=1), as_of=NOW - timedelta(minutes=2)).reason == "accepted"
    )
    assert judge({}, action_at=NOW - timedelta(minutes=1)).state == "missing"


def test_deleted_by_somebody_else():
    it = Slice()
    it.deployment["metadata"]["deletionTimestamp"] = "2026-11-30T15:54:00Z"
    assert it.judge().state == "missing"


def test_stopping_until_the_slice_is_back():
    it = Slice()
    assert (it.judge(wanted="stop").state, it.judge(wanted="stop").reason) == ("stopping", "container_ending")
    it.objects["Pod"] = []
    assert (it.judge(wanted="stop").state, it.judge(wanted="stop").reason) == ("stopping", "claim_held")
    it.objects["ResourceClaim"] = []
    found = it.judge(wanted="stop")
    assert (found.state, found.settled, found.who) == ("stopped", True, "member")
    assert it.judge(wanted="stop", action="pending").state == "stopping"
    retrying = it.judge(wanted="stop", action="retrying", action_code="unauthorized")
    assert (retrying.state, retrying.who, len(retrying.causes)) == ("stopping", "operator", 1)


def test_releasing_until_nothing_is_left():
    it = Slice()
    assert it.judge(wanted="release").reason == "container_ending"
    it.objects |= {"Pod": [], "ResourceClaim": []}
    assert (it.judge(wanted="release").state, it.judge(wanted="release").reason) == ("releasing", "clearing")
    it.objects = {
        "ResourceClaimTemplate": [
            {"metadata": {"name": "chat-gpu", "labels": {"app.kubernetes.io/name": "chat"}}}
        ]
    }
    assert it.judge(wanted="release").state == "releasing"
    assert judge({}, wanted="release", action="pending").state == "releasing"
    assert judge({}, wanted="release").state == "released"
    assert judge(Slice().objects, wanted="release", action="released").state == "released"


@pytest.mark.parametrize(("wanted", "state"), [("stop", "stopping"), ("release", "releasing")])
def test_a_stop_or_release_that_an_operator_must_help(wanted, state):
    found = judge(
        Slice().objects, wanted=wanted, action="needs_operator", action_code="forbidden", action_message="no"
    )
    assert (found.state, found.reason, found.who) == (state, "held_up_forbidden", "operator")


def test_what_has_ended_does_not_depend_on_the_cluster():
    assert judge({}, wanted="release", action="released", reachable=False).state == "released"
    assert judge({}, action="refused", action_message="no", reachable=False).state == "refused"


def test_unreachable_before_anything_was_seen():
    found = judge({}, action="retrying", reachable=False, as_of=None)
    assert (found.state, found.reason, found.since) == ("cluster_unreachable", "ordered", None)
    assert "sends it once" in str(found.next_step)


def test_unreachable_keeps_the_steps_and_tells_when():
    found = judge(recorded("running"), reachable=False)
    assert (found.since, [step.state for step in found.steps]) == (NOW, ["done"] * 7)
    assert found.sentence.params["last"] == Text("Running")


EVERY = {name: recorded(name) for name in SITUATIONS}


@st.composite
def damaged(draw):
    """A recorded situation of which some fields are missing, as a pruned or half-written object might be."""
    name = draw(st.sampled_from(list(EVERY)))
    objects = copy.deepcopy(EVERY[name])
    for _ in range(draw(st.integers(1, 4))):
        node = draw(st.sampled_from([item for items in objects.values() for item in items] or [{}]))
        while isinstance(node, dict) and node:
            key = draw(st.sampled_from(sorted(node)))
            inside = node[key][0] if isinstance(node[key], list) and node[key] else node[key]
            if isinstance(inside, dict) and draw(st.booleans()):
                node = inside
                continue
            if key not in KEPT and draw(st.booleans()):
                del node[key]
            elif key not in KEPT:
                node[key] = None
            break
    return name, objects


# Without these it is no Kubernetes object at all.
KEPT = {"metadata", "kind", "involvedObject", "name", "uid", "namespace"}


@settings(max_examples=300, deadline=None)
@given(damaged(), st.sampled_from(["run", "stop", "release"]), st.booleans())
def test_no_half_written_object_breaks_a_page_or_tells_a_secret(case, wanted, reachable):
    name, objects = case
    app, namespace, *_ = SITUATIONS[name]
    found = explain(intent(app, namespace, wanted=wanted), seen(objects, reachable=reachable), NOW)
    assert found.state in STATES
    assert found.who in ("nobody", "member", "owner", "operator")
    assert "%(" not in texts(found)
    assert not [secret for secret in SECRETS if secret in texts(found)]


def test_the_answer_does_not_depend_on_the_order_of_what_was_seen():
    for name, (app, namespace, *_) in SITUATIONS.items():
        turned = {kind: items[::-1] for kind, items in EVERY[name].items()}
        assert judge(turned, app=app, namespace=namespace) == judge(EVERY[name], app=app, namespace=namespace)


def test_nothing_seen_is_changed():
    before = json.dumps(EVERY)
    for name, (app, namespace, *_) in SITUATIONS.items():
        judge(EVERY[name], app=app, namespace=namespace)
    assert json.dumps(EVERY) == before
