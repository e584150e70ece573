"""Whether a cluster offers what the portal needs, line by line, each with the mend."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from gpu.cluster.client import Cluster
from gpu.cluster.errors import ClusterError
from gpu.cluster.stream import Object
from gpu.manifests import PackageTerms, SliceSpec, WorkloadSpec, render
from gpu.messages import Memory, Text, gettext_noop

RESOURCE_API = "resource.k8s.io/v1"
OLDEST_MINOR = 34
"""The first 1.x that serves resource.k8s.io/v1."""

CAPACITY_MINOR = 36
"""The first 1.x with DRAConsumableCapacity on by default; before, the API server drops capacity requests silently."""

PORTAL_QUOTA = "gpu-portal"
_PROBE = "gpu-portal-check"
_READ = ("get", "list", "watch")
_WRITE = (*_READ, "create", "patch", "delete")


@dataclass(frozen=True)
class Right:
    """Verbs on one resource in every namespace; `name` where only the object of that name is meant."""

    group: str
    resource: str
    verbs: tuple[str, ...]
    subresource: str = ""
    name: str = ""


RIGHTS = (
    Right("resource.k8s.io", "resourceclaimtemplates", _WRITE),
    Right("apps", "deployments", _WRITE),
    Right("batch", "jobs", _WRITE),
    Right("", "services", _WRITE),
    Right("", "persistentvolumeclaims", _WRITE),
    Right("", "secrets", ("create", "patch", "delete")),
    Right("", "resourcequotas", (*_READ, "create")),
    Right("", "resourcequotas", ("patch", "delete"), name=PORTAL_QUOTA),
    Right("", "pods", (*_READ, "delete")),
    Right("", "pods", ("get",), subresource="log"),
    Right("", "events", _READ),
    Right("", "limitranges", _READ),
    Right("", "namespaces", _READ),
    Right("apps", "replicasets", _READ),
    Right("resource.k8s.io", "resourceclaims", _READ),
    Right("resource.k8s.io", "resourceslices", _READ),
    Right("resource.k8s.io", "deviceclasses", _READ),
)
"""What the portal's account must be allowed; deploy/rbac/portal.yaml grants it."""


@dataclass(frozen=True)
class Line:
    """One thing looked at. `ok` is None where it could not be looked at; `mend` says what an operator should do."""

    code: str
    ok: bool | None
    title: Text
    mend: Text | None = None


def check(cluster: Cluster, packages: Sequence[PackageTerms], namespace: str | None) -> tuple[Line, ...]:
    """Look at the cluster; never raises a ClusterError, and writes nothing.

    `packages` are those of the catalogue. `namespace` is any project's, to try their claim templates in (as a dry run);
    without it these lines stay open. A cluster that does not answer gives one line.
    """
    try:
        version = cluster.version()
    except ClusterError as error:
        return (unreachable(error),)
    return (
        _version(version),
        _resource_api(cluster),
        *(_device_class(cluster, name) for name in dict.fromkeys(terms.device_class for terms in packages)),
        *(_capacity(cluster, namespace, terms) for terms in dict.fromkeys(packages)),
        *(_right(cluster, right) for right in RIGHTS),
    )


def unreachable(error: ClusterError) -> Line:
    """The one line of a cluster that does not answer."""
    return Line("reachable", False, Text(gettext_noop("The cluster answers")), error.sentence)


def _version(version: Object) -> Line:
    told = str(version.get("gitVersion", "?"))
    title = Text(gettext_noop("The cluster answers; its version is %(version)s"), {"version": told})
    minor = re.match(r"\d+", str(version.get("minor", "")))
    if version.get("major") == "1" and minor and int(minor[0]) >= OLDEST_MINOR:
        return Line("version", True, title)
    mend = Text(
        gettext_noop("Version 1.%(oldest)s or newer is needed; 1.%(best)s or newer is best."),
        {"oldest": str(OLDEST_MINOR), "best": str(CAPACITY_MINOR)},
    )
    return Line("version", False, title, mend)


def _resource_api(cluster: Cluster) -> Line:
    title = Text(gettext_noop("Dynamic resource allocation is offered (%(api)s)"), {"api": RESOURCE_API})
    try:
        served = cluster.served(RESOURCE_API)
    except ClusterError as error:
        return Line("resource_api", None, title, error.sentence)
    mend = Text(gettext_noop("Switch on %(api)s at the API server."), {"api": RESOURCE_API})
    return Line("resource_api", served, title, None if served else mend)


def _capacity(cluster: Cluster, namespace: str | None, terms: PackageTerms) -> Line:
    title = Text(
        gettext_noop("A claim of %(name)s is accepted and keeps %(memory)s and %(share)s %% of a card"),
        {
            "name": terms.device_class,
            "memory": Memory(terms.memory_mib * 2**20),
            "share": terms.compute_percent,
        },
    )
    if namespace is None:
        mend = Text(gettext_noop("Enter a project first, to try it in; then check again."))
        return Line("capacity", None, title, mend)
    template = _probe_template(namespace, terms)
    try:
        stored = cluster.apply(template, force=False, dry_run=True)
    except ClusterError as error:
        return Line("capacity", False, title, error.sentence)
    kept = set(_capacity_of(stored)) == set(_capacity_of(template))
    mend = Text(
        gettext_noop(
            "The API server drops capacity requests, so a slice would have no size. Switch on the feature gate "
            "%(gate)s on all components, or take a cluster of version 1.%(best)s or newer."
        ),
        {"gate": "DRAConsumableCapacity", "best": str(CAPACITY_MINOR)},
    )
    return Line("capacity", kept, title, None if kept else mend)


def _probe_template(namespace: str, terms: PackageTerms) -> Object:
    workload = WorkloadSpec(
        image="probe", command=(), args=(), env=(), port=None, cpu_request="1", cpu_limit="1",
        memory_request="1Gi", memory_limit="1Gi", volume=None, template="custom",
    )  # fmt: skip
    spec = SliceSpec(
        namespace=namespace,
        app=_PROBE,
        terms=terms,
        workload=workload,
        replicas=0,
        restart=0,
        slice_id=_PROBE,
    )
    return render(spec)[0]


def _capacity_of(template: Object) -> Object:
    requests = template["spec"]["spec"]["devices"]["requests"]
    capacity: Object = (requests[0].get("exactly") or {}).get("capacity") or {}
    return capacity.get("requests") or {}


def _device_class(cluster: Cluster, name: str) -> Line:
    title = Text(gettext_noop("The DeviceClass %(name)s of the catalogue exists"), {"name": name})
    try:
        found = cluster.get("DeviceClass", None, name) is not None
    except ClusterError as error:
        return Line("device_class", None, title, error.sentence)
    mend = Text(
        gettext_noop(
            "Make the DeviceClass %(name)s (deploy/deviceclasses shows how), or correct the package."
        ),
        {"name": name},
    )
    return Line("device_class", found, title, None if found else mend)


def _right(cluster: Cluster, right: Right) -> Line:
    what = "/".join(filter(None, (right.group, right.resource, right.subresource, right.name)))
    try:
        missing = [verb for verb in right.verbs if not _allowed(cluster, right, verb)]
    except ClusterError as error:
        return Line(
            "right",
            None,
            Text(gettext_noop("The portal's account may work on %(what)s"), {"what": what}),
            error.sentence,
        )
    title = Text(
        gettext_noop("The portal's account may %(verbs)s %(what)s"),
        {"verbs": ", ".join(right.verbs), "what": what},
    )
    mend = Text(
        gettext_noop(
            "Grant the portal's account %(verbs)s on %(what)s in all namespaces (deploy/rbac/portal.yaml)."
        ),
        {"verbs": ", ".join(missing), "what": what},
    )
    return Line("right", not missing, title, mend if missing else None)


def _allowed(cluster: Cluster, right: Right, verb: str) -> bool:
    attributes = {
        "verb": verb,
        "group": right.group,
        "resource": right.resource,
        "subresource": right.subresource,
        "name": right.name,
    }
    review = cluster.create(
        {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "metadata": {},
            "spec": {"resourceAttributes": {key: value for key, value in attributes.items() if value}},
        }
    )
    return bool((review.get("status") or {}).get("allowed"))
