"""Lists and watches, of the sandbox and of a real API server where that takes part: the same answers."""

from __future__ import annotations

import threading

import pytest

from dev.controlplane.client import Client, path_for, path_of
from tests.clusters import Target
from tests.sandbox_api_kit import (
    MERGE,
    Doc,
    admin,
    config_map,
    made,
    namespace,
    told,
    watch,
)

__all__ = ["admin", "namespace"]  # fixtures

pytestmark = pytest.mark.cluster


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
        marks: list[Doc] = []
        for number in range(5):  # a server sends it in the last two seconds, and may be late by a little more
            # Where etcd tells no progress, it comes only after a change of this kind, seen or not, during the watch.
            later = threading.Timer(0.5, admin.create, [config_map("default", f"{namespace}-{number}")])
            later.start()
            lines = watch(admin, path, 3, resourceVersion=version, allowWatchBookmarks="true")
            later.join()
            made(admin.delete("v1", "ConfigMap", "default", f"{namespace}-{number}"))
            marks = [line["object"] for line in lines if line["type"] == "BOOKMARK"]
            if marks:
                break
        assert marks
        assert marks[-1]["kind"] == "ConfigMap"
        assert int(marks[-1]["metadata"]["resourceVersion"]) > int(version)

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
