"""What each refusal of a real control plane becomes: code, sentence, who can act, and whether to try again."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu.cluster import errors
from gpu.cluster.responses import from_response, from_status
from gpu.messages import Cpu, Memory

KEYS = st.sampled_from(
    ["message", "details", "causes", "kind", "name", "reason", "retryAfterSeconds", "code"]
)
RECORDED = Path(__file__).parent / "data" / "recorded"


def recorded(name: str) -> errors.ClusterError:
    answer = json.loads((RECORDED / f"{name}.json").read_text())
    return from_response(answer["http_status"], answer["body"], {})


def status(code: int, message: str, reason: str = "", **details: Any) -> dict[str, Any]:
    return {"kind": "Status", "code": code, "reason": reason, "message": message, "details": details}


@pytest.mark.parametrize(
    ("name", "kind", "retry", "who"),
    [
        ("already-exists", errors.Conflict, True, "nobody"),
        ("deployment-missing-label", errors.PolicyMissesKey, False, "operator"),
        ("deployment-rolling-update", errors.PolicyRefused, False, "member"),
        ("label-too-long", errors.InvalidObject, False, "member"),
        ("namespace-not-found", errors.NamespaceMissing, False, "operator"),
        ("pvc-over-quota", errors.QuotaExceeded, False, "owner"),
        ("template-missing-label", errors.PolicyMissesKey, False, "operator"),
        ("template-spec-immutable", errors.InvalidObject, False, "member"),
        ("template-wrong-capacity", errors.PolicyRefused, False, "member"),
    ],
)
def test_every_recorded_refusal_has_its_own_kind(
    name: str, kind: type[errors.ClusterError], retry: bool, who: str
) -> None:
    error = recorded(name)
    assert type(error) is kind
    assert (error.retry, error.who) == (retry, who)


def test_all_recorded_refusals_are_covered() -> None:
    refusals = {
        path.stem for path in RECORDED.glob("*.json") if "http_status" in json.loads(path.read_text())
    }
    covered = {values[0] for values in _parameters()}
    assert refusals == covered


def _parameters() -> list[tuple[Any, ...]]:
    marks = test_every_recorded_refusal_has_its_own_kind.pytestmark  # type: ignore[attr-defined]
    return list(marks[0].args[1])


def test_policy_sentence_and_name_survive() -> None:
    error = recorded("template-wrong-capacity")
    assert error.policy == "kube-dc-dra-gpu-claim-templates"
    words = "DRA GPU claim capacity and DeviceClass must match the selected fixed product."
    assert error.platform_message == words
    assert words in str(error.sentence)
    assert error.policy in str(error.sentence)


def test_c14_sentence_of_the_policy_reaches_the_tenant() -> None:
    message = (
        "ValidatingAdmissionPolicy 'gpu-slice-contract' with binding 'tenants' denied request: "
        "memory must be 8192Mi"
    )
    error = from_response(422, status(422, message, "Invalid"), {})
    assert type(error) is errors.PolicyRefused
    assert not error.retry
    assert (error.platform_message, error.policy) == ("memory must be 8192Mi", "gpu-slice-contract")
    assert "there may be more" in str(error.sentence)


def test_missing_label_names_the_key_and_shows_no_expression() -> None:
    error = recorded("template-missing-label")
    assert error.policy == "kube-dc-dra-gpu-claim-templates"
    assert "kube-dc.com/gpu-backend" in str(error.sentence)
    assert "expression" not in str(error.sentence)


def test_storage_quota_tells_exact_figures() -> None:
    error = recorded("pvc-over-quota")
    assert isinstance(error, errors.QuotaExceeded)
    gib = Decimal(2**30)
    assert error.quota == "plan-quota"
    assert error.requested == {"requests.storage": 500 * gib}
    assert error.used == {"requests.storage": 20 * gib}
    assert error.limited == {"requests.storage": 160 * gib}
    assert error.sentence.params["used"] == Memory(20 * 2**30)


def test_cpu_quota_is_told_in_millicores() -> None:
    message = (
        "exceeded quota: plan, requested: requests.cpu=1500m, used: requests.cpu=7, limited: requests.cpu=8"
    )
    error = from_response(403, status(403, message, "Forbidden"), {})
    assert error.sentence.params["requested"] == Cpu(Decimal(1500))


def test_only_an_immutable_field_counts_as_immutable() -> None:
    immutable, other = recorded("template-spec-immutable"), recorded("label-too-long")
    assert isinstance(immutable, errors.InvalidObject)
    assert immutable.immutable
    assert isinstance(other, errors.InvalidObject)
    assert not other.immutable


def test_backend_only_policy_tells_the_operator_what_to_do() -> None:
    message = (
        "deployments.apps \"x\" is forbidden: ValidatingAdmissionPolicy 'kube-dc-gpu' with binding 'kube-dc-gpu' "
        "denied request: GPU workloads must be managed through the kube-dc API."
    )
    error = from_response(422, status(422, message, "Invalid"), {})
    assert type(error) is errors.ManagedByBackend
    assert error.who == "operator"
    assert "service account in the policy kube-dc-gpu" in str(error.sentence)


@pytest.mark.parametrize(
    ("code", "body", "headers", "kind", "retry"),
    [
        (401, status(401, "Unauthorized"), {}, errors.Unauthorized, True),
        (
            500,
            status(500, "failed to create typed patch object (a/b; apps/v1)"),
            {},
            errors.InvalidObject,
            False,
        ),
        (403, status(403, 'User "x" cannot patch resource'), {}, errors.Forbidden, False),
        (403, status(403, "status unknown for quota: plan"), {}, errors.QuotaNotCounted, True),
        (
            403,
            status(
                403, "failed quota: plan: must specify limits.cpu for: workload; requests.cpu for: workload"
            ),
            {},
            errors.RequestsMissing,
            False,
        ),
        (
            403,
            status(403, "maximum storage usage per PersistentVolumeClaim is 10Gi, but request is 20Gi"),
            {},
            errors.OutsideLimitRange,
            False,
        ),
        (
            403,
            status(403, "unable to create new content", causes=[{"reason": "NamespaceTerminating"}]),
            {},
            errors.NamespaceTerminating,
            False,
        ),
        (404, status(404, 'pods "a" not found', name="a", kind="pods"), {}, errors.NotFound, True),
        (404, "404 page not found\n", {}, errors.NotServed, False),
        (410, status(410, "too old", "Expired"), {}, errors.Gone, True),
        (429, status(429, "slow down"), {"Retry-After": "7"}, errors.Throttled, True),
        (500, "<html>oops</html>", {}, errors.ServerFault, True),
        (503, "", {"Retry-After": "3"}, errors.ServerFault, True),
        (302, "", {}, errors.ServerFault, True),
        (
            400,
            status(400, 'admission webhook "quota.example" denied the request: too big'),
            {},
            errors.PolicyRefused,
            False,
        ),
    ],
)
def test_answers(
    code: int, body: Any, headers: dict[str, str], kind: type[errors.ClusterError], retry: bool
) -> None:
    error = from_response(code, body, headers)
    assert type(error) is kind
    assert error.retry is retry
    assert "%(" not in str(error.sentence)


def test_retry_after_is_read_in_seconds() -> None:
    assert from_response(429, "", {"Retry-After": "7"}).retry_after == 7
    assert from_response(429, "", {"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}).retry_after is None
    assert from_response(429, status(429, "", retryAfterSeconds=2), {}).retry_after == 2


def test_c12_error_line_is_gone_by_code_and_by_reason() -> None:
    line = {
        "kind": "Status",
        "message": "too old resource version: 100 (5000)",
        "reason": "Gone",
        "code": 410,
    }
    assert type(from_status(line)) is errors.Gone
    assert type(from_status({"reason": "Expired"})) is errors.Gone
    assert type(from_status({})) is errors.ServerFault


def test_no_node_name_reaches_a_tenant() -> None:
    error = from_response(409, status(409, "the claim is held by node gpu-node-17 at 10.3.2.1"), {})
    assert "gpu-node-17" not in error.platform_message
    assert "10.3.2.1" not in error.platform_message


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=8,
)


@given(st.integers(300, 599), st.one_of(st.text(), st.dictionaries(KEYS, JSON)))
def test_any_answer_becomes_a_named_error(code: int, body: Any) -> None:
    error = from_response(code, body, {})
    assert isinstance(error, errors.ClusterError)
    assert str(error.sentence)


def test_codes_are_unique() -> None:
    def family(kind: type[errors.ClusterError]) -> list[type[errors.ClusterError]]:
        return [kind, *(each for child in kind.__subclasses__() for each in family(child))]

    codes = [kind.code for kind in family(errors.ClusterError)]
    assert len(codes) == len(set(codes))
