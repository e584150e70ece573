"""Why a pod or its claim is not made: what the platform's refusals mean for the person who ordered."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime
from decimal import Decimal

from gpu import refusals
from gpu.diagnosis.model import Diagnosis
from gpu.diagnosis.view import View, detail
from gpu.headroom import Shortage, amount, headroom, parse_quota
from gpu.messages import Count, Text, gettext_noop
from gpu.quantities import QuantityError
from gpu.shortages import overdrawn

# Quota key -> reason and sentence. A sentence for each, since no language can put them together from parts.
_BLOCKED = {
    "requests.cpu": (
        "quota_cpu",
        gettext_noop(
            "The project has too little CPU left: %(needed)s needed, %(left)s left, %(short)s missing."
        ),
    ),
    "limits.cpu": (
        "quota_cpu_limit",
        gettext_noop(
            "The project has too little CPU limit left: %(needed)s needed, %(left)s left, %(short)s missing."
        ),
    ),
    "requests.memory": (
        "quota_memory",
        gettext_noop(
            "The project has too little memory left: %(needed)s needed, %(left)s left, %(short)s missing."
        ),
    ),
    "limits.memory": (
        "quota_memory_limit",
        gettext_noop(
            "The project has too little memory limit left: %(needed)s needed, %(left)s left, %(short)s missing."
        ),
    ),
    "requests.storage": (
        "quota_storage",
        gettext_noop(
            "The project has too little storage left: %(needed)s needed, %(left)s left, %(short)s missing."
        ),
    ),
    "pods": (
        "quota_pods",
        gettext_noop(
            "The project may not run more pods: %(needed)s needed, %(left)s left, %(short)s missing."
        ),
    ),
    "persistentvolumeclaims": (
        "quota_volumes",
        gettext_noop(
            "The project may not have more volumes: %(needed)s needed, %(left)s left, %(short)s missing."
        ),
    ),
}
_BLOCKED_OTHER = gettext_noop(
    "The project's quota for %(key)s is used up: %(needed)s needed, %(left)s left, %(short)s missing."
)
_MISSING_VALUE = {
    "requests.cpu": gettext_noop("The CPU request is missing, and the project's quota asks for one."),
    "limits.cpu": gettext_noop("The CPU limit is missing, and the project's quota asks for one."),
    "requests.memory": gettext_noop("The memory request is missing, and the project's quota asks for one."),
    "limits.memory": gettext_noop("The memory limit is missing, and the project's quota asks for one."),
}
_OUT_OF_RANGE = {
    ("maximum", "cpu"): gettext_noop(
        "%(asked)s is more CPU than one container may have in this project: at most %(allowed)s."
    ),
    ("maximum", "memory"): gettext_noop(
        "%(asked)s is more memory than one container may have in this project: at most %(allowed)s."
    ),
    ("minimum", "cpu"): gettext_noop(
        "%(asked)s is less CPU than one container must have in this project: at least %(allowed)s."
    ),
    ("minimum", "memory"): gettext_noop(
        "%(asked)s is less memory than one container must have in this project: at least %(allowed)s."
    ),
}
_OBJECT = re.compile(r'^(?:Error creating: )?\S+ "[^"]*" is forbidden: ')
SMALLER = Text(
    gettext_noop("Ask for less or release something in this project; an owner can request a larger quota.")
)
_SET_VALUES = Text(gettext_noop("Change the slice and fill in CPU and memory, each with request and limit."))
_OTHER_SIZE = Text(gettext_noop("Change the slice's CPU and memory to what the project allows."))
_RELEASE = Text(
    gettext_noop("Release or stop one of the project's slices, or let an owner request a larger entitlement.")
)
_TELL_OPERATOR = Text(
    gettext_noop(
        "An operator of the platform must look at it. Show them this sentence and the policy's name."
    )
)
_TRIED_AGAIN = Text(
    gettext_noop(
        "The platform tries again within a quarter of an hour. Restart the slice, and it tries at once."
    )
)


def refused(view: View, message: str, since: datetime | None, term: str) -> Diagnosis:
    """What it means that the platform refused to make a pod or a claim with `message`."""
    found = refusals.read(message)
    match found:
        case refusals.QuotaExceeded():
            if room_again(view, found):
                return tried_again(since, term)
            return quota_exceeded(view, found, since, term)
        case refusals.ValuesMissing():
            return values_missing(found, since, term)
        case refusals.QuotaNotCounted():
            return Diagnosis(
                "ordered",
                "quota_not_counted",
                Text(
                    gettext_noop("The cluster has not yet counted the quota %(quota)s."),
                    {"quota": found.quota},
                ),
                platform_term=term,
                since=since,
            )
        case refusals.OutsideLimitRange():
            return outside_limit_range(found, since, term)
        case refusals.PolicyDenied():
            return policy_denied(found, since, term)
        case refusals.PodSecurityDenied():
            return Diagnosis(
                "blocked_by_policy",
                "pod_security",
                Text(
                    gettext_noop("The project's pod security level %(level)s refuses it: %(violations)s"),
                    {"level": found.level, "violations": detail(found.violations)},
                ),
                "operator",
                _TELL_OPERATOR,
                term,
                since,
            )
    return Diagnosis(
        "blocked_by_policy",
        "creation_failed",
        Text(
            gettext_noop("The platform cannot make its container: %(detail)s"),
            {"detail": detail(_OBJECT.sub("", message))},
        ),
        "operator",
        Text(gettext_noop("An operator of the platform must look at it.")),
        term,
        since,
    )


def room_again(view: View, found: refusals.QuotaExceeded) -> bool:
    """Whether what was refused would fit by now: the quota was raised or something was released since."""
    try:
        rooms = headroom(parse_quota(quota) for quota in view.quotas)
    except QuantityError:
        return False
    lefts = [(each, rooms[each.key].left) for each in found.shortfalls if each.key in rooms]
    return (
        bool(lefts)
        and len(lefts) == len(found.shortfalls)
        and all(left is not None and each.requested <= left for each, left in lefts)
    )


def tried_again(since: datetime | None, term: str) -> Diagnosis:
    """There is room again, and the platform, which waits longer and longer, has not noticed yet."""
    return Diagnosis(
        "ordered",
        "room_again",
        Text(gettext_noop("There was too little quota, and now there is enough.")),
        "nobody",
        _TRIED_AGAIN,
        term,
        since,
    )


def quota_exceeded(view: View, found: refusals.QuotaExceeded, since: datetime | None, term: str) -> Diagnosis:
    """The dimension that is short, an entitlement before all others; the rest are second causes."""
    shortfalls = sorted(found.shortfalls, key=lambda each: refusals.device_class(each.key) is None)
    if not shortfalls:
        sentence = Text(gettext_noop("The project's quota %(quota)s is used up."), {"quota": found.quota})
        return Diagnosis("blocked_by_quota", "quota_unknown", sentence, "member", SMALLER, term, since)
    first, *others = shortfalls
    left = max(first.left, Decimal(0))
    shortage = Shortage(first.key, first.requested, left, first.short_by, found.quota)
    if refusals.device_class(first.key) is not None:
        main = Diagnosis(
            "entitlement_used_up",
            "entitlement",
            Text(
                gettext_noop("The entitlement for %(package)s is used up: %(used)s of %(hard)s are in use."),
                {
                    "package": view.intent.package_label,
                    "used": Count(int(first.used)),
                    "hard": Count(int(first.limited)),
                },
            ),
            "owner",
            _RELEASE,
        )
    else:
        reason, sentence = _short(first)
        main = Diagnosis("blocked_by_quota", reason, sentence, "member", SMALLER)
    causes = tuple(_short(each)[1] for each in others)
    return replace(main, platform_term=term, since=since, causes=causes, shortage=shortage)


def _short(shortfall: refusals.Shortfall) -> tuple[str, Text]:
    reason, msgid = _BLOCKED.get(shortfall.key, ("quota_other", _BLOCKED_OTHER))
    params: dict[str, object] = {
        "needed": amount(shortfall.key, shortfall.requested),
        "left": amount(shortfall.key, max(shortfall.left, Decimal(0))),
        "short": amount(shortfall.key, shortfall.short_by, round_up=True),
    }
    if msgid is _BLOCKED_OTHER:
        params["key"] = shortfall.key
    over = overdrawn(shortfall.key, shortfall.requested, shortfall.short_by)
    return reason, over or Text(msgid, params)


def values_missing(found: refusals.ValuesMissing, since: datetime | None, term: str) -> Diagnosis:
    """A compute quota holds and the container does not say what it needs: no shortage."""
    other = gettext_noop("A value is missing that the project's quota %(quota)s asks for: %(keys)s.")
    texts = [Text(_MISSING_VALUE[key]) for key in found.keys if key in _MISSING_VALUE]
    texts = texts or [Text(other, {"quota": found.quota, "keys": ", ".join(found.keys)})]
    return Diagnosis(
        "blocked_by_policy",
        "values_missing",
        texts[0],
        "member",
        _SET_VALUES,
        term,
        since,
        causes=tuple(texts[1:]),
    )


def outside_limit_range(found: refusals.OutsideLimitRange, since: datetime | None, term: str) -> Diagnosis:
    """The project's LimitRange refuses the size."""
    msgid = _OUT_OF_RANGE.get((found.bound, found.resource))
    if msgid is not None and found.asked is not None:
        sentence = Text(
            msgid,
            {
                "asked": amount(found.resource, found.asked),
                "allowed": amount(found.resource, found.allowed),
            },
        )
    else:
        allowed = found.allowed if found.bound == "ratio" else amount(found.resource, found.allowed)
        sentence = Text(
            gettext_noop("The project's limits do not allow its %(resource)s (%(bound)s %(allowed)s)."),
            {"resource": found.resource, "bound": found.bound, "allowed": allowed},
        )
    return Diagnosis("blocked_by_policy", "limit_range", sentence, "member", _OTHER_SIZE, term, since)


def policy_denied(found: refusals.PolicyDenied, since: datetime | None, term: str) -> Diagnosis:
    """An admission policy refuses the pod: the portal's order and the platform's rules do not agree."""
    params: dict[str, object] = {"policy": found.policy}
    if found.backend_only:
        reason, sentence = "backend_only", BACKEND_ONLY
    elif found.sentence:
        reason = "pod_policy"
        sentence = gettext_noop("The platform refuses its container: “%(detail)s” (policy %(policy)s).")
        params["detail"] = detail(found.sentence)
    elif found.missing_key:
        reason = "policy_misses_key"
        sentence = gettext_noop("The platform's policy %(policy)s finds no %(key)s in the order.")
        params["key"] = detail(found.missing_key)
    else:
        reason = "policy_failed"
        sentence = gettext_noop("A rule of the platform's policy %(policy)s could not be evaluated.")
    return Diagnosis(
        "blocked_by_policy", reason, Text(sentence, params), "operator", _TELL_OPERATOR, term, since
    )


BACKEND_ONLY = gettext_noop(
    "The platform does not yet let the portal write GPU workloads: its policy %(policy)s does not name the portal."
)
