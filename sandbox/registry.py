"""Reads and writes of objects with everything the API server does on the way to its storage."""

import copy
import datetime
import uuid
from collections.abc import Callable
from typing import Any

from sandbox import defaults, fields, mutation, patches, pod_security, quota, refusals, usage, validation
from sandbox.api import ApiError, Obj
from sandbox.kinds import BY_KIND, Kind
from sandbox.policies import Policies, Review
from sandbox.schema import DecodeError, Schema
from sandbox.store import Store, Stored
from sandbox.writes import Call, Deletion, grace_of, is_finished, is_same, now, settle_namespace

_SYSTEM = ("uid", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds")


class Registry:
    """The objects of one sandbox with validation, admission and managed fields."""

    def __init__(self, store: Store, schema: Schema) -> None:
        self.store = store
        self.schema = schema
        self.policies = Policies(lambda kind: [stored.obj for stored in store.select(kind)])

    def get(self, kind: Kind, namespace: str, name: str) -> Stored:
        """The object, or 404."""
        stored = self.store.get(kind.kind, namespace, name)
        if stored is None:
            raise refusals.not_found(kind, name)
        return stored

    def create(self, kind: Kind, namespace: str, body: Obj, call: Call) -> Stored:
        """Create an object. 400, 403, 404, 409 or 422 where it is refused."""
        obj = self._decode(kind, body, call)
        if obj["metadata"].get("resourceVersion"):
            raise refusals.bad_request("resourceVersion should not be set on objects to be created")
        with self.store.lock:
            return self._create(kind, namespace, obj, call, None)

    def _create(self, kind: Kind, namespace: str, obj: Obj, call: Call, managed: list[Obj] | None) -> Stored:
        metadata = obj["metadata"]
        settle_namespace(kind, metadata, namespace)
        if not metadata.get("name"):
            if not metadata.get("generateName"):
                raise refusals.invalid(
                    kind,
                    "",
                    [
                        (
                            "metadata.name",
                            "FieldValueRequired",
                            "Required value: name or generateName is required",
                        )
                    ],
                )
            metadata["name"] = metadata["generateName"] + mutation.random_suffix()
        namespace_obj = self._namespace(kind, namespace, metadata["name"], creating=True)
        for name in ("deletionTimestamp", "deletionGracePeriodSeconds", "managedFields", "resourceVersion"):
            metadata.pop(name, None)
        metadata |= {"uid": str(uuid.uuid4()), "creationTimestamp": now()}
        if kind.generation:
            metadata["generation"] = 1
        if kind.status and kind.kind != "Node":
            obj["status"] = {}
        defaults.apply(kind.kind, obj)
        mutation.on_create(kind.kind, obj, self.store)
        validation.check(kind, obj, None)
        charges = self._admit(kind, "CREATE", obj, None, namespace_obj, call)
        if self.store.get(kind.kind, namespace, metadata["name"]):
            raise refusals.already_exists(kind, metadata["name"])
        if managed is None:
            fields.track(self.schema, kind, None, obj, self._manager(kind, call, "Update", ""))
        else:
            metadata["managedFields"] = managed
        if call.dry_run:
            return Stored.of(obj)
        stored = self.store.put(kind.kind, obj)
        self._charge(charges)
        if kind.kind == "Namespace":
            self._furnish(metadata["name"])
        return stored

    def update(self, kind: Kind, namespace: str, name: str, body: Obj, call: Call, sub: str = "") -> Stored:
        """Replace an object, or its status with ``sub="status"``."""
        obj = self._decode(kind, body, call)
        _check_name(obj["metadata"], name)
        with self.store.lock:
            old = self.get(kind, namespace, name)
            return self._update(kind, old, obj, call, sub, None)

    def _update(
        self, kind: Kind, stored: Stored, obj: Obj, call: Call, sub: str, managed: list[Obj] | None
    ) -> Stored:
        old, metadata = stored.obj, obj["metadata"]
        before = old["metadata"]
        name, namespace = before["name"], before.get("namespace", "")
        metadata["name"] = name
        settle_namespace(kind, metadata, namespace)
        if metadata.get("uid", before["uid"]) != before["uid"]:
            raise refusals.conflict(
                kind, name, f"Precondition failed: UID in precondition: {metadata['uid']}, "
                f"UID in object meta: {before['uid']}"
            )  # fmt: skip
        if metadata.get("resourceVersion", before["resourceVersion"]) != before["resourceVersion"]:
            raise refusals.stale(kind, name)
        if sub == "status":
            obj = old | {"status": obj.get("status", {}), "metadata": copy.deepcopy(before)}
        else:
            obj = self._prepared(kind, obj, old)
        metadata = obj["metadata"]
        metadata["resourceVersion"] = before["resourceVersion"]
        namespace_obj = self._namespace(kind, namespace, name, creating=False)
        if not sub:
            validation.check(kind, obj, old)
        charges = self._admit(kind, "UPDATE", obj, old, namespace_obj, call, sub)
        if managed is None:
            metadata["managedFields"] = before.get("managedFields", [])
            fields.track(self.schema, kind, old, obj, self._manager(kind, call, "Update", sub))
        else:
            metadata["managedFields"] = managed
        if call.dry_run:
            return Stored.of(obj)
        if is_finished(obj):
            self.store.remove(kind.kind, namespace, name)
            return Stored.of(obj)
        if is_same(old, obj):
            return stored
        result = self.store.put(kind.kind, obj)
        self._charge(charges)
        return result

    def _prepared(self, kind: Kind, obj: Obj, old: Obj) -> Obj:
        """A new main object with what only the server sets carried over from the old one."""
        metadata, before = obj["metadata"], old["metadata"]
        for name in _SYSTEM:
            metadata.pop(name, None)
            if name in before:
                metadata[name] = before[name]
        if kind.status:
            obj.pop("status", None)
            if "status" in old:
                obj["status"] = old["status"]
        mutation.on_update(kind.kind, obj, old)
        defaults.apply(kind.kind, obj)
        if kind.generation and obj.get("spec") != old.get("spec"):
            metadata["generation"] = before.get("generation", 0) + 1
        return obj

    def patch(
        self, kind: Kind, namespace: str, name: str, content_type: str, patch: Any, call: Call, sub: str = ""
    ) -> tuple[Stored, bool]:
        """Change an object by a patch; True where server-side apply created it."""
        with self.store.lock:
            stored = self.store.get(kind.kind, namespace, name)
            if content_type == "application/apply-patch+yaml":
                return self._apply(kind, namespace, name, stored, patch, call, sub)
            if stored is None:
                raise refusals.not_found(kind, name)
            target = copy.deepcopy(stored.obj)
            match content_type:
                case "application/merge-patch+json":
                    patched = patches.merge_patch(target, patch)
                case "application/json-patch+json":
                    patched = patches.json_patch(target, patch)
                case _:
                    patched = patches.strategic(self.schema, self.schema.of(kind), target, patch)
            metadata = patched.get("metadata", {})
            if metadata.get("uid") != stored.obj["metadata"]["uid"]:
                error = (
                    "metadata.uid",
                    "FieldValueInvalid",
                    f'Invalid value: "{metadata.get("uid", "")}": field is immutable',
                )
                raise refusals.invalid(kind, name, [error, error])
            _check_name(metadata, name)
            version = metadata.get("resourceVersion")
            if version != stored.obj["metadata"]["resourceVersion"] and version is not None:
                raise refusals.stale(kind, name)
            return self._update(kind, stored, self._decode(kind, patched, call), call, sub, None), False

    def _apply(
        self, kind: Kind, namespace: str, name: str, stored: Stored | None, patch: Any, call: Call, sub: str
    ) -> tuple[Stored, bool]:
        patch = self._applied(kind, namespace, name, patch)
        version = patch["metadata"].pop("resourceVersion", None)
        if version and (stored is None or version != stored.obj["metadata"]["resourceVersion"]):
            raise refusals.stale(kind, name)
        uid = patch["metadata"].pop("uid", None)
        if uid and (stored is None or uid != stored.obj["metadata"]["uid"]):
            why = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            raise refusals.conflict(kind, name, why)
        who = self._manager(kind, call, "Apply", sub)
        merged = fields.apply(self.schema, kind, stored.obj if stored else None, patch, who, call.force)
        managed = merged["metadata"]["managedFields"]
        obj = self._decode(kind, merged, call)
        if stored is None:
            if sub:
                raise refusals.not_found(kind, name)
            return self._create(kind, namespace, obj, call, managed), True
        return self._update(kind, stored, obj, call, sub, managed), False

    def _applied(self, kind: Kind, namespace: str, name: str, body: Any) -> Obj:
        """The applied configuration, checked as the API server's typed patch is."""
        if not isinstance(body, dict):
            raise refusals.bad_request("error decoding YAML: expected a map")
        if body.get("apiVersion") != kind.api_version or body.get("kind") != kind.kind:
            raise refusals.bad_request(
                f"Incorrect version specified in apply patch. Specified patch version: "
                f"{body.get('apiVersion')}, expected: {kind.api_version}"
            )
        patch: Obj = copy.deepcopy(body)
        metadata = patch.setdefault("metadata", {})
        if not isinstance(metadata, dict):
            raise self._untyped(kind, namespace, name, f".metadata: expected map, got {metadata!r}")
        if metadata.get("managedFields"):
            raise refusals.bad_request("metadata.managedFields must be nil")
        metadata.setdefault("name", name)
        if kind.namespaced:
            metadata.setdefault("namespace", namespace)
        try:
            unknown = self.schema.decode(kind, patch).unknown
        except DecodeError as error:
            raise self._untyped(kind, namespace, name, str(error)) from error
        if unknown:
            raise self._untyped(kind, namespace, name, f".{unknown[0]}: field not declared in schema")
        if twice := fields.duplicate(self.schema, self.schema.of(kind), patch):
            raise self._untyped(kind, namespace, name, twice)
        _check_name(metadata, name)
        return patch

    def _untyped(self, kind: Kind, namespace: str, name: str, why: str) -> ApiError:
        title = f"{namespace}/{name}; {kind.group}/{kind.version}, Kind={kind.kind}"
        return refusals.status(500, f"failed to create typed patch object ({title}): {why}", "")

    def delete(
        self, kind: Kind, namespace: str, name: str, call: Call, options: Deletion
    ) -> tuple[Stored, bool]:
        """Delete an object; True where it is gone, False where finalizers or the kubelet still hold it."""
        with self.store.lock:
            stored = self.get(kind, namespace, name)
            metadata = stored.obj["metadata"]
            for label, wanted, present in (
                ("UID", options.uid, metadata["uid"]),
                ("ResourceVersion", options.version, metadata["resourceVersion"]),
            ):
                if wanted is not None and wanted != present:
                    raise refusals.not_meant(kind, name, label, wanted, present)
            namespace_obj = self._namespace(kind, namespace, name, creating=False)
            self._admit(kind, "DELETE", None, stored.obj, namespace_obj, call)
            return self._delete(kind, stored, options, call.dry_run)

    def _delete(self, kind: Kind, stored: Stored, options: Deletion, dry_run: bool) -> tuple[Stored, bool]:
        obj = stored.obj | {"metadata": dict(stored.obj["metadata"])}
        metadata = obj["metadata"]
        finalizers = list(metadata.get("finalizers", []))
        extra = {"Foreground": "foregroundDeletion", "Orphan": "orphan"}.get(options.propagation or "")
        if extra and extra not in finalizers:
            finalizers.append(extra)
        grace = grace_of(kind, obj, options.grace_seconds)
        held = bool(finalizers or grace or (kind.kind == "Namespace" and obj["spec"].get("finalizers")))
        if dry_run:
            return stored, not held
        if not held:
            return self.store.remove(kind.kind, metadata.get("namespace", ""), metadata["name"]), True
        if finalizers:
            metadata["finalizers"] = finalizers
        if "deletionTimestamp" not in metadata or grace < metadata.get("deletionGracePeriodSeconds", 0):
            moment = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=grace)
            metadata["deletionTimestamp"] = moment.strftime("%Y-%m-%dT%H:%M:%SZ")
            metadata["deletionGracePeriodSeconds"] = grace
            if kind.generation:
                metadata["generation"] = metadata.get("generation", 0) + 1
        if kind.kind == "Namespace":
            obj["status"] = {"phase": "Terminating"}
        return (stored if is_same(stored.obj, obj) else self.store.put(kind.kind, obj)), False

    def _decode(self, kind: Kind, body: Any, call: Call) -> Obj:
        if not isinstance(body, dict):
            raise refusals.bad_request("the body of the request is not an object")
        named = (body.get("apiVersion", kind.api_version), body.get("kind", kind.kind))
        if named != (kind.api_version, kind.kind):
            version = str(named[0]).rpartition("/")[2]
            raise refusals.bad_request(
                f'{named[1]} in version "{version}" cannot be handled as a {kind.kind}: no kind "{named[1]}" is '
                f'registered for version "{named[0]}" in scheme "pkg/runtime/scheme.go:111"'
            )
        try:
            decoded = self.schema.decode(kind, body)
        except DecodeError as error:
            raise refusals.bad_request(
                f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {error.json}'
            ) from error
        if decoded.unknown:
            named_fields = [f'unknown field "{path}"' for path in decoded.unknown]
            if call.validation == "Strict":
                title = f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}'
                listed = ", ".join(named_fields)
                raise refusals.bad_request(f"{title}: strict decoding error: {listed}")
            if call.validation == "Warn":
                call.warnings.extend(named_fields)
        decoded.obj.setdefault("metadata", {})
        return decoded.obj

    def _namespace(self, kind: Kind, namespace: str, name: str, creating: bool) -> Obj | None:
        if not kind.namespaced:
            return None
        stored = self.store.get("Namespace", "", namespace)
        if stored is None:
            raise refusals.not_found(BY_KIND["Namespace"], namespace)
        if creating and "deletionTimestamp" in stored.obj["metadata"]:
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            message = f"namespace {namespace} is being terminated"
            cause = {"reason": "NamespaceTerminating", "message": message, "field": "metadata.namespace"}
            raise refusals.forbidden(kind, name, why, [cause])
        return stored.obj

    def _admit(
        self, kind: Kind, operation: str, new: Obj | None, old: Obj | None, namespace: Obj | None, call: Call,
        sub: str = "",
    ) -> list[Obj]:  # fmt: skip
        """Validating admission; the quota statuses to write when the object is stored."""
        name = (new or old or {})["metadata"]["name"]
        objects: Callable[[str, str], list[Obj]] = lambda k, n: [s.obj for s in self.store.select(k, n)]  # noqa: E731
        space = namespace["metadata"]["name"] if namespace else ""
        if new is not None and not sub and kind.kind in ("Pod", "PersistentVolumeClaim"):
            if old is None or kind.kind != "Pod":
                quota.check_limit_ranges(kind, new, objects("LimitRange", space))
            if old is None and kind.kind == "Pod":
                pod_security.check(kind, new, namespace)
        review = Review(kind, operation, name, namespace, new, old, call.user, sub, call.dry_run)
        call.warnings.extend(self.policies.check(review))
        if new is None or sub or namespace is None:
            return []
        quotas = [(found, usage.count(objects, found)) for found in objects("ResourceQuota", space)]
        return quota.check_quota(kind, new, old, quotas)

    def _charge(self, quotas: list[Obj]) -> None:
        for found in quotas:
            metadata = dict(found["metadata"])
            self.store.put("ResourceQuota", found | {"metadata": metadata})

    def _furnish(self, namespace: str) -> None:
        """Every namespace has a default service account."""
        account = {"kind": "ServiceAccount", "apiVersion": "v1", "metadata": {"name": "default"}}
        if self.store.get("ServiceAccount", namespace, "default") is None:
            user = {"username": "system:serviceaccount:kube-system:service-account-controller", "groups": []}
            call = Call(user, "kube-controller-manager")
            self.create(BY_KIND["ServiceAccount"], namespace, account, call)

    def _manager(self, kind: Kind, call: Call, operation: str, sub: str) -> fields.Manager:
        return fields.Manager(call.manager, operation, sub, kind.api_version, now())


def _check_name(metadata: Obj, name: str) -> None:
    if metadata.get("name") not in (None, name):
        raise refusals.bad_request(
            f"the name of the object ({metadata['name']}) does not match the name on the URL ({name})"
        )
