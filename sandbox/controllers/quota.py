"""ResourceQuota status: what is used, counted anew whenever something changes that a quota counts."""

from collections.abc import Iterable

from sandbox import usage
from sandbox.api import Obj
from sandbox.controllers.engine import Controller
from sandbox.controllers.objects import name_of, namespace_of


class QuotaStatus(Controller):
    """The ResourceQuota controller."""

    name = "resourcequota-controller"

    def observe(self, change: str, obj: Obj, before: Obj | None) -> None:
        if obj["kind"] == "ResourceQuota":
            if change != "DELETED":
                self.enqueue(namespace_of(obj), name_of(obj))
            return
        namespace = namespace_of(obj)
        quotas = self.cache.list("ResourceQuota", namespace) if namespace else ()
        if quotas and (change != "MODIFIED" or _use(before) != _use(obj)):
            for quota in quotas:
                self.enqueue(namespace, name_of(quota))

    def reconcile(self, namespace: str | None, name: str) -> float | None:
        # Asked of the API, the quota first: admission writes the status too, and whoever read before the
        # other wrote gets a conflict.
        quota = self.api.get("ResourceQuota", namespace, name)
        if quota is None:
            return None
        hard = quota["spec"].get("hard", {})
        status = {"hard": hard, "used": usage.count(self._objects, quota)}
        if status != quota.get("status"):
            self.api.update_status({**quota, "status": status})
        return None

    def _objects(self, kind: str, namespace: str) -> Iterable[Obj]:
        return self.api.list(kind, namespace)


def _use(obj: Obj | None) -> object:
    return usage.of(obj) if obj is not None else None
