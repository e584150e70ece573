"""What our own action has come to: sent, tried again, refused; and how stopping and releasing go on."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from gpu import refusals
from gpu.diagnosis import creation
from gpu.diagnosis.model import LATE, NOTHING_TO_DO, Diagnosis, Intent, Who
from gpu.diagnosis.view import View, detail, moment
from gpu.messages import Text, gettext_noop

GRACE = timedelta(seconds=30)
"""How long after our own action an object may be unseen before it counts as gone."""

CHANGE_REFUSED = "change_refused"
"""The action code of a slice whose last change the cluster refused, and which goes on as it was."""

_OPERATOR = Text(gettext_noop("An operator of the platform must look at it. Show them this sentence."))
_CHANGE_ORDER = Text(gettext_noop("Order again with other values, or ask an operator about this rule."))
_WAITS = Text(gettext_noop("Nothing: the portal tries again by itself."))

# Codes of gpu.cluster.errors that are tried again: reason and sentence.
_RETRIED = {
    "throttled": gettext_noop("The cluster is busy; the portal tries again by itself."),
    "server_fault": gettext_noop("The cluster has a fault of its own; the portal tries again by itself."),
    "conflict": gettext_noop(
        "Something else changed it at the same moment; the portal tries again by itself."
    ),
    "not_found": gettext_noop("An object of it is not there yet; the portal tries again by itself."),
    "unauthorized": gettext_noop("The cluster does not accept the portal's credentials."),
    "untrusted_certificate": gettext_noop("The cluster's certificate could not be verified."),
    "not_configured": gettext_noop("The portal does not know how to reach the cluster."),
    "quota_not_counted": gettext_noop("The cluster has not yet counted a new quota; the portal tries again."),
}
_UNREACHABLE = gettext_noop(
    "The cluster does not answer; nothing is lost, and the portal tries again by itself."
)
_RETRY_BY_OPERATOR = ("unauthorized", "untrusted_certificate", "not_configured")

# Codes of gpu.cluster.errors that end an order, where the platform's words alone do not tell.
_REFUSED: dict[str, tuple[str, Who]] = {
    "pod_security": (
        gettext_noop("The project's pod security does not allow the order: %(detail)s"),
        "member",
    ),
    "invalid_object": (gettext_noop("The cluster finds the order invalid: %(detail)s"), "member"),
    "worker_lost": (
        gettext_noop("The portal's worker broke off several times while it was sending this."),
        "operator",
    ),
    "volume_change": (gettext_noop("A volume can only grow: what it holds would not fit."), "member"),
    "volume_fixed": (gettext_noop("The storage does not let the volume be changed: %(detail)s"), "member"),
    "not_ours": (gettext_noop("An object of this name that is not the portal's is in the way."), "operator"),
    "immutable": (
        gettext_noop("The size of a slice cannot be changed in place: its old claim has to go first."),
        "operator",
    ),
    "forbidden": (
        gettext_noop("The portal's account may not do this in the cluster: %(detail)s"),
        "operator",
    ),
    "namespace_missing": (gettext_noop("The project's namespace does not exist in the cluster."), "operator"),
    "namespace_terminating": (
        gettext_noop("The project's namespace is being deleted in the cluster."),
        "operator",
    ),
    "not_served": (
        gettext_noop("The cluster lacks an interface that the portal needs: %(detail)s"),
        "operator",
    ),
    "conflict": (gettext_noop("An object of this name that is not the portal's is in the way."), "operator"),
}
_REFUSED_OTHER = gettext_noop("The cluster refused the order: %(detail)s")
_POLICY = gettext_noop(
    "Refused by the platform: “%(detail)s” (policy %(policy)s). There may be more faults than this one."
)
_POLICY_SILENT = gettext_noop(
    "Refused by the platform: a rule of its policy %(policy)s could not be evaluated."
)
_POLICY_MISSES = gettext_noop("Refused by the platform: its policy %(policy)s finds no %(key)s in the order.")


_STANDS_STILL = gettext_noop(
    "The portal's background work stands still: nobody has taken this up yet. Nothing is lost."
)
LOOK_AT_WORKER = Text(
    gettext_noop(
        "An operator of the platform must look at the portal's worker. It goes on by itself once that runs."
    )
)
_NOT_TAKEN_UP = (
    "not_taken_up",
    gettext_noop("The portal's background work is late: nobody has taken this up yet. Nothing is lost."),
    Text(
        gettext_noop(
            "It goes on by itself. If it lasts, an operator of the platform must look at the worker."
        )
    ),
)


def refused(intent: Intent, view: View) -> Diagnosis:
    """The cluster refused the order for good; the platform's own sentence, and nothing is tried again."""
    found = refusals.read(intent.action_message)
    term, since = "Invalid", intent.action_at
    if isinstance(found, refusals.QuotaExceeded):
        told = creation.quota_exceeded(view, found, since, "Forbidden: exceeded quota")
    elif isinstance(found, refusals.ValuesMissing):
        told = creation.values_missing(found, since, "Forbidden: failed quota")
    elif isinstance(found, refusals.OutsideLimitRange):
        told = creation.outside_limit_range(found, since, "Forbidden")
    elif isinstance(found, refusals.PolicyDenied) or _names_policy(intent):
        told = _refused_by_policy(intent, found if isinstance(found, refusals.PolicyDenied) else None)
    else:
        code = intent.action_code if intent.action_code in _REFUSED else "other"
        if "field is immutable" in intent.action_message:
            code = "immutable"
        msgid, who = _REFUSED.get(code, (_REFUSED_OTHER, "operator"))
        params: dict[str, object] = {"detail": detail(intent.action_message)} if "%(detail)s" in msgid else {}
        mend = _CHANGE_ORDER if who == "member" else _OPERATOR
        told = Diagnosis("refused", code, Text(msgid, params), who, mend, term, since)
    return replace(told, state="refused", settled=True)


def _names_policy(intent: Intent) -> bool:
    # For pod security the gateway gives the level in the policy's place.
    return bool(intent.action_policy) and intent.action_code != "pod_security"


def _refused_by_policy(intent: Intent, found: refusals.PolicyDenied | None) -> Diagnosis:
    # The gateway keeps the policy's sentence and name apart; the whole message is read where it kept that.
    policy = intent.action_policy or (found.policy if found else "")
    params: dict[str, object] = {"policy": policy}
    if (found is not None and found.backend_only) or intent.action_code == "managed_by_backend":
        return Diagnosis(
            "refused",
            "backend_only",
            Text(creation.BACKEND_ONLY, params),
            "operator",
            _OPERATOR,
            "Invalid",
            intent.action_at,
        )
    if found is None or found.sentence:
        sentence = found.sentence if found else intent.action_message
        reason, msgid, who = "policy", _POLICY, "member"
        params["detail"] = detail(sentence)
    elif found.missing_key:
        reason, msgid, who = "policy_misses_key", _POLICY_MISSES, "operator"
        params["key"] = detail(found.missing_key)
    else:
        reason, msgid, who = "policy_failed", _POLICY_SILENT, "operator"
    mend = _CHANGE_ORDER if who == "member" else _OPERATOR
    return Diagnosis(
        "refused",
        reason,
        Text(msgid, params),
        "member" if who == "member" else "operator",
        mend,
        "Invalid",
        intent.action_at,
    )


def needs_operator(intent: Intent, view: View) -> Diagnosis:
    """Our own action waits for an operator, with the platform's sentence where there is one."""
    told = refused(intent, view)
    return replace(told, state="blocked_by_policy", who="operator", next_step=_OPERATOR, settled=False)


def sending(intent: Intent) -> Diagnosis:
    """Nothing of the order is in the cluster yet: to be sent, or tried again after a failure of the cluster."""
    if intent.action != "retrying":
        return Diagnosis(
            "ordered",
            "queued",
            Text(gettext_noop("The order is being sent to the cluster.")),
            since=intent.ordered_at,
        )
    return Diagnosis(
        "ordered",
        f"retry_{intent.action_code}" if intent.action_code in _RETRIED else "retry_unreachable",
        retry_sentence(intent),
        "operator" if intent.action_code in _RETRY_BY_OPERATOR else "nobody",
        _OPERATOR if intent.action_code in _RETRY_BY_OPERATOR else _WAITS,
        since=intent.ordered_at,
    )


def retry_sentence(intent: Intent) -> Text:
    """Why our own action has not gone through yet."""
    return Text(_RETRIED.get(intent.action_code, _UNREACHABLE))


def unsent_change(intent: Intent, view: View) -> tuple[Text, ...]:
    """A second cause where the slice is in the cluster and a later change of it is not."""
    if intent.action == "retrying":
        return (retry_sentence(intent),)
    if intent.action in ("refused", "needs_operator") or intent.action_code == CHANGE_REFUSED:
        last = refused(intent, view).sentence
        return (Text(gettext_noop("The last change was not made. %(why)s"), {"why": last}),)
    return ()


def held_up(intent: Intent, told: Diagnosis, now: datetime) -> Diagnosis:
    """Say that no worker takes up our own action, where that is so: the portal's fault, and nothing is lost."""
    if intent.due_at is None or now - intent.due_at <= LATE or (intent.begun and not intent.idle):
        return told
    reason, msgid, mend = (
        ("work_stands_still", _STANDS_STILL, LOOK_AT_WORKER) if intent.idle else _NOT_TAKEN_UP
    )
    sentence = Text(msgid)
    if told.state in ("ordered", "stopping", "releasing"):
        return replace(
            told,
            reason=reason,
            sentence=sentence,
            who="operator",
            next_step=mend,
            platform_term="",
            since=intent.due_at,
        )
    unsent = Text(gettext_noop("What you asked for last is not sent yet. %(why)s"), {"why": sentence})
    return replace(told, causes=(*told.causes, unsent))


def not_seen(intent: Intent, as_of: datetime | None, now: datetime) -> Diagnosis:
    """Accepted by the cluster, and its Deployment is not among what was seen: too early to tell, or gone."""
    sent = intent.action_at or intent.ordered_at
    if as_of is None or as_of <= sent or now - sent < GRACE:
        return Diagnosis(
            "ordered", "accepted", Text(gettext_noop("The cluster has accepted the order.")), since=sent
        )
    return Diagnosis(
        "missing",
        "deployment_gone",
        Text(gettext_noop("It is gone from the cluster, and the portal did not delete it.")),
        "operator",
        Text(gettext_noop("The portal puts it back by itself. If it does not, an operator must look at it.")),
        "NotFound",
    )


def stopping(intent: Intent, view: View) -> Diagnosis:
    """Wanted stopped: as long as a pod or a claim is there, the slice is not given back."""
    if intent.action == "needs_operator":
        return _held_up(intent, view, "stopping")
    pods = (*((view.pod,) if view.pod else ()), *view.former)
    if pods:
        return _ending(
            intent,
            pods[0]["metadata"].get("deletionTimestamp"),
            "stopping",
            Text(gettext_noop("Its container is being ended.")),
        )
    if view.claims:
        return _ending(
            intent,
            None,
            "stopping",
            Text(gettext_noop("Its container has ended; the slice is about to be free.")),
            "claim_held",
        )
    if intent.action in ("pending", "retrying"):
        return _ending(intent, None, "stopping", Text(gettext_noop("It is being stopped.")))
    return Diagnosis(
        "stopped",
        "stopped",
        Text(gettext_noop("It is stopped and holds no slice; its settings and its volume are kept.")),
        "member",
        Text(gettext_noop("Start it when you need it; it may have to wait for a card.")),
        "Scaled to 0",
        settled=True,
    )


def releasing(intent: Intent, view: View) -> Diagnosis:
    """Wanted released: it is once nothing of it is left, its claim last."""
    gone = Diagnosis(
        "released",
        "released",
        Text(gettext_noop("It is given back.")),
        "nobody",
        Text(gettext_noop("Order a new one when you need it.")),
        settled=True,
    )
    if intent.action == "released":
        return gone
    if intent.action == "needs_operator":
        return _held_up(intent, view, "releasing")
    pods = (*((view.pod,) if view.pod else ()), *view.former)
    if pods:
        at = pods[0]["metadata"].get("deletionTimestamp")
        return _ending(intent, at, "releasing", Text(gettext_noop("Its container is being ended.")))
    if view.claims:
        sentence = Text(gettext_noop("Its container has ended; the slice is about to be free."))
        return _ending(intent, None, "releasing", sentence, "claim_held")
    if view.deployment is not None or view.leftovers or intent.action != "applied":
        return _ending(intent, None, "releasing", Text(gettext_noop("It is being taken down.")), "clearing")
    return gone


def _ending(
    intent: Intent, since: object, state: str, sentence: Text, reason: str = "container_ending"
) -> Diagnosis:
    retrying = intent.action == "retrying"
    by_operator = retrying and intent.action_code in _RETRY_BY_OPERATOR
    return Diagnosis(
        state,
        reason,
        sentence,
        "operator" if by_operator else "nobody",
        _OPERATOR if by_operator else NOTHING_TO_DO,
        "Terminating",
        moment(since),
        (retry_sentence(intent),) if retrying else (),
    )


def _held_up(intent: Intent, view: View, state: str) -> Diagnosis:
    told = refused(intent, view)
    return replace(
        told, state=state, reason=f"held_up_{told.reason}", who="operator", next_step=_OPERATOR, settled=False
    )
