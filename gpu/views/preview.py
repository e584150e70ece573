"""The right column of the order form: an assessment in words and figures for the page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from gpu import wording
from gpu.assess import Assessment
from gpu.contract import Finding
from gpu.headroom import amount
from gpu.manifest_yaml import to_yaml
from gpu.messages import Count, Text
from gpu.order_errors import OrderRefused
from gpu.order_rules import findings_of, refuse_assessment
from gpu.shortages import resource_name

TITLES = {
    "starts": (gettext_noop("It will start at once"), "green", "circle-check"),
    "waits_for_card": (gettext_noop("It will wait for a free card"), "amber", "hourglass"),
    "waits_for_pool": (gettext_noop("It will wait for room in the project"), "amber", "hourglass"),
    "over_entitlement": (gettext_noop("The entitlement is used up"), "red", "ban"),
    "refused": (gettext_noop("The platform would refuse it"), "red", "shield-off"),
    "unknown": (gettext_noop("Whether it starts at once is not known"), "grey", "help-circle"),
}


@dataclass(frozen=True)
class PoolChange:
    """One dimension before and after the order, as text and as figures for the bar (base units)."""

    label: str
    before: str
    after: str
    hard: str
    used: Decimal
    new: Decimal
    limit: Decimal
    short: bool
    quota: str


@dataclass(frozen=True)
class Advice:
    """A finding with its mend; `value` is what a button would put into `field`, `place` the field it is about."""

    sentence: str
    mend: str
    field: str
    value: str
    refused: bool
    place: str


@dataclass(frozen=True)
class Preview:
    """What the page says before anybody orders."""

    judged: Assessment
    title: str
    colour: str
    icon: str
    sentence: str
    price_hour: str
    pool: tuple[PoolChange, ...]
    advice: tuple[Advice, ...]
    yaml: str
    button: str

    @property
    def entitled_after(self) -> int:
        """Slices in use once this one is ordered."""
        return self.judged.holding.used + 1

    @property
    def new_cells(self) -> int:
        """Cells of the bar that the order takes: one, where one is left."""
        return min(1, self.judged.holding.left)


def preview(judged: Assessment, field_of: dict[str, str] | None = None) -> Preview:
    """Return the words for an assessment; `field_of` maps places of findings to fields of the form."""
    title, colour, icon = TITLES[judged.verdict]
    package = judged.package
    price = wording.money(package.price_per_hour, package.currency)
    findings = (*judged.findings, *findings_of(judged.objections))
    # The fields and the documents are both checked; the same sentence is said once, with its button if it has one.
    advice = sorted((_advice(finding, field_of or {}) for finding in findings), key=lambda item: item.field)
    return Preview(
        judged=judged,
        title=_(title),
        colour=colour,
        icon=icon,
        sentence=_sentence(judged),
        price_hour=price,
        pool=tuple(_pool(judged)),
        advice=tuple({item.sentence: item for item in advice}.values()),
        yaml=to_yaml(judged.documents) if judged.documents else "",
        button=_("Order and wait in the queue")
        if judged.needs_consent
        else _("Order for %(price)s an hour") % {"price": price},
    )


def _sentence(judged: Assessment) -> str:
    try:
        refuse_assessment(judged, allow_queue=False)
    except OrderRefused as refusal:
        if refusal.fields:  # said below, at the field
            return ""
        return f"{wording.render(refusal.sentence)} {wording.render(refusal.next_step)}"
    if judged.capacity is None:
        return _("The cards have not been seen yet.")
    return wording.render(
        Text(
            gettext_noop("On the cards, %(free)s of %(total)s slices of this size are free."),
            {"free": Count(judged.capacity.free), "total": Count(judged.capacity.total)},
        )
    )


def _pool(judged: Assessment) -> Iterator[PoolChange]:
    short = {item.key for item in judged.shortages}
    for key, needed in judged.demand.items():
        room = judged.rooms.get(key)
        if room is None or room.hard is None or "deviceclass" in key:
            continue
        used = room.used if room.used is not None else Decimal(0)
        known = room.used is not None
        yield PoolChange(
            label=wording.render(resource_name(key)),
            before=_amount(key, used + judged.given_back.get(key, Decimal(0))) if known else _("unknown"),
            after=_amount(key, used + needed) if known else _("unknown"),
            hard=_amount(key, room.hard),
            used=used,
            new=needed,
            limit=room.hard,
            short=key in short,
            quota=room.binding or "",
        )


def _amount(key: str, value: Decimal) -> str:
    return wording.render(Text("%(amount)s", {"amount": amount(key, value)}))


def _advice(finding: Finding, field_of: dict[str, str]) -> Advice:
    return Advice(
        sentence=wording.render(finding.sentence),
        mend=wording.render(finding.mend) if finding.mend.msgid else "",
        field=field_of.get(finding.place, "") if finding.suggest else "",
        value=finding.suggest or "",
        refused=finding.level == "refused",
        place=field_of.get(finding.place, ""),
    )
