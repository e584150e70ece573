"""Why a slice is as it is: a pure function of what is wanted and what was seen.

`explain` gives a state of `STATES`, a finer reason, a sentence, who can act and what to do next. Nothing in a sentence
names a server, a device or another tenant (contract, "Discretion"): the platform's words pass `gpu.redact`.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from gpu.diagnosis import action, container, scheduling
from gpu.diagnosis.crashes import failed_pod
from gpu.diagnosis.model import STATES, Degraded, Diagnosis, Intent, Seen, StateInfo, Step
from gpu.diagnosis.steps import steps
from gpu.diagnosis.view import View, deleting, holds, status, view
from gpu.diagnosis.volumes import Volume, explain_volume
from gpu.messages import Moment, Text, gettext_noop

__all__ = [
    "STATES",
    "Degraded",
    "Diagnosis",
    "Intent",
    "Seen",
    "StateInfo",
    "Step",
    "Volume",
    "explain",
    "explain_volume",
]

PATIENCE = timedelta(minutes=5)
_QUICK = ("queued", "accepted", "pod_coming", "claim_coming", "scheduling", "container_creating", "replacing")
_ENDED = ("released", "refused")
_SETTLED = ("running", "running_degraded")


def explain(intent: Intent, seen: Seen, now: datetime) -> Diagnosis:
    """Say where a slice stands at `now`, from its intent and what was last seen of the cluster."""
    found = view(intent, seen)
    if intent.wanted == "stop":
        diagnosis = action.stopping(intent, found)
    elif intent.wanted == "release":
        diagnosis = action.releasing(intent, found)
    else:
        diagnosis = _wanted_running(intent, found, seen, now)
        diagnosis = replace(diagnosis, steps=steps(intent, found, diagnosis.state))
        diagnosis = _limited(intent, _overdue(diagnosis, now))
    diagnosis = action.held_up(intent, diagnosis, now)
    if diagnosis.state in _SETTLED:
        diagnosis = replace(diagnosis, settled=intent.action == "applied")
    if not seen.reachable and not (diagnosis.state in _ENDED and diagnosis.settled):
        diagnosis = _unreachable(intent, diagnosis, seen)
    return diagnosis


def _overdue(diagnosis: Diagnosis, now: datetime) -> Diagnosis:
    """What takes seconds as a rule and has taken minutes is an operator's matter, though nothing says why."""
    since = diagnosis.since
    if diagnosis.reason not in _QUICK or since is None or now - since < PATIENCE:
        return diagnosis
    mend = Text(gettext_noop("It takes unusually long. An operator of the platform must look at it."))
    return replace(diagnosis, who="operator", next_step=mend)


def _limited(intent: Intent, diagnosis: Diagnosis) -> Diagnosis:
    """A slice that serves, but not as it was ordered: on the CPU, or with its context cut."""
    found = intent.degraded
    if diagnosis.state != "running" or found is None:
        return diagnosis
    return replace(
        diagnosis,
        state="running_degraded",
        reason=found.reason,
        sentence=found.sentence,
        who="operator" if found.operator else "member",
        next_step=found.mend,
    )


def _wanted_running(intent: Intent, found: View, seen: Seen, now: datetime) -> Diagnosis:
    deployment = found.deployment
    if deployment is None or deleting(deployment):
        if intent.action == "refused":
            return action.refused(intent, found)
        if intent.action == "needs_operator":
            return action.needs_operator(intent, found)
        if intent.action in ("pending", "retrying"):
            return action.sending(intent)
        return action.not_seen(intent, seen.as_of, now)
    if intent.action in ("pending", "retrying") and (deployment.get("spec") or {}).get("replicas") == 0:
        return replace(action.sending(intent), since=None)
    present = _in_the_cluster(found, now)
    return replace(present, causes=(*present.causes, *action.unsent_change(intent, found)))


def _in_the_cluster(found: View, now: datetime) -> Diagnosis:
    assert found.deployment is not None  # noqa: S101  asked by the caller
    pod = found.pod
    if pod is None:
        return scheduling.no_pod(found, found.deployment)
    # A server that fell silent keeps its pod and the slice: whatever the new pod says, that is the cause.
    silent = next((former for former in (*found.former, pod) if container.node_lost(former)), None)
    if silent is not None and not holds(pod, "Ready"):
        return container.lost(found, silent)
    if deleting(pod):
        return scheduling.replacing(pod)
    if status(pod).get("phase") in ("Failed", "Succeeded"):
        # Its successor may be refused: then that is the reason, not how the old one ended.
        present = scheduling.no_pod(found, found.deployment)
        return failed_pod(pod) if present.reason == "pod_coming" else present
    if not scheduling.is_scheduled(pod):
        return scheduling.unscheduled(found, pod, now)
    return container.scheduled(found, pod, now)


def _unreachable(intent: Intent, last: Diagnosis, seen: Seen) -> Diagnosis:
    """What was known last, while the cluster does not answer."""
    label = Text(STATES[last.state].label)
    if seen.as_of is None:
        sentence = Text(gettext_noop("The cluster does not answer, and nothing has been seen of it yet."))
    else:
        sentence = Text(
            gettext_noop("The cluster does not answer. Last known at %(at)s: %(last)s."),
            {"at": Moment(seen.as_of), "last": label},
        )
    unsent = intent.action in ("pending", "retrying")
    return replace(
        last,
        state="cluster_unreachable",
        reason=last.state,
        sentence=sentence,
        who="operator",
        next_step=Text(
            gettext_noop("What was ordered is kept, and the portal sends it once the cluster answers.")
        )
        if unsent
        else Text(gettext_noop("A slice that runs keeps running. An operator must look at the cluster.")),
        platform_term="",
        since=seen.as_of,
        causes=(),
        shortage=None,
        settled=False,
    )
