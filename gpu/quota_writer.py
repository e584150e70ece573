"""Writes a project's ResourceQuota, and wakes what waited for the room it gives."""

from __future__ import annotations

import logging
from datetime import timedelta

from django.core.cache import cache
from django.db.models import F
from django.db.models.functions import Now
from django.utils import timezone

from gpu import diagnosis
from gpu.cluster.client import Cluster
from gpu.cluster.errors import ClusterError
from gpu.entitlements import PROJECT_ANNOTATION, QUOTA_NAME, device_key, quota_document
from gpu.facts import ProjectFacts, project_facts
from gpu.headroom import headroom, parse_quota
from gpu.link import reach
from gpu.locks import QUOTA_LOCK, only_one
from gpu.models import QuotaState, Slice
from gpu.outcomes import LONGEST_PAUSE_S, pause_after
from gpu.provision import Run
from gpu.status import intent_of
from tenants.models import Project

log = logging.getLogger(__name__)

NUDGE_EVERY_S = 30
NOT_OURS = "not_ours"


def write_quota(project_pk: int, cluster: Cluster | None = None) -> Run:
    """Write the ResourceQuota `gpu-portal` of a project until its row has nothing left to send.

    A quota of that name that somebody else made is left alone and reported to the operator.
    """
    with only_one(QUOTA_LOCK, project_pk) as got:
        if not got:
            return Run(again_in=1.0)
        while True:
            state = QuotaState.objects.select_related("project__cluster").filter(project=project_pk).first()
            if state is None or state.applied_generation == state.generation:
                return Run()
            document = quota_document(state.project)
            try:
                with reach(state.project.cluster, cluster) as reached:
                    present = reached.get("ResourceQuota", state.project.namespace, QUOTA_NAME)
                    if present is not None and PROJECT_ANNOTATION not in (
                        present["metadata"].get("annotations") or {}
                    ):
                        _note(state, NOT_OURS, "", None)
                        return Run()
                    reached.apply(document)
            except ClusterError as error:
                pause = _note(state, error.code, error.platform_message, error)
                return Run(again_in=pause)
            QuotaState.objects.filter(pk=state.pk, generation=state.generation).update(
                applied_generation=state.generation,
                action_code="",
                action_message="",
                attempts=0,
                retry_at=None,
            )


def _note(state: QuotaState, code: str, message: str, error: ClusterError | None) -> float | None:
    pause = LONGEST_PAUSE_S  # an operator has to change something first
    if error is not None and error.retry:
        pause = pause_after(state.attempts, error.retry_after)
    QuotaState.objects.filter(pk=state.pk, generation=state.generation).update(
        action_code=code,
        action_message=message,
        attempts=F("attempts") + 1,
        retry_at=Now() + timedelta(seconds=pause),
    )
    log.warning("quota of %s: %s", state.project.namespace, code)
    return pause


def wake_waiting(project: Project, cluster: Cluster | None = None) -> int:
    """Wake the slices of a project that wait for room which is there now; return how many.

    After a refusal the cluster's controllers pause up to 1000 s and are not woken when a quota is raised: deleting the
    waiting pod once, or touching the Deployment, makes them try at once (cluster-facts.md). Each at most every 30 s.
    """
    rows = project.slices.filter(ended_at=None, intent=Slice.Intent.RUN, action=Slice.Action.APPLIED)
    facts = project_facts(project.namespace)
    rooms = headroom(parse_quota(item) for item in facts.quotas)
    woken = 0
    for row in rows.select_related("project__cluster", "package"):
        found = diagnosis.explain(intent_of(row), facts.seen(row.app), timezone.now())
        if found.state == "entitlement_used_up":
            keys = {device_key(row.terms["device_class"])}
            room = all(key in rooms and (rooms[key].left or 0) >= 1 for key in keys)
        elif found.state == "blocked_by_quota" and found.shortage is not None:
            left = rooms[found.shortage.key].left if found.shortage.key in rooms else None
            room = left is None or left >= found.shortage.needed
        else:
            continue
        if room and cache.add(f"woken:{row.pk}", 1, NUDGE_EVERY_S):
            _wake(cluster, row, facts)
            woken += 1
    return woken


def _wake(cluster: Cluster | None, row: Slice, facts: ProjectFacts) -> None:
    namespace = row.project.namespace
    pods = [pod for pod in facts.of(row.app, "Pod") if not pod["metadata"].get("deletionTimestamp")]
    annotation = {"gpu-portal/woken-at": timezone.now().strftime("%Y-%m-%dT%H:%M:%SZ")}
    try:
        with reach(row.project.cluster, cluster) as reached:
            for pod in pods:
                reached.delete("Pod", namespace, pod["metadata"]["name"], uid=pod["metadata"]["uid"])
            if not pods:
                reached.patch("Deployment", namespace, row.app, {"metadata": {"annotations": annotation}})
    except ClusterError as error:
        log.info("slice %s not woken: %s", row.public_id, error.code)
