"""What a cluster refuses: recorded refusals, pod security, ordinary validation, policies. Sandbox and real alike."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from dev.controlplane.client import Client, path_of
from tests.admission_kit import (
    Doc,
    admin,
    assert_as_recorded,
    config_map,
    namespace,
    pod,
    recorded,
    volume_claim,
)
from tests.clusters import Target, eventually
from tests.controlplane.documents import GONE, changed, claim_template, deployment

__all__ = ["admin", "namespace"]  # fixtures

pytestmark = pytest.mark.cluster


class TestRecorded:
    def test_already_exists(self, admin: Client, namespace: str) -> None:
        template = claim_template(namespace)
        assert admin.create(template).ok
        assert_as_recorded(admin.create(template), "already-exists", '"probe-gpu" already exists')

    def test_namespace_not_found(self, admin: Client) -> None:
        answer = admin.create(claim_template("no-such-ns"))
        assert answer.status == 404
        assert answer.body == recorded("namespace-not-found")["body"]

    def test_label_too_long(self, admin: Client, namespace: str) -> None:
        long = "a" * 64
        document = changed(
            deployment(namespace),
            ("/metadata/labels/app.kubernetes.io~1name", long),
            ("/spec/template/metadata/labels/app.kubernetes.io~1name", long),
        )
        answer = admin.create(document)
        assert_as_recorded(
            answer,
            "label-too-long",
            "must be no more than 63 bytes",
            "`selector` does not match template `labels`",
        )
        assert answer.message == recorded("label-too-long")["body"]["message"]

    def test_template_spec_immutable(self, admin: Client, namespace: str) -> None:
        assert admin.apply(claim_template(namespace)).ok
        answer = admin.apply(claim_template(namespace, package="16g"))
        assert_as_recorded(
            answer, "template-spec-immutable", "is invalid: spec: Invalid value:", "field is immutable"
        )

    def test_template_wrong_capacity(self, admin: Client, namespace: str) -> None:
        place = "/spec/spec/devices/requests/0/exactly/capacity/requests/memory"
        answer = admin.create(changed(claim_template(namespace), (place, "9Gi")))
        assert_as_recorded(
            answer,
            "template-wrong-capacity",
            'resourceclaimtemplates.resource.k8s.io "probe-gpu" is forbidden: ValidatingAdmissionPolicy ',
            "denied request: ",
        )

    def test_deployment_rolling_update(self, admin: Client, namespace: str) -> None:
        answer = admin.create(changed(deployment(namespace), ("/spec/strategy", GONE)))
        assert_as_recorded(
            answer,
            "deployment-rolling-update",
            "ValidatingAdmissionPolicy 'kube-dc-dra-gpu-deployments' with binding 'kube-dc-dra-gpu-deployments'",
            "must use Recreate",
        )

    @pytest.mark.parametrize("name", ["template-missing-label", "deployment-missing-label"])
    def test_missing_label(self, admin: Client, namespace: str, name: str) -> None:
        make = claim_template if name.startswith("template") else deployment
        answer = admin.create(changed(make(namespace), ("/metadata/labels/kube-dc.com~1gpu-backend", GONE)))
        assert_as_recorded(answer, name, "is forbidden: ValidatingAdmissionPolicy ", "denied request: ")

    def test_volume_claim_over_quota(self, cluster: Target, admin: Client) -> None:
        space = cluster.make_namespace("quota", quota={"requests.storage": "160Gi"})
        assert admin.create(volume_claim(space, "20480Mi", "models")).ok
        answer = admin.create(volume_claim(space, "500Gi"))
        assert answer.status == 403
        assert answer.body == recorded("pvc-over-quota")["body"]
        cluster.drop_namespace(space)


class TestPodSecurity:
    def test_names_what_is_wrong(self, admin: Client, namespace: str) -> None:
        document = pod(namespace, hostNetwork=True, securityContext={})
        document["spec"]["containers"][0]["securityContext"] = {"privileged": True}
        answer = admin.create(document)
        assert answer.status == 403
        assert answer.message == (
            'pods "p" is forbidden: violates PodSecurity "restricted:latest": host namespaces (hostNetwork=true), '
            'privileged (container "main" must not set securityContext.privileged=true), '
            'allowPrivilegeEscalation != false (container "main" must set '
            "securityContext.allowPrivilegeEscalation=false), unrestricted capabilities "
            '(container "main" must set securityContext.capabilities.drop=["ALL"]), runAsNonRoot != true (pod or '
            'container "main" must set securityContext.runAsNonRoot=true), seccompProfile (pod or container "main" '
            'must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost")'
        )


@pytest.mark.parametrize(
    ("place", "value", "status", "phrase"),
    [
        ("/spec/selector/matchLabels", {"a": "b"}, 422, "`selector` does not match template `labels`"),
        ("/spec/strategy/rollingUpdate", {"maxSurge": 1}, 422, "may not be specified when strategy `type`"),
        ("/spec/template/spec/containers", [], 422, "spec.template.spec.containers: Required value"),
        (
            "/spec/template/spec/containers/0/resources/requests/cpu",
            "64",
            422,
            'spec.template.spec.containers[0].resources.requests: Invalid value: "64": must be less than or equal to',
        ),
        (
            "/spec/template/spec/containers/0/ports",
            [{"containerPort": 70000}],
            422,
            "containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive",
        ),
        (
            "/spec/template/spec/restartPolicy",
            "Never",
            422,
            'Unsupported value: "Never": supported values: "Always"',
        ),
        ("/metadata/name", "Probe", 422, "a lowercase RFC 1123 subdomain must consist of"),
        (
            "/spec/replicas",
            "1",
            400,
            "cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas",
        ),
        (
            "/spec/template/spec/containers/0/resources/requests/cpu",
            "1x",
            400,
            "quantities must match the regular",
        ),
        ("/spec/template/spec/resourceClaims", GONE, 422, 'Not found: "gpu"'),
        ("/spec/replicas", -1, 422, "spec.replicas: Invalid value: -1: must be greater than or equal to 0"),
    ],
)
def test_ordinary_validation(
    admin: Client, namespace: str, place: str, value: Any, status: int, phrase: str
) -> None:
    answer = admin.create(changed(deployment(namespace), (place, value)), dry_run=True)
    assert answer.status == status, answer.body
    assert phrase in answer.message


def test_selector_of_a_deployment_is_immutable(admin: Client, namespace: str) -> None:
    document = changed(deployment(namespace), ("/spec/replicas", 0))
    assert admin.create(document).ok
    labels = document["spec"]["template"]["metadata"]["labels"]
    other = {"app.kubernetes.io/managed-by": labels["app.kubernetes.io/managed-by"]}
    body = {"spec": {"selector": {"matchLabels": {"app.kubernetes.io/name": None} | other}}}
    answer = admin.call("PATCH", path_of(document), body, content_type="application/merge-patch+json")
    assert answer.status == 422
    assert "spec.selector: Invalid value" in answer.message
    assert "field is immutable" in answer.message


class TestPolicies:
    """The evaluator itself, with policies made for the test in a namespace of its own."""

    @pytest.fixture
    def judged(self, cluster: Target, admin: Client) -> Iterator[tuple[str, Any]]:
        space = cluster.make_namespace("policy", labels={})
        name = f"test-{space}"
        made: list[Doc] = []

        def install(actions: tuple[str, ...] = ("Deny",), **spec: Any) -> None:
            group = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": name}}
            here = {"matchLabels": {"kubernetes.io/metadata.name": space}}
            rules = [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]}
            ]
            constraints = {"matchConstraints": {"resourceRules": rules, "namespaceSelector": here}}
            binding = {"policyName": name, "validationActions": list(actions)}
            made.append(group | {"kind": "ValidatingAdmissionPolicy", "spec": constraints | spec})
            made.append(group | {"kind": "ValidatingAdmissionPolicyBinding", "spec": binding})
            for document in made:
                answer = admin.create(document)
                assert answer.ok, answer.message
            probe = config_map(space, "policy-probe", refuse="me")
            if cluster.name == "controlplane" and "Deny" in actions:
                eventually(lambda: not admin.create(probe, dry_run=True).ok, "the policy", 30)

        yield space, install
        for document in made:
            admin.call("DELETE", path_of(document))
        cluster.drop_namespace(space)

    def test_message_reason_and_variables(self, admin: Client, judged: tuple[str, Any]) -> None:
        space, install = judged
        install(
            variables=[
                {"name": "data", "expression": "has(object.data) ? object.data : {}"},
                {"name": "refused", "expression": "'refuse' in variables.data"},
            ],
            validations=[
                {"expression": "!variables.refused", "message": "not this one", "reason": "Forbidden"},
                {"expression": "variables.data.all(k, variables.data[k] != '')"},
            ],
        )
        answer = admin.create(config_map(space, "a", refuse="me"))
        title = f"ValidatingAdmissionPolicy 'test-{space}' with binding 'test-{space}' denied request: "
        assert (answer.status, answer.body["reason"]) == (403, "Forbidden")
        assert answer.message == f'configmaps "a" is forbidden: {title}not this one'
        assert answer.body["details"]["causes"] == [{"message": f"{title}not this one"}]
        answer = admin.create(config_map(space, "a", x=""))
        assert answer.status == 422
        assert answer.message.endswith(
            "denied request: failed expression: variables.data.all(k, variables.data[k] != '')"
        )
        assert admin.create(config_map(space, "a", x="1")).ok

    def test_conditions_operations_and_old_object(self, admin: Client, judged: tuple[str, Any]) -> None:
        space, install = judged
        install(
            matchConditions=[{"name": "named", "expression": "request.name != 'free'"}],
            validations=[
                {
                    "expression": "request.operation == 'DELETE' ? oldObject.data.keep != 'yes' : "
                    "!has(object.data.refuse) && (oldObject == null || oldObject.data.x == object.data.x)",
                    "messageExpression": "request.operation + ' of ' + request.name + ' in ' + "
                    "namespaceObject.metadata.name + ' by ' + request.userInfo.username",
                }
            ],
        )
        assert admin.create(config_map(space, "free", refuse="me")).ok
        document = config_map(space, "a", x="1", keep="yes")
        assert admin.create(document).ok
        answer = admin.apply(config_map(space, "a", x="2", keep="yes"))
        assert answer.status == 422
        assert f"denied request: UPDATE of a in {space} by " in answer.message
        answer = admin.call("DELETE", path_of(document))
        assert answer.status == 422
        assert "denied request: DELETE of a" in answer.message

    def test_error_in_an_expression(self, admin: Client, judged: tuple[str, Any]) -> None:
        space, install = judged
        install(validations=[{"expression": "object.metadata.labels['wanted'] == 'yes'"}])
        document = config_map(space, "a")
        document["metadata"]["labels"] = {"other": "1"}
        answer = admin.create(document)
        assert answer.status == 422
        assert answer.message.endswith(
            "denied request: expression 'object.metadata.labels['wanted'] == 'yes'' resulted in error: "
            "no such key: wanted"
        )

    def test_failure_policy_ignore(self, admin: Client, judged: tuple[str, Any]) -> None:
        space, install = judged
        install(
            failurePolicy="Ignore",
            validations=[
                {"expression": "!has(object.data) || !('refuse' in object.data)"},
                {"expression": "object.metadata.labels['wanted'] == 'yes'"},
            ],
        )
        assert admin.create(config_map(space, "a", x="1")).ok
