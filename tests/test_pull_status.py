"""Where a pull stands, in words: blocked by quota (C-03), stalled, every ending with its mend (C-07, C-13)."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from django.utils import translation

from gpu import pulls
from gpu.messages import Cpu, Memory
from gpu.models import ModelPull, Slice
from gpu.pull_lines import OUTCOMES
from gpu.pull_sentences import ENDINGS
from gpu.pull_status import PullStatus, pull_status, pull_statuses
from gpu.wording import render
from tests.factories import World, observe, world
from tests.pull_kit import failed_create, job, ollama_slice

pytestmark = pytest.mark.django_db
EXCEEDED = (
    'Error creating: pods "chat-pull-x-abcde" is forbidden: exceeded quota: plan-quota, '
    "requested: requests.cpu=100m, used: requests.cpu=8, limited: requests.cpu=8"
)


@pytest.fixture
def made() -> World:
    return world(entitled=3)


@pytest.fixture
def row(made: World) -> Slice:
    return ollama_slice(made)


@pytest.fixture
def pull(made: World, row: Slice) -> ModelPull:
    """A pull whose Job the cluster has accepted."""
    found, _new = pulls.place(made.kim, row, "llama3.2:3b")
    return change(found, applied_generation=1, action="applied")


def change(pull: ModelPull, **values: Any) -> ModelPull:
    ModelPull.objects.filter(pk=pull.pk).update(**values)
    pull.refresh_from_db()
    return pull


def ended(pull: ModelPull, outcome: str, **values: Any) -> PullStatus:
    return pull_status(change(pull, outcome=outcome, finished_at="2026-11-30T16:00:00Z", **values))


def test_before_it_is_sent_it_is_queued(made: World, row: Slice) -> None:
    assert pull_status(pulls.place(made.kim, row, "qwen3:4b")[0]).state == "queued"


def test_a_job_without_a_pod_is_blocked_by_the_cpu_quota_with_the_figure(pull: ModelPull) -> None:
    observe(job(pull), failed_create(pull, EXCEEDED))
    found = pull_status(pull)
    assert (found.state, found.reason) == ("blocked_by_quota", "quota_cpu")
    assert found.shortage is not None
    assert found.shortage.short_by == Decimal("0.1")
    assert found.sentence.params["short"] == Cpu(100)  # type: ignore[arg-type]
    assert not found.settled


def test_once_the_job_is_active_it_starts_though_the_event_stays(pull: ModelPull) -> None:
    observe(job(pull, active=1), failed_create(pull, EXCEEDED))
    assert pull_status(pull).state == "starting"
    assert pull_status(change(pull, progress_at="2026-11-30T16:00:00Z", step="pulling")).state == "running"


def test_an_event_of_an_earlier_job_says_nothing(pull: ModelPull) -> None:
    observe(job(pull), failed_create(pull, EXCEEDED, uid="job-0"))
    assert pull_status(pull).state == "starting"


def test_a_policys_refusal_of_the_pod_is_shown(pull: ModelPull) -> None:
    message = "ValidatingAdmissionPolicy 'house' with binding 'b' denied request: no Jobs on Mondays"
    observe(job(pull), failed_create(pull, message))
    found = pull_status(pull)
    assert found.state == "blocked_by_policy"
    assert "no Jobs on Mondays" in render(found.sentence)


def test_a_stall_is_a_state_of_its_own(pull: ModelPull) -> None:
    found = pull_status(change(pull, stalled_s=75, progress_at="2026-11-30T16:00:00Z"))
    assert (found.state, found.tried_again) == ("stalled", True)
    assert "75" in render(found.sentence)


def test_a_failed_try_says_that_it_is_tried_again(pull: ModelPull) -> None:
    found = pull_status(change(pull, step="retrying", cause="interrupted", completed=1, total=2))
    assert (found.state, found.reason, found.tried_again) == ("retrying", "interrupted", True)
    assert "50 %" in render(found.sentence)


def test_a_lost_job_is_unknown_and_neither_done_nor_failed(pull: ModelPull) -> None:
    found = pull_status(change(pull, lost_at="2026-11-30T16:00:00Z"))
    assert (found.state, found.settled) == ("unknown", False)


def test_a_full_volume_is_told_with_both_sizes(pull: ModelPull) -> None:
    found = ended(pull, "volume_full", total=2_019_377_376)
    assert found.state == "failed"
    assert found.sentence.params["needed"] == Memory(2_019_377_376)
    assert "1.88 GiB" in render(found.sentence)
    assert "20 GiB" in render(found.sentence)
    assert "restart" in render(found.next_step)


def test_a_volume_full_before_a_size_was_told(pull: ModelPull) -> None:
    found = render(ended(pull, "volume_full").sentence)
    assert "0 B" not in found
    assert "at least" not in found
    assert "20 GiB" in found


def test_an_interruption_says_how_far_it_was(pull: ModelPull) -> None:
    assert "50 %" in render(ended(pull, "interrupted", completed=1_009_688_688, total=2_019_377_376).sentence)


def test_an_unknown_tag_is_named(pull: ModelPull) -> None:
    assert "tag 3b of llama3.2" in render(ended(pull, "unknown_model", cause="unknown_tag").sentence)


def test_host_and_gpu_memory_are_told_apart(pull: ModelPull) -> None:
    host = render(ended(pull, "out_of_memory", cause="host").sentence)
    assert host != render(ended(pull, "out_of_memory", cause="gpu").sentence)


def test_several_tries_are_told(pull: ModelPull) -> None:
    assert "4" in render(ended(pull, "interrupted", tries=4).causes[0])


@pytest.mark.parametrize("language", ["en", "de"])
@pytest.mark.parametrize("outcome", [*OUTCOMES, "cancelled", "unknown", "refused"])
@pytest.mark.parametrize("mode", ["pull", "list", "delete", "check"])
def test_every_ending_has_its_sentence(pull: ModelPull, mode: str, outcome: str, language: str) -> None:
    with translation.override(language):
        found = ended(pull, outcome, mode=mode, detail="its words")
        assert render(found.sentence)
        assert "%(" not in render(found.sentence) + render(found.next_step)
        assert found.state in ("done", "failed", "cancelled", "unknown")


@pytest.mark.parametrize(
    ("mode", "outcome", "cause"),
    [(mode, outcome, cause) for (mode, outcome), ending in ENDINGS.items() for cause in ending.causes],
)
def test_every_cause_has_its_sentence(pull: ModelPull, mode: str, outcome: str, cause: str) -> None:
    found = ended(pull, outcome, mode=mode or "pull", cause=cause)
    assert "%(" not in render(found.sentence) + render(found.next_step)


def test_many_pulls_cost_a_fixed_number_of_queries(
    made: World, row: Slice, pull: ModelPull, django_assert_max_num_queries: Any
) -> None:
    for name in ("a", "b", "c"):
        pulls.place(made.kim, row, name)
    found = list(row.pulls.all())
    with django_assert_max_num_queries(4):
        assert len(pull_statuses(row, found)) == 4
