"""A slice without a running container: no pod yet, no claim yet, no card yet, no server yet."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime

from gpu import refusals
from gpu.diagnosis import creation, volumes
from gpu.diagnosis.model import Diagnosis, Object
from gpu.diagnosis.view import (
    View,
    condition,
    created,
    deleting,
    detail,
    event_message,
    event_time,
    moment,
    status,
)
from gpu.messages import Text, gettext_noop

# What the scheduler says, in the order in which it decides what a person is told first.
_PHRASES = (
    ("cards_busy", re.compile(r"cannot allocate all claims")),
    ("volume_missing", re.compile(r'persistentvolumeclaim "[^"]*" not found')),
    ("volume_unbound", re.compile(r"unbound immediate PersistentVolumeClaims")),
    ("volume_unbound", re.compile(r"didn't find available persistent volumes to bind")),
    ("volume_elsewhere", re.compile(r"volume node affinity conflict")),
    ("node_cpu", re.compile(r"Insufficient cpu")),
    ("node_memory", re.compile(r"Insufficient memory")),
    ("node_disk", re.compile(r"Insufficient ephemeral-storage")),
    ("node_pods", re.compile(r"Too many pods")),
    ("node_taint", re.compile(r"untolerated taint")),
    ("node_cordoned", re.compile(r"were unschedulable")),
    ("node_mismatch", re.compile(r"didn't match Pod's node affinity|didn't match (?:node selector|pod)")),
    ("no_nodes", re.compile(r"no nodes available")),
)
_SENTENCES = {
    "cards_busy": gettext_noop(
        "All cards of this type are taken; the slice starts by itself when one is free."
    ),
    "volume_missing": gettext_noop("Its volume is gone from the cluster."),
    "volume_unbound": gettext_noop("Its volume is not ready yet."),
    "volume_elsewhere": gettext_noop("Its volume is bound to a server that cannot take the slice."),
    "node_cpu": gettext_noop("No server has enough free CPU for it."),
    "node_memory": gettext_noop("No server has enough free memory for it."),
    "node_disk": gettext_noop("No server has enough free disk for it."),
    "node_pods": gettext_noop("No server may run more containers."),
    "node_taint": gettext_noop("The servers that could take it do not answer or are kept free."),
    "node_cordoned": gettext_noop("The servers that could take it are in maintenance."),
    "node_mismatch": gettext_noop("No server is of the kind it asks for."),
    "no_nodes": gettext_noop("The cluster has no server at all at the moment."),
}
_ALSO = {
    "node_cpu": gettext_noop("Some servers also have too little free CPU."),
    "node_memory": gettext_noop("Some servers also have too little free memory."),
    "node_disk": gettext_noop("Some servers also have too little free disk."),
    "node_pods": gettext_noop("Some servers may not run more containers."),
    "node_taint": gettext_noop("Some servers do not answer or are kept free."),
    "node_cordoned": gettext_noop("Some servers are in maintenance."),
    "node_mismatch": gettext_noop("Some servers are of another kind."),
}
_OTHER_CARD = Text(gettext_noop("Nothing: it waits in the queue. You can also order another size."))
_OPERATOR = Text(gettext_noop("An operator of the platform must look at the servers."))
_OPERATOR_OR_SMALLER = Text(
    gettext_noop("Ask for less CPU or memory, or let an operator of the platform look at the servers.")
)


def no_pod(view: View, deployment: Object) -> Diagnosis:
    """The Deployment is there and no pod is: what the controllers were refused, or that they are at it."""
    found = _failed_create(view, deployment)
    if found is not None:
        message, since = found
        return creation.refused(view, message, since, "FailedCreate")
    since = created(view.replica_set or deployment)
    return Diagnosis(
        "ordered",
        "pod_coming",
        Text(gettext_noop("The cluster has accepted the order and is making its container.")),
        platform_term="Progressing",
        since=since,
    )


def _failed_create(view: View, deployment: Object) -> tuple[str, datetime | None] | None:
    """The text and time of the present refusal to make a pod, of the newest ReplicaSet alone."""
    replica_set = view.replica_set
    told = _replica_failure(replica_set)
    if told is None:
        told = _replica_failure(deployment)
        # The Deployment's condition may still be that of the ReplicaSet before.
        if told is not None and replica_set is not None:
            told = told if f'"{replica_set["metadata"]["name"]}-' in str(told.get("message")) else None
    event = replica_set and view.last_reason(replica_set, "FailedCreate", "SuccessfulCreate")
    if event is not None and event.get("reason") == "SuccessfulCreate":
        event = None
    if told is not None:
        # The condition keeps its first text; an event may know better what it is refused for by now.
        message = event_message(event) if event is not None else str(told.get("message") or "")
        return message, moment(told.get("lastTransitionTime"))
    return None if event is None else (event_message(event), event_time(event))


def _replica_failure(obj: Object | None) -> Object | None:
    told = None if obj is None else condition(obj, "ReplicaFailure")
    failing = told is not None and told.get("status") == "True" and told.get("reason") == "FailedCreate"
    return told if failing else None


def unscheduled(view: View, pod: Object, now: datetime) -> Diagnosis:
    """The pod exists and has no server yet."""
    told = condition(pod, "PodScheduled")
    claims = [claim for claim in view.claims_of(pod) if not deleting(claim)]
    if not claims and (told is None or told.get("status") != "False"):
        return _without_claim(view, pod)
    if told is None or told.get("status") != "False":
        return Diagnosis(
            "ordered",
            "scheduling",
            Text(gettext_noop("The platform is looking for a card.")),
            platform_term="Pending",
            since=created(pod),
        )
    return _unschedulable(view, told, now)


def _without_claim(view: View, pod: Object) -> Diagnosis:
    event = view.last_reason(pod, "FailedResourceClaimCreation")
    term = "Pending: FailedResourceClaimCreation"
    if event is None:
        return Diagnosis(
            "ordered",
            "claim_coming",
            Text(gettext_noop("The cluster has accepted the order and is claiming the slice.")),
            platform_term="Pending",
            since=created(pod),
        )
    message = event_message(event)
    held = any(deleting(former) for former in view.former) or len(view.claims) > len(view.claims_of(pod))
    if held and isinstance(refusals.read(message), refusals.QuotaExceeded):
        return replacing(pod)
    if message.rstrip().endswith("not found"):
        return Diagnosis(
            "missing",
            "claim_template_missing",
            Text(gettext_noop("The template of its claim is gone from the cluster without our doing.")),
            "operator",
            Text(
                gettext_noop(
                    "The portal puts it back by itself. If it does not, an operator must look at it."
                )
            ),
            term,
            created(pod),
        )
    return creation.refused(view, message, created(pod), term)


def replacing(pod: Object) -> Diagnosis:
    """The former container still holds the slice; the new one gets it when that has ended."""
    return Diagnosis(
        "starting",
        "replacing",
        Text(gettext_noop("The former container is being ended; the new one starts after it.")),
        platform_term="Terminating",
        since=moment(pod["metadata"].get("deletionTimestamp")) or created(pod),
    )


def _unschedulable(view: View, told: Object, now: datetime) -> Diagnosis:
    message = str(told.get("message") or "")
    reason = str(told.get("reason") or "")
    since, term = moment(told.get("lastTransitionTime")), f"Pending: {reason}"
    # What the scheduler says of making room by preemption repeats the same phrases.
    said = message.partition("preemption:")[0]
    codes = list(dict.fromkeys(code for code, phrase in _PHRASES if phrase.search(said)))
    trouble = volumes.fault(view, now, term)
    if "cards_busy" in codes:
        causes = [Text(_ALSO[code]) for code in codes if code in _ALSO]
        causes += [Text(_SENTENCES[code]) for code in codes if code.startswith("volume") and trouble is None]
        if trouble is not None:
            causes.append(trouble.sentence)
        return Diagnosis(
            "waiting_for_card",
            "cards_busy",
            Text(_SENTENCES["cards_busy"]),
            "nobody",
            _OTHER_CARD,
            term,
            since,
            tuple(causes),
        )
    if trouble is not None:
        return replace(
            trouble, causes=tuple(Text(_SENTENCES[c]) for c in codes if not c.startswith("volume"))
        )
    if not codes or reason != "Unschedulable":
        code, sentence = (
            "unschedulable",
            Text(gettext_noop("The platform finds no server for it: %(detail)s"), {"detail": detail(said)}),
        )
        if reason == "SchedulingGated":
            code, sentence = "scheduling_gated", Text(gettext_noop("The platform holds it back for now."))
    else:
        code, sentence = codes[0], Text(_SENTENCES[codes[0]])
    causes = [Text(_SENTENCES[other]) for other in codes[1:]]
    if code.startswith("volume"):
        found = volumes.waiting(code, sentence, since, now, term, sure=code != "volume_unbound")
        return replace(found, causes=tuple(causes))
    mend = _OPERATOR_OR_SMALLER if code in ("node_cpu", "node_memory") else _OPERATOR
    return Diagnosis("waiting_for_node", code, sentence, "operator", mend, term, since, tuple(causes))


def is_scheduled(pod: Object) -> bool:
    """Whether the pod has been given a server."""
    told = condition(pod, "PodScheduled")
    return (told is not None and told.get("status") == "True") or bool(status(pod).get("containerStatuses"))
