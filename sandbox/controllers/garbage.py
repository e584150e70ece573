"""Garbage collection by owner references, and the end of namespaces."""

from sandbox.api import Obj
from sandbox.controllers.engine import Controller
from sandbox.controllers.objects import changed_copy, is_going, name_of, namespace_of, uid_of
from sandbox.kinds import BY_KIND, KINDS

FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"
NAMESPACED = tuple(kind.kind for kind in KINDS if kind.namespaced and {"list", "delete"} <= set(kind.verbs))


class Garbage(Controller):
    """Deletes what lost its last owner; ends foreground and orphaning deletions. Keys are kind/name."""

    name = "garbage-collector"
    actor = "generic-garbage-collector"

    def observe(self, change: str, obj: Obj, before: Obj | None) -> None:
        if change == "DELETED":
            for dependent in self.cache.owned(uid_of(obj)):
                self._look_at(dependent)
            for reference in obj["metadata"].get("ownerReferences") or []:
                self.enqueue(namespace_of(obj), f"{reference['kind']}/{reference['name']}")
        elif (obj["metadata"].get("ownerReferences") and before is None) or (
            is_going(obj) and {FOREGROUND, ORPHAN} & set(obj["metadata"].get("finalizers") or [])
        ):
            self._look_at(obj)

    def _look_at(self, obj: Obj) -> None:
        self.enqueue(namespace_of(obj), f"{obj['kind']}/{name_of(obj)}")

    def reconcile(self, namespace: str | None, name: str) -> float | None:
        kind, _, object_name = name.partition("/")
        obj = self.cache.get(kind, namespace, object_name)
        if obj is None:
            return None
        finalizers = obj["metadata"].get("finalizers") or []
        if is_going(obj) and FOREGROUND in finalizers:
            self._foreground(obj)
        elif is_going(obj) and ORPHAN in finalizers:
            self._orphan(obj)
        elif not is_going(obj) and obj["metadata"].get("ownerReferences"):
            self._collect(obj)
        return None

    def _collect(self, obj: Obj) -> None:
        references = obj["metadata"]["ownerReferences"]
        owners = [(reference, self._owner(obj, reference)) for reference in references]
        if not any(owner is not None for _, owner in owners):
            self.api.delete(obj)
        elif any(owner is None for _, owner in owners):
            updated = changed_copy(obj)
            updated["metadata"]["ownerReferences"] = [one for one, owner in owners if owner is not None]
            self.api.update(updated)

    def _owner(self, obj: Obj, reference: Obj) -> Obj | None:
        """The owner itself: an object of the same name with another uid is none."""
        kind = BY_KIND.get(reference["kind"])
        if kind is None:  # a kind this cluster does not know cannot be seen to be gone
            return reference
        namespace = namespace_of(obj) if kind.namespaced else None
        cached = self.cache.get(kind.kind, namespace, reference["name"])
        if cached is not None and uid_of(cached) == reference["uid"]:
            return cached
        live = self.api.get(kind.kind, namespace, reference["name"])
        return live if live is not None and uid_of(live) == reference["uid"] else None

    def _foreground(self, obj: Obj) -> None:
        left = self.cache.owned(uid_of(obj))
        for dependent in left:
            if not is_going(dependent):
                self.api.delete(dependent, propagation="Foreground")
        if not self.cache.owned(uid_of(obj)):
            self._finish(obj, FOREGROUND)

    def _orphan(self, obj: Obj) -> None:
        for dependent in self.cache.owned(uid_of(obj)):
            updated = changed_copy(dependent)
            references = updated["metadata"]["ownerReferences"]
            updated["metadata"]["ownerReferences"] = [one for one in references if one["uid"] != uid_of(obj)]
            self.api.update(updated)
        self._finish(obj, ORPHAN)

    def _finish(self, obj: Obj, finalizer: str) -> None:
        present = self.cache.get(obj["kind"], namespace_of(obj), name_of(obj)) or obj
        updated = changed_copy(present)
        updated["metadata"]["finalizers"] = [
            one for one in present["metadata"].get("finalizers") or [] if one != finalizer
        ]
        self.api.update(updated)


class Namespaces(Controller):
    """Empties namespaces that are being deleted, and lets them go."""

    name = "namespace-controller"

    def observe(self, change: str, obj: Obj, before: Obj | None) -> None:
        if obj["kind"] == "Namespace" and change != "DELETED" and is_going(obj):
            self.enqueue(None, name_of(obj))
        elif change == "DELETED" and (namespace := namespace_of(obj)):
            found = self.cache.get("Namespace", None, namespace)
            if found is not None and is_going(found):
                self.enqueue(None, namespace)

    def reconcile(self, namespace: str | None, name: str) -> float | None:
        found = self.cache.get("Namespace", None, name)
        if found is None or not is_going(found):
            return None
        if self._empty(name):
            return 0.5
        updated = changed_copy(found)
        updated["spec"]["finalizers"] = []
        self.api.update(updated)
        self.api.delete(found)
        return None

    def _empty(self, namespace: str) -> int:
        """Delete everything in the namespace; how many objects are left."""
        left = 0
        for kind in NAMESPACED:
            objects = self.api.list(kind, namespace)
            for obj in objects:
                if not is_going(obj):
                    self.api.delete(obj)
            left += len(self.api.list(kind, namespace)) if objects else 0
        return left
