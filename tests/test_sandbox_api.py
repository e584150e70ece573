"""The API of the sandbox, and of a real API server where that takes part: one source, the same answers."""

from __future__ import annotations

import pytest

from dev.controlplane.client import Client, path_for, path_of
from tests.clusters import Target, eventually
from tests.sandbox_api_kit import (
    MERGE,
    STRATEGIC,
    admin,
    apply,
    config_map,
    deployment,
    made,
    namespace,
)

__all__ = ["admin", "namespace"]  # fixtures

pytestmark = pytest.mark.cluster


class TestObjects:
    def test_system_metadata(self, admin: Client, namespace: str) -> None:
        first = made(admin.create(deployment(namespace)))["metadata"]
        assert first["generation"] == 1
        path = path_of(deployment(namespace))
        second = made(admin.call("PATCH", path, {"metadata": {"labels": {"a": "b"}}}, content_type=MERGE))
        assert second["metadata"]["generation"] == 1
        third = made(admin.call("PATCH", path, {"spec": {"minReadySeconds": 1}}, content_type=MERGE))
        assert third["metadata"]["generation"] == 2
        assert {first["uid"]} == {second["metadata"]["uid"], third["metadata"]["uid"]}
        versions = [int(m["resourceVersion"]) for m in (first, second["metadata"], third["metadata"])]
        assert versions == sorted(set(versions))

    def test_write_that_changes_nothing_keeps_the_version(self, admin: Client, namespace: str) -> None:
        document = config_map(namespace, a="1")
        first = made(apply(admin, document))
        assert made(apply(admin, document)) == first
        same = made(admin.call("PATCH", path_of(document), {"data": {"a": "1"}}, content_type=MERGE))
        assert same["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]

    def test_generated_name(self, admin: Client, namespace: str) -> None:
        document = config_map(namespace) | {"metadata": {"generateName": "gen-", "namespace": namespace}}
        name = made(admin.create(document))["metadata"]["name"]
        assert name.startswith("gen-")
        assert len(name) == len("gen-") + 5

    def test_defaults_and_quantities(self, admin: Client, namespace: str) -> None:
        resources = {"requests": {"cpu": "0.5", "memory": "1024Mi"}, "limits": {"cpu": 1, "memory": "2Gi"}}
        document = deployment(namespace)
        document["spec"]["template"]["spec"]["containers"][0]["resources"] = resources
        spec = made(admin.create(document))["spec"]
        assert spec["strategy"] == {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"},
        }
        container = spec["template"]["spec"]["containers"][0]
        assert container["resources"] == {
            "requests": {"cpu": "500m", "memory": "1Gi"},
            "limits": {"cpu": "1", "memory": "2Gi"},
        }
        assert container["imagePullPolicy"] == "IfNotPresent"

    def test_unknown_fields_are_dropped_or_refused(self, admin: Client, namespace: str) -> None:
        document = config_map(namespace, a="1") | {"nonsense": 1}
        assert "nonsense" not in made(admin.create(document))
        path = path_of(document, named=False)
        strict = admin.call(
            "POST", path, document | {"metadata": {"name": "two"}}, query={"fieldValidation": "Strict"}
        )
        assert strict.status == 400
        assert 'strict decoding error: unknown field "nonsense"' in strict.message
        applied = apply(admin, document)
        assert applied.status == 500
        assert ".nonsense: field not declared in schema" in applied.message

    def test_dry_run_stores_nothing(self, admin: Client, namespace: str) -> None:
        document = config_map(namespace, a="1")
        assert admin.create(document, dry_run=True).status == 201
        assert admin.get("v1", "ConfigMap", namespace, "one").status == 404
        made(admin.create(document))
        query = {"dryRun": "All"}
        patched = admin.call(
            "PATCH", path_of(document), {"data": {"a": "2"}}, query=query, content_type=MERGE
        )
        assert made(patched)["data"] == {"a": "2"}
        assert made(admin.get("v1", "ConfigMap", namespace, "one"))["data"] == {"a": "1"}

    def test_put_needs_the_present_version(self, admin: Client, namespace: str) -> None:
        first = made(admin.create(config_map(namespace, a="1")))
        path = path_of(first)
        made(admin.call("PUT", path, first | {"data": {"a": "2"}}))
        stale = admin.call("PUT", path, first | {"data": {"a": "3"}})
        assert stale.status == 409
        assert stale.body["reason"] == "Conflict"
        assert "the object has been modified" in stale.message

    def test_status_is_a_subresource(self, admin: Client, namespace: str) -> None:
        claim = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "data", "namespace": namespace},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "none",
                "resources": {"requests": {"storage": "1Gi"}},
            },
            "status": {"phase": "Bound"},
        }
        assert made(admin.create(claim))["status"] == {"phase": "Pending"}
        path = path_of(claim)
        body = {"status": {"phase": "Lost"}, "metadata": {"labels": {"x": "y"}}}
        assert made(admin.call("PATCH", path, body, content_type=MERGE))["status"] == {"phase": "Pending"}
        changed = made(admin.call("PATCH", f"{path}/status", body, content_type=MERGE))
        assert changed["status"] == {"phase": "Lost"}
        assert changed["metadata"]["labels"] == {"x": "y"}

    def test_scale(self, admin: Client, namespace: str) -> None:
        document = made(admin.create(deployment(namespace)))
        path = f"{path_of(document)}/scale"
        scale = made(admin.call("GET", path))
        assert (scale["kind"], scale["spec"], scale["status"]["selector"]) == (
            "Scale",
            {},
            "app=web",
        )
        query = {"dryRun": "All"}
        assert (
            made(admin.call("PUT", path, scale | {"spec": {"replicas": 2}}, query=query))["spec"]["replicas"]
            == 2
        )
        changed = admin.call("PATCH", path, {"spec": {"replicas": 3}}, query=query, content_type=MERGE)
        assert made(changed)["spec"] == {"replicas": 3}
        assert admin.call("PATCH", path, {"spec": {"replicas": -1}}, content_type=MERGE).status == 422

    def test_pod_keeps_its_spec(self, admin: Client, namespace: str) -> None:
        security = {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}}
        container = {
            "name": "main",
            "image": "registry.example.test/app:1",
            "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        }
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "p", "namespace": namespace},
            "spec": {
                "nodeSelector": {"nowhere": "1"},
                "securityContext": security,
                "containers": [container],
            },
        }
        made(admin.create(pod))
        body = {"spec": {"hostname": "other"}}
        answer = admin.call("PATCH", path_of(pod), body, content_type=MERGE)
        assert answer.status == 422
        assert "spec: Forbidden: pod updates may not change fields other than" in answer.message
        image = {"spec": {"containers": [{"name": "main", "image": "registry.example.test/app:2"}]}}
        assert admin.call("PATCH", path_of(pod), image, content_type=STRATEGIC).ok


class TestDeletion:
    def test_finalizer_holds_the_object(self, admin: Client, namespace: str) -> None:
        document = config_map(namespace)
        document["metadata"]["finalizers"] = ["example.test/hold"]
        made(admin.create(document))
        made(admin.delete("v1", "ConfigMap", namespace, "one"))
        held = made(admin.get("v1", "ConfigMap", namespace, "one"))
        assert held["metadata"]["deletionTimestamp"]
        freed = admin.call("PATCH", path_of(document), {"metadata": {"finalizers": None}}, content_type=MERGE)
        assert "finalizers" not in made(freed)["metadata"]
        assert admin.get("v1", "ConfigMap", namespace, "one").status == 404

    def test_preconditions(self, admin: Client, namespace: str) -> None:
        made(admin.create(config_map(namespace)))
        path = path_of(config_map(namespace))
        for wanted in ({"uid": "another"}, {"resourceVersion": "1"}):
            answer = admin.call("DELETE", path, {"preconditions": wanted})
            assert answer.status == 409
            assert "in the precondition" in answer.message
        assert made(admin.call("DELETE", path))["status"] == "Success"
        assert admin.call("DELETE", path).status == 404

    def test_dependents_follow_their_owner(self, admin: Client, namespace: str) -> None:
        owner = made(admin.create(config_map(namespace, "owner")))
        document = config_map(namespace, "child")
        reference = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": "owner",
            "uid": owner["metadata"]["uid"],
        }
        document["metadata"]["ownerReferences"] = [reference]
        made(admin.create(document))
        made(admin.delete("v1", "ConfigMap", namespace, "owner"))
        eventually(lambda: admin.get("v1", "ConfigMap", namespace, "child").status == 404, "the end")

    def test_orphans_stay(self, admin: Client, namespace: str) -> None:
        owner = made(admin.create(config_map(namespace, "owner")))
        document = config_map(namespace, "child")
        reference = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": "owner",
            "uid": owner["metadata"]["uid"],
        }
        document["metadata"]["ownerReferences"] = [reference]
        made(admin.create(document))
        made(admin.call("DELETE", path_of(owner), {"propagationPolicy": "Orphan"}))
        eventually(lambda: admin.get("v1", "ConfigMap", namespace, "owner").status == 404, "the owner's end")
        child = made(admin.get("v1", "ConfigMap", namespace, "child"))
        assert "ownerReferences" not in child["metadata"]

    def test_terminating_namespace_takes_nothing(self, cluster: Target, admin: Client) -> None:
        name = cluster.make_namespace("ending")
        document = config_map(name)
        document["metadata"]["finalizers"] = ["example.test/hold"]
        made(admin.create(document))
        cluster.drop_namespace(name)
        answer = admin.create(config_map(name, "two"))
        assert answer.status == 403
        assert f"unable to create new content in namespace {name}" in answer.message
        assert answer.body["details"]["causes"][0]["reason"] == "NamespaceTerminating"
        made(admin.call("PATCH", path_of(document), {"metadata": {"finalizers": None}}, content_type=MERGE))
        eventually(lambda: admin.get("v1", "Namespace", None, name).status == 404, "the namespace's end", 40)


class TestAccess:
    def test_no_token(self, cluster: Target) -> None:
        admin = cluster.client()
        nobody = Client(admin.server, "wrong", admin.ca)
        answer = nobody.call("GET", "/api/v1/namespaces")
        assert (answer.status, answer.message) == (401, "Unauthorized")

    def test_portal_reads_no_secrets(self, cluster: Target, namespace: str) -> None:
        answer = cluster.client("portal").call("GET", path_for("v1", "Secret", namespace))
        assert answer.status == 403
        assert answer.message == (
            'secrets is forbidden: User "system:serviceaccount:gpu-portal:gpu-portal" cannot list resource '
            f'"secrets" in API group "" in the namespace "{namespace}"'
        )

    @pytest.mark.parametrize(("resource", "allowed"), [("deployments", True), ("statefulsets", False)])
    def test_asks_for_its_rights(self, cluster: Target, namespace: str, resource: str, allowed: bool) -> None:
        asked = {"verb": "patch", "group": "apps", "resource": resource, "namespace": namespace}
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": asked},
        }
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        answer = made(cluster.client("portal").call("POST", path, review))
        assert answer["status"]["allowed"] is allowed

    def test_acts_as_another(self, admin: Client, namespace: str) -> None:
        someone = admin.acting_as("jane", "team")
        answer = someone.call("GET", path_for("v1", "Pod", namespace))
        assert answer.status == 403
        assert 'User "jane" cannot list resource "pods"' in answer.message


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/api/v1/nonsense", 404),
        ("GET", "/apis/nonsense/v1/things", 404),
        ("PUT", "/api/v1/namespaces", 405),
        ("POST", "/api/v1/configmaps", 405),
    ],
)
def test_unknown_paths(admin: Client, method: str, path: str, status: int) -> None:
    assert admin.call(method, path, {} if method != "GET" else None).status == status
