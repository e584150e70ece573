"""The sentences of an order's refusals, in the order in which they are checked."""

from __future__ import annotations

from collections.abc import Sequence

from gpu.assess import Assessment
from gpu.contract import Finding
from gpu.headroom import Objection, amount
from gpu.messages import Count, Names, Text, gettext_noop
from gpu.models import Package, Slice
from gpu.order_errors import InvalidOrder, OrderRefused
from gpu.shortages import overdrawn, resource_name

CONSENT_MENDS = ("queue_consent_needed", "pool_short")
"""The refusals that agreeing to wait in the queue lifts."""


def refuse_assessment(judged: Assessment, *, allow_queue: bool, own_slice: bool = False) -> None:
    """Raise what forbids the order; return when it may be sent.

    With `own_slice` the slice is held already (a change), so that its entitlement is not asked again.
    """
    if judged.refused or judged.objections or judged.never_fits:
        raise _invalid(judged)
    if not own_slice and judged.holding.left < 1:
        raise over_entitlement(judged)
    if judged.shortages and not allow_queue:
        raise _pool_short(judged)
    if judged.verdict == "waits_for_card" and not own_slice and not allow_queue:
        raise OrderRefused(
            "queue_consent_needed",
            Text(gettext_noop("All cards of this type are busy; the slice would wait in the queue.")),
            Text(gettext_noop("Tick “wait in the queue”, or order another size.")),
        )


def _invalid(judged: Assessment) -> InvalidOrder:
    findings = judged.refused
    if findings:
        return InvalidOrder("invalid", findings[0].sentence, findings[0].mend, fields=findings)
    if judged.objections:
        first = judged.objections[0]
        return InvalidOrder("limit_range", first.sentence, first.mend, fields=findings_of(judged.objections))
    short = judged.never_fits[0]
    hard = judged.rooms[short.key].hard or short.left
    return InvalidOrder(
        "larger_than_pool",
        Text(
            gettext_noop(
                "The order needs %(needed)s of %(what)s, more than the whole project may use: %(hard)s."
            ),
            {
                "needed": amount(short.key, short.needed),
                "what": resource_name(short.key),
                "hard": amount(short.key, hard),
            },
        ),
        Text(gettext_noop("Ask for less, or let an owner request a larger pool.")),
    )


def findings_of(objections: Sequence[Objection]) -> tuple[Finding, ...]:
    """Return a LimitRange's objections as findings at their fields."""
    return tuple(
        Finding(item.rule, item.field, item.sentence, item.mend, level="refused", by="platform")
        for item in objections
    )


def over_entitlement(judged: Assessment) -> OrderRefused:
    """The entitlement is used up: the holders are named."""
    held = judged.holding
    if held.entitled == 0:
        return OrderRefused(
            "not_entitled",
            Text(
                gettext_noop("This project has no entitlement for %(package)s."),
                {"package": judged.package.name},
            ),
            Text(gettext_noop("An owner can request one from the platform; the platform's admins set it.")),
            figures={"entitled": 0, "used": held.used},
        )
    return OrderRefused(
        "entitlement_used_up",
        Text(
            gettext_noop(
                "Your entitlement is used up: %(used)s of %(entitled)s × %(package)s, held by %(holders)s."
            ),
            {
                "used": Count(held.used),
                "entitled": Count(held.entitled),
                "package": judged.package.name,
                "holders": Names(tuple(holder.name for holder in held.holders)),
            },
        ),
        Text(gettext_noop("Release or stop one of them, or let an owner request more.")),
        holders=held.holders,
        figures={"entitled": held.entitled, "used": held.used},
    )


def _pool_short(judged: Assessment) -> OrderRefused:
    short = judged.shortages[0]
    return OrderRefused(
        "pool_short",
        overdrawn(short.key, short.needed, short.short_by)
        or Text(
            gettext_noop(
                "The project has not enough %(what)s left: %(needed)s needed, %(left)s left, %(short)s short "
                "(quota %(quota)s)."
            ),
            {
                "what": resource_name(short.key),
                "needed": amount(short.key, short.needed),
                "left": amount(short.key, short.left),
                "short": amount(short.key, short.short_by, round_up=True),
                "quota": short.binding or "–",
            },
        ),
        Text(
            gettext_noop(
                "Ask for less, release something, or tick “wait in the queue”: it starts when there is room."
            )
        ),
        figures={"key": short.key, "needed": short.needed, "left": short.left},
    )


def not_on_sale(package: Package) -> OrderRefused:
    """The package is not on sale."""
    return OrderRefused(
        "not_on_sale",
        Text(gettext_noop("%(package)s is not on sale at present."), {"package": package.name}),
        Text(gettext_noop("Choose another package.")),
    )


def key_of_somebody_else() -> OrderRefused:
    """The operation key belongs to another person or project (case C-17)."""
    return OrderRefused(
        "operation_key_taken",
        Text(gettext_noop("This form was made for another person or project.")),
        Text(gettext_noop("Open the order page again and order from there.")),
    )


def wrong_state(row: Slice) -> OrderRefused:
    """The slice's state forbids the action."""
    if row.ended_at is not None:
        sentence = Text(gettext_noop("“%(name)s” has ended."), {"name": row.display_name})
        mend = Text(gettext_noop("Order a new slice."))
    elif row.intent == Slice.Intent.RELEASE:
        sentence = Text(gettext_noop("“%(name)s” is being given back."), {"name": row.display_name})
        mend = Text(gettext_noop("Order a new slice."))
    else:
        sentence = Text(gettext_noop("“%(name)s” is stopped."), {"name": row.display_name})
        mend = Text(gettext_noop("Start it first."))
    return OrderRefused("wrong_state", sentence, mend)
