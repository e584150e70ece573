"""Jobs: pods that run to an end, tried again a few times, with a deadline and a time to live."""

import time
from collections.abc import Sequence

from sandbox.api import ApiError, Obj
from sandbox.controllers.engine import Controller, Engine, Retry
from sandbox.controllers.events import Recorder
from sandbox.controllers.objects import (
    changed_copy,
    condition,
    controller_of,
    is_active,
    is_finished,
    is_going,
    is_ready,
    moment,
    name_of,
    namespace_of,
    now,
    owner_reference,
    stamp,
    uid_of,
    without_zeros,
)

TRACKING = "batch.kubernetes.io/job-tracking"
FREED_PAUSE = 0.05
BACKOFF_CAP = 600.0

COMPLETE = ("CompletionsReached", "Reached expected number of succeeded pods")
BACKOFF = ("BackoffLimitExceeded", "Job has reached the specified backoff limit")
DEADLINE = ("DeadlineExceeded", "Job was active longer than specified deadline")


class Jobs(Controller):
    """The Job controller with its TTL controller. Source of the rules: pkg/controller/job and recorded/*.json.

    A pod carries a finalizer until it is counted, so that one that is deleted early is counted all the same.
    """

    name = "job-controller"

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.events = Recorder(self.api, self.name)

    def observe(self, change: str, obj: Obj, before: Obj | None) -> None:
        if obj["kind"] == "Job":
            self.enqueue(namespace_of(obj), name_of(obj))
            if change == "DELETED":
                for pod in self.cache.owned(uid_of(obj), "Pod"):
                    self.enqueue(namespace_of(pod), _pod_key(pod))
        elif obj["kind"] == "Pod":
            owner = controller_of(obj)
            if owner is not None and owner["kind"] == "Job":
                self.enqueue(namespace_of(obj), owner["name"])
                if is_going(obj):
                    self.enqueue(namespace_of(obj), _pod_key(obj))
            if change == "DELETED":
                self._freed(namespace_of(obj))
        elif obj["kind"] == "ResourceQuota" and (before or {}).get("spec") != obj.get("spec"):
            self._freed(namespace_of(obj))

    def _freed(self, namespace: str | None) -> None:
        for job in self.cache.list("Job", namespace):
            if not _end(job) and not (job.get("status") or {}).get("active"):
                self.enqueue(namespace, name_of(job), FREED_PAUSE)

    def reconcile(self, namespace: str | None, name: str) -> float | None:
        if name.startswith("pod/"):
            self._let_orphan_go(namespace, name.removeprefix("pod/"))
            return None
        job = self.cache.get("Job", namespace, name)
        if job is None or is_going(job):
            return None
        if _end(job):
            self._let_go([pod for pod in self._pods(job) if is_finished(pod) or is_going(pod)])
            return self._live_on(job)
        return self._sync(job)

    def _pods(self, job: Obj) -> list[Obj]:
        owned = self.cache.owned(uid_of(job), "Pod")
        return [pod for pod in owned if (controller_of(pod) or {}).get("uid") == uid_of(job)]

    def _sync(self, job: Obj) -> float | None:
        status = changed_copy(job.get("status") or {})
        spec = job["spec"]
        if spec.get("suspend"):
            self._suspend(job, status)
            return None
        if (paused := condition(status.get("conditions") or [], "Suspended")) and paused["status"] == "True":
            status["conditions"].remove(paused)
            status["conditions"].append(
                _condition("Suspended", "JobResumed", "Job resumed") | {"status": "False"}
            )
            self.events.event(job, "Normal", "Resumed", "Job resumed")
        if "startTime" not in status:
            status["startTime"] = now()
            job = self._write(job, status, self._pods(job))
            status = changed_copy(job["status"])
        job = self._count(job, status)
        status = changed_copy(job["status"])
        pods = self._pods(job)
        active = [pod for pod in pods if is_active(pod)]
        failed, succeeded = status.get("failed", 0), status.get("succeeded", 0)
        restarts = sum(_restarts(pod) for pod in active) if _restarts_in_place(job) else 0
        deadline = _deadline(job, status)
        target = condition(status.get("conditions") or [], "FailureTarget")
        if target is not None:
            return self._fail(job, status, (target["reason"], target["message"]))
        if (why := _failed_for_good(job, pods)) is not None:
            return self._fail(job, status, why)
        if failed + restarts > spec.get("backoffLimit", 6):
            return self._fail(job, status, BACKOFF)
        if deadline is not None and deadline <= time.time():
            return self._fail(job, status, DEADLINE)
        if succeeded >= spec.get("completions", 1):
            return self._complete(job, status)
        pause = self._pause(job, pods, failed)
        if pause > 0:
            self._write(job, status, pods)
            return pause
        failure = self._start(job, len(active), succeeded)
        self._write(self.cache.get("Job", namespace_of(job), name_of(job)) or job, status, self._pods(job))
        if failure is not None:
            raise Retry
        return None if deadline is None else max(deadline - time.time(), 0.0) + 0.1

    def _suspend(self, job: Obj, status: Obj) -> None:
        for pod in self._pods(job):
            if is_active(pod):
                self.api.delete(pod)
                self.events.event(job, "Normal", "SuccessfulDelete", f"Deleted pod: {name_of(pod)}")
        job = self._count(job, status)
        status = changed_copy(job.get("status") or {})
        status.pop("startTime", None)
        known = condition(status.get("conditions") or [], "Suspended")
        if known is None or known["status"] != "True":
            others = [one for one in status.get("conditions") or [] if one["type"] != "Suspended"]
            status["conditions"] = [*others, _condition("Suspended", "JobSuspended", "Job suspended")]
            self.events.event(job, "Normal", "Suspended", "Job suspended")
        self._write(job, status, self._pods(job))

    def _count(self, job: Obj, status: Obj) -> Obj:
        """Count pods that ended: first noted by uid, then set free, then added up. Safe to be cut anywhere."""
        uncounted = status.setdefault("uncountedTerminatedPods", {})
        held = [pod for pod in self._pods(job) if TRACKING in (pod["metadata"].get("finalizers") or [])]
        ended = [
            pod for pod in held if is_finished(pod) or (is_going(pod) and not pod["spec"].get("nodeName"))
        ]
        for pod in ended:
            noted = uncounted.setdefault(_outcome(pod), [])
            if uid_of(pod) not in noted:
                noted.append(uid_of(pod))
        if ended:
            job = self._write(job, status, self._pods(job))
            self._let_go(ended)
        elif not uncounted:
            return job
        status = changed_copy(job["status"])
        for outcome, uids in status["uncountedTerminatedPods"].items():
            status[outcome] = status.get(outcome, 0) + len(uids)
        status["uncountedTerminatedPods"] = {}
        return self._write(job, status, self._pods(job))

    def _let_go(self, pods: Sequence[Obj]) -> None:
        for pod in pods:
            finalizers = pod["metadata"].get("finalizers") or []
            if TRACKING in finalizers:
                updated = changed_copy(pod)
                updated["metadata"]["finalizers"] = [one for one in finalizers if one != TRACKING]
                self.api.update(updated)

    def _let_orphan_go(self, namespace: str | None, name: str) -> None:
        """A pod whose Job is gone must not be held back by our finalizer."""
        pod = self.cache.get("Pod", namespace, name)
        owner = controller_of(pod) if pod is not None else None
        if pod is None or owner is None:
            return
        job = self.cache.get("Job", namespace, owner["name"])
        if job is None or uid_of(job) != owner["uid"] or is_going(job):
            self._let_go([pod])

    def _pause(self, job: Obj, pods: Sequence[Obj], failed: int) -> float:
        """Seconds to wait before the next try after a failure: 10, 20, 40 and so on."""
        ends = [_ended_at(pod) for pod in pods if (pod.get("status") or {}).get("phase") == "Failed"]
        if not failed or not ends or _restarts_in_place(job):
            return 0.0
        wait = min(self.options.job_backoff * 2.0 ** (failed - 1), BACKOFF_CAP)
        return float(max(ends) + wait - time.time())

    def _start(self, job: Obj, active: int, succeeded: int) -> ApiError | None:
        missing = (
            min(job["spec"].get("parallelism", 1), job["spec"].get("completions", 1) - succeeded) - active
        )
        for _ in range(missing):
            try:
                pod = self.api.create(_new_pod(job))
            except ApiError as error:
                self.events.event(job, "Warning", "FailedCreate", f"Error creating: {error.message}")
                return error
            self.events.event(job, "Normal", "SuccessfulCreate", f"Created pod: {name_of(pod)}")
        return None

    def _fail(self, job: Obj, status: Obj, why: tuple[str, str]) -> float | None:
        if condition(status.get("conditions") or [], "FailureTarget") is None:
            status.setdefault("conditions", []).append(_condition("FailureTarget", *why))
            job = self._write(job, status, self._pods(job))
        for pod in self._pods(job):
            if is_active(pod):
                self.api.delete(pod)
                self.events.event(job, "Normal", "SuccessfulDelete", f"Deleted pod: {name_of(pod)}")
        if any(not is_finished(pod) for pod in self._pods(job)):
            return None  # Failed is said when the last pod has ended
        status = changed_copy(job["status"])
        status["conditions"].append(_condition("Failed", *why))
        job = self._write(job, status, self._pods(job))
        self.events.event(job, "Warning", *why)
        return self._live_on(job)

    def _complete(self, job: Obj, status: Obj) -> float | None:
        if condition(status.get("conditions") or [], "SuccessCriteriaMet") is None:
            status.setdefault("conditions", []).append(_condition("SuccessCriteriaMet", *COMPLETE))
        status["conditions"].append(_condition("Complete", *COMPLETE))
        status["completionTime"] = now()
        job = self._write(job, status, self._pods(job))
        self.events.event(job, "Normal", "Completed", "Job completed")
        return self._live_on(job)

    def _write(self, job: Obj, status: Obj, pods: Sequence[Obj]) -> Obj:
        active = [pod for pod in pods if is_active(pod)]
        status["active"] = len(active)
        status["ready"] = sum(is_ready(pod) for pod in active)
        status["terminating"] = sum(is_going(pod) and not is_finished(pod) for pod in pods)
        status = without_zeros(status, keep=("ready", "terminating"))
        status.setdefault("uncountedTerminatedPods", {})
        if status == job.get("status"):
            return job
        return self.api.update_status({**job, "status": status})

    def _live_on(self, job: Obj) -> float | None:
        """Delete a finished Job after its time to live; the seconds left of it."""
        life = job["spec"].get("ttlSecondsAfterFinished")
        end = _end(job)
        if life is None or end is None:
            return None
        left = moment(end["lastTransitionTime"]) + life - time.time()
        if left > 0:
            return float(left)
        self.api.delete(job)
        return None


def _pod_key(pod: Obj) -> str:
    return f"pod/{name_of(pod)}"


def _end(job: Obj) -> Obj | None:
    conditions = (job.get("status") or {}).get("conditions") or []
    return condition(conditions, "Complete") or condition(conditions, "Failed")


def _outcome(pod: Obj) -> str:
    return "succeeded" if (pod.get("status") or {}).get("phase") == "Succeeded" else "failed"


def _restarts_in_place(job: Obj) -> bool:
    return bool(job["spec"]["template"]["spec"].get("restartPolicy") == "OnFailure")


def _restarts(pod: Obj) -> int:
    statuses = (pod.get("status") or {}).get("containerStatuses") or []
    return sum(one.get("restartCount", 0) for one in statuses)


def _ended_at(pod: Obj) -> float:
    ends = [
        moment(one["state"]["terminated"]["finishedAt"])
        for one in (pod.get("status") or {}).get("containerStatuses") or []
        if (one.get("state") or {}).get("terminated", {}).get("finishedAt")
    ]
    return max(ends, default=moment(pod["metadata"]["creationTimestamp"]))


def _failed_for_good(job: Obj, pods: Sequence[Obj]) -> tuple[str, str] | None:
    """The reason PodFailurePolicy where a pod's exit code matches a rule FailJob: no further try is made."""
    for index, rule in enumerate((job["spec"].get("podFailurePolicy") or {}).get("rules") or []):
        wanted = rule.get("onExitCodes")
        if rule["action"] != "FailJob" or wanted is None:
            continue
        for pod in pods:
            for one in (pod.get("status") or {}).get("containerStatuses") or []:
                code = ((one.get("state") or {}).get("terminated") or {}).get("exitCode", 0)
                named = wanted.get("containerName") in (None, one["name"])
                if code and named and (code in wanted["values"]) == (wanted["operator"] == "In"):
                    return (
                        "PodFailurePolicy",
                        f"Container {one['name']} for pod {namespace_of(pod)}/{name_of(pod)} failed with exit code "
                        f"{code} matching FailJob rule at index {index}",
                    )
    return None


def _deadline(job: Obj, status: Obj) -> float | None:
    seconds = job["spec"].get("activeDeadlineSeconds")
    return None if seconds is None else moment(status["startTime"]) + float(seconds)


def _condition(type_: str, reason: str, message: str) -> Obj:
    at = stamp(time.time())
    return {
        "type": type_,
        "status": "True",
        "lastProbeTime": at,
        "lastTransitionTime": at,
        "reason": reason,
        "message": message,
    }


def _new_pod(job: Obj) -> Obj:
    template = changed_copy(job["spec"]["template"])
    metadata = template.get("metadata") or {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": f"{name_of(job)}-",
            "namespace": namespace_of(job),
            "labels": metadata.get("labels") or {},
            "annotations": metadata.get("annotations") or {},
            "finalizers": [TRACKING],
            "ownerReferences": [owner_reference(job)],
        },
        "spec": template["spec"],
    }
