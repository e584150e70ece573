"""Row -> manifests -> cluster -> mark. Level-triggered: late, double or after a crash it ends in the same state.

One run a slice at a time (a session advisory lock), so a run that began and did not end has lost its worker.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from django.db.models.functions import Now

from gpu import outcomes, tokens
from gpu.cluster.apply import apply_all, delete_all, remove_created
from gpu.cluster.client import Cluster
from gpu.cluster.errors import ClusterError, NamespaceMissing
from gpu.link import reach
from gpu.locks import SLICE_LOCK, only_one
from gpu.manifests import render, secret_document
from gpu.models import QuotaState, Slice
from portal import logs
from tenants.models import Project

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Run:
    """How a run ended: `again_in` seconds it is worth another, None when nothing is left to do."""

    again_in: float | None = None


def provision(pk: int, cluster: Cluster | None = None) -> Run:
    """Bring the slice with this primary key to the cluster, until its row has nothing left to send."""
    with only_one(SLICE_LOCK, pk) as got:
        if not got:
            return Run(again_in=1.0)
        while True:
            row = (
                Slice.objects.select_related("project__cluster", "project__quota_state", "order")
                .filter(pk=pk, ended_at=None)
                .annotate(now=Now())
                .first()
            )
            if row is None or row.applied_generation == row.generation or row.action in Slice.SETTLED:
                return Run()
            if row.retry_at is not None and row.retry_at > row.now:
                return Run(again_in=(row.retry_at - row.now).total_seconds())
            if row.applied_generation == 0 and _quota_is_coming(row.project):
                return Run(again_in=1.0)
            if not outcomes.begin(row):
                return Run()
            with logs.bound(slice=row.public_id, order=row.order.public_id):
                try:
                    with reach(row.project.cluster, cluster) as reached:
                        _send(reached, row)
                except ClusterError as error:
                    run = _failed(cluster, row, error)
                    if run is not None:
                        return run
                else:
                    current = outcomes.mark_applied(row)
                    log.info("accepted by the cluster, generation %s", row.generation)
                    if current:
                        return Run()


def _quota_is_coming(project: Project) -> bool:
    """Whether the project's ResourceQuota is about to be written: a first order must not overtake it.

    A quota that cannot be written holds nothing up: it is an operator's matter of its own.
    """
    state: QuotaState | None = getattr(project, "quota_state", None)
    return state is not None and state.attempts == 0 and state.applied_generation < state.generation


def _send(cluster: Cluster, row: Slice) -> None:
    spec = row.manifest_spec(row.project.namespace)
    documents, secret = render(spec), bool(spec.workload.secret_env)
    if row.intent != Slice.Intent.RELEASE:
        token = tokens.to_send(row) if secret else ""
        if token:
            documents = (secret_document(spec, token), *documents)
        apply_all(cluster, documents, slice_id=row.public_id)
        if token:
            tokens.note_sent(row, token)
        return
    try:
        delete_all(cluster, documents, slice_id=row.public_id, volume=row.delete_volume, secret=secret)
    except NamespaceMissing:
        log.info("the namespace is gone, so are the objects")


def _failed(cluster: Cluster | None, row: Slice, error: ClusterError) -> Run | None:
    """Note a failure; None when the row now has something else to send."""
    message, policy = error.platform_message, error.policy
    if error.retry:
        log.info("%s, trying again", error.code, extra={"code": error.code})
        return Run(again_in=outcomes.mark_retry(row, error.code, message, error.retry_after))
    log.warning("refused: %s", error.code, extra={"code": error.code})
    if row.intent == Slice.Intent.RELEASE:
        outcomes.mark_stuck(row, error.code, message, policy)
    elif row.applied_generation == 0:
        try:
            with reach(row.project.cluster, cluster) as reached:
                spec = row.manifest_spec(row.project.namespace)
                secret = bool(spec.workload.secret_env)
                remove_created(reached, render(spec), slice_id=row.public_id, secret=secret)
        except ClusterError as later:
            return Run(again_in=outcomes.mark_retry(row, later.code, message, later.retry_after))
        outcomes.mark_refused(row, error.code, message, policy)
    elif row.applied_spec is not None and row.applied_spec != row.spec:
        outcomes.roll_back(row, error.code, message, policy)
    else:
        outcomes.mark_stuck(row, error.code, message, policy)
    return None
