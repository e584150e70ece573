"""A stand-in for one namespace of a cluster, with just the rules that applying a slice is about."""

from __future__ import annotations

import copy
import json
import threading
from pathlib import Path
from typing import Any

from tests.fake_api import Asked, FakeApi, Reply, as_json, status_object

NS = "acme-ai"
RECORDED = Path(__file__).parent / "data" / "recorded"


def recorded(name: str) -> Reply:
    answer = json.loads((RECORDED / f"{name}.json").read_text())
    return as_json(answer["body"], answer["http_status"])


class Store(FakeApi):
    """Objects of one namespace with just the rules these tests are about."""

    def __init__(self) -> None:
        super().__init__()
        self.objects: dict[str, dict[str, Any]] = {}
        self.writes: list[str] = []
        self.refusals: dict[str, Reply] = {}
        self.break_at = -1
        self.broken_after_effect = False
        self._count = 0
        self._number = 0
        self._guard = threading.Lock()
        for method in ("GET", "POST", "PATCH", "DELETE"):
            self.on(method, f"/namespaces/{NS}/", self._answer)

    def put(self, key: str, document: dict[str, Any]) -> None:
        self._number += 1
        stored = copy.deepcopy(document)
        stored["metadata"].setdefault("uid", f"u-{self._number}")
        self.objects[key] = stored

    def _answer(self, asked: Asked) -> Reply:
        with self._guard:
            self._count += 1
            if self._count - 1 == self.break_at:
                if self.broken_after_effect:
                    self._do(asked)
                return Reply(-1)
            return self._do(asked)

    def _do(self, asked: Asked) -> Reply:
        key = asked.path.split(f"/namespaces/{NS}/")[1]
        plural, _, name = key.partition("/")
        found = self.objects.get(key)
        if asked.method == "GET":
            return as_json(found) if found else self._absent(plural, name)
        if asked.method == "POST":
            return self._create(asked, plural)
        if asked.method == "PATCH" and asked.query.get("dryRun") and asked.json == {}:
            return as_json({"metadata": found["metadata"]}) if found else self._absent(plural, name)
        self.writes.append(f"{asked.method} {key}")
        if asked.method == "DELETE":
            return self._delete(asked, key, found) if found else self._absent(plural, name)
        if key in self.refusals:
            return self.refusals[key]
        if "merge-patch" in asked.headers["content-type"]:
            return self._merge(asked.json, key, found) if found else self._absent(plural, name)
        return self._apply(asked.json, key, found)

    def _absent(self, plural: str, name: str) -> Reply:
        return status_object(404, "NotFound", f'{plural} "{name}" not found', kind=plural, name=name)

    def _create(self, asked: Asked, plural: str) -> Reply:
        key = f"{plural}/{asked.json['metadata']['name']}"
        self.writes.append(f"POST {key} {asked.query.get('dryRun', '')}")
        if key in self.refusals:
            return self.refusals[key]
        return recorded("already-exists") if key in self.objects else as_json(asked.json, 201)

    def _delete(self, asked: Asked, key: str, found: dict[str, Any]) -> Reply:
        if asked.json.get("preconditions", {}).get("uid") != found["metadata"]["uid"]:
            return status_object(409, "Conflict", "the UID in the precondition does not match")
        del self.objects[key]
        return as_json({"kind": "Status", "status": "Success"})

    def _merge(self, patch: dict[str, Any], key: str, found: dict[str, Any]) -> Reply:
        wanted = copy.deepcopy(found)
        strategy = wanted["spec"].setdefault("strategy", {})
        for name, value in patch["spec"]["strategy"].items():
            strategy.pop(name, None)
            if value is not None:
                strategy[name] = value
        return self._validate_and_store(wanted, key, found)

    def _apply(self, document: dict[str, Any], key: str, found: dict[str, Any] | None) -> Reply:
        wanted = copy.deepcopy(document)
        if found:
            wanted["metadata"]["uid"] = found["metadata"]["uid"]
            if key.startswith("resourceclaimtemplates/") and wanted["spec"] != found["spec"]:
                return recorded("template-spec-immutable")
            # What somebody else set and we do not state stays: that is server-side apply.
            old = (found.get("spec", {}).get("strategy") or {}).get("rollingUpdate")
            if old:
                wanted["spec"]["strategy"]["rollingUpdate"] = old
        return self._validate_and_store(wanted, key, found)

    def _validate_and_store(self, wanted: dict[str, Any], key: str, found: dict[str, Any] | None) -> Reply:
        strategy = wanted.get("spec", {}).get("strategy") or {}
        if strategy.get("type") == "Recreate" and strategy.get("rollingUpdate"):
            return status_object(
                422, "Invalid", "spec.strategy.rollingUpdate: Forbidden: may not be specified"
            )
        self.put(key, wanted)
        return as_json(self.objects[key], 200 if found else 201)
