"""A project on a cluster, to play situations in."""

from __future__ import annotations

from typing import Any

from tests.clusters import Target, eventually
from tests.controlplane.documents import slice_documents

DEVICES = "kube-dc-nvidia-v100-shared-8g.deviceclass.resource.k8s.io/devices"
PLAN = {
    DEVICES: "2", "limits.cpu": "8", "limits.memory": "24Gi", "pods": "100",
    "requests.cpu": "8", "requests.memory": "24Gi", "requests.storage": "160Gi",
}  # fmt: skip
RESOURCE = "resource.k8s.io/v1"

type Doc = dict[str, Any]


class Project:
    """A namespace with a quota, and what a test wants to know of it."""

    def __init__(self, cluster: Target, quota: dict[str, str] | None, limit_range: list[Doc] | None) -> None:
        self.namespace = cluster.make_namespace("play", quota=quota, limit_range=limit_range)
        self.admin, self.portal = cluster.client(), cluster.client("portal")

    def order(self, app: str, *, package: str = "8g", without: tuple[str, ...] = (), **workload: Any) -> None:
        """Apply a slice's documents as the portal does; `without` names kinds that are left out."""
        for document in slice_documents(self.namespace, app, package, **workload):
            if document["kind"] not in without:
                self.apply(document)

    def apply(self, document: Doc) -> None:
        answer = self.portal.apply(document)
        assert answer.ok, answer.message

    def release(self, app: str) -> None:
        """Delete the Deployment, then the template."""
        assert self.portal.delete("apps/v1", "Deployment", self.namespace, app).ok
        assert self.portal.delete(RESOURCE, "ResourceClaimTemplate", self.namespace, f"{app}-gpu").ok

    def all(self, api_version: str, kind: str, app: str | None = None) -> list[Doc]:
        query = {"labelSelector": f"app.kubernetes.io/name={app}"} if app else {}
        return self.admin.items(api_version, kind, self.namespace, **query)

    def pod(self, app: str) -> Doc | None:
        return next(iter(self.all("v1", "Pod", app)), None)

    def claims(self) -> list[Doc]:
        return self.all(RESOURCE, "ResourceClaim")

    def running(self, app: str) -> Doc:
        """Wait until the app's pod runs and is ready."""

        def look() -> Doc | None:
            pod = self.pod(app)
            return pod if pod and condition(pod, "Ready").get("status") == "True" else None

        return eventually(look, f"a running pod of {app}")

    def warning(self, kind: str, name: str, reason: str, phrase: str) -> Doc:
        """Wait for a Warning about an object whose name begins like that, with this reason and phrase."""

        def look() -> Doc | None:
            for event in self.all("v1", "Event"):
                about = event["involvedObject"]
                if (
                    (event["type"], about["kind"], event["reason"]) == ("Warning", kind, reason)
                    and about["name"].startswith(name)
                    and phrase in event["message"]
                ):
                    return event
            return None

        return eventually(look, f"{reason} on a {kind} with '{phrase}'")

    def used(self, key: str) -> str:
        quota = self.admin.get("v1", "ResourceQuota", self.namespace, "plan-quota").body
        return str(quota["status"]["used"][key])


def condition(obj: Doc, kind: str) -> Doc:
    """The condition of that type, empty where there is none."""
    return next((one for one in obj.get("status", {}).get("conditions", []) if one["type"] == kind), {})
