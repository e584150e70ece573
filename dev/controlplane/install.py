"""What an operator does to a new cluster: applies `deploy/`, and makes a kubeconfig for the portal's account."""

from __future__ import annotations

import time
from pathlib import Path

import yaml

from dev.controlplane.client import Client, Obj, Refused

DEPLOY = Path(__file__).resolve().parent.parent.parent / "deploy"
ACCOUNT = ("gpu-portal", "gpu-portal")
"""Namespace and name of the portal's service account."""

_TOKEN_SECONDS = 365 * 24 * 3600


def documents(folder: Path = DEPLOY) -> list[Obj]:
    """The documents of `kubectl kustomize FOLDER`, in the order of its kustomization.yaml."""
    listed = yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]
    return [document for name in listed for document in yaml.safe_load_all((folder / name).read_text())]


def install(client: Client, found: list[Obj], *, patience: float = 60.0) -> None:
    """Apply the documents as administrator and wait until the policies hold. Raises Refused."""
    for document in found:
        _until_applied(client, document, time.monotonic() + patience)
    _until_policies_hold(client, time.monotonic() + patience)


def portal_token(client: Client) -> str:
    """A token of the portal's service account. Raises Refused."""
    namespace, name = ACCOUNT
    answer = client.call(
        "POST",
        f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token",
        {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
         "spec": {"expirationSeconds": _TOKEN_SECONDS}},
    )  # fmt: skip
    if not answer.ok:
        raise Refused(answer.message)
    return str(answer.body["status"]["token"])


def _until_applied(client: Client, document: Obj, deadline: float) -> None:
    while True:
        answer = client.apply(document)
        if answer.ok:
            return
        # A server just started has no RBAC bootstrap and no default namespace yet.
        if answer.status in (400, 422) or time.monotonic() > deadline:
            raise Refused(f"{document['kind']} {document['metadata']['name']}: {answer.message}")
        time.sleep(0.2)


def _until_policies_hold(client: Client, deadline: float) -> None:
    """The API server notices new policies within a second or two; the one asked here was applied last."""
    service = {
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "probe", "namespace": "default"},
        "spec": {"ports": [{"port": 80}]},
    }  # fmt: skip
    portal = client.acting_as("system:serviceaccount:{}:{}".format(*ACCOUNT))
    answer = portal.create(service, dry_run=True)
    while "gpu-portal-project-namespaces" not in answer.message:
        if time.monotonic() > deadline:
            raise Refused(f"the admission policies do not hold: {answer.status} {answer.message}")
        time.sleep(0.1)
        answer = portal.create(service, dry_run=True)
