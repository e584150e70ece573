"""The API of the sandbox, and of a real API server where that takes part: one source, the same answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from dev.controlplane.client import Answer, Client, path_for, path_of
from tests.clusters import Target, eventually

pytestmark = pytest.mark.cluster

APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON = "application/json-patch+json"

type Doc = dict[str, Any]


@pytest.fixture
def admin(cluster: Target) -> Client:
    return cluster.client()


@pytest.fixture
def namespace(cluster: Target) -> Iterator[str]:
    name = cluster.make_namespace("api")
    yield name
    cluster.drop_namespace(name)


def config_map(namespace: str, name: str = "one", **data: str) -> Doc:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace},
        "data": data,
    }


def deployment(namespace: str, name: str = "web", **spec: Any) -> Doc:
    labels = {"app": name}
    container = {"name": "main", "image": "registry.example.test/app:1"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": template} | spec,
    }


def made(answer: Answer) -> Doc:
    assert answer.ok, answer.body
    body: Doc = answer.body
    return body


def apply(client: Client, document: Doc, manager: str = "one", force: bool = False) -> Answer:
    query = {"fieldManager": manager} | ({"force": "true"} if force else {})
    return client.call("PATCH", path_of(document), document, query=query, content_type=APPLY)


def watch(client: Client, path: str, seconds: int = 1, **query: str) -> list[Doc]:
    """The lines of a watch that the server ends after some seconds."""
    answer = client.call("GET", path, query={"watch": "true", "timeoutSeconds": str(seconds)} | query)
    assert answer.status == 200
    if isinstance(answer.body, dict):
        return [answer.body]
    return [json.loads(line) for line in answer.body.splitlines()]


def told(lines: list[Doc]) -> list[tuple[str, str]]:
    return [
        (line["type"], line["object"]["metadata"]["name"]) for line in lines if line["type"] != "BOOKMARK"
    ]


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


class TestServerSideApply:
    def test_fields_left_out_are_taken_away(self, admin: Client, namespace: str) -> None:
        made(apply(admin, config_map(namespace, a="1", b="2")))
        made(apply(admin, config_map(namespace, c="3"), "two"))
        assert made(apply(admin, config_map(namespace, b="2")))["data"] == {"b": "2", "c": "3"}

    def test_shared_field_stays_until_both_leave_it(self, admin: Client, namespace: str) -> None:
        made(apply(admin, config_map(namespace, a="1", b="2")))
        made(apply(admin, config_map(namespace, a="1"), "two"))
        assert made(apply(admin, config_map(namespace, b="2")))["data"] == {"a": "1", "b": "2"}
        assert made(apply(admin, config_map(namespace, x="1"), "two"))["data"] == {"b": "2", "x": "1"}

    def test_conflict_names_the_manager_and_the_field(self, admin: Client, namespace: str) -> None:
        made(apply(admin, config_map(namespace, a="1")))
        answer = apply(admin, config_map(namespace, a="2"), "two")
        assert answer.status == 409
        assert answer.message == 'Apply failed with 1 conflict: conflict with "one": .data.a'
        cause = {"reason": "FieldManagerConflict", "message": 'conflict with "one"', "field": ".data.a"}
        assert answer.body["details"]["causes"] == [cause]
        forced = made(apply(admin, config_map(namespace, a="2"), "two", force=True))
        assert [entry["manager"] for entry in forced["metadata"]["managedFields"]] == ["two"]

    def test_other_writes_take_fields_over(self, admin: Client, namespace: str) -> None:
        document = config_map(namespace, a="1")
        made(apply(admin, document))
        query = {"fieldManager": "hand"}
        made(admin.call("PATCH", path_of(document), {"data": {"a": "2"}}, query=query, content_type=MERGE))
        answer = apply(admin, document)
        assert answer.status == 409
        assert '"hand" using v1' in answer.message

    def test_list_items_are_merged_by_their_key(self, admin: Client, namespace: str) -> None:
        document = deployment(namespace)
        container = document["spec"]["template"]["spec"]["containers"][0]
        container["env"] = [{"name": "A", "value": "1"}, {"name": "B", "value": ""}]
        made(apply(admin, document))
        body = {
            "spec": {
                "template": {"spec": {"containers": [{"name": "main", "env": [{"name": "C", "value": "3"}]}]}}
            }
        }
        made(admin.call("PATCH", path_of(document), body, content_type=STRATEGIC))
        container["env"] = [{"name": "B", "value": "2"}]
        found = made(apply(admin, document))["spec"]["template"]["spec"]["containers"][0]["env"]
        assert sorted((one["name"], one.get("value", "")) for one in found) == [("B", "2"), ("C", "3")]

    def test_null_does_not_clear_a_map(self, admin: Client, namespace: str) -> None:
        document = deployment(namespace)
        made(apply(admin, document))
        document["spec"]["strategy"] = {"type": "Recreate", "rollingUpdate": None}
        answer = apply(admin, document)
        assert answer.status == 422
        assert "spec.strategy.rollingUpdate: Forbidden: may not be specified when strategy" in answer.message
        body = {"spec": {"strategy": {"type": "Recreate", "rollingUpdate": None}}}
        cleared = made(admin.call("PATCH", path_of(document), body, content_type=MERGE))
        assert cleared["spec"]["strategy"] == {"type": "Recreate"}

    def test_same_key_twice(self, admin: Client, namespace: str) -> None:
        document = deployment(namespace)
        container = document["spec"]["template"]["spec"]["containers"][0]
        container["env"] = [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]
        answer = apply(admin, document)
        assert answer.status == 500
        assert '.containers[name="main"].env: duplicate entries for key [name="A"]' in answer.message
        assert admin.create(document, dry_run=True).ok

    def test_needs_a_field_manager(self, admin: Client, namespace: str) -> None:
        document = config_map(namespace)
        answer = admin.call("PATCH", path_of(document), document, content_type=APPLY)
        assert answer.status == 422
        assert "fieldManager: Required value: is required for apply patch" in answer.message


class TestPatches:
    def test_json_patch(self, admin: Client, namespace: str) -> None:
        document = made(admin.create(config_map(namespace, a="1", b="2")))
        steps = [
            {"op": "test", "path": "/data/a", "value": "1"},
            {"op": "move", "from": "/data/a", "path": "/data/x~1y"},
            {"op": "remove", "path": "/data/b"},
        ]
        answer = admin.call("PATCH", path_of(document), steps, content_type=JSON)
        assert answer.status == 422  # "x/y" is no key of a ConfigMap
        steps[1]["path"] = "/data/c"
        assert made(admin.call("PATCH", path_of(document), steps, content_type=JSON))["data"] == {"c": "1"}
        assert admin.call("PATCH", path_of(document), steps, content_type=JSON).status == 422

    def test_strategic_patch_deletes_and_orders(self, admin: Client, namespace: str) -> None:
        document = deployment(namespace)
        spec = document["spec"]["template"]["spec"]
        spec["containers"][0]["env"] = [{"name": name, "value": name} for name in "ABC"]
        made(admin.create(document))
        change = {
            "name": "main",
            "$setElementOrder/env": [{"name": "D"}, {"name": "C"}, {"name": "A"}],
            "env": [{"name": "D", "value": "D"}, {"name": "B", "$patch": "delete"}],
        }
        body = {"spec": {"template": {"spec": {"containers": [change]}}}}
        found = made(admin.call("PATCH", path_of(document), body, content_type=STRATEGIC))
        env = found["spec"]["template"]["spec"]["containers"][0]["env"]
        assert [one["name"] for one in env] == ["D", "C", "A"]

    @pytest.mark.parametrize("kind", ["text/plain", "application/json"])
    def test_other_types_are_refused(self, admin: Client, namespace: str, kind: str) -> None:
        document = made(admin.create(config_map(namespace)))
        assert admin.call("PATCH", path_of(document), {}, content_type=kind).status == 415


class TestLists:
    def test_items_carry_no_kind(self, admin: Client, namespace: str) -> None:
        made(admin.create(config_map(namespace)))
        answer = made(admin.call("GET", path_for("v1", "ConfigMap", namespace)))
        assert answer["kind"] == "ConfigMapList"
        assert not any({"kind", "apiVersion"} & item.keys() for item in answer["items"])

    def test_selectors(self, admin: Client, namespace: str) -> None:
        for name, labels in {"a": {"x": "1"}, "b": {"x": "2"}, "c": {}}.items():
            document = config_map(namespace, name)
            document["metadata"]["labels"] = labels
            made(admin.create(document))

        def names(**query: str) -> list[str]:
            items = admin.items("v1", "ConfigMap", namespace, **query)
            found = [item["metadata"]["name"] for item in items]
            return [name for name in found if name != "kube-root-ca.crt"]

        assert names(labelSelector="x=1") == ["a"]
        assert names(labelSelector="x") == ["a", "b"]
        assert names(labelSelector="!x") == ["c"]
        assert names(labelSelector="x!=1") == ["b", "c"]
        assert names(labelSelector="x in (1, 2),x notin (2)") == ["a"]
        assert names(fieldSelector="metadata.name!=a") == ["b", "c"]
        answer = admin.call(
            "GET", path_for("v1", "ConfigMap", namespace), query={"fieldSelector": "data.a=1"}
        )
        assert answer.status == 400

    def test_pages_are_of_one_moment(self, admin: Client, namespace: str) -> None:
        for name in "abcd":
            made(admin.create(config_map(namespace, name)))
        path = path_for("v1", "ConfigMap", namespace)
        first = made(admin.call("GET", path, query={"limit": "2"}))
        made(admin.delete("v1", "ConfigMap", namespace, "d"))
        made(admin.create(config_map(namespace, "bb")))
        token = first["metadata"]["continue"]
        rest = made(admin.call("GET", path, query={"limit": "10", "continue": token}))
        names = [item["metadata"]["name"] for item in first["items"] + rest["items"]]
        assert [name for name in names if name != "kube-root-ca.crt"] == list("abcd")
        assert rest["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]

    def test_forgotten_versions_are_gone(self, cluster: Target, admin: Client, namespace: str) -> None:
        path = path_for("v1", "ConfigMap", namespace)
        for name in "abc":
            made(admin.create(config_map(namespace, name)))
        page = made(admin.call("GET", path, query={"limit": "1"}))["metadata"]
        made(admin.create(config_map(namespace, "d")))
        cluster.compact()
        query = {"resourceVersion": page["resourceVersion"], "resourceVersionMatch": "Exact"}
        for asked in (query, {"continue": page["continue"], "limit": "1"}):
            answer = admin.call("GET", path, query=asked)
            assert answer.status == 410
            assert answer.body["reason"] == "Expired"


class TestWatches:
    def test_follows_from_a_version(self, admin: Client, namespace: str) -> None:
        path = path_for("v1", "ConfigMap", namespace)
        version = made(admin.call("GET", path))["metadata"]["resourceVersion"]
        document = made(admin.create(config_map(namespace, a="1")))
        made(admin.call("PATCH", path_of(document), {"data": {"a": "2"}}, content_type=MERGE))
        made(admin.delete("v1", "ConfigMap", namespace, "one"))
        lines = watch(admin, path, resourceVersion=version, fieldSelector="metadata.name=one")
        assert told(lines) == [("ADDED", "one"), ("MODIFIED", "one"), ("DELETED", "one")]
        versions = [int(line["object"]["metadata"]["resourceVersion"]) for line in lines]
        assert versions == sorted(set(versions))
        assert lines[0]["object"]["kind"] == "ConfigMap"
        resumed = watch(admin, path, resourceVersion=str(versions[1]), fieldSelector="metadata.name=one")
        assert told(resumed) == [("DELETED", "one")]

    def test_begins_with_what_is_there(self, admin: Client, namespace: str) -> None:
        made(admin.create(config_map(namespace)))
        path = path_for("v1", "ConfigMap", namespace)
        lines = watch(admin, path, fieldSelector="metadata.name=one")
        assert told(lines) == [("ADDED", "one")]

    def test_selector_makes_objects_come_and_go(self, admin: Client, namespace: str) -> None:
        path = path_for("v1", "ConfigMap", namespace)
        version = made(admin.call("GET", path))["metadata"]["resourceVersion"]
        document = made(admin.create(config_map(namespace)))
        for value in ("1", "2", None):
            body = {"metadata": {"labels": {"x": value}}}
            made(admin.call("PATCH", path_of(document), body, content_type=MERGE))
        lines = watch(admin, path, resourceVersion=version, labelSelector="x=1")
        assert told(lines) == [("ADDED", "one"), ("DELETED", "one")]

    def test_bookmark_at_the_end(self, admin: Client, namespace: str) -> None:
        path = path_for("v1", "ConfigMap", namespace)
        version = made(admin.call("GET", path))["metadata"]["resourceVersion"]
        made(admin.create(deployment(namespace)))
        lines = watch(admin, path, 3, resourceVersion=version, allowWatchBookmarks="true")
        marks = [line["object"] for line in lines if line["type"] == "BOOKMARK"]
        assert marks
        assert marks[-1]["kind"] == "ConfigMap"
        assert int(marks[-1]["metadata"]["resourceVersion"]) >= int(version)

    def test_initial_events(self, cluster: Target, admin: Client, namespace: str) -> None:
        if cluster.name == "controlplane":
            pytest.skip("its etcd 3.5 has no progress requests, which this needs")
        made(admin.create(config_map(namespace)))
        lines = watch(
            admin,
            path_for("v1", "ConfigMap", namespace),
            5,
            sendInitialEvents="true",
            resourceVersionMatch="NotOlderThan",
            allowWatchBookmarks="true",
        )
        types = [line["type"] for line in lines]
        first = types.index("BOOKMARK")
        assert set(types[:first]) == {"ADDED"}
        annotations = lines[first]["object"]["metadata"]["annotations"]
        assert annotations == {"k8s.io/initial-events-end": "true"}

    def test_too_old_a_version(self, cluster: Target, admin: Client, namespace: str) -> None:
        path = path_for("v1", "ConfigMap", namespace)
        version = made(admin.create(config_map(namespace)))["metadata"]["resourceVersion"]
        made(admin.create(config_map(namespace, "two")))
        cluster.compact()
        # A real server's own memory of changes may still reach back that far; the first version never does.
        asked = "1" if cluster.name == "controlplane" else version
        (line,) = watch(admin, path, resourceVersion=asked)
        assert line["type"] == "ERROR"
        assert (line["object"]["code"], line["object"]["reason"]) == (410, "Expired")


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
