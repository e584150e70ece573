"""The cluster of a scenario: the sandbox, or with BENCH_CLUSTER=controlplane a real control plane."""

from __future__ import annotations

import os

import yaml

from dev import stack
from dev.controlplane.client import Client
from dev.fleet import Fleet


def reach(fleet: Fleet) -> Client:
    """Start the cluster of this run with the demo's namespaces; return a client with all rights."""
    if os.environ.get("BENCH_CLUSTER") != "controlplane":
        fleet.sandbox()
        return _furnished(fleet.admin())
    folder = fleet.folder / "controlplane"
    fleet.env["KUBECONFIG"] = str(stack.kubeconfig(folder))
    fleet.start("controlplane", stack.control_plane(folder))
    fleet.wait_for("controlplane", stack.kubeconfig(folder).exists, 1800)
    return _furnished(Client.from_kubeconfig(stack.kubeconfig(folder, "admin")))


def _furnished(admin: Client) -> Client:
    for document in yaml.safe_load_all((stack.ROOT / "sandbox" / "demo.yaml").read_text()):
        answer = admin.apply(document)
        if not answer.ok:
            raise RuntimeError(answer.message)
    return admin
