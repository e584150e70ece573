"""Following a pull's Job: progress, every ending, Jobs that are gone (C-13), refusals, cancelling, lost workers."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from gpu import orders, pull_outcomes, pull_runner, pulls
from gpu.cluster.errors import NotFound, PolicyRefused, Unreachable
from gpu.models import ModelCheck, ModelOnVolume, ModelPull, Slice
from gpu.provision import Run
from gpu.pull_lines import Model
from tests.factories import World, world
from tests.pull_kit import GIB, line, ollama_slice, on_volume, progress, verdict

pytestmark = pytest.mark.django_db
TOTAL = 2_019_377_376


class FakeCluster:
    """A namespace with Jobs, their pods and logs; `down` is raised by every call."""

    def __init__(self) -> None:
        self.jobs: dict[str, dict[str, Any]] = {}
        self.pods: dict[str, dict[str, Any]] = {}
        self.logs: dict[str, str] = {}
        self.applied: list[dict[str, Any]] = []
        self.down: Exception | None = None

    def _reach(self) -> None:
        if self.down is not None:
            raise self.down

    def get(self, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        self._reach()
        assert kind == "Job"
        return self.jobs.get(name)

    def apply(self, document: dict[str, Any]) -> dict[str, Any]:
        self._reach()
        self.applied.append(document)
        self.jobs[document["metadata"]["name"]] = {**document, "status": {}}
        return document

    def list(self, kind: str, namespace: str, selector: str) -> tuple[list[dict[str, Any]], str]:
        self._reach()
        assert kind == "Pod"
        return [
            pod for pod in self.pods.values() if selector == f"batch.kubernetes.io/job-name={pod['job']}"
        ], "1"

    def pod_log(self, namespace: str, pod: str, container: str, **options: Any) -> str:
        self._reach()
        if pod not in self.logs:
            raise NotFound("no log")
        return self.logs[pod]

    def delete(self, kind: str, namespace: str, name: str, **options: Any) -> bool:
        self._reach()
        return (self.jobs if kind == "Job" else self.pods).pop(name, None) is not None

    # What happens in the cluster

    def pod(self, pull: ModelPull, number: int = 1, log: str | None = None, message: str = "") -> None:
        """The Job's `number`-th pod, with what its agent has said."""
        name = f"{pull.job_name}-{number}"
        ended = {"state": {"terminated": {"message": message, "reason": "Error"}}}
        self.pods[name] = {
            "job": pull.job_name,
            "metadata": {"name": name, "uid": name, "creationTimestamp": f"2026-11-30T15:55:0{number}Z"},
            "status": {"containerStatuses": [ended] if message else []},
        }
        if log is not None:
            self.logs[name] = log

    def ends(self, pull: ModelPull, kind: str = "Complete", reason: str = "", failed: int = 0) -> None:
        """The Job has ended."""
        condition = {"type": kind, "status": "True", "reason": reason}
        self.jobs[pull.job_name]["status"] = {"conditions": [condition], "failed": failed}

    def forget(self, pull: ModelPull) -> None:
        """The Job's time to live is over."""
        del self.jobs[pull.job_name]
        self.pods.clear()


@pytest.fixture
def made() -> World:
    return world(entitled=3)


@pytest.fixture
def row(made: World) -> Slice:
    return ollama_slice(made)


@pytest.fixture
def fake() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
def pull(made: World, row: Slice, fake: FakeCluster) -> ModelPull:
    """A pull whose Job has been sent."""
    found, _new = pulls.place(made.kim, row, "llama3.2:3b")
    assert look(found, fake) == Run(again_in=1.0)
    return found


def look(pull: ModelPull, fake: FakeCluster) -> Run:
    """Take the next look, as if it were due."""
    ModelPull.objects.filter(pk=pull.pk).update(look_at=timezone.now())
    found = pull_runner.run(pull.pk, fake)  # type: ignore[arg-type]
    pull.refresh_from_db()
    return found


def test_the_job_is_sent_once(pull: ModelPull, fake: FakeCluster) -> None:
    assert (pull.action, pull.applied_generation) == ("applied", 1)
    look(pull, fake)
    assert len(fake.applied) == 1


def test_a_second_worker_finds_the_look_taken(pull: ModelPull, fake: FakeCluster) -> None:
    look(pull, fake)
    assert pull_runner.run(pull.pk, fake) == Run()  # type: ignore[arg-type]


def test_progress_never_goes_back(pull: ModelPull, fake: FakeCluster) -> None:
    fake.pod(pull, log=progress(TOTAL // 2, TOTAL, 50.0))
    look(pull, fake)
    assert (pull.completed, pull.total, pull.percent, pull.speed) == (TOTAL // 2, TOTAL, 50.0, 10_000_000)
    fake.pod(pull, log=progress(0, TOTAL * 2, 0.0, eta_s=None))
    assert look(pull, fake) == Run(again_in=1.0)
    assert (pull.completed, pull.percent, pull.eta_s) == (0, 50.0, None)


def test_a_stall_is_kept_and_goes_away(pull: ModelPull, fake: FakeCluster) -> None:
    fake.pod(pull, log=line("stall", stalled_s=75, step="pulling", completed=1, total=2, percent=50.0))
    look(pull, fake)
    assert pull.stalled_s == 75
    fake.pod(pull, log=progress(2, 2, 99.0))
    look(pull, fake)
    assert pull.stalled_s == 0


def test_done_lists_the_models_and_checks_the_first(pull: ModelPull, fake: FakeCluster, row: Slice) -> None:
    listed = line(
        "models", models=[{"name": "llama3.2:3b", "size": TOTAL, "digest": "ab", "modified_at": None}]
    )
    fake.pod(pull, log=listed + verdict("done", completed=TOTAL, total=TOTAL))
    fake.ends(pull)
    assert look(pull, fake) == Run()
    assert (pull.outcome, pull.percent, pull.finished) == ("done", 100.0, True)
    assert list(row.models.values_list("name", "size")) == [("llama3.2:3b", TOTAL)]
    assert row.pulls.get(mode="check").model == "llama3.2:3b"
    assert row.timeline.filter(code="pull_done").count() == 1
    assert look(pull, fake) == Run()
    assert row.pulls.count() == 2


def test_a_check_is_kept(made: World, row: Slice, fake: FakeCluster) -> None:
    on_volume(row, llama3_2__3b=2 * GIB)
    asked = pulls.check(made.kim, row, "llama3.2:3b")
    look(asked, fake)
    told = line(
        "check", model="llama3.2:3b", size=100, size_vram=75, context_length=4096, tokens_per_second=7.5
    )
    fake.pod(asked, log=told + verdict("done"))
    fake.ends(asked)
    look(asked, fake)
    found = ModelCheck.objects.get()
    assert (found.size, found.size_vram, found.context_length, found.tokens_per_second) == (
        100,
        75,
        4096,
        7.5,
    )


@pytest.mark.parametrize(
    ("said", "retry"),
    [("unknown_model", False), ("volume_full", False), ("not_ollama", True), ("interrupted", True)],
)
def test_a_failed_job_ends_with_the_agents_verdict(
    pull: ModelPull, fake: FakeCluster, said: str, retry: bool
) -> None:
    fake.pod(pull, log=verdict(said, retry=retry, completed=TOTAL // 2, total=TOTAL, detail="words"))
    fake.ends(pull, "Failed", "PodFailurePolicy" if not retry else "BackoffLimitExceeded", failed=1)
    look(pull, fake)
    assert (pull.outcome, pull.may_retry, pull.total, pull.tries) == (said, retry, TOTAL, 1)


def test_a_verdict_is_read_from_the_termination_message_where_the_log_is_gone(
    pull: ModelPull, fake: FakeCluster
) -> None:
    fake.pod(pull, message=verdict("no_access"))
    fake.ends(pull, "Failed", "PodFailurePolicy", failed=1)
    look(pull, fake)
    assert pull.outcome == "no_access"


def test_a_failed_try_is_told_while_the_job_tries_again(pull: ModelPull, fake: FakeCluster) -> None:
    fake.pod(pull, log=verdict("interrupted", retry=True))
    fake.jobs[pull.job_name]["status"] = {"failed": 1}
    assert look(pull, fake) == Run(again_in=1.0)
    assert (pull.step, pull.cause, pull.finished) == ("retrying", "interrupted", False)
    fake.pod(pull, 2, log=progress(1, 2, 50.0))
    look(pull, fake)
    assert (pull.step, pull.cause, pull.tries) == ("pulling", "", 2)


def test_the_deadline_is_a_time_limit(pull: ModelPull, fake: FakeCluster) -> None:
    fake.ends(pull, "Failed", "DeadlineExceeded")
    look(pull, fake)
    assert pull.outcome == "time_limit"


def test_a_spent_backoff_tells_how_often_and_the_last_error(pull: ModelPull, fake: FakeCluster) -> None:
    fake.pod(pull, 4, log=verdict("interrupted", retry=True, completed=1, total=2))
    fake.ends(pull, "Failed", "BackoffLimitExceeded", failed=4)
    look(pull, fake)
    assert (pull.outcome, pull.tries) == ("interrupted", 4)


# The Job is gone before anybody looked (C-13)


@pytest.fixture
def lost(pull: ModelPull, fake: FakeCluster) -> ModelPull:
    """A pull under way whose Job answers 404."""
    fake.forget(pull)
    assert look(pull, fake) == Run(again_in=3.0)
    assert pull.lost_at is not None
    assert not pull.finished
    return pull


def asked(pull: ModelPull) -> ModelPull:
    return pull.slice.pulls.get(mode="list")


def test_a_listed_model_makes_a_lost_pull_done(lost: ModelPull, fake: FakeCluster) -> None:
    question = asked(lost)
    look(question, fake)
    listed = line("models", models=[{"name": "llama3.2:3b", "size": 1, "digest": "", "modified_at": None}])
    fake.pod(question, log=listed + verdict("done"))
    fake.ends(question)
    look(question, fake)
    look(lost, fake)
    assert lost.outcome == "done"


def test_a_model_that_is_not_listed_makes_it_unknown_and_a_retry_has_a_new_job(
    lost: ModelPull, fake: FakeCluster, made: World
) -> None:
    question = asked(lost)
    pull_outcomes.note_models(lost.slice_id, [Model("other:latest", 1, None, "")])
    pull_outcomes.finish(question, "done")
    look(lost, fake)
    assert (lost.outcome, lost.may_retry) == ("unknown", True)
    anew, new = pulls.place(made.kim, lost.slice, "llama3.2:3b")
    assert new
    assert anew.job_name != lost.job_name


def test_while_ollama_cannot_be_reached_it_stays_unknown_and_is_asked_again(
    lost: ModelPull, fake: FakeCluster
) -> None:
    pull_outcomes.finish(asked(lost), "unreachable")
    assert look(lost, fake) == Run(again_in=3.0)
    assert not lost.finished
    assert lost.slice.pulls.filter(mode="list").count() == 1
    lost.slice.pulls.filter(mode="list").update(finished_at=timezone.now() - timedelta(minutes=1))
    look(lost, fake)
    assert lost.slice.pulls.filter(mode="list").count() == 2


def test_an_older_list_does_not_decide(pull: ModelPull, fake: FakeCluster, made: World) -> None:
    on_volume(pull.slice, llama3_2__3b=1)
    fake.forget(pull)
    look(pull, fake)
    assert not pull.finished


def test_a_complete_job_without_a_word_is_decided_by_the_list(pull: ModelPull, fake: FakeCluster) -> None:
    fake.ends(pull)
    look(pull, fake)
    assert not pull.finished
    assert asked(pull)


# Refusals, cancelling, lost workers


def test_while_the_cluster_is_away_the_pull_waits(made: World, row: Slice, fake: FakeCluster) -> None:
    pull, _new = pulls.place(made.kim, row, "llama3.2")
    fake.down = Unreachable()
    again = look(pull, fake).again_in
    assert again is not None
    assert (pull.action, pull.finished, pull.lost_at) == ("retrying", False, None)
    fake.down = None
    assert look(pull, fake) == Run(again_in=1.0)
    assert pull.action == "applied"


def test_a_refused_job_ends_the_pull_with_the_platforms_sentence(
    made: World, row: Slice, fake: FakeCluster
) -> None:
    pull, _new = pulls.place(made.kim, row, "llama3.2")
    fake.down = PolicyRefused("Jobs need a label", policy="house-rules")
    assert look(pull, fake) == Run()
    assert (pull.outcome, pull.detail, pull.action_policy) == ("refused", "Jobs need a label", "house-rules")


def test_cancelling_deletes_job_and_pod(pull: ModelPull, fake: FakeCluster, made: World) -> None:
    fake.pod(pull, log=progress(1, 2, 50.0))
    look(pull, fake)
    pulls.cancel(made.kim, pull)
    assert look(pull, fake) == Run()
    assert (pull.outcome, fake.jobs, fake.pods) == ("cancelled", {}, {})


def test_a_job_of_somebody_else_is_left_alone(pull: ModelPull, fake: FakeCluster, made: World) -> None:
    fake.jobs[pull.job_name]["metadata"]["annotations"] = {}
    pulls.cancel(made.kim, pull)
    look(pull, fake)
    assert pull.outcome == "cancelled"
    assert pull.job_name in fake.jobs


def test_stopping_the_slice_ends_its_pulls(pull: ModelPull, fake: FakeCluster, made: World) -> None:
    orders.stop(made.kim, pull.slice)
    assert look(pull, fake) == Run()
    assert (pull.outcome, pull.cause, fake.jobs) == ("cancelled", "slice_stopped", {})


def test_a_pull_that_kills_its_workers_is_given_up(made: World, row: Slice, fake: FakeCluster) -> None:
    pull, _new = pulls.place(made.kim, row, "llama3.2")
    ModelPull.objects.filter(pk=pull.pk).update(lost_runs=3)
    assert look(pull, fake) == Run()
    assert (pull.outcome, pull.cause, fake.applied) == ("failed", "worker_lost", [])


def test_an_agent_that_says_anything_is_stored_or_left_out(pull: ModelPull, fake: FakeCluster) -> None:
    models = [
        {"name": "a\x00" * 900, "size": 2**80},
        {"name": "A:latest"},
        {"name": "a:LATEST", "size": -1},
        "x",
    ]
    log = "noise\n" + line("models", models=models) + progress(2**80, 0, 1e9, eta_s=2**70)
    fake.pod(pull, log=log)
    look(pull, fake)
    fake.pod(pull, log=log + verdict("done", total=2**80))
    fake.ends(pull)
    look(pull, fake)
    assert pull.outcome == "done"
    assert ModelOnVolume.objects.count() == 2


@pytest.mark.parametrize(
    ("typed", "sent"),
    [("Llama3.2", "Llama3.2:latest"), ("http://registry.example.test:5000/team/chat:v1",) * 2],
)
def test_the_job_asks_for_the_name_as_typed_with_its_tag(row: Slice, typed: str, sent: str) -> None:
    found = ModelPull(slice=row, mode="pull", model=typed, job_name="chat-pull-1")
    assert pull_runner.spec_of(found).model == sent
