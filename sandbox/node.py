"""Pretended machines with pretended cards: what a node and its driver publish, and what silence leads to."""

import time
from collections.abc import Sequence

from sandbox.api import ApiError, Obj
from sandbox.controllers.engine import Controller, Engine
from sandbox.controllers.events import Recorder
from sandbox.controllers.objects import (
    changed_copy,
    condition,
    is_finished,
    is_going,
    moment,
    name_of,
    namespace_of,
    now,
    now_micro,
    uid_of,
)
from sandbox.options import DRIVER, NodeSpec
from sandbox.quantity import parse

LEASES = "kube-node-lease"
SILENT = "sandbox.gpu-portal/silent"
UNREACHABLE = "node.kubernetes.io/unreachable"


def node_object(spec: NodeSpec, address: tuple[str, int] | None = None) -> Obj:
    """The Node as its kubelet registers it; ``address`` is where that kubelet serves logs."""
    size = {"cpu": spec.cpu, "memory": spec.memory, "pods": spec.pods}
    status: Obj = {
        "capacity": size,
        "allocatable": size,
        "conditions": [_ready("True", "KubeletReady", "kubelet is posting ready status")],
        "nodeInfo": {
            "machineID": "",
            "systemUUID": "",
            "bootID": "",
            "kernelVersion": "6.12.0",
            "osImage": "sandbox",
            "containerRuntimeVersion": "sandbox://1",
            "kubeletVersion": "v1.36.3",
            "kubeProxyVersion": "",
            "operatingSystem": "linux",
            "architecture": "amd64",
        },
    }
    if address is not None:
        status["addresses"] = [{"type": "InternalIP", "address": address[0]}]
        status["daemonEndpoints"] = {"kubeletEndpoint": {"Port": address[1]}}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": spec.name,
            "labels": {"kubernetes.io/hostname": spec.name, "kubernetes.io/os": "linux"},
        },
        "spec": {},
        "status": status,
    }


def slice_object(spec: NodeSpec) -> Obj:
    """The ResourceSlice that the card driver publishes for the node's cards."""
    memory = spec.card_memory
    devices = [
        {
            "name": f"hami-gpu-{number}",
            "allowMultipleAllocations": True,
            "attributes": {"productName": {"string": spec.product}, "type": {"string": "hami-gpu"}},
            "capacity": {
                "cores": _capacity("100", "1", "1"),
                "memory": _capacity(memory, "1Mi", "1Mi"),
            },
        }
        for number in range(spec.cards)
    ]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{spec.name}-hami"},
        "spec": {
            "driver": DRIVER,
            "nodeName": spec.name,
            "pool": {"name": spec.name, "generation": 1, "resourceSliceCount": 1},
            "devices": devices,
        },
    }


def _capacity(value: str, low: str, step: str) -> Obj:
    policy = {"default": value, "validRange": {"min": low, "max": value, "step": step}}
    return {"value": value, "requestPolicy": policy}


def _ready(status: str, reason: str, message: str) -> Obj:
    return {
        "type": "Ready",
        "status": status,
        "lastHeartbeatTime": now(),
        "lastTransitionTime": now(),
        "reason": reason,
        "message": message,
    }


def is_silent(node: Obj | None, options_silent: frozenset[str]) -> bool:
    """Whether the node pretends to have lost its network: by option, or by the annotation of that name."""
    if node is None:
        return False
    annotations = node["metadata"].get("annotations") or {}
    return annotations.get(SILENT) == "true" or name_of(node) in options_silent


class NodeAgent(Controller):
    """Registers the nodes and their cards, and renews their leases."""

    name = "node-agent"
    actor = "kubelet"

    def __init__(
        self, engine: Engine, specs: Sequence[NodeSpec], address: tuple[str, int] | None = None
    ) -> None:
        super().__init__(engine)
        self.specs = {spec.name: spec for spec in specs}
        self.address = address

    def start(self) -> None:
        for name in self.specs:
            self.reconcile(None, name)
            self.enqueue(None, name, self.options.lease_renewal)

    def observe(self, change: str, obj: Obj, before: Obj | None) -> None:
        if obj["kind"] == "Node" and name_of(obj) in self.specs:
            old = (before or {}).get("metadata", {}).get("annotations")
            if change == "DELETED" or old != obj["metadata"].get("annotations"):
                self.enqueue(None, name_of(obj))

    def reconcile(self, namespace: str | None, name: str) -> float | None:
        node = self.api.get("Node", None, name)
        if is_silent(node, self.options.silent_nodes):
            return self.options.lease_renewal
        wanted = node_object(self.specs[name], self.address)
        if node is None:
            node = self.api.create(wanted)
        self._publish_cards(self.specs[name])
        self._renew(node)  # before Ready is reported: the node controller trusts the lease
        self._report(node, wanted["status"])
        return self.options.lease_renewal

    def _report(self, node: Obj, wanted: Obj) -> None:
        """Write the node's status where it is not what the kubelet knows it to be."""
        status = changed_copy(node.get("status") or {})
        ready = condition(status.get("conditions") or [], "Ready")
        conditions = status.get("conditions") or []
        if ready is None or ready["status"] != "True":
            others = [one for one in conditions if one["type"] != "Ready"]
            conditions = [*others, *wanted["conditions"]]
        merged = {**status, **wanted, "conditions": conditions}
        if merged != status:
            self.api.update_status({**node, "status": merged})

    def _publish_cards(self, spec: NodeSpec) -> None:
        wanted = slice_object(spec)
        present = self.api.get("ResourceSlice", None, name_of(wanted))
        if not spec.cards:
            return
        if present is None:
            self.api.create(wanted)
        elif _sizes(present) != _sizes(wanted):
            updated = changed_copy(present)
            updated["spec"] = wanted["spec"]
            updated["spec"]["pool"]["generation"] = present["spec"]["pool"]["generation"] + 1
            self.api.update(updated)

    def _renew(self, node: Obj) -> None:
        name = name_of(node)
        lease = self.api.get("Lease", LEASES, name)
        seconds = int(self.options.node_grace) or 1
        if lease is not None:
            updated = changed_copy(lease)
            updated["spec"] |= {"holderIdentity": name, "renewTime": now_micro()}
            self.api.update(updated)
            return
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "name": name,
                "namespace": LEASES,
                "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid_of(node)}],
            },
            "spec": {"holderIdentity": name, "leaseDurationSeconds": seconds, "renewTime": now_micro()},
        }
        if self.api.get("Namespace", None, LEASES) is None:
            try:
                self.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": LEASES}})
            except ApiError as error:
                if error.status != 409:
                    raise
        self.api.create(lease)


def _sizes(resource_slice: Obj) -> object:
    """What matters of a slice, whatever way its quantities are written."""
    return [
        (one["name"], one["attributes"], {k: parse(v["value"]) for k, v in one["capacity"].items()})
        for one in resource_slice["spec"].get("devices") or []
    ]


class NodeLifecycle(Controller):
    """Taints nodes whose lease is old, and deletes their pods after the time these tolerate."""

    name = "node-controller"

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.events = Recorder(self.api, self.name)

    def observe(self, change: str, obj: Obj, before: Obj | None) -> None:
        if (obj["kind"] == "Node" and change != "DELETED") or (
            obj["kind"] == "Lease" and namespace_of(obj) == LEASES and before is None
        ):
            self.enqueue(None, name_of(obj))

    def reconcile(self, namespace: str | None, name: str) -> float | None:
        node = self.cache.get("Node", None, name)
        if node is None:
            return None
        lease = self.cache.get("Lease", LEASES, name)
        since = moment(lease["spec"]["renewTime"] if lease else node["metadata"]["creationTimestamp"])
        left = since + self.options.node_grace - time.time()
        ready = condition((node.get("status") or {}).get("conditions") or [], "Ready")
        if left > 0:
            if ready is not None and ready["status"] == "True":
                self._taint(node, lost=False)
            return left + 0.05
        if ready is None or ready["status"] != "Unknown":
            updated = changed_copy(node)
            found = _ready("Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.")
            status = updated.setdefault("status", {})
            status["conditions"] = [
                found if one["type"] == "Ready" else one for one in status.get("conditions") or [found]
            ]
            node = self.api.update_status(updated)
            self.events.event(node, "Normal", "NodeNotReady", f"Node {name} status is now: NodeNotReady")
        self._taint(node, lost=True)
        waits = [self._lose(pod) for pod in self.cache.list("Pod") if pod["spec"].get("nodeName") == name]
        return min([self.options.lease_renewal, *waits])

    def _taint(self, node: Obj, lost: bool) -> None:
        taints = (node.get("spec") or {}).get("taints") or []
        others = [one for one in taints if one["key"] != UNREACHABLE]
        ours = [
            {"key": UNREACHABLE, "effect": effect, "timeAdded": now()}
            for effect in ("NoSchedule", "NoExecute")
        ]
        if lost == (len(others) < len(taints)):
            return
        updated = changed_copy(self.cache.get("Node", None, name_of(node)) or node)
        updated.setdefault("spec", {})["taints"] = [*others, *ours] if lost else others
        self.api.update(updated)

    def _lose(self, pod: Obj) -> float:
        """Say that a pod on a lost node is not ready; delete it when it tolerates this no longer.

        Returns the seconds until that time.
        """
        if is_finished(pod) or is_going(pod):
            return float("inf")
        conditions = (pod.get("status") or {}).get("conditions") or []
        ready = condition(conditions, "Ready")
        if ready is not None and ready["status"] == "True":
            lost = {**ready, "status": "False", "lastTransitionTime": now()}
            status = {**pod["status"], "conditions": [lost if one is ready else one for one in conditions]}
            pod = self.api.update_status({**pod, "status": status})
            ready = lost
            self.events.event(pod, "Warning", "NodeNotReady", "Node is not ready")
        tolerated = [
            one.get("tolerationSeconds", float("inf"))
            for one in pod["spec"].get("tolerations") or []
            if one.get("key") in (UNREACHABLE, None) and one.get("effect") in ("NoExecute", None)
        ]
        since = moment(ready["lastTransitionTime"]) if ready is not None else time.time()
        left = since + min(tolerated, default=0.0) - time.time()
        if left > 0:
            return float(left)
        self.events.event(
            pod,
            "Normal",
            "TaintManagerEviction",
            f"Marking for deletion Pod {namespace_of(pod)}/{name_of(pod)}",
        )
        self.api.delete(pod)
        return float("inf")
