"""Doorways: each task is a call into a function that tests call directly, plus when to try again."""

from __future__ import annotations

from celery import Task
from celery.exceptions import SoftTimeLimitExceeded
from django.conf import settings

from gpu import checking, enqueue, loglines, provision, pull_runner, quota_writer, receipt_rows, signs, sweep
from gpu.locks import SWEEP_LOCK, once_in, only_one
from portal.celery import app

READ_LOG_S = 20
"""Seconds that a log may take to fetch and to read: more than one answer of the cluster may take."""


def _again(task: Task, run: provision.Run) -> None:
    # A long pause is left to the sweep: the row says when.
    if run.again_in is not None and run.again_in <= 30:
        raise task.retry(countdown=run.again_in, max_retries=None)


@app.task(bind=True, name=enqueue.PROVISION)
def provision_slice(self: Task, slice_pk: int) -> None:
    """Bring a slice's row to the cluster."""
    signs.note(signs.WORKER)
    _again(self, provision.provision(slice_pk))


@app.task(bind=True, name=enqueue.WRITE_QUOTA)
def write_quota(self: Task, project_pk: int) -> None:
    """Write a project's ResourceQuota."""
    _again(self, quota_writer.write_quota(project_pk))


@app.task(name=enqueue.FETCH_LOG, ignore_result=True, expires=15, soft_time_limit=READ_LOG_S)
def fetch_log(slice_pk: int) -> None:
    """Fetch a copy of a slice's log."""
    try:
        loglines.fetch(slice_pk)
    except SoftTimeLimitExceeded:
        loglines.give_up(slice_pk)


@app.task(bind=True, name=enqueue.PULL)
def pull_model(self: Task, pull_pk: int) -> None:
    """Take a look at a model pull; the next one is a task of its own."""
    run = pull_runner.run(pull_pk)
    if run.again_in is not None and run.again_in <= 30:
        self.apply_async(args=[pull_pk], countdown=run.again_in)


@app.task(name=enqueue.RECEIPT, expires=15, soft_time_limit=READ_LOG_S)
def read_receipt(slice_pk: int) -> None:
    """Read what a slice's log says of its GPU."""
    try:
        receipt_rows.read(slice_pk)
    except SoftTimeLimitExceeded:
        receipt_rows.give_up(slice_pk)


@app.task(name="portal.sweep")
def sweep_once() -> None:
    """Re-send what was lost, close what is gone, wake what can go on."""
    signs.note(signs.WORKER)
    with only_one(SWEEP_LOCK, 0) as got:
        if got and once_in("swept", settings.SWEEP_EVERY_S / 2):
            sweep.sweep()
            signs.note(signs.SWEEP)


@app.task(name="portal.tidy")
def tidy_once() -> None:
    """Forget what is kept only for a while."""
    if once_in("tidied", 300):
        sweep.tidy()


@app.task(name=enqueue.LOOK_AT_CLUSTER, expires=300)
def look_at_cluster(cluster_pk: int) -> None:
    """Check a cluster, and compare it with the rows."""
    checking.note_comparison(cluster_pk)
    checking.note_check(cluster_pk)


@app.task(name="portal.look_at_clusters")
def look_at_clusters() -> None:
    """Have every cluster looked at."""
    if once_in("looked", settings.LOOK_AT_CLUSTERS_EVERY_S / 2):
        checking.look_at_all()
