"""The sweep: re-sends what was lost, closes what is gone, wakes what can go on. Runs every few seconds."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db.models import F, Q
from django.db.models.fields.json import KT
from django.db.models.functions import Now
from django.utils import timezone

from gpu import enqueue, outcomes
from gpu.cluster.client import Cluster
from gpu.facts import ProjectFacts, project_facts
from gpu.logcopies import forget_old_logs
from gpu.manifests import ANNOTATION_SLICE
from gpu.milestones import forget_beyond
from gpu.models import IdempotentAnswer, ModelPull, Observed, QuotaState, Slice
from gpu.observe import forget_old_events
from gpu.quota_writer import wake_waiting
from gpu.receipt_rows import without_receipt
from tenants.models import Cluster as ClusterRow
from tenants.models import Project

BATCH = 500
KEEP_ANSWERS = timedelta(hours=24)
LATE_LOOK = timedelta(seconds=4)
LATE_WRITE = timedelta(seconds=10)
REFUSED_REASONS = ("FailedResourceClaimCreation", "FailedCreate")


def sweep(cluster: Cluster | None = None) -> dict[str, int]:
    """Do one round; return how many were sent again, closed and woken."""
    return {
        "sent": _send_again(),
        "closed": _close_released(),
        "woken": _wake(cluster),
    }


def _send_again() -> int:
    now = timezone.now()
    due = Q(retry_at=None) | Q(retry_at__lte=Now())
    rows = Slice.objects.filter(due, ended_at=None, applied_generation__lt=F("generation")).exclude(
        action__in=Slice.SETTLED
    )
    slices = list(rows.order_by("changed_at").values_list("pk", flat=True)[:BATCH])
    for pk in slices:
        enqueue.provision(pk)
    quotas = list(
        QuotaState.objects.filter(due, applied_generation__lt=F("generation")).values_list(
            "project", flat=True
        )[:BATCH]
    )
    for project in quotas:
        enqueue.write_quota(project)
    return len(slices) + len(quotas) + _look_at_pulls(now) + _ask_for_receipts()


def _ask_for_receipts() -> int:
    """Have the first lines of a new pod's log read, which tell of its GPU."""
    missing = without_receipt()
    for pk in missing:
        enqueue.receipt(pk)
    return len(missing)


def _look_at_pulls(now: datetime) -> int:
    """Send again the looks at pulls that nobody takes: their task was lost, or their worker."""
    late = ModelPull.objects.filter(finished_at=None, look_at__lt=now - LATE_LOOK)
    pulls = list(late.order_by("look_at").values_list("pk", flat=True)[:BATCH])
    for pk in pulls:
        enqueue.pull(pk)
    return len(pulls)


def _close_released() -> int:
    """Close slices whose objects are gone: the ResourceClaim was seen to be gone after we had deleted it."""
    closed = 0
    rows = Slice.objects.filter(
        ended_at=None,
        intent=Slice.Intent.RELEASE,
        action=Slice.Action.APPLIED,
        applied_generation=F("generation"),
    ).select_related("project", "package")
    for row in rows.order_by("project_id")[:BATCH]:
        facts = project_facts(row.project.namespace, [row.app], events=False)
        as_of = facts.freshness.as_of
        if row.action_at is None or as_of is None or as_of <= row.action_at:
            continue
        left = [
            kind
            for kind in ("Deployment", "Pod", "ResourceClaim", "ResourceClaimTemplate")
            if facts.of(row.app, kind)
        ]
        if not left:
            closed += outcomes.mark_ended(row)
        elif as_of > row.action_at + LATE_WRITE and _came_after(facts, row):
            # The last write of a worker that died may reach the cluster after the deletion.
            outcomes.delete_again(row)
    return closed


def _came_after(facts: ProjectFacts, row: Slice) -> bool:
    """Whether an object of this slice is there that nobody is deleting."""
    return any(
        not item["metadata"].get("deletionTimestamp")
        and (item["metadata"].get("annotations") or {}).get(ANNOTATION_SLICE) == row.public_id
        for kind in ("Deployment", "ResourceClaimTemplate", "Service")
        for item in facts.of(row.app, kind)
    )


def _wake(cluster: Cluster | None) -> int:
    refused = Observed.objects.annotate(reason=KT("data__reason")).filter(
        cluster__in=list(ClusterRow.objects.values_list("pk", flat=True)),
        kind="Event",
        reason__in=REFUSED_REASONS,
    )
    places = set(refused.values_list("cluster", "namespace").distinct())
    projects = Project.objects.filter(namespace__in={namespace for _cluster, namespace in places})
    return sum(
        wake_waiting(project, cluster)
        for project in projects
        if (project.cluster_id, project.namespace) in places
    )


def tidy() -> dict[str, int]:
    """Forget what is kept only for a while: log copies, events, answers for Idempotency-Key, old milestones."""
    before = timezone.now() - KEEP_ANSWERS
    answers, _kinds = IdempotentAnswer.objects.filter(created_at__lt=before).delete()
    return {
        "logs": forget_old_logs(),
        "events": forget_old_events(),
        "answers": answers,
        "milestones": forget_beyond(),
    }
