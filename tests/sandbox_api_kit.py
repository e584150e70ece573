"""What tests of a cluster's API share: small objects, and what is asked of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from dev.controlplane.client import Answer, Client, path_of
from tests.clusters import Target

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
