"""The scheduler: claims onto cards, pods onto nodes, and a sentence for those that must wait."""

import collections
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from sandbox.api import ApiError, Obj
from sandbox.controllers.claims import PROTECTION
from sandbox.controllers.engine import Controller, Engine, Retry
from sandbox.controllers.events import Recorder
from sandbox.controllers.objects import (
    changed_copy,
    condition,
    is_finished,
    is_going,
    name_of,
    namespace_of,
    now,
    uid_of,
)
from sandbox.controllers.volumes import SELECTED_NODE, find_class, is_late
from sandbox.devices import Device, allocate, devices_of, used_by
from sandbox.quantity import parse

NO_HELP = "Preemption is not helpful for scheduling"
NO_VICTIMS = "No preemption victims found for incoming pod"
NO_CARD = "cannot allocate all claims"
FREED_PAUSE = 0.02


@dataclass
class _Room:
    """What is left on a node."""

    node: Obj
    free: dict[str, Decimal]
    size: dict[str, Decimal]


@dataclass
class _Refused:
    """Why a pod fits nowhere: reasons by node, or one reason that holds for all.

    The sentences are those of kube-scheduler 1.36, whose two sources of them join without much grammar.
    """

    reasons: list[tuple[str, ...]] = field(default_factory=list)
    hopeless: int = 0
    volumes: str = ""
    classes: str = ""

    def message(self, nodes: int, with_claims: bool) -> str:
        """The message of the PodScheduled condition and of the event."""
        if not nodes:
            return "no nodes available to schedule pods"
        if self.volumes:
            return f"0/{nodes} nodes are available: {self.volumes}. not found"
        hopeless = nodes if self.classes else self.hopeless
        why = self.classes or _counted(reason for reasons in self.reasons for reason in reasons)
        tried = "still not schedulable" if with_claims and not self.classes else "no new claims to deallocate"
        vain = _counted([NO_HELP] * hopeless + [NO_VICTIMS] * (nodes - hopeless))
        head = f"0/{nodes} nodes are available: "
        return f"{head}{why}. {tried}, preemption: {head}{vain}."


def _counted(reasons: Iterable[str]) -> str:
    return ", ".join(sorted(f"{count} {reason}" for reason, count in collections.Counter(reasons).items()))


class Scheduler(Controller):
    """One pass tries every waiting pod, the oldest first; whatever may have made room starts a pass.

    Source of the rules: kube-scheduler's plug-ins NodeUnschedulable, TaintToleration, NodeResourcesFit,
    VolumeBinding and DynamicResources, and recorded/*.json.
    """

    name = "default-scheduler"
    actor = "kube-scheduler"

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.events = Recorder(self.api, self.name)

    def start(self) -> None:
        self.enqueue(None, "pass")

    def observe(self, change: str, obj: Obj, before: Obj | None) -> None:
        kind = obj["kind"]
        if kind == "Pod":
            waiting = not obj["spec"].get("nodeName")
            if change != "DELETED" and waiting and _newly_ready(obj, before):
                self.enqueue(None, "pass")
            elif (change == "DELETED" or is_finished(obj)) and not waiting:
                self.enqueue(None, "pass", FREED_PAUSE)
        elif kind == "ResourceClaim":
            if change == "DELETED" or (before or {}).get("status") != obj.get("status"):
                self.enqueue(None, "pass", FREED_PAUSE)
        elif kind == "Node":
            if before is None or _offer(before) != _offer(obj) or change == "DELETED":
                self.enqueue(None, "pass", FREED_PAUSE)
        elif kind in ("ResourceSlice", "DeviceClass", "PersistentVolumeClaim", "StorageClass"):
            self.enqueue(None, "pass", FREED_PAUSE)

    def reconcile(self, namespace: str | None, name: str) -> float | None:
        waiting = [pod for pod in self.cache.list("Pod") if self._is_waiting(pod)]
        waiting.sort(
            key=lambda pod: (pod["metadata"]["creationTimestamp"], int(pod["metadata"]["resourceVersion"]))
        )
        failed = False
        for pod in waiting:
            try:
                self._schedule(pod)
            except ApiError as error:
                failed = failed or error.status != 404
        if failed:
            raise Retry
        return None

    def _is_waiting(self, pod: Obj) -> bool:
        """Whether the pod may be tried: one whose claims are not made yet is not, and says nothing."""
        if pod["spec"].get("nodeName") or is_going(pod) or is_finished(pod):
            return False
        if pod["spec"].get("schedulerName", self.name) != self.name or pod["spec"].get("schedulingGates"):
            return False
        return _claims_made(pod) and all(claim is not None for claim in self._claims(pod))

    def _claims(self, pod: Obj) -> list[Obj | None]:
        return [self.cache.get("ResourceClaim", namespace_of(pod), name) for name in _claim_names(pod)]

    def _schedule(self, pod: Obj) -> None:
        nodes = self.cache.list("Node")
        claims = [claim for claim in self._claims(pod) if claim is not None]
        classes = {name_of(one): one for one in self.cache.list("DeviceClass")}
        refused = _Refused(volumes=self._volume_trouble(pod), classes=_class_trouble(claims, classes))
        fitting: list[tuple[Decimal, str, list[tuple[Obj, list[Obj]]]]] = []
        if not refused.volumes and not refused.classes:
            devices = devices_of(self.cache.list("ResourceSlice"))
            for room in self._rooms(nodes):
                node_name = name_of(room.node)
                reasons, hopeless = _unfit(pod, room)
                allocations: list[tuple[Obj, list[Obj]]] = []
                if not reasons:
                    found = self._allocations(claims, node_name, devices.get(node_name, []), classes)
                    reasons, hopeless, allocations = (
                        ((NO_CARD,), True, []) if found is None else ((), False, found)
                    )
                if reasons:
                    refused.reasons.append(reasons)
                    refused.hopeless += hopeless
                else:
                    fitting.append((-_score(pod, room), node_name, allocations))
        if not fitting:
            self._tell(pod, refused.message(len(nodes), bool(claims)))
            return
        _, node_name, allocations = min(fitting, key=lambda one: one[:2])
        if self._volumes_ready(pod, node_name):
            self._bind(pod, node_name, claims, allocations)

    def _rooms(self, nodes: Sequence[Obj]) -> Iterable[_Room]:
        taken: dict[str, list[Obj]] = {}
        for pod in self.cache.list("Pod"):
            if pod["spec"].get("nodeName") and not is_finished(pod):
                taken.setdefault(pod["spec"]["nodeName"], []).append(pod)
        for node in nodes:
            offered = (node.get("status") or {}).get("allocatable") or {}
            size = {key: parse(offered.get(key, "0")) for key in ("cpu", "memory", "pods")}
            free = dict(size)
            for pod in taken.get(name_of(node), []):
                for key, amount in requests(pod).items():
                    free[key] -= amount
            yield _Room(node, free, size)

    def _allocations(
        self, claims: Sequence[Obj], node: str, devices: Sequence[Device], classes: dict[str, Obj]
    ) -> list[tuple[Obj, list[Obj]]] | None:
        """What each claim that has no card yet would get on the node; None where one gets nothing."""
        used = used_by(self.cache.list("ResourceClaim"))
        found: list[tuple[Obj, list[Obj]]] = []
        for claim in claims:
            allocation = (claim.get("status") or {}).get("allocation")
            if allocation:
                if not _allows(allocation, node):
                    return None
                continue
            results = allocate(claim, devices, classes, used)
            if results is None:
                return None
            found.append((claim, results))
            for key, amounts in used_by([_allocated(claim, results, node)]).items():
                held = used.setdefault(key, {})
                for name, amount in amounts.items():
                    held[name] = held.get(name, Decimal(0)) + amount
        return found

    def _volume_trouble(self, pod: Obj) -> str:
        """Why the pod's volumes keep it from every node; "" where they do not."""
        for name in _volume_names(pod):
            volume = self.cache.get("PersistentVolumeClaim", namespace_of(pod), name)
            if volume is None:
                return f'persistentvolumeclaim "{name}" not found'
            if is_going(volume):
                return f'persistentvolumeclaim "{name}" is being deleted'
            if (volume.get("status") or {}).get("phase") != "Bound" and not is_late(
                find_class(self.cache, volume)
            ):
                return "pod has unbound immediate PersistentVolumeClaims"
        return ""

    def _volumes_ready(self, pod: Obj, node: str) -> bool:
        """Ask for volumes that wait for their first consumer; True once all are bound."""
        ready = True
        for name in _volume_names(pod):
            volume = self.cache.get("PersistentVolumeClaim", namespace_of(pod), name)
            if volume is None or (volume.get("status") or {}).get("phase") == "Bound":
                continue
            ready = False
            if SELECTED_NODE not in (volume["metadata"].get("annotations") or {}):
                updated = changed_copy(volume)
                updated["metadata"].setdefault("annotations", {})[SELECTED_NODE] = node
                self.api.update(updated)
        return ready

    def _bind(
        self, pod: Obj, node: str, claims: Sequence[Obj], found: Sequence[tuple[Obj, list[Obj]]]
    ) -> None:
        results = {uid_of(claim): one for claim, one in found}
        for claim in claims:
            self._reserve(claim, pod, node, results.get(uid_of(claim)))
        # The condition first: from the moment it is bound, the kubelet writes the status too.
        updated = changed_copy(pod)
        status = updated.setdefault("status", {})
        others = [one for one in status.get("conditions") or [] if one["type"] != "PodScheduled"]
        status["conditions"] = [*others, _pod_scheduled("True")]
        updated = changed_copy(self.api.update_status(updated))
        updated["spec"]["nodeName"] = node
        self.api.update(updated)
        message = f"Successfully assigned {namespace_of(pod)}/{name_of(pod)} to {node}"
        self.events.series(pod, "Normal", "Scheduled", "Binding", message)

    def _reserve(self, claim: Obj, pod: Obj, node: str, results: list[Obj] | None) -> None:
        consumer = {"resource": "pods", "name": name_of(pod), "uid": uid_of(pod)}
        if results is not None and PROTECTION not in (claim["metadata"].get("finalizers") or []):
            updated = changed_copy(claim)
            updated["metadata"].setdefault("finalizers", []).append(PROTECTION)
            claim = self.api.update(updated)
        updated = changed_copy(_allocated(claim, results, node) if results is not None else claim)
        reserved = updated["status"].setdefault("reservedFor", [])
        if consumer not in reserved:
            reserved.append(consumer)
            self.api.update_status(updated)

    def _tell(self, pod: Obj, message: str) -> None:
        """Say why the pod waits, once for each new reason."""
        known = condition((pod.get("status") or {}).get("conditions") or [], "PodScheduled")
        if known is not None and known.get("message") == message:
            return
        self.events.series(pod, "Warning", "FailedScheduling", "Scheduling", message)
        found = _pod_scheduled("False", since=known) | {"reason": "Unschedulable", "message": message}
        found["observedGeneration"] = pod["metadata"].get("generation", 1)
        updated = changed_copy(pod)
        status = updated.setdefault("status", {})
        others = [one for one in status.get("conditions") or [] if one["type"] != "PodScheduled"]
        status["conditions"] = [*others, found]
        self.api.update_status(updated)


def requests(pod: Obj) -> dict[str, Decimal]:
    """What a pod takes of its node: cores, bytes, and one of the places for pods."""
    total = {"cpu": Decimal(0), "memory": Decimal(0), "pods": Decimal(1)}
    for container in pod["spec"].get("containers") or []:
        resources = container.get("resources") or {}
        for key in ("cpu", "memory"):
            wanted = (resources.get("requests") or {}).get(key, (resources.get("limits") or {}).get(key, "0"))
            total[key] += parse(wanted)
    return total


def _unfit(pod: Obj, room: _Room) -> tuple[tuple[str, ...], bool]:
    """Why a pod does not fit a node ((): it does), and whether it would not even with other pods gone."""
    spec = room.node.get("spec") or {}
    tolerations = pod["spec"].get("tolerations") or []
    if spec.get("unschedulable"):
        return ("node(s) were unschedulable",), True
    for taint in spec.get("taints") or []:
        if taint["effect"] in ("NoSchedule", "NoExecute") and not any(
            tolerates(t, taint) for t in tolerations
        ):
            return ("node(s) had untolerated taint(s)",), True
    wanted = requests(pod)
    labels = room.node["metadata"].get("labels") or {}
    if not (pod["spec"].get("nodeSelector") or {}).items() <= labels.items():
        return ("node(s) didn't match Pod's node affinity/selector",), True
    short = [key for key in ("cpu", "memory") if 0 < wanted[key] > room.free[key]]
    reasons = ["Too many pods"] if room.free["pods"] < wanted["pods"] else []
    reasons += [f"Insufficient {key}" for key in short]
    return tuple(reasons), any(wanted[key] > room.size[key] for key in short)


def _class_trouble(claims: Iterable[Obj], classes: dict[str, Obj]) -> str:
    """Which request names a DeviceClass that is not there; "" where none does."""
    for claim in claims:
        for request in claim["spec"]["devices"].get("requests") or []:
            wanted = (request.get("exactly") or {}).get("deviceClassName")
            if wanted and wanted not in classes:
                return f"request {request['name']}: device class {wanted} does not exist"
    return ""


def tolerates(toleration: Obj, taint: Obj) -> bool:
    """Whether a toleration covers a taint."""
    if toleration.get("effect") and toleration["effect"] != taint["effect"]:
        return False
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    return toleration.get("operator") == "Exists" or toleration.get("value", "") == taint.get("value", "")


def _score(pod: Obj, room: _Room) -> Decimal:
    """The share of CPU and memory that would be left: the emptiest node wins, as LeastAllocated has it."""
    wanted = requests(pod)
    return sum(
        ((room.free[key] - wanted[key]) / room.size[key] for key in ("cpu", "memory") if room.size[key]),
        Decimal(0),
    )


def _allocated(claim: Obj, results: list[Obj], node: str) -> Obj:
    selector = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    allocation = {
        "allocationTimestamp": now(),
        "devices": {"results": results},
        "nodeSelector": {"nodeSelectorTerms": [selector]},
    }
    return {**claim, "status": {**(claim.get("status") or {}), "allocation": allocation}}


def _allows(allocation: Obj, node: str) -> bool:
    terms = (allocation.get("nodeSelector") or {}).get("nodeSelectorTerms") or []
    return not terms or any(
        node in field["values"] for term in terms for field in term.get("matchFields") or []
    )


def _claims_made(pod: Obj) -> bool:
    made = {one["name"] for one in (pod.get("status") or {}).get("resourceClaimStatuses") or []}
    return all(
        "resourceClaimName" in entry or entry["name"] in made
        for entry in pod["spec"].get("resourceClaims") or []
    )


def _claim_names(pod: Obj) -> list[str]:
    made = {
        one["name"]: one["resourceClaimName"]
        for one in (pod.get("status") or {}).get("resourceClaimStatuses") or []
    }
    return [
        entry.get("resourceClaimName") or made.get(entry["name"], "")
        for entry in pod["spec"].get("resourceClaims") or []
    ]


def _newly_ready(pod: Obj, before: Obj | None) -> bool:
    """Whether a waiting pod changed in a way that another try is due: it is new, or its claims were made."""
    return before is None or _claim_names(before) != _claim_names(pod)


def _volume_names(pod: Obj) -> list[str]:
    return [
        volume["persistentVolumeClaim"]["claimName"]
        for volume in pod["spec"].get("volumes") or []
        if "persistentVolumeClaim" in volume
    ]


def _offer(node: Obj) -> object:
    return (node.get("spec") or {}), (node.get("status") or {}).get("allocatable")


def _pod_scheduled(status: str, since: Obj | None = None) -> Obj:
    kept = since["lastTransitionTime"] if since is not None and since["status"] == status else now()
    return {"type": "PodScheduled", "status": status, "lastProbeTime": None, "lastTransitionTime": kept}
