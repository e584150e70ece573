"""Which CEL expressions the API takes as selectors of devices, and what it says of the others."""

from __future__ import annotations

from typing import Any

import pytest

from dev.controlplane.client import Client
from tests.clusters import Target, refusal
from tests.controlplane.documents import changed, claim_template

pytestmark = pytest.mark.cluster

type Doc = dict[str, Any]

RESOURCE = "resource.k8s.io/v1"
SELECTORS = "/spec/spec/devices/requests/0/exactly/selectors"

GOOD = [
    "true",
    "device.driver == 'gpu.example.test'",
    "device.allowMultipleAllocations",
    "has(device.driver)",
    "device.attributes['gpu.example.test'].healthy",
    "has(device.attributes['a.test'].b) && device.attributes['a.test'].b == 'x'",
    "device.attributes['a.test'].version.isGreaterThan(semver('1.0.0'))",
    "device.capacity['a.test'].memory.compareTo(quantity('8Gi')) >= 0",
    "cel.bind(ours, device.attributes['a.test'], ours.b && ours.c > 3)",
    "cel.bind(one, device, one.driver == 'a.test')",
    "'a' in device.attributes['a.test'].names",
    "device.attributes['a.test'].model.lowerAscii().startsWith('v100')",
    "['a', 'b'].exists(name, device.driver == name)",
    "[1, 2].sum() == 3 && sets.contains([1], [1])",
]

BAD = {
    "": "compilation failed: ERROR: <input>:1:0: Syntax error: mismatched input '<EOF>' expecting {'[', '{', '(', "
    "'.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}",
    "x": "compilation failed: ERROR: <input>:1:1: undeclared reference to 'x' (in container '')\n | x\n | ^",
    "default-scheduler": "compilation failed: ERROR: <input>:1:1: undeclared reference to 'default' (in container '')\n"
    " | default-scheduler\n | ^\n"
    "ERROR: <input>:1:9: undeclared reference to 'scheduler' (in container '')\n | default-scheduler\n | ........^",
    "a.b.c": "compilation failed: ERROR: <input>:1:1: undeclared reference to 'a' (in container '')\n | a.b.c\n | ^",
    "true)": "compilation failed: ERROR: <input>:1:5: Syntax error: extraneous input ')' expecting <EOF>\n"
    " | true)\n | ....^",
    "x ||\n y": "compilation failed: ERROR: <input>:1:1: undeclared reference to 'x' (in container '')\n | x ||\n | ^\n"
    "ERROR: <input>:2:2: undeclared reference to 'y' (in container '')\n |  y\n | .^",
    "'ü' == x": "compilation failed: ERROR: <input>:1:8: undeclared reference to 'x' (in container '')\n"
    " | 'ü' == x\n | .．.....^",
    "device.foo": "compilation failed: ERROR: <input>:1:7: undefined field 'foo'\n | device.foo\n | ......^",
    "has(device.foo)": "compilation failed: ERROR: <input>:1:4: undefined field 'foo'\n | has(device.foo)\n | ...^",
    "has(x)": "compilation failed: ERROR: <input>:1:5: invalid argument to has() macro\n | has(x)\n | ....^",
    "[": "compilation failed: ERROR: <input>:1:2: Syntax error: mismatched input '<EOF>' expecting {'[', ']', '{', "
    "'(', '.', ',', '-', '!', '?', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}\n"
    " | [\n | .^",
    "device.driver.x": "compilation failed: ERROR: <input>:1:14: type 'string' does not support field selection\n"
    " | device.driver.x\n | .............^",
    "device.driver == 3": "compilation failed: ERROR: <input>:1:15: found no matching overload for '_==_' applied to "
    "'(string, int)'\n | device.driver == 3\n | ..............^",
    "device.driver.startsWith(1)": "compilation failed: ERROR: <input>:1:25: found no matching overload for "
    "'startsWith' applied to 'string.(int)'\n | device.driver.startsWith(1)\n | ........................^",
    "device.driver.foo()": "compilation failed: ERROR: <input>:1:18: undeclared reference to 'foo' (in container '')\n"
    " | device.driver.foo()\n | .................^",
    "device.capacity['a'].b > 3": "compilation failed: ERROR: <input>:1:24: found no matching overload for '_>_' "
    "applied to '(kubernetes.Quantity, int)'\n | device.capacity['a'].b > 3\n | .......................^",
    "device.attributes[1].b == 1": "compilation failed: ERROR: <input>:1:18: found no matching overload for '_[_]' "
    "applied to '(map(string, map(string, any)), int)'\n | device.attributes[1].b == 1\n | .................^",
    "device.attributes['a'].b.exists(x, x == 1)": "compilation failed: ERROR: <input>:1:23: expression of type 'any' "
    "cannot be range of a comprehension (must be list, map, or dynamic)\n"
    " | device.attributes['a'].b.exists(x, x == 1)\n | ......................^",
    "7": "must evaluate to bool or the unknown type, not int",
    "'x'": "must evaluate to bool or the unknown type, not string",
    "dyn(true)": "must evaluate to bool or the unknown type, not dyn",
    "device": "must evaluate to bool or the unknown type, not kubernetes.DRADevice",
    "device.driver": "must evaluate to bool or the unknown type, not string",
    "device.capacity['a'].b": "must evaluate to bool or the unknown type, not kubernetes.Quantity",
    "device.attributes['a']": "must evaluate to bool or the unknown type, not map(string, google.protobuf.Any)",
    "[1]": "must evaluate to bool or the unknown type, not list(int)",
}


def cel(*expressions: str) -> list[Doc]:
    return [{"cel": {"expression": one}} for one in expressions]


def device_class(*expressions: str) -> Doc:
    metadata = {"name": "probe.example.test"}
    return {"apiVersion": RESOURCE, "kind": "DeviceClass", "metadata": metadata,
            "spec": {"selectors": cel(*expressions)}}  # fmt: skip


@pytest.fixture(scope="module")
def namespace(cluster: Target) -> str:
    return cluster.make_namespace("selectors")


@pytest.fixture
def admin(cluster: Target) -> Client:
    return cluster.client()


@pytest.mark.parametrize("expression", GOOD)
def test_taken(admin: Client, expression: str) -> None:
    answer = admin.create(device_class(expression), dry_run=True)
    assert answer.ok, answer.message


@pytest.mark.parametrize("expression", BAD)
def test_refused(admin: Client, expression: str) -> None:
    answer = admin.create(device_class(expression), dry_run=True)
    assert (answer.status, answer.body["reason"]) == (422, "Invalid")
    [cause] = answer.body["details"]["causes"]
    assert cause["field"] == "spec.selectors[0].cel.expression"
    assert cause["reason"] == "FieldValueInvalid"
    assert cause["message"].partition(": ")[0] == "Invalid value"
    assert cause["message"].endswith(f": {BAD[expression]}")


def test_the_whole_sentence(admin: Client) -> None:
    assert refusal(admin.create(device_class("true", "x"), dry_run=True)) == (
        'DeviceClass.resource.k8s.io "probe.example.test" is invalid: spec.selectors[1].cel.expression: Invalid value: '
        "\"x\": compilation failed: ERROR: <input>:1:1: undeclared reference to 'x' (in container '')\n | x\n | ^"
    )


def test_a_class_is_judged_at_every_change(admin: Client) -> None:
    assert admin.create(device_class("true")).ok
    try:
        refused = admin.apply(device_class("x"))
        assert "spec.selectors[0].cel.expression: Invalid value" in refusal(refused)
        assert admin.apply(device_class("device.driver == 'a.test'")).ok
    finally:
        assert admin.delete(RESOURCE, "DeviceClass", None, "probe.example.test").ok


def test_in_a_template(admin: Client, namespace: str) -> None:
    """The policies allow no selectors in a slice's template; what does not compile never reaches them."""
    document = claim_template(namespace)
    place = "spec.spec.devices.requests[0].exactly.selectors[0].cel.expression: Invalid value"
    assert place in refusal(admin.create(changed(document, (SELECTORS, cel("x"))), dry_run=True))
    assert "ValidatingAdmissionPolicy" in refusal(
        admin.create(changed(document, (SELECTORS, cel("true"))), dry_run=True)
    )


def test_in_a_claim(admin: Client, namespace: str) -> None:
    def claim(request: Doc) -> Doc:
        metadata = {"name": "probe", "namespace": namespace}
        return {"apiVersion": RESOURCE, "kind": "ResourceClaim", "metadata": metadata,
                "spec": {"devices": {"requests": [{"name": "gpu"} | request]}}}  # fmt: skip

    part = {"deviceClassName": "a.test", "selectors": cel("7")}
    exactly = refusal(admin.create(claim({"exactly": part}), dry_run=True))
    assert "spec.devices.requests[0].exactly.selectors[0].cel.expression: Invalid value" in exactly
    listed = refusal(admin.create(claim({"firstAvailable": [{"name": "one"} | part]}), dry_run=True))
    assert "spec.devices.requests[0].firstAvailable[0].selectors[0].cel.expression: Invalid value" in listed


@pytest.mark.parametrize(
    ("selectors", "why"),
    [
        ([{}], "spec.selectors[0].cel: Required value"),
        (cel(*["true"] * 33), "spec.selectors: Too many: 33: must have at most 32 items"),
        (
            cel("true" + " " * 10237),
            "spec.selectors[0].cel.expression: Too long: may not be more than 10240 bytes",
        ),
    ],
    ids=["none", "many", "long"],
)
def test_limits(admin: Client, selectors: list[Doc], why: str) -> None:
    document = device_class() | {"spec": {"selectors": selectors}}
    assert refusal(admin.create(document, dry_run=True)).endswith(f" is invalid: {why}")
