"""What the portal's gateway relies on in a Kubernetes API: the same questions to the sandbox and to the real thing."""

from __future__ import annotations

import http.client
import json
import ssl
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest

from dev.controlplane.client import Answer, Client
from tests.clusters import Target, eventually, refusal
from tests.controlplane.documents import changed, claim_template, slice_documents

pytestmark = pytest.mark.cluster

type Doc = dict[str, Any]


@pytest.fixture
def namespace(cluster: Target) -> str:
    return cluster.make_namespace("api")


@pytest.fixture
def portal(cluster: Target) -> Client:
    return cluster.client("portal")


def service(namespace: str, name: str, port: int = 80, **labels: str) -> Doc:
    """A small object with little behind it."""
    metadata = {"name": name, "namespace": namespace, "labels": labels}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": [{"port": port}]}}


def apply(client: Client, document: Doc, manager: str = "gpu-portal", **query: str) -> Answer:
    """Server-side apply under a field manager's name."""
    metadata = document["metadata"]
    plural = {"Service": "services"}[document["kind"]]
    path = f"/api/v1/namespaces/{metadata['namespace']}/{plural}/{metadata['name']}"
    return client.call(
        "PATCH",
        path,
        document,
        query={"fieldManager": manager} | query,
        content_type="application/apply-patch+yaml",
    )


def lines(client: Client, path: str, seconds: float = 10.0, **query: str) -> Iterator[Doc]:
    """The lines of a watch, as they come; ends with the stream."""
    address = urlsplit(client.server)
    connection: http.client.HTTPConnection
    if address.scheme == "https":
        context = ssl.create_default_context(cadata=client.ca)
        connection = http.client.HTTPSConnection(
            str(address.hostname), address.port, timeout=seconds, context=context
        )
    else:
        connection = http.client.HTTPConnection(str(address.hostname), address.port, timeout=seconds)
    try:
        connection.request(
            "GET",
            f"{path}?{urlencode({'watch': 'true'} | query)}",
            headers={"Authorization": f"Bearer {client.token}"},
        )
        response = connection.getresponse()
        assert response.status == 200, response.read()
        while line := response.readline():
            yield json.loads(line)
    finally:
        connection.close()


def test_create_twice(portal: Client, namespace: str) -> None:
    document = claim_template(namespace)
    first = portal.create(document)
    assert (first.status, first.body["metadata"].get("generation", 1)) == (201, 1)
    second = portal.create(document)
    assert second.status == 409
    assert second.body == {
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 409,
        "message": 'resourceclaimtemplates.resource.k8s.io "probe-gpu" already exists', "reason": "AlreadyExists",
        "details": {"name": "probe-gpu", "group": "resource.k8s.io", "kind": "resourceclaimtemplates"},
    }  # fmt: skip


def test_a_namespace_that_is_not_there(cluster: Target) -> None:
    answer = cluster.client().create(service("no-such-ns", "a"))
    assert answer.status == 404
    assert answer.body == {
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 404,
        "message": 'namespaces "no-such-ns" not found', "reason": "NotFound",
        "details": {"name": "no-such-ns", "kind": "namespaces"},
    }  # fmt: skip


def test_a_template_is_immutable(portal: Client, namespace: str) -> None:
    assert portal.apply(claim_template(namespace)).ok
    answer = portal.apply(claim_template(namespace, package="16g"))
    assert (answer.status, answer.body["reason"]) == (422, "Invalid")
    assert answer.message.startswith(
        'ResourceClaimTemplate.resource.k8s.io "probe-gpu" is invalid: spec: Invalid value: '
    )
    assert answer.message.endswith(": field is immutable")
    [cause] = answer.body["details"]["causes"]
    assert (cause["field"], cause["reason"]) == ("spec", "FieldValueInvalid")


def test_a_label_too_long(portal: Client, namespace: str) -> None:
    documents = slice_documents(namespace, "a" * 64)
    answer = portal.create(documents[1])
    assert (answer.status, answer.body["reason"]) == (422, "Invalid")
    assert "metadata.labels: Invalid value: " in answer.message
    assert "must be no more than 63 bytes" in answer.message


def test_quantities_are_stored_in_their_shortest_form(portal: Client, namespace: str) -> None:
    answer = portal.create(claim_template(namespace))
    assert answer.ok
    capacity = answer.body["spec"]["spec"]["devices"]["requests"][0]["exactly"]["capacity"]
    assert capacity == {"requests": {"memory": "8Gi", "cores": "25"}}


def test_apply_is_idempotent(portal: Client, namespace: str) -> None:
    for document in slice_documents(namespace, port=8000):
        first, again = portal.apply(document), portal.apply(document)
        assert (first.status, again.status) == (201, 200)
        assert first.body["metadata"]["resourceVersion"] <= again.body["metadata"]["resourceVersion"]
        assert first.body["metadata"]["uid"] == again.body["metadata"]["uid"]
        assert again.body["metadata"].get("generation", 1) == 1


def test_apply_removes_what_it_no_longer_says(portal: Client, namespace: str) -> None:
    assert apply(portal, service(namespace, "a", team="blue", room="1")).ok
    answer = apply(portal, service(namespace, "a", team="red"))
    assert answer.body["metadata"]["labels"] == {"team": "red"}


def test_apply_leaves_what_others_own(cluster: Target, portal: Client, namespace: str) -> None:
    assert apply(portal, service(namespace, "a", team="blue")).ok
    theirs = {"metadata": {"labels": {"room": "1"}}}
    path = f"/api/v1/namespaces/{namespace}/services/a"
    patched = cluster.client().call("PATCH", path, theirs, content_type="application/merge-patch+json")
    assert patched.body["metadata"]["labels"] == {"team": "blue", "room": "1"}
    answer = apply(portal, service(namespace, "a", team="red"))
    assert answer.body["metadata"]["labels"] == {"team": "red", "room": "1"}


def test_apply_conflicts_are_told_and_forced(cluster: Target, portal: Client, namespace: str) -> None:
    assert apply(portal, service(namespace, "a", team="blue")).ok
    other = apply(cluster.client(), service(namespace, "a", team="red"), manager="somebody")
    assert (other.status, other.body["reason"]) == (409, "Conflict")
    assert 'conflict with "gpu-portal"' in other.message
    assert ".metadata.labels.team" in other.message
    forced = apply(cluster.client(), service(namespace, "a", team="red"), manager="somebody", force="true")
    assert forced.body["metadata"]["labels"] == {"team": "red"}


def test_dry_run_changes_nothing(portal: Client, namespace: str) -> None:
    for document in slice_documents(namespace, port=8000):
        assert portal.apply(document, dry_run=True).ok
        kind, name = (document["apiVersion"], document["kind"]), document["metadata"]["name"]
        assert portal.get(*kind, namespace, name).status == 404


def test_merge_patch_takes_away_with_null(portal: Client, namespace: str) -> None:
    assert apply(portal, service(namespace, "a", team="blue", room="1")).ok
    path = f"/api/v1/namespaces/{namespace}/services/a"
    answer = portal.call(
        "PATCH", path, {"metadata": {"labels": {"room": None}}}, content_type="application/merge-patch+json"
    )
    assert answer.body["metadata"]["labels"] == {"team": "blue"}


def test_older_rolling_update_becomes_recreate(cluster: Target, portal: Client, namespace: str) -> None:
    """Case C-06: the defaulted rollingUpdate block stays unless it is taken away in the same request."""
    admin = cluster.client()
    plain = changed(
        slice_documents(namespace, "old")[1],
        ("/metadata/labels", {"app.kubernetes.io/name": "old"}),
        ("/spec/template/metadata/labels", {"app.kubernetes.io/name": "old"}),
        ("/spec/strategy", {"type": "RollingUpdate"}),
        ("/spec/replicas", 0),
    )
    plain["spec"]["template"]["spec"].pop("resourceClaims")
    plain["spec"]["template"]["spec"]["containers"][0]["resources"].pop("claims")
    made = admin.create(plain)
    assert made.body["spec"]["strategy"] == {
        "type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"},
    }  # fmt: skip
    wanted = slice_documents(namespace, "old")[1]
    answer = portal.apply(wanted)
    assert answer.status == 422, "the old block is still there"
    assert "may not be specified when strategy `type` is 'Recreate'" in answer.message
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments/old"
    freed = {"spec": {"strategy": {"type": "Recreate", "rollingUpdate": None}}}
    patched = portal.call("PATCH", path, freed, content_type="application/merge-patch+json")
    assert patched.ok, patched.message
    answer = portal.apply(wanted)
    assert answer.ok, answer.message
    assert answer.body["spec"]["strategy"] == {"type": "Recreate"}


def test_lists_page_by_limit(portal: Client, namespace: str) -> None:
    for number in range(5):
        assert apply(portal, service(namespace, f"s{number}", team="blue" if number else "red")).ok
    path = f"/api/v1/namespaces/{namespace}/services"
    seen, query = [], {"limit": "2"}
    for _ in range(3):
        answer = portal.call("GET", path, query=query)
        seen += [one["metadata"]["name"] for one in answer.body["items"]]
        query = {"limit": "2", "continue": answer.body["metadata"].get("continue", "")}
    assert seen == ["s0", "s1", "s2", "s3", "s4"]
    assert not query["continue"]
    chosen = portal.call("GET", path, query={"labelSelector": "team=blue"}).body
    assert len(chosen["items"]) == 4
    assert chosen["metadata"]["resourceVersion"].isdigit()
    by_name = portal.call("GET", path, query={"fieldSelector": "metadata.name=s3"}).body
    assert [one["metadata"]["name"] for one in by_name["items"]] == ["s3"]


def test_watch_from_a_list(portal: Client, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/services"
    assert apply(portal, service(namespace, "before")).ok
    version = portal.call("GET", path).body["metadata"]["resourceVersion"]
    stream = lines(portal, path, resourceVersion=version, allowWatchBookmarks="true", timeoutSeconds="5")
    assert apply(portal, service(namespace, "after")).ok
    assert apply(portal, service(namespace, "after", team="blue")).ok
    assert portal.delete("v1", "Service", namespace, "after").ok
    seen: list[tuple[str, str]] = []
    for line in stream:
        if line["type"] != "BOOKMARK":
            seen.append((line["type"], line["object"]["metadata"]["name"]))
        if line["type"] == "DELETED":
            break
    assert seen == [("ADDED", "after"), ("MODIFIED", "after"), ("DELETED", "after")]


def test_watch_ends_by_its_timeout(portal: Client, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/services"
    version = portal.call("GET", path).body["metadata"]["resourceVersion"]
    begin = time.monotonic()
    found = list(lines(portal, path, resourceVersion=version, timeoutSeconds="1"))
    assert [line for line in found if line["type"] != "BOOKMARK"] == []
    assert 0.5 < time.monotonic() - begin < 20


def test_an_old_version_is_gone(cluster: Target, namespace: str) -> None:
    portal = cluster.client("portal")
    path = f"/api/v1/namespaces/{namespace}/services"
    assert apply(portal, service(namespace, "a")).ok
    version = portal.call("GET", path).body["metadata"]["resourceVersion"]
    assert apply(portal, service(namespace, "b")).ok
    cluster.compact()
    [line] = list(lines(portal, path, resourceVersion=version))
    assert line["type"] == "ERROR"
    assert (line["object"]["code"], line["object"]["reason"]) == (410, "Expired")
    exact = portal.call("GET", path, query={"resourceVersion": version, "resourceVersionMatch": "Exact"})
    assert exact.status == 410


def test_everything_is_there_after_the_server_was_killed(cluster: Target, namespace: str) -> None:
    portal = cluster.client("portal")
    for document in slice_documents(namespace):
        assert portal.apply(document).ok
    cluster.stop_api()
    with pytest.raises(OSError, match=r"refused|reset|closed"):
        cluster.client("portal").call("GET", "/version")
    cluster.start_api()
    portal = cluster.client("portal")
    eventually(lambda: portal.get("apps/v1", "Deployment", namespace, "probe").ok, "the Deployment")
    assert "must have exactly one container" not in portal.apply(slice_documents(namespace)[1]).message

    def policies_hold() -> bool:
        wrong = changed(claim_template(namespace, "wrong"), ("/metadata/labels/team", "a"))
        return "the same labels" in portal.create(wrong, dry_run=True).message

    eventually(policies_hold, "the policies after a new start")
    eventually(
        lambda: [
            pod for pod in portal.items("v1", "Pod", namespace) if pod["status"].get("phase") == "Running"
        ],
        "the running pod",
    )


def test_delete(portal: Client, namespace: str) -> None:
    assert apply(portal, service(namespace, "a")).ok
    path = f"/api/v1/namespaces/{namespace}/services/a"
    wrong = portal.call("DELETE", path, {"preconditions": {"uid": "0"}})
    assert wrong.status == 409
    assert portal.call("DELETE", path).ok
    again = portal.call("DELETE", path)
    assert (again.status, again.body["reason"]) == (404, "NotFound")
    assert again.message == 'services "a" not found'


def test_who_is_refused_by_rbac_is_told_so(portal: Client, namespace: str) -> None:
    answer = portal.call("GET", f"/api/v1/namespaces/{namespace}/secrets")
    assert (answer.status, answer.body["reason"]) == (403, "Forbidden")
    assert answer.message == (
        'secrets is forbidden: User "system:serviceaccount:gpu-portal:gpu-portal" cannot list resource "secrets" '
        f'in API group "" in the namespace "{namespace}"'
    )


def test_a_wrong_token(cluster: Target) -> None:
    stranger = Client(cluster.client().server, "wrong", cluster.client().ca)
    answer = stranger.call("GET", "/api/v1/namespaces")
    assert (answer.status, answer.body["reason"]) == (401, "Unauthorized")


def test_a_log_is_read(cluster: Target, portal: Client, namespace: str) -> None:
    for document in slice_documents(namespace, "chat"):
        assert portal.apply(document).ok
    pod = eventually(
        lambda: next(
            (p for p in portal.items("v1", "Pod", namespace) if p["status"].get("phase") == "Running"), None
        ),
        "a running pod",
    )
    path = f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}/log"
    eventually(lambda: "ready" in str(portal.call("GET", path).body), "a line in the log")
    two = portal.call("GET", path, query={"tailLines": "2", "container": "workload", "limitBytes": "500"})
    assert two.status == 200
    assert len(two.body.splitlines()) <= 2
    lost = portal.call("GET", f"/api/v1/namespaces/{namespace}/pods/none/log")
    assert refusal(lost) == 'pods "none" not found'
    previous = portal.call("GET", path, query={"previous": "true"})
    assert previous.status == 400
    assert "previous terminated container" in previous.message
