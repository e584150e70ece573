"""The kinds of objects the portal speaks about, and where the API server keeps them.

The paths are fixed by the API versions named here, so nothing has to be discovered: the dynamic client would ask
for `/version`, `/apis` and one document per API group before its first real request, and keep them in a file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from urllib.parse import quote


@dataclass(frozen=True)
class Kind:
    """One kind: `api_version` as in a manifest ("apps/v1"), `plural` as in a path."""

    name: str
    api_version: str
    plural: str
    namespaced: bool = True

    @property
    def group(self) -> str:
        """The API group, "" for the core group."""
        return self.api_version.rpartition("/")[0]

    @property
    def root(self) -> str:
        """The path of the API version, without a closing slash."""
        return f"/{'apis' if self.group else 'api'}/{self.api_version}"

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str = "") -> str:
        """The path of one object, or of the collection when `name` is None; no namespace means all of them.

        Raises ValueError when a namespaced object is named without its namespace.
        """
        if self.namespaced and name is not None and not namespace:
            raise ValueError(f"{self.name} {name} needs a namespace")
        parts = [self.root]
        if self.namespaced and namespace:
            parts += ["namespaces", quote(namespace, safe="")]
        parts.append(self.plural)
        if name is not None:
            parts.append(quote(name, safe=""))
        if subresource:
            parts.append(subresource)
        return "/".join(parts)


_ALL = (
    Kind("ConfigMap", "v1", "configmaps"),
    Kind("Deployment", "apps/v1", "deployments"),
    Kind("DeviceClass", "resource.k8s.io/v1", "deviceclasses", namespaced=False),
    Kind("Event", "v1", "events"),
    Kind("Job", "batch/v1", "jobs"),
    Kind("LimitRange", "v1", "limitranges"),
    Kind("Namespace", "v1", "namespaces", namespaced=False),
    Kind("Node", "v1", "nodes", namespaced=False),
    Kind("PersistentVolumeClaim", "v1", "persistentvolumeclaims"),
    Kind("Pod", "v1", "pods"),
    Kind("ReplicaSet", "apps/v1", "replicasets"),
    Kind("ResourceClaim", "resource.k8s.io/v1", "resourceclaims"),
    Kind("ResourceClaimTemplate", "resource.k8s.io/v1", "resourceclaimtemplates"),
    Kind("ResourceQuota", "v1", "resourcequotas"),
    Kind("ResourceSlice", "resource.k8s.io/v1", "resourceslices", namespaced=False),
    Kind("Secret", "v1", "secrets"),
    Kind("SelfSubjectAccessReview", "authorization.k8s.io/v1", "selfsubjectaccessreviews", namespaced=False),
    Kind("Service", "v1", "services"),
    Kind("StorageClass", "storage.k8s.io/v1", "storageclasses", namespaced=False),
)

KINDS: Mapping[str, Kind] = MappingProxyType({kind.name: kind for kind in _ALL})
