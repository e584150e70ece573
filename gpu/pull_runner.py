"""Pull row -> Job -> what its agent says -> row. Level-triggered, as gpu.provision: late, double or after a crash it
ends in the same state. While a pull is unfinished it is looked at about every second.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

from django.conf import settings
from django.utils import timezone

from gpu import enqueue, pull_outcomes, pulls
from gpu.cluster.client import Cluster
from gpu.cluster.errors import ClusterError, InvalidObject, NamespaceMissing, NotFound
from gpu.link import reach
from gpu.locks import only_one
from gpu.models import ModelCheck, ModelOnVolume, ModelPull, Slice
from gpu.order_errors import OrderRefused
from gpu.provision import Run
from gpu.pull_lines import AgentLog, read_agent_log, read_verdict
from gpu.pull_manifest import ANNOTATION_PULL, CONTAINER, PullSpec, render

log = logging.getLogger(__name__)

PULL_LOCK = 0x9011
LOOK_S = 1.0
CLAIMED_S = 0.7
"""Less than LOOK_S, so that a task sent for the next look finds it due; of two tasks for one pull only one lives on."""
LOST_LOOK_S = 3.0
WAITING_LOOK_S = 2.0
ASK_AGAIN = timedelta(seconds=30)
LABEL_JOB = "batch.kubernetes.io/job-name"
TAIL_LINES = 40
LIMIT_BYTES = 256 * 1024
AGENT = Path(__file__).resolve().parent.parent / "worker" / "pull_agent.py"
Object = dict[str, Any]


def run(pk: int, cluster: Cluster | None = None) -> Run:
    """Take one look at the pull with this primary key; `again_in` says when the next one is due."""
    with only_one(PULL_LOCK, pk) as got:
        if not got or not pull_outcomes.claim(pk, CLAIMED_S):
            return Run()
        row = ModelPull.objects.select_related(
            "slice__project__cluster", "slice__package", "slice__order"
        ).get(pk=pk)
        try:
            with reach(row.slice.project.cluster, cluster) as reached:
                return _look(reached, row)
        except NamespaceMissing:
            pull_outcomes.finish(row, "cancelled", cause="slice_stopped")
            return Run()
        except ClusterError as error:
            return _failed(row, error)


def _failed(row: ModelPull, error: ClusterError) -> Run:
    if error.retry:
        log.info("pull %s: %s, trying again", row.public_id, error.code)
        pause = pull_outcomes.mark_retry(row, error.code, error.platform_message, error.retry_after)
        return Run(again_in=pause)
    log.warning("pull %s: refused, %s", row.public_id, error.code)
    pull_outcomes.mark_refused(row, error.code, error.platform_message, error.policy)
    return Run()


def _look(cluster: Cluster, row: ModelPull) -> Run:
    stopped = row.slice.ended_at is not None or row.slice.intent != Slice.Intent.RUN
    if row.intent == ModelPull.Intent.CANCEL or stopped:
        _remove(cluster, row)
        pull_outcomes.finish(row, "cancelled", cause="slice_stopped" if stopped else "")
        return Run()
    if row.applied_generation < row.generation:
        if not pulls.is_running(row.slice):
            return Run(again_in=WAITING_LOOK_S)
        if not pull_outcomes.begin(row):
            return Run()
        _send(cluster, row)
        pull_outcomes.mark_applied(row)
        return Run(again_in=LOOK_S)
    job = cluster.get("Job", row.slice.project.namespace, row.job_name)
    if not _is_ours(job, row):
        return _lost(row)
    return _follow(cluster, row, job or {})


def _send(cluster: Cluster, row: ModelPull) -> None:
    """Make the Job once: one that is there already stays as it is, since a Job cannot be changed."""
    if not _is_ours(cluster.get("Job", row.slice.project.namespace, row.job_name), row):
        cluster.apply(render(spec_of(row)))


def spec_of(row: ModelPull) -> PullSpec:
    """Return what the Job of a pull needs to know."""
    return PullSpec(
        namespace=row.slice.project.namespace,
        app=row.slice.app,
        port=row.slice.workload.port or 0,
        slice_id=row.slice.public_id,
        pull_id=row.public_id,
        job_name=row.job_name,
        mode=row.mode,
        model=pulls.read_name(row.model).request if row.model else "",
        image=settings.PULL_IMAGE,
        source=agent_source(),
        insecure=row.insecure,
    )


@cache
def agent_source() -> str:
    """Return the agent's program."""
    return AGENT.read_text(encoding="utf-8")


def _is_ours(obj: Object | None, row: ModelPull) -> bool:
    return (
        obj is not None and (obj["metadata"].get("annotations") or {}).get(ANNOTATION_PULL) == row.public_id
    )


def _remove(cluster: Cluster, row: ModelPull) -> None:
    """Delete the Job and its pod; the pod by itself too, so that the pull ends now and not with the next clean-up."""
    namespace = row.slice.project.namespace
    job = cluster.get("Job", namespace, row.job_name)
    if not _is_ours(job, row):
        return
    cluster.delete("Job", namespace, row.job_name)
    for pod in _pods(cluster, row):
        cluster.delete("Pod", namespace, pod["metadata"]["name"], uid=pod["metadata"]["uid"])


def _pods(cluster: Cluster, row: ModelPull) -> list[Object]:
    """The Job's pods, the newest first."""
    found, _version = cluster.list("Pod", row.slice.project.namespace, f"{LABEL_JOB}={row.job_name}")
    return sorted(
        found,
        key=lambda pod: (pod["metadata"].get("creationTimestamp") or "", pod["metadata"]["name"]),
        reverse=True,
    )


def _follow(cluster: Cluster, row: ModelPull, job: Object) -> Run:
    pods = _pods(cluster, row)
    report = _report(cluster, row, pods[0]) if pods else AgentLog()
    tries = int((job.get("status") or {}).get("failed") or 0) + 1
    ending = _ending(job)
    if ending is not None:
        _end(row, ending, report, pods, tries)
        return Run()
    if report.verdict is not None and not report.verdict.good:
        pull_outcomes.note_failed_try(row, report.verdict.outcome, report.verdict.detail, tries + 1)
    elif report.progress is not None:
        pull_outcomes.note_progress(row, report.progress, tries)
    return Run(again_in=LOOK_S)


def _report(cluster: Cluster, row: ModelPull, pod: Object) -> AgentLog:
    """What the agent in `pod` said; its last word stands in the termination message too."""
    report, tail = AgentLog(), TAIL_LINES
    with suppress(InvalidObject, NotFound):  # the container waits to start, or the pod has just gone
        while True:
            text = cluster.pod_log(
                row.slice.project.namespace,
                pod["metadata"]["name"],
                CONTAINER,
                tail_lines=tail,
                limit_bytes=LIMIT_BYTES,
            )
            # The kubelet cuts a tail that is too long at its end, where the verdict is.
            if len(text.encode()) < LIMIT_BYTES or tail == 1:
                break
            tail = max(1, tail // 4)
        report = read_agent_log(text)
    if report.verdict is None:
        said = read_verdict(str(_terminated(pod).get("message") or ""))
        report = AgentLog(report.progress, report.models, report.check, said)
    return report


def _terminated(pod: Object) -> Object:
    statuses = (pod.get("status") or {}).get("containerStatuses") or [{}]
    found: Object = (statuses[0].get("state") or {}).get("terminated") or {}
    return found


def _ending(job: Object) -> tuple[str, str] | None:
    """Return ("Complete" or "Failed", reason) of an ended Job."""
    for condition in (job.get("status") or {}).get("conditions") or ():
        if condition.get("type") in ("Complete", "Failed") and condition.get("status") == "True":
            return str(condition["type"]), str(condition.get("reason") or "")
    return None


def _end(row: ModelPull, ending: tuple[str, str], report: AgentLog, pods: list[Object], tries: int) -> None:
    """Write down how an ended Job ended."""
    kind, reason = ending
    verdict = report.verdict
    if report.models is not None:
        pull_outcomes.note_models(row.slice_id, report.models.models)
    if kind == "Complete":
        if verdict is None:
            _lost(row)  # it ended well, and its log is gone: the list of models decides
        elif pull_outcomes.finish(
            row,
            verdict.outcome,
            cause=verdict.cause,
            tries=tries,
            sums=(verdict.completed, verdict.total),
        ):
            _after(row, report)
        return
    tries = max(1, tries - 1)
    if reason == "DeadlineExceeded" or (verdict is not None and verdict.outcome == "time_limit"):
        pull_outcomes.finish(row, "time_limit", tries=tries, may_retry=True)
    elif verdict is not None:
        pull_outcomes.finish(
            row,
            verdict.outcome,
            cause=verdict.cause,
            detail=verdict.detail,
            may_retry=verdict.retry,
            tries=tries,
            sums=(verdict.completed, verdict.total),
        )
    else:
        ended = _terminated(pods[0]).get("reason") if pods else ""
        cause = "agent_out_of_memory" if ended == "OOMKilled" else "agent"
        pull_outcomes.finish(row, "failed", cause=cause, may_retry=True, tries=tries)


def _after(row: ModelPull, report: AgentLog) -> None:
    """What follows a good end: what a check found is kept, and the first model is checked by itself."""
    if report.check is not None and report.check.size is not None:
        pull_outcomes.note_check(row.slice_id, report.check)
        enqueue.receipt(row.slice_id)
    first = not ModelCheck.objects.filter(slice=row.slice_id).exists()
    asked = ModelPull.objects.filter(slice=row.slice_id, mode=ModelPull.Mode.CHECK).exists()
    if row.mode == ModelPull.Mode.PULL and first and not asked:
        with suppress(OrderRefused):
            pulls.check(None, row.slice, row.model)


def _lost(row: ModelPull) -> Run:
    """The Job is gone and nobody saw its end: what the slice lists decides (case C-13)."""
    if row.mode != ModelPull.Mode.PULL:
        pull_outcomes.finish(row, "unknown", may_retry=True)
        return Run()
    lost_at = pull_outcomes.note_lost(row)
    asked = ModelPull.objects.filter(slice=row.slice_id, mode=ModelPull.Mode.LIST, created_at__gt=lost_at)
    if asked.filter(outcome="done").exists():
        name = pulls.read_name(row.model)
        there = ModelOnVolume.objects.filter(slice=row.slice_id, name__iexact=name.shortest).exists()
        pull_outcomes.finish(row, "done" if there else "unknown", may_retry=not there)
        return Run()
    last = asked.first()
    if last is None or (last.finished_at is not None and last.finished_at < timezone.now() - ASK_AGAIN):
        with suppress(OrderRefused):
            pulls.refresh_list(None, row.slice)
    return Run(again_in=LOST_LOOK_S)
