"""What the portal's account may do, and a walk through what it must not; what tenants must not."""

from __future__ import annotations

from typing import Any

import pytest

from dev.controlplane.client import Client, path_for
from tests.clusters import Target, refusal
from tests.controlplane.documents import GONE, changed, claim_template, deployment, slice_documents

pytestmark = pytest.mark.cluster

RBAC, ADMISSION = "rbac.authorization.k8s.io", "admissionregistration.k8s.io"
WRITTEN = ("get", "list", "watch", "create", "patch", "delete")
READ = ("get", "list", "watch")
NEEDED = {
    ("resource.k8s.io", "resourceclaimtemplates"): WRITTEN,
    ("apps", "deployments"): WRITTEN,
    ("batch", "jobs"): WRITTEN,
    ("", "services"): WRITTEN,
    ("", "persistentvolumeclaims"): WRITTEN,
    ("", "secrets"): ("create", "patch", "delete"),
    ("", "resourcequotas"): (*READ, "create"),
    ("", "pods"): (*READ, "delete"),
    ("", "events"): READ,
    ("", "limitranges"): READ,
    ("", "namespaces"): READ,
    ("apps", "replicasets"): READ,
    ("resource.k8s.io", "resourceclaims"): READ,
    ("resource.k8s.io", "resourceslices"): READ,
    ("resource.k8s.io", "deviceclasses"): READ,
}
"""Group and resource: the verbs that the portal's worker and watcher use."""


@pytest.fixture(scope="module")
def project(cluster: Target) -> str:
    return cluster.make_namespace("rights")


def may(client: Client, namespace: str, verb: str, group: str, resource: str, **more: str) -> bool:
    """Ask the API server whether the account of `client` may do this."""
    attributes = {"namespace": namespace, "verb": verb, "group": group, "resource": resource, **more}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    answer = client.call("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)
    assert answer.ok, answer.message
    return bool(answer.body["status"]["allowed"])


def test_portal_has_the_rights_it_needs(cluster: Target, project: str) -> None:
    portal = cluster.client("portal")
    missing = [
        f"{verb} {resource}.{group}"
        for (group, resource), verbs in NEEDED.items()
        for verb in verbs
        if not may(portal, project, verb, group, resource)
    ]
    assert missing == []
    assert may(portal, project, "get", "", "pods", subresource="log")
    assert all(
        may(portal, project, verb, "", "resourcequotas", name="gpu-portal") for verb in ("patch", "delete")
    )


def test_portal_has_no_other_rights(cluster: Target, project: str) -> None:
    portal = cluster.client("portal")
    every = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
    more = {("", "nodes"), ("", "configmaps"), ("", "serviceaccounts"), ("", "persistentvolumes"),
            (RBAC, "clusterroles"), (RBAC, "rolebindings"), (ADMISSION, "validatingadmissionpolicies"),
            ("apps", "statefulsets"), ("apps", "daemonsets"), ("storage.k8s.io", "storageclasses"),
            ("coordination.k8s.io", "leases")}  # fmt: skip
    held = {
        f"{verb} {resource}.{group}"
        for group, resource in NEEDED.keys() | more
        for verb in every
        if verb not in NEEDED.get((group, resource), ()) and may(portal, project, verb, group, resource)
    }
    assert held == set()


def test_portal_walks_into_every_closed_door(cluster: Target, project: str) -> None:
    """Each of these is tried for real, as one answered 'yes' would be a hole whatever the reviews say."""
    admin, portal = cluster.client(), cluster.client("portal")
    for namespace in (project, "kube-system"):
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "door", "namespace": namespace},
                  "stringData": {"key": "hidden"}}  # fmt: skip
        assert admin.apply(secret).ok
    bare: dict[str, Any] = {"spec": {"devices": {"requests": []}}}
    doors = [
        ("POST", f"/api/v1/namespaces/{project}/pods/any/exec?command=id", None),
        ("GET", f"/api/v1/namespaces/{project}/pods/any/exec?command=id", None),
        ("POST", f"/api/v1/namespaces/{project}/pods/any/attach", None),
        ("POST", f"/api/v1/namespaces/{project}/pods/any/portforward", None),
        ("PATCH", f"/api/v1/namespaces/{project}/pods/any/ephemeralcontainers", {}),
        ("POST", f"/api/v1/namespaces/{project}/pods/any/eviction", {}),
        ("POST", f"/apis/resource.k8s.io/v1/namespaces/{project}/resourceclaims", bare),
        ("DELETE", f"/apis/resource.k8s.io/v1/namespaces/{project}/resourceclaims/any", None),
        ("GET", f"/api/v1/namespaces/{project}/secrets", None),
        ("GET", f"/api/v1/namespaces/{project}/secrets/door", None),
        ("GET", "/api/v1/namespaces/kube-system/secrets/door", None),
        ("GET", "/api/v1/secrets", None),
        ("GET", "/api/v1/nodes", None),
        ("GET", "/api/v1/nodes/gpu-node-1/proxy/logs/", None),
        ("POST", "/api/v1/namespaces", {"metadata": {"name": "mine"}}),
        ("DELETE", f"/api/v1/namespaces/{project}", None),
        ("PATCH", f"/api/v1/namespaces/{project}", {"metadata": {"labels": {"a": "b"}}}),
        ("DELETE", f"/apis/apps/v1/namespaces/{project}/deployments", None),
        ("PATCH", f"/api/v1/namespaces/{project}/resourcequotas/project-quota", {"spec": {"hard": {}}}),
        ("DELETE", f"/api/v1/namespaces/{project}/resourcequotas/hrq.hnc.x-k8s.io", None),
        ("DELETE", f"/apis/{ADMISSION}/v1/validatingadmissionpolicies/kube-dc-dra-gpu-pods", None),
        ("DELETE", f"/apis/{ADMISSION}/v1/validatingadmissionpolicybindings/kube-dc-dra-gpu-pods", None),
        ("PATCH", f"/apis/{RBAC}/v1/clusterroles/gpu-portal", {"rules": []}),
        ("DELETE", "/apis/resource.k8s.io/v1/deviceclasses/kube-dc-nvidia-v100-shared-8g", None),
        ("DELETE", "/apis/resource.k8s.io/v1/resourceslices/gpu-node-1-hami", None),
        ("POST", "/api/v1/namespaces/gpu-portal/serviceaccounts/gpu-portal/token", {"spec": {}}),
    ]  # fmt: skip
    for method, path, body in doors:
        content_type = "application/merge-patch+json" if method == "PATCH" else "application/json"
        answer = portal.call(method, path, body, content_type=content_type)
        assert answer.status == 403, f"{method} {path}: {answer.status} {answer.message}"
    as_admin = portal.acting_as("admin", "system:masters").call("GET", "/api/v1/nodes")
    assert as_admin.status == 403, "the portal's account must not impersonate"


@pytest.mark.parametrize("namespace", ["kube-system", "default", "gpu-portal"])
def test_portal_writes_in_project_namespaces_only(cluster: Target, namespace: str) -> None:
    portal = cluster.client("portal")
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "door", "namespace": namespace}}
    for document in (secret, deployment(namespace), claim_template(namespace)):
        for answer in (portal.create(document), portal.apply(document)):
            assert "The GPU portal writes in project namespaces only." in refusal(answer)
            assert answer.status == 422


def test_portal_reads_no_secret_by_patching_it(cluster: Target, project: str) -> None:
    """Server-side apply answers with the whole object."""
    theirs = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "theirs", "namespace": project},
              "stringData": {"key": "hidden"}}  # fmt: skip
    assert cluster.client().apply(theirs).ok
    portal = cluster.client("portal")
    bare = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "theirs", "namespace": project}}
    taken = changed(bare, ("/metadata/annotations", {"gpu-portal/slice": "1"}))
    answers = [
        portal.apply(taken),
        portal.apply(taken, dry_run=True),
        portal.delete("v1", "Secret", project, "theirs"),
    ]
    for answer in answers:
        assert "The GPU portal writes no Secret but those of its slices." in refusal(answer)
        assert "hidden" not in str(answer.body)
        assert "aGlkZGVu" not in str(answer.body)
    own = changed(taken, ("/metadata/name", "own"))
    assert portal.apply(own).ok
    assert portal.apply(changed(own, ("/stringData", {"key": "value"}))).ok
    assert portal.delete("v1", "Secret", project, "own").ok


def test_portal_writes_its_own_quota_only(cluster: Target, project: str) -> None:
    portal = cluster.client("portal")
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "gpu-portal", "namespace": project},
             "spec": {"hard": {"pods": "5"}}}  # fmt: skip
    assert portal.apply(quota).ok
    assert portal.apply(changed(quota, ("/spec/hard/pods", "6"))).ok
    for name in ("project-quota", "hrq.hnc.x-k8s.io", "plan-quota"):
        other = changed(quota, ("/metadata/name", name))
        assert portal.apply(other).status == 403, "patch by name is not granted"
        assert refusal(portal.create(other)), name
    assert "no quota but its own" in refusal(portal.create(changed(quota, ("/metadata/name", "mine"))))
    assert portal.delete("v1", "ResourceQuota", project, "gpu-portal").ok


@pytest.fixture(scope="module")
def tenant(cluster: Target, project: str) -> Client:
    """Somebody with every right that RBAC can give in the project: what remains are the policies."""
    admin = cluster.client()
    role = {"apiVersion": f"{RBAC}/v1", "kind": "Role",
            "metadata": {"name": "everything", "namespace": project},
            "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]}  # fmt: skip
    binding = {"apiVersion": f"{RBAC}/v1", "kind": "RoleBinding",
               "metadata": {"name": "everything", "namespace": project},
               "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": "everything"},
               "subjects": [{"apiGroup": RBAC, "kind": "User", "name": "kim"}]}  # fmt: skip
    for document in (role, binding):
        answer = admin.apply(document)
        assert answer.ok, answer.message
    return admin.acting_as("kim")


MANAGED = "DRA GPU claim templates and workloads must be managed through the kube-dc API."


def test_tenant_does_not_write_slices(cluster: Target, project: str, tenant: Client) -> None:
    portal = cluster.client("portal")
    documents = slice_documents(project, "managed")
    for document in documents:
        assert MANAGED in refusal(tenant.create(document))
        assert portal.apply(document).ok
    for document in documents:
        kind, name = (document["apiVersion"], document["kind"]), document["metadata"]["name"]
        assert MANAGED in refusal(tenant.delete(*kind, project, name))
        labelled = changed(document, ("/metadata/annotations/note", "x"))
        assert MANAGED in refusal(tenant.apply(labelled))
    gpu = documents[-1]
    no_gpu = {"metadata": {"labels": None}, "spec": {"template": {"metadata": {"labels": None}}}}
    path = path_for("apps/v1", "Deployment", project, gpu["metadata"]["name"])
    answer = tenant.call("PATCH", path, no_gpu, content_type="application/merge-patch+json")
    assert not answer.ok, "taking the labels away is a write too"
    for document in reversed(documents):
        assert portal.delete(
            document["apiVersion"], document["kind"], project, document["metadata"]["name"]
        ).ok


def test_tenant_writes_what_needs_no_card(project: str, tenant: Client) -> None:
    web = changed(
        deployment(project, "web"),
        ("/metadata/labels", {"app.kubernetes.io/name": "web"}),
        ("/spec/template/metadata/labels", {"app.kubernetes.io/name": "web"}),
        ("/spec/template/spec/resourceClaims", GONE),
        ("/spec/template/spec/containers/0/resources/claims", GONE),
        ("/spec/strategy", GONE),
    )
    answer = tenant.create(web, dry_run=True)
    assert answer.ok, answer.message


def test_tenant_makes_no_slice_by_a_replica_set(project: str, tenant: Client) -> None:
    spec = deployment(project)["spec"]
    direct = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "direct", "namespace": project},
              "spec": {"replicas": 1, "selector": spec["selector"], "template": spec["template"]}}  # fmt: skip
    assert MANAGED in refusal(tenant.create(direct, dry_run=True))


def test_nobody_writes_claims(cluster: Target, project: str, tenant: Client) -> None:
    spec = claim_template(project)["spec"]["spec"]
    claim = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
             "metadata": {"name": "mine", "namespace": project}, "spec": spec}  # fmt: skip
    for client in (cluster.client(), tenant):
        answer = client.create(claim, dry_run=True)
        assert "ResourceClaims are written by the cluster's controllers only." in refusal(answer)
        assert answer.status == 422


@pytest.mark.parametrize("name", ["hrq.hnc.x-k8s.io", "project-quota"])
def test_reserved_quotas(cluster: Target, project: str, tenant: Client, name: str) -> None:
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": name, "namespace": project},
             "spec": {"hard": {"pods": "500"}}}  # fmt: skip
    assert "are reserved for the platform's own accounts." in refusal(tenant.create(quota))
    assert cluster.client().apply(quota).ok
    assert "are reserved" in refusal(tenant.apply(changed(quota, ("/spec/hard/pods", "501"))))
    assert "are reserved" in refusal(tenant.delete("v1", "ResourceQuota", project, name))
    assert cluster.client().delete("v1", "ResourceQuota", project, name).ok
    assert tenant.create(changed(quota, ("/metadata/name", "theirs")), dry_run=True).ok
