"""Recorded and hand-made objects for the tests of the diagnosis."""

import copy
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

from gpu.diagnosis import Intent, Seen, explain

RECORDED = Path(__file__).parent / "data" / "recorded"
NOW = datetime(2026, 11, 30, 15, 55, tzinfo=UTC)
DEVICE_CLASS = "kube-dc-nvidia-v100-shared-8g"
DEVICES = f"{DEVICE_CLASS}.deviceclass.resource.k8s.io/devices"


def intent(app="chat", namespace="acme-ai", **changes):
    values = {
        "slice_id": "sl_1",
        "app": app,
        "namespace": namespace,
        "wanted": "run",
        "action": "applied",
        "action_code": "",
        "action_message": "",
        "action_policy": "",
        "ordered_at": datetime(2026, 11, 30, 15, 50, tzinfo=UTC),
        "device_class": DEVICE_CLASS,
        "package_label": "V100 25 %",
        "has_volume": False,
        "has_port": True,
        "generation": 1,
    }
    return Intent(**values | changes)


def recorded(name):
    """The objects of a recorded file by kind, all apps together."""
    lists = json.loads((RECORDED / f"{name}.json").read_text())
    return {kind.removesuffix("List"): items for kind, items in lists.items() if kind.endswith("List")}


def refusal(name):
    """The Status object of a recorded refusal."""
    return json.loads((RECORDED / f"{name}.json").read_text())["body"]


def seen(objects, as_of=NOW, reachable=True):
    return Seen(objects=objects, as_of=as_of, reachable=reachable)


def judge(objects, now=NOW, reachable=True, as_of=NOW, **changes):
    """Explain `objects` for the app and namespace of their first Deployment, or what `changes` say."""
    return explain(intent(**changes), seen(objects, as_of, reachable), now)


def at(seconds):
    """A Kubernetes time `seconds` after the pod of the hand-made slice was made."""
    return (datetime(2026, 11, 30, 15, 51, tzinfo=UTC) + timedelta(seconds=seconds)).strftime(
        "%Y-%m-%dT%H:%M:%SZ"
    )


class Slice:
    """A slice in the cluster, taken from the recording of a running one and changed step by step."""

    def __init__(self):
        self.objects = copy.deepcopy(recorded("running"))
        self.deployment = self.objects["Deployment"][0]
        self.replica_set = self.objects["ReplicaSet"][0]
        self.pod = self.objects["Pod"][0]
        self.claim = self.objects["ResourceClaim"][0]
        self.quota = self.objects["ResourceQuota"][0]
        self.objects["Event"] = []

    @property
    def container(self):
        return self.pod["status"]["containerStatuses"][0]

    def event(self, about, reason, message="", kind="Warning", time=60, **fields):
        self.objects["Event"].append(
            {
                "metadata": {"name": f"e{len(self.objects['Event'])}", "creationTimestamp": at(time)},
                "involvedObject": {"kind": about["kind"], "uid": about["metadata"]["uid"]},
                "type": kind,
                "reason": reason,
                "message": message,
                "lastTimestamp": at(time),
                "eventTime": None,
                **fields,
            }
        )
        return self

    def condition(self, kind, status, time=0, obj=None, **fields):
        conditions = (obj or self.pod)["status"].setdefault("conditions", [])
        conditions[:] = [each for each in conditions if each["type"] != kind]
        conditions.append({"type": kind, "status": status, "lastTransitionTime": at(time), **fields})
        return self

    def without_pod(self):
        self.objects["Pod"], self.objects["ResourceClaim"] = [], []
        self.deployment["status"] = {"conditions": []}
        self.replica_set["status"] = {"replicas": 0}
        return self

    def without_claim(self):
        self.objects["ResourceClaim"] = []
        self.pod["status"] = {"phase": "Pending"}
        self.pod["metadata"]["creationTimestamp"] = at(0)
        return self

    def unschedulable(self, message, reason="Unschedulable"):
        self.claim["status"] = {}
        self.pod["status"] = {"phase": "Pending"}
        return self.condition("PodScheduled", "False", 5, reason=reason, message=message)

    def container_state(self, state, last=None, ready=False, restarts=0):
        self.container.update(
            state=state, lastState=last or {}, ready=ready, restartCount=restarts, imageID=""
        )
        self.pod["status"]["phase"] = "Running" if "running" in state else "Pending"
        self.condition("Ready", "True" if ready else "False", 30)
        return self.condition("ContainersReady", "True" if ready else "False", 30)

    def waits(self, reason, message="", **rest):
        return self.container_state({"waiting": {"reason": reason, "message": message}}, **rest)

    def creating(self):
        return self.waits("ContainerCreating")

    def volume(self, phase="Pending", **status):
        claim = {
            "kind": "PersistentVolumeClaim",
            "metadata": {
                "name": "chat-data",
                "namespace": "acme-ai",
                "uid": "volume-1",
                "creationTimestamp": at(0),
                "labels": {"app.kubernetes.io/name": "chat"},
            },
            "spec": {"resources": {"requests": {"storage": "20Gi"}}},
            "status": {"phase": phase, **status},
        }
        self.objects["PersistentVolumeClaim"] = [claim]
        return claim

    def second_pod(self, name="chat-9998974bf-zzzzz", time=100):
        """A newer pod of the same ReplicaSet, not yet given anything; it becomes the first in the list."""
        pod = copy.deepcopy(self.pod)
        pod["metadata"].update(name=name, uid=f"uid-{name}", creationTimestamp=at(time))
        pod["metadata"].pop("deletionTimestamp", None)
        pod["status"] = {"phase": "Pending"}
        self.objects["Pod"].append(pod)
        return pod

    def judge(self, **changes):
        return judge(self.objects, **changes)


def ended(code, reason="Error", message="", start=40, end=50):
    """A terminated container."""
    state = {"exitCode": code, "reason": reason, "startedAt": at(start), "finishedAt": at(end)}
    return {"terminated": state | ({"message": message} if message else {})}


def running(start=40):
    """A running container."""
    return {"running": {"startedAt": at(start)}}
