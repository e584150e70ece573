"""The only place that knows task names. Tasks are sent when the transaction commits, with ids only.

The row is the queue: where the broker does not take a task, the sweep finds the row.
"""

from __future__ import annotations

import logging
from functools import partial

from django.db import transaction

from portal.celery import app

log = logging.getLogger(__name__)

PROVISION = "portal.provision"
WRITE_QUOTA = "portal.write_quota"
FETCH_LOG = "portal.fetch_log"
LOOK_AT_CLUSTER = "portal.look_at_cluster"
PULL = "portal.pull"
RECEIPT = "portal.receipt"


def provision(slice_pk: int) -> None:
    """Ask a worker to bring a slice's row to the cluster, once this transaction commits."""
    _on_commit(PROVISION, slice_pk)


def write_quota(project_pk: int) -> None:
    """Ask a worker to write a project's ResourceQuota, once this transaction commits."""
    _on_commit(WRITE_QUOTA, project_pk)


def fetch_log(slice_pk: int) -> None:
    """Ask a worker for a copy of a slice's log, once this transaction commits."""
    _on_commit(FETCH_LOG, slice_pk)


def pull(pull_pk: int) -> None:
    """Ask a worker to look at a model pull, once this transaction commits."""
    _on_commit(PULL, pull_pk)


def receipt(slice_pk: int) -> None:
    """Ask a worker to read a slice's receipt from its log, once this transaction commits."""
    _on_commit(RECEIPT, slice_pk)


def look_at_cluster(cluster_pk: int) -> None:
    """Ask a worker to check a cluster and compare it with the rows, once this transaction commits."""
    _on_commit(LOOK_AT_CLUSTER, cluster_pk)


def _on_commit(task: str, pk: int) -> None:
    transaction.on_commit(partial(_send, task, pk))


def _send(task: str, pk: int) -> None:
    try:
        app.send_task(task, args=[pk], retry=False)
    except Exception as error:  # kombu, redis and socket errors share no base class
        log.warning("task %s(%s) not sent, the sweep will: %s", task, pk, error.__class__.__name__)
