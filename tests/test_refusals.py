"""The fixed phrases of refusals, as recorded and as the cases tell them."""

import json
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu.refusals import (
    OutsideLimitRange,
    PodSecurityDenied,
    PolicyDenied,
    QuotaExceeded,
    QuotaNotCounted,
    Shortfall,
    ValuesMissing,
    device_class,
    dimension,
    read,
)

RECORDED = Path(__file__).parent / "data" / "recorded"
DEVICES = "kube-dc-nvidia-v100-shared-8g.deviceclass.resource.k8s.io/devices"


def recorded_refusal(name):
    body = json.loads((RECORDED / f"{name}.json").read_text())["body"]
    return read(body["message"]), [read(cause["message"]) for cause in body["details"].get("causes", ())]


def recorded_event(name, kind, reason):
    events = json.loads((RECORDED / f"{name}.json").read_text())["EventList"]
    return [
        read(e["message"]) for e in events if e["involvedObject"]["kind"] == kind and e["reason"] == reason
    ]


def test_a_recorded_policy_refusal_gives_policy_and_sentence():
    refusal, causes = recorded_refusal("deployment-rolling-update")
    assert refusal == PolicyDenied(
        "kube-dc-dra-gpu-deployments",
        "kube-dc-dra-gpu-deployments",
        "DRA GPU Deployments must use Recreate so quota is released before a replacement claim is requested.",
    )
    assert causes == [refusal]


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("deployment-missing-label", "app.kubernetes.io/managed-by"),
        ("template-missing-label", "kube-dc.com/gpu-backend"),
    ],
)
def test_a_rule_that_fails_to_evaluate_tells_the_key_and_no_expression(name, key):
    refusal, _ = recorded_refusal(name)
    assert isinstance(refusal, PolicyDenied)
    assert (refusal.sentence, refusal.missing_key) == ("", key)


def test_a_recorded_storage_refusal():
    refusal, _ = recorded_refusal("pvc-over-quota")
    gib = 2**30
    assert refusal == QuotaExceeded(
        "plan-quota",
        (Shortfall("requests.storage", Decimal(500 * gib), Decimal(20 * gib), Decimal(160 * gib)),),
    )
    assert refusal.shortfalls[0].short_by == 360 * gib


@pytest.mark.parametrize(
    "name", ["already-exists", "label-too-long", "namespace-not-found", "template-spec-immutable"]
)
def test_other_answers_are_no_refusal_of_these_kinds(name):
    assert recorded_refusal(name)[0] is None


def test_recorded_events_folded_or_not():
    found = recorded_event("entitlement-used-up", "Pod", "FailedResourceClaimCreation")
    assert set(found) == {
        QuotaExceeded("plan-quota", (Shortfall(DEVICES, Decimal(1), Decimal(1), Decimal(1)),))
    }
    assert set(recorded_event("cpu-quota-exceeded", "ReplicaSet", "FailedCreate")) == {
        QuotaExceeded("plan-quota", (Shortfall("requests.cpu", Decimal(1), Decimal("1.5"), Decimal(2)),))
    }
    assert recorded_event("limitrange-max", "ReplicaSet", "FailedCreate")[0] == OutsideLimitRange(
        "maximum", "cpu", "Container", Decimal(4), "limit", Decimal(5)
    )
    assert recorded_event("job-requests-missing", "Job", "FailedCreate")[-1] == ValuesMissing(
        "plan-quota", ("limits.cpu", "limits.memory", "requests.cpu", "requests.memory")
    )
    assert set(recorded_event("template-missing", "Pod", "FailedResourceClaimCreation")) == {None}


def test_c04_units_are_not_mixed():
    refusal = read(
        'pods "chat-5d9c-x2x7p" is forbidden: exceeded quota: plan-quota, requested: requests.memory=1500M, '
        "used: requests.memory=7500M, limited: requests.memory=8Gi"
    )
    assert refusal.shortfalls[0].short_by == 410065408
    refusal = read(
        "exceeded quota: plan-quota, requested: limits.memory=4Gi, "
        "used: limits.memory=22Gi, limited: limits.memory=24Gi"
    )
    assert refusal.shortfalls[0].short_by == 2 * 2**30
    assert read("failed quota: plan-quota: must specify requests.memory for: ollama") == ValuesMissing(
        "plan-quota", ("requests.memory",)
    )


def test_several_dimensions_keep_only_those_that_are_short():
    refusal = read(
        "exceeded quota: q, requested: limits.cpu=1,requests.cpu=1,pods=1, "
        "used: limits.cpu=7,requests.cpu=8,pods=9, limited: limits.cpu=8,requests.cpu=8,pods=9"
    )
    assert [(each.key, each.short_by) for each in refusal.shortfalls] == [("requests.cpu", 1), ("pods", 1)]


def test_older_servers_list_missing_values_with_commas():
    assert read("failed quota: q: must specify limits.cpu,limits.memory") == ValuesMissing(
        "q", ("limits.cpu", "limits.memory")
    )


@pytest.mark.parametrize(
    ("message", "refusal"),
    [
        ("status unknown for quota: q, resources: pods", QuotaNotCounted("q")),
        (
            "minimum memory usage per Container is 1Gi, but request is 512Mi",
            OutsideLimitRange("minimum", "memory", "Container", Decimal(2**30), "request", Decimal(2**29)),
        ),
        (
            "maximum cpu usage per Container is 4.  No limit is specified",
            OutsideLimitRange("maximum", "cpu", "Container", Decimal(4), "limit", None),
        ),
        (
            "[maximum cpu usage per Container is 4, but limit is 5, "
            "maximum memory usage per Container is 8Gi, but limit is 9Gi]",
            OutsideLimitRange("maximum", "cpu", "Container", Decimal(4), "limit", Decimal(5)),
        ),
        (
            "cpu max limit to request ratio per Container is 2, but provided ratio is 4.000000",
            OutsideLimitRange("ratio", "cpu", "Container", Decimal(2), "limit", None),
        ),
        (
            'pods "a" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true',
            PodSecurityDenied("restricted", "runAsNonRoot != true"),
        ),
        ("exceeded quota: q, requested: x=?, used: x=1, limited: x=1", QuotaExceeded("q", ())),
    ],
)
def test_further_phrases(message, refusal):
    assert read(message) == refusal


def test_the_write_mode_of_the_platform_is_told_apart():
    refusal = read(
        "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: "
        "claims must be managed through the kube-dc API"
    )
    assert refusal.backend_only


def test_device_keys_are_one_fact():
    assert dimension("requests.deviceclass.resource.k8s.io/v100-8g") == dimension(
        "v100-8g.deviceclass.resource.k8s.io/devices"
    )
    assert device_class("requests.deviceclass.resource.k8s.io/v100-8g") == "v100-8g"
    assert device_class("requests.cpu") is None
    assert (dimension("cpu"), dimension("memory"), dimension("pods")) == (
        "requests.cpu",
        "requests.memory",
        "pods",
    )


@given(st.text(max_size=300))
def test_no_text_breaks_the_reader(text):
    for start in (
        "",
        "exceeded quota: q, requested: ",
        "failed quota: q: must specify ",
        "maximum cpu usage per Pod is ",
    ):
        read(start + text)
