"""Server-side apply and patches, of the sandbox and of a real API server where that takes part: the same answers."""

from __future__ import annotations

import pytest

from dev.controlplane.client import Client, path_of
from tests.sandbox_api_kit import (
    APPLY,
    JSON,
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
