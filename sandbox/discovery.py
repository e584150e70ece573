"""What the API server says about itself: version, groups, resources, OpenAPI."""

import hashlib
from typing import Any

from sandbox.api import Obj
from sandbox.kinds import GROUPS, KINDS, Kind
from sandbox.schema import Schema

VERSION: Obj = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.3-sandbox",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "2026-11-30T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "linux/amd64",
}
_PATCHES = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
)


def _group(name: str) -> Obj:
    version = {"groupVersion": f"{name}/v1", "version": "v1"}
    return {"name": name, "versions": [version], "preferredVersion": version}


def _resources(kind: Kind) -> list[Obj]:
    main: Obj = {
        "name": kind.plural,
        "singularName": kind.kind.lower(),
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": list(kind.verbs),
    }
    if kind.short:
        main["shortNames"] = list(kind.short)
    if kind.categories:
        main["categories"] = list(kind.categories)
    entries = [main]
    below: Obj = {"singularName": "", "namespaced": kind.namespaced, "kind": kind.kind}
    if kind.status:
        entries.append(below | {"name": f"{kind.plural}/status", "verbs": ["get", "patch", "update"]})
    if "log" in kind.subresources:
        entries.append(below | {"name": f"{kind.plural}/log", "verbs": ["get"]})
    if "scale" in kind.subresources:
        scale = {"name": f"{kind.plural}/scale", "group": "autoscaling", "version": "v1", "kind": "Scale"}
        entries.append(below | scale | {"verbs": ["get", "patch", "update"]})
    return entries


class Discovery:
    """Answers of the discovery and OpenAPI paths."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    def answer(self, path: str) -> Obj | None:
        """The document under a path, or None where there is none."""
        match path.strip("/").split("/"):
            case ["version"]:
                return VERSION
            case ["api"]:
                return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
            case ["apis"]:
                return {
                    "kind": "APIGroupList",
                    "apiVersion": "v1",
                    "groups": [_group(name) for name in GROUPS],
                }
            case ["api", "v1"]:
                return self._resource_list("")
            case ["apis", group] if group in GROUPS:
                return {"kind": "APIGroup", "apiVersion": "v1"} | _group(group)
            case ["apis", group, "v1"] if group in GROUPS:
                return self._resource_list(group)
            case ["openapi", "v2"]:
                return self._open_api_2()
            case ["openapi", "v3"]:
                return self._open_api_3_index()
            case ["openapi", "v3", "api", "v1"]:
                return self._open_api_3("")
            case ["openapi", "v3", "apis", group, "v1"] if group in GROUPS:
                return self._open_api_3(group)
        return None

    def _resource_list(self, group: str) -> Obj:
        return {
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": f"{group}/v1" if group else "v1",
            "resources": [entry for kind in KINDS if kind.group == group for entry in _resources(kind)],
        }

    def _open_api_2(self) -> Obj:
        info = {"title": "Kubernetes", "version": VERSION["gitVersion"]}
        return {"swagger": "2.0", "info": info, "paths": {}, "definitions": self._schema.definitions}

    def _open_api_3_index(self) -> Obj:
        paths = ["api/v1", *(f"apis/{group}/v1" for group in GROUPS)]
        mark = hashlib.sha256(str(VERSION).encode()).hexdigest()[:16]
        return {"paths": {path: {"serverRelativeURL": f"/openapi/v3/{path}?hash={mark}"} for path in paths}}

    def _open_api_3(self, group: str) -> Obj:
        info = {"title": "Kubernetes", "version": VERSION["gitVersion"]}
        schemas = _renamed(self._schema.definitions)
        paths: Obj = {}
        for kind in KINDS:
            if kind.group == group:
                paths |= _paths(kind, self._schema.names[kind.group, kind.version, kind.kind])
        return {"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": schemas}}


def _renamed(node: Any) -> Any:
    """References of OpenAPI 2 as OpenAPI 3 writes them."""
    if isinstance(node, dict):
        return {
            key: value.replace("#/definitions/", "#/components/schemas/")
            if key == "$ref"
            else _renamed(value)
            for key, value in node.items()
        }
    return [_renamed(item) for item in node] if isinstance(node, list) else node


def _paths(kind: Kind, definition: str) -> Obj:
    prefix = f"/apis/{kind.group}/v1" if kind.group else "/api/v1"
    where = f"{prefix}/namespaces/{{namespace}}" if kind.namespaced else prefix
    gvk = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{definition}"}}}
    body = {"content": content, "required": True}
    answer = {"responses": {"200": {"description": "OK", "content": content}}}
    options = [
        {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
        for name in ("dryRun", "fieldManager", "fieldValidation")
    ]
    common = answer | {"x-kubernetes-group-version-kind": gvk, "parameters": options}
    patch_body = {"content": {name: {"schema": {"type": "object"}} for name in _PATCHES}}
    force = {"name": "force", "in": "query", "schema": {"type": "boolean", "uniqueItems": True}}
    collection: Obj = {"post": common | {"x-kubernetes-action": "post", "requestBody": body}}
    if kind.verbs == ("create",):
        return {f"{where}/{kind.plural}": collection}
    collection["get"] = answer | {"x-kubernetes-action": "list", "x-kubernetes-group-version-kind": gvk}
    patch = common | {
        "parameters": [*options, force],
        "requestBody": patch_body,
        "x-kubernetes-action": "patch",
    }
    single = {
        "get": answer | {"x-kubernetes-action": "get", "x-kubernetes-group-version-kind": gvk},
        "put": common | {"requestBody": body, "x-kubernetes-action": "put"},
        "patch": patch,
        "delete": answer | {"x-kubernetes-action": "delete", "x-kubernetes-group-version-kind": gvk},
    }
    return {f"{where}/{kind.plural}": collection, f"{where}/{kind.plural}/{{name}}": single}
