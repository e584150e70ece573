"""The kinds the sandbox serves: where they live and how they behave."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Kind:
    """One kind of object. ``status`` says whether it has a status subresource."""

    kind: str
    group: str
    plural: str
    namespaced: bool = True
    short: tuple[str, ...] = ()
    status: bool = False
    generation: bool = False
    categories: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    verbs: tuple[str, ...] = field(
        default=("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
    )
    version: str = "v1"

    @property
    def api_version(self) -> str:
        """The ``apiVersion`` of its objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> str:
        """The name used in messages: ``deployments.apps``, ``pods``."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def qualified(self) -> str:
        """The kind used in messages: ``Deployment.apps``, ``Pod``."""
        return f"{self.kind}.{self.group}" if self.group else self.kind


_RESOURCE = "resource.k8s.io"
_RBAC = "rbac.authorization.k8s.io"
_ADMISSION = "admissionregistration.k8s.io"

KINDS: tuple[Kind, ...] = (
    Kind("Namespace", "", "namespaces", namespaced=False, short=("ns",), status=True),
    Kind("Pod", "", "pods", short=("po",), status=True, generation=True, categories=("all",), subresources=("log",)),
    Kind("Service", "", "services", short=("svc",), status=True, categories=("all",)),
    Kind("ConfigMap", "", "configmaps", short=("cm",)),
    Kind("Secret", "", "secrets"),
    Kind("PersistentVolumeClaim", "", "persistentvolumeclaims", short=("pvc",), status=True),
    Kind("ServiceAccount", "", "serviceaccounts", short=("sa",)),
    Kind("ResourceQuota", "", "resourcequotas", short=("quota",), status=True),
    Kind("LimitRange", "", "limitranges", short=("limits",)),
    Kind("Event", "", "events", short=("ev",)),
    Kind("Node", "", "nodes", namespaced=False, short=("no",), status=True),
    Kind(
        "Deployment", "apps", "deployments", short=("deploy",), status=True, generation=True,
        categories=("all",), subresources=("scale",),
    ),
    Kind(
        "ReplicaSet", "apps", "replicasets", short=("rs",), status=True, generation=True,
        categories=("all",), subresources=("scale",),
    ),
    Kind("Job", "batch", "jobs", status=True, generation=True, categories=("all",)),
    Kind("ResourceClaim", _RESOURCE, "resourceclaims", status=True),
    Kind("ResourceClaimTemplate", _RESOURCE, "resourceclaimtemplates"),
    Kind("ResourceSlice", _RESOURCE, "resourceslices", namespaced=False, generation=True),
    Kind("DeviceClass", _RESOURCE, "deviceclasses", namespaced=False, generation=True),
    Kind("Lease", "coordination.k8s.io", "leases"),
    Kind(
        "ValidatingAdmissionPolicy", _ADMISSION, "validatingadmissionpolicies",
        namespaced=False, status=True, generation=True, categories=("api-extensions",),
    ),
    Kind(
        "ValidatingAdmissionPolicyBinding", _ADMISSION, "validatingadmissionpolicybindings",
        namespaced=False, generation=True, categories=("api-extensions",),
    ),
    Kind("StorageClass", "storage.k8s.io", "storageclasses", namespaced=False, short=("sc",)),
    Kind("PriorityClass", "scheduling.k8s.io", "priorityclasses", namespaced=False, short=("pc",)),
    Kind("ClusterRole", _RBAC, "clusterroles", namespaced=False),
    Kind("ClusterRoleBinding", _RBAC, "clusterrolebindings", namespaced=False),
    Kind("Role", _RBAC, "roles"),
    Kind("RoleBinding", _RBAC, "rolebindings"),
    Kind(
        "SelfSubjectAccessReview", "authorization.k8s.io", "selfsubjectaccessreviews",
        namespaced=False, verbs=("create",),
    ),
)  # fmt: skip

BY_KIND = {kind.kind: kind for kind in KINDS}
BY_PLURAL = {(kind.group, kind.plural): kind for kind in KINDS}
GROUPS = tuple(dict.fromkeys(kind.group for kind in KINDS if kind.group))
