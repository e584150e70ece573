"""Kubernetes quantities, exact: parsing, the API server's canonical form, and figures for people.

Values are `Decimal` in base units (cores, bytes, things). Nothing here passes through binary floating point,
so "0.1" three times is "0.3". Grammar and canonical form are those of apimachinery's `resource.Quantity`.
"""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, ROUND_HALF_UP, ROUND_UP, Context, Decimal, Inexact, InvalidOperation

from gpu.messages import Text, gettext_noop

MAX_TEXT_LENGTH = 64
MAX_EXPONENT = 36

# Wide enough for every accepted text (64 digits, times 2**60, times 10**36); it raises instead of rounding.
EXACT = Context(prec=256, Emin=-999, Emax=999, traps=[InvalidOperation, Inexact])
_WIDE = Context(prec=256, Emin=-999, Emax=999, traps=[InvalidOperation])

_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_DECIMAL_SUFFIX = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_NANO = Decimal("1e-9")
_MAX_BINARY = Decimal(2**63 - 1)

_QUANTITY = re.compile(
    r"(?P<number>[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(?:(?P<suffix>[KMGTPE]i|[numkMGTPE])|[eE](?P<exponent>[+-]?[0-9]+))?"
)


class QuantityError(ValueError):
    """A text that is no quantity; `sentence` says so to the person who typed it."""

    def __init__(self, sentence: Text) -> None:
        super().__init__(str(sentence))
        self.sentence = sentence


def _split(text: str | int) -> tuple[Decimal, str, int | None]:
    """The number before the suffix, the suffix, and the exponent where one was written ("1e3")."""
    if isinstance(text, bool) or not isinstance(text, str | int):
        raise QuantityError(Text(gettext_noop("A quantity is a number with a unit, such as 500m or 8Gi.")))
    written = str(text)
    if len(written) > MAX_TEXT_LENGTH:
        raise QuantityError(
            Text(gettext_noop("A quantity has at most %(limit)s characters."), {"limit": MAX_TEXT_LENGTH})
        )
    match = _QUANTITY.fullmatch(written)
    if match is None:
        raise QuantityError(
            Text(
                gettext_noop("“%(text)s” is no quantity. Write a number with a unit, such as 500m or 8Gi."),
                {"text": written},
            )
        )
    exponent = int(match["exponent"]) if match["exponent"] is not None else None
    if exponent is not None and abs(exponent) > MAX_EXPONENT:
        raise QuantityError(Text(gettext_noop("“%(text)s” is out of range."), {"text": written}))
    return Decimal(match["number"]), match["suffix"] or "", exponent


def parse(text: str | int, *, nonnegative: bool = False) -> Decimal:
    """The exact value of a quantity in base units: "250m" is 0.25, "8Gi" is 8589934592.

    Raises QuantityError for anything the API server would refuse (wrong suffix, NaN, blanks), for more than
    `MAX_TEXT_LENGTH` characters, and for a negative value where `nonnegative` is asked.
    """
    number, suffix, exponent = _split(text)
    if suffix in _BINARY:
        value = EXACT.multiply(number, Decimal(2 ** _BINARY[suffix]))
    else:
        value = EXACT.scaleb(number, _DECIMAL[suffix] if exponent is None else exponent)
    if nonnegative and value < 0:
        raise QuantityError(Text(gettext_noop("“%(text)s” is below zero."), {"text": str(text)}))
    return value


def canonical(text: str | int) -> str:
    """The quantity as the API server stores and shows it: "8192Mi" is "8Gi", "1000m" is "1", "0.1" is "100m".

    Like the API server it rounds away from zero to a billionth, and holds binary units below 2**63.
    Raises QuantityError as `parse` does.
    """
    _, suffix, exponent = _split(text)
    value = parse(text)
    value = value.quantize(_NANO, rounding=ROUND_UP, context=_WIDE)
    binary = suffix in _BINARY
    if binary:
        value = max(min(value, _MAX_BINARY), -_MAX_BINARY)
    if value == 0:
        return "0"
    if binary and abs(value) >= 1024 and value == value.to_integral_value(context=EXACT):
        return _base_1024(int(value))
    mantissa, power = _base_1000(value)
    if exponent is not None:
        return f"{mantissa}e{power}" if power else str(mantissa)
    if power not in _DECIMAL_SUFFIX:  # beyond E: more zeros instead of a unit
        mantissa, power = mantissa * 10 ** (power - 18), 18
    return f"{mantissa}{_DECIMAL_SUFFIX[power]}"


def _base_1024(value: int) -> str:
    names = ["", *_BINARY]
    step = 0
    while value % 1024 == 0 and step < len(names) - 1:
        value //= 1024
        step += 1
    return f"{value}{names[step]}"


def _base_1000(value: Decimal) -> tuple[int, int]:
    """`value` as an integer without needless zeros, times ten to a multiple of three."""
    sign, digits, exponent = value.normalize(EXACT).as_tuple()
    assert isinstance(exponent, int)  # noqa: S101  only NaN and infinity have a letter here
    mantissa = int("".join(map(str, digits)))
    surplus = exponent % 3
    mantissa *= 10**surplus
    return (-mantissa if sign else mantissa), exponent - surplus


def as_cpu_quantity(cores: Decimal) -> str:
    """Cores as they are written in a manifest: 0.25 is "250m", 2 is "2"."""
    return canonical(f"{cores:f}")


def format_cpu(cores: Decimal) -> str:
    """Cores for a person, in English: 0.7 is "0.7", 2 is "2"; finer than a thousandth is rounded up."""
    thousandths = cores.quantize(Decimal("0.001"), rounding=ROUND_CEILING, context=_WIDE)
    return f"{thousandths.normalize(EXACT):f}"


def format_memory(amount: Decimal | int, *, round_up: bool = False) -> str:
    """Bytes for a person, in English: "8 GiB", "1.88 GiB", "123 MiB".

    GiB and above have at most two decimals, smaller units none. `round_up` for a shortfall: whoever frees
    what is shown has freed enough.
    """
    value = Decimal(amount)
    unit = 0
    while unit < len(_UNITS) - 1 and abs(value) >= 1024 ** (unit + 1):
        unit += 1
    rounded = _in_unit(value, unit, round_up)
    if abs(rounded) == 1024 and unit < len(_UNITS) - 1:
        unit += 1
        rounded = _in_unit(value, unit, round_up)
    return f"{rounded.normalize(EXACT):f} {_UNITS[unit]}"


def _in_unit(value: Decimal, unit: int, round_up: bool) -> Decimal:
    step = Decimal("0.01") if unit >= 3 else Decimal(1)
    rounding = ROUND_CEILING if round_up else ROUND_HALF_UP
    return _WIDE.divide(value, Decimal(1024**unit)).quantize(step, rounding=rounding, context=_WIDE)


def percent(used: Decimal | None, hard: Decimal | None) -> Decimal | None:
    """How much of `hard` is used, in percent with one decimal (half-up); None when either is not known.

    Of a `hard` of zero, nothing used is 0 % and anything used is 100 %.
    """
    if used is None or hard is None:
        return None
    if hard == 0:
        return Decimal(100) if used > 0 else Decimal(0)
    share = _WIDE.divide(EXACT.multiply(used, Decimal(100)), hard)
    return share.quantize(Decimal("0.1"), rounding=ROUND_HALF_UP, context=_WIDE)
