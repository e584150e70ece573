"""Where a model pull stands, why, and what to do: from its row and what was seen of its Job and pod. Calls nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from django.utils import timezone

from gpu.diagnosis import creation
from gpu.diagnosis.action import LOOK_AT_WORKER
from gpu.diagnosis.model import LATE, Intent, Object, Seen
from gpu.diagnosis.view import created, event_message, event_time, status, uid, view
from gpu.facts import ProjectFacts, project_facts
from gpu.headroom import Shortage
from gpu.messages import Count, Text, gettext_noop
from gpu.models import ModelPull, Slice
from gpu.pull_sentences import ENDINGS, Ending

Colour = Literal["blue", "amber", "red", "green", "grey"]


@dataclass(frozen=True)
class State:
    """How a state is shown: message id, colour, icon."""

    label: str
    colour: Colour
    icon: str


STATES: Mapping[str, State] = {
    "queued": State(gettext_noop("Ordered, being set up"), "blue", "loader-2"),
    "blocked_by_quota": State(gettext_noop("Waiting for room in the project"), "amber", "gauge"),
    "blocked_by_policy": State(gettext_noop("Refused by the platform"), "red", "shield-off"),
    "starting": State(gettext_noop("Starting"), "blue", "rocket"),
    "running": State(gettext_noop("Under way"), "blue", "loader-2"),
    "stalled": State(gettext_noop("Nothing comes at present"), "amber", "hourglass"),
    "retrying": State(gettext_noop("Failed, being tried again"), "amber", "refresh"),
    "cancelling": State(gettext_noop("Being cancelled"), "grey", "loader-2"),
    "unknown": State(gettext_noop("How it ended is not known"), "amber", "help-circle"),
    "done": State(gettext_noop("Done"), "green", "circle-check"),
    "failed": State(gettext_noop("Failed"), "red", "circle-x"),
    "cancelled": State(gettext_noop("Cancelled"), "grey", "ban"),
}
UNDER_WAY: Mapping[str, str] = {
    "pull": gettext_noop("%(model)s is being fetched."),
    "list": gettext_noop("The slice is asked which models it has."),
    "delete": gettext_noop("%(model)s is being deleted."),
    "check": gettext_noop("%(model)s is being loaded and asked for a few words."),
}
STEPS: Mapping[str, str] = {
    "connecting": gettext_noop("Connecting to the server"),
    "pulling manifest": gettext_noop("Reading the list of layers"),
    "pulling": gettext_noop("Fetching the layers"),
    "verifying": gettext_noop("Checking what has come"),
    "verifying sha256 digest": gettext_noop("Checking what has come"),
    "writing": gettext_noop("Writing the model"),
    "writing manifest": gettext_noop("Writing the model"),
    "removing": gettext_noop("Removing what is no longer needed"),
    "removing unused layers": gettext_noop("Removing what is no longer needed"),
    "success": gettext_noop("Done"),
}
ITSELF = Text(gettext_noop("Nothing. It goes on by itself."))
NOT_LOOKED_AT = gettext_noop(
    "The portal's background work is late: nobody looks at this at present. Nothing is lost."
)


@dataclass(frozen=True)
class PullStatus:
    """One pull. `state` is a code of STATES, `reason` the outcome or a finer code; `tried_again`: by itself."""

    pull: ModelPull
    slice: Slice
    state: str
    reason: str
    sentence: Text
    next_step: Text
    causes: tuple[Text, ...] = ()
    shortage: Shortage | None = None
    tried_again: bool = False

    @property
    def info(self) -> State:
        """Label, colour and icon."""
        return STATES[self.state]

    @property
    def settled(self) -> bool:
        """Whether nothing changes any more."""
        return self.pull.finished

    @property
    def step(self) -> Text:
        """The present step in words; empty where none is known."""
        return Text(STEPS.get(self.pull.step, ""))


def pull_status(pull: ModelPull, facts: ProjectFacts | None = None) -> PullStatus:
    """Return the status of one pull; `pull` comes with its slice and project."""
    if facts is None:
        facts = project_facts(pull.slice.project.namespace, [pull.job_name])
    return explain(pull, pull.slice, facts)


def pull_statuses(row: Slice, pulls: Iterable[ModelPull]) -> tuple[PullStatus, ...]:
    """Return the statuses of pulls of one slice, in the order given, with a fixed number of queries."""
    found = list(pulls)
    facts = project_facts(row.project.namespace, {pull.job_name for pull in found if not pull.finished})
    return tuple(explain(pull, row, facts) for pull in found)


def explain(pull: ModelPull, row: Slice, facts: ProjectFacts) -> PullStatus:
    """Say where a pull of the slice `row` stands."""
    if pull.finished:
        return _ended(pull, row)
    found = _under_way(pull, row, facts)
    if timezone.now() - pull.look_at <= LATE:
        return found
    return replace(found, causes=(*found.causes, Text(NOT_LOOKED_AT)), next_step=LOOK_AT_WORKER)


def _under_way(pull: ModelPull, row: Slice, facts: ProjectFacts) -> PullStatus:
    under_way = Text(UNDER_WAY[pull.mode], {"model": pull.model} if pull.model else {})
    base = PullStatus(pull, row, "running", "running", under_way, ITSELF)
    if pull.intent == ModelPull.Intent.CANCEL:
        sentence = Text(gettext_noop("It is being cancelled."))
        return replace(base, state="cancelling", reason="cancelling", sentence=sentence)
    if pull.lost_at is not None:
        return replace(
            base,
            state="unknown",
            reason="job_gone",
            sentence=Text(
                gettext_noop(
                    "Its Job is gone from the cluster, so the slice is asked whether %(model)s is there."
                ),
                {"model": pull.model},
            ),
        )
    if pull.applied_generation < pull.generation:
        return _unsent(base)
    seen = facts.seen(pull.job_name)
    job = next(iter(seen.objects["Job"]), None)
    refused = _refused_pod(pull, row, job, seen)
    if refused is not None:
        return refused
    if pull.step == "retrying":
        ending = _ending(pull, pull.cause)
        return replace(
            base, state="retrying", reason=pull.cause, sentence=ending.text(pull, row), tried_again=True
        )
    if pull.stalled_s:
        sentence = Text(
            gettext_noop("Nothing has come for %(seconds)s seconds. After ten minutes it is given up."),
            {"seconds": Count(pull.stalled_s)},
        )
        return replace(base, state="stalled", reason="stalled", sentence=sentence, tried_again=True)
    if pull.progress_at is None:
        return _before_start(base, seen.objects["Pod"])
    return base


def _unsent(base: PullStatus) -> PullStatus:
    if base.pull.action == ModelPull.Action.RETRYING:
        sentence = Text(gettext_noop("The cluster could not take it yet; it is sent again by itself."))
        return replace(
            base, state="queued", reason=base.pull.action_code, sentence=sentence, tried_again=True
        )
    sentence = Text(gettext_noop("It was ordered, and begins as soon as the slice runs."))
    return replace(base, state="queued", reason="queued", sentence=sentence)


def _before_start(base: PullStatus, pods: Sequence[Object]) -> PullStatus:
    """The Job is there; its agent has said nothing yet."""
    if base.pull.mode != ModelPull.Mode.PULL and pods:
        return base
    for pod in pods:
        for container in status(pod).get("containerStatuses") or ():
            waiting = ((container.get("state") or {}).get("waiting") or {}).get("reason", "")
            if waiting in ("ErrImagePull", "ImagePullBackOff", "InvalidImageName"):
                return replace(
                    base,
                    state="starting",
                    reason="image_failed",
                    sentence=Text(gettext_noop("The image of the portal's own helper cannot be fetched.")),
                    next_step=Text(gettext_noop("An operator of the platform must look at it.")),
                )
    return replace(base, state="starting", reason="starting")


def _refused_pod(pull: ModelPull, row: Slice, job: Object | None, seen: Seen) -> PullStatus | None:
    """Why the Job has no pod: it is there, nothing of it is active, and an event says so (case C-03)."""
    if job is None or status(job).get("active") or seen.objects["Pod"] or status(job).get("failed"):
        return None
    events = [
        event
        for event in seen.objects["Event"]
        if event.get("reason") == "FailedCreate" and event["involvedObject"].get("uid") == uid(job)
    ]
    if not events:
        return None
    newest = max(events, key=lambda event: at.timestamp() if (at := event_time(event)) else 0.0)
    found = creation.refused(
        view(_intent(pull, row), seen), event_message(newest), created(job), "Job: FailedCreate"
    )
    return PullStatus(
        pull,
        row,
        found.state if found.state in STATES else "queued",
        found.reason,
        found.sentence,
        found.next_step if found.who == "operator" else _ROOM if found.shortage else ITSELF,
        found.causes,
        found.shortage,
        tried_again=True,
    )


_ROOM = Text(
    gettext_noop("Release something in this project; it starts by itself when there is room. Or cancel it.")
)


def _intent(pull: ModelPull, row: Slice) -> Intent:
    return Intent(
        slice_id=row.public_id,
        app=pull.job_name,
        namespace=row.project.namespace,
        wanted="run",
        action=pull.action,
        action_code="",
        action_message="",
        action_policy="",
        ordered_at=pull.created_at,
        device_class="",
        package_label="",
        has_volume=False,
        has_port=False,
        generation=pull.generation,
    )


def _ended(pull: ModelPull, row: Slice) -> PullStatus:
    ending = _ending(pull, pull.outcome)
    state = pull.outcome if pull.outcome in ("cancelled", "unknown") else "done" if ending.good else "failed"
    mend = ending.mend(pull)
    causes: tuple[Text, ...] = ()
    if pull.tries > 1 and not ending.good:
        causes = (Text(gettext_noop("It was tried %(n)s times."), {"n": Count(pull.tries)}),)
    return PullStatus(pull, row, state, pull.outcome, ending.text(pull, row), mend, causes)


def _ending(pull: ModelPull, outcome: str) -> Ending:
    return ENDINGS.get((pull.mode, outcome)) or ENDINGS.get(("", outcome)) or ENDINGS["", "failed"]
