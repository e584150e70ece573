"""Sentences for the reader: translates a `Text` and formats its typed parameters in the active language."""

from __future__ import annotations

from decimal import Decimal

from django.utils import formats, timezone
from django.utils.translation import gettext

from gpu import quantities
from gpu.messages import Count, Cpu, Memory, Moment, Names, Text


def number(value: Decimal | int, places: int | None = None) -> str:
    """Return a number with the reader's decimal mark, without needless zeros unless `places` is given."""
    if places is None and isinstance(value, Decimal):
        value = value.normalize() if value != value.to_integral_value() else Decimal(int(value))
    return str(
        formats.number_format(f"{value:f}" if isinstance(value, Decimal) else value, decimal_pos=places)
    )


def cpu(cores: Decimal) -> str:
    """Return cores with unit: `0.7 CPU`, German `0,7 CPU`."""
    return f"{number(Decimal(quantities.format_cpu(cores)))} CPU"


def memory(amount: Decimal | int, *, round_up: bool = False) -> str:
    """Return bytes with unit: `1.88 GiB`, German `1,88 GiB`."""
    figure, unit = quantities.format_memory(amount, round_up=round_up).split(" ")
    return f"{number(Decimal(figure))} {unit}"


def money(amount: Decimal, currency: str, places: int = 2) -> str:
    """Return an amount of money in the reader's format: `0.35 EUR`, German `0,35 EUR`."""
    exact = amount.normalize().as_tuple().exponent
    digits = max(places, min(4, -exact)) if isinstance(exact, int) else places
    return (
        f"{formats.number_format(amount, decimal_pos=digits, use_l10n=True, force_grouping=True)} {currency}"
    )


def render(text: Text) -> str:
    """Return `text` in the active language with its parameters formatted for the reader."""
    translated = gettext(text.msgid)
    return (
        translated % {key: _shown(value) for key, value in text.params.items()} if text.params else translated
    )


def _shown(value: object) -> str:
    match value:
        case Text():
            return render(value)
        case Cpu(millicores):
            return cpu(millicores / 1000)
        case Memory(amount, round_up):
            return memory(amount, round_up=round_up)
        case Count(count):
            return number(count)
        case Names(values, most):
            listed = ", ".join(gettext("“%(name)s”") % {"name": name} for name in values[:most])
            return (listed or "–") + (" …" if len(values) > most else "")
        case Moment(at):
            return formats.date_format(timezone.localtime(at), "DATETIME_FORMAT")
        case Decimal():
            return number(value)
        case _:
            return str(value)
