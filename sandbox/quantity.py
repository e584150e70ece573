"""Kubernetes quantities, exactly: how the API server reads them and how it stores them."""

import re
from decimal import ROUND_CEILING, Context, Decimal

_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_DECIMAL = {"n": -3, "u": -2, "m": -1, "": 0, "k": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}
_QUANTITY = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:([KMGTPE]i)|([numkMGTPE]?)|[eE]([+-]?\d+))")
_EXACT = Context(prec=60, rounding=ROUND_CEILING)
PATTERN = r"^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$"
"""The expression that the API server quotes when it refuses a quantity."""


def _split(text: str) -> tuple[Decimal, str]:
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise ValueError(f"quantities must match the regular expression '{PATTERN}'")
    number, binary, decimal, exponent = match.groups()
    if binary:
        return Decimal(number) * 1024 ** _BINARY[binary], "BinarySI"
    if exponent is not None:
        return Decimal(number).scaleb(int(exponent)), "DecimalExponent"
    return Decimal(number).scaleb(3 * _DECIMAL[decimal or ""]), "DecimalSI"


def parse(text: str | int | float) -> Decimal:
    """The value in base units (cores, bytes, count), never below nano. ValueError for anything else."""
    return _rounded(_split(str(text).strip())[0])


def _rounded(value: Decimal) -> Decimal:
    return value.quantize(Decimal("1e-9"), context=_EXACT)


def canonical(text: str | int | float) -> str:
    """The text the API server stores: "8192Mi" becomes "8Gi", "0.5" becomes "500m", "1000m" becomes "1"."""
    value, style = _split(str(text).strip())
    return render(_rounded(value), style)


def render(value: Decimal, style: str = "DecimalSI") -> str:
    """Write a value with the largest suffix that leaves a whole number."""
    if value == 0:
        return "0"
    if style == "BinarySI" and abs(value) >= 1024 and value == value.to_integral_value():
        number, suffix = int(value), ""
        for name in _BINARY:
            if number % 1024:
                break
            number, suffix = number // 1024, name
        return f"{number}{suffix}"
    for name, power in reversed(_DECIMAL.items()):
        scaled = value.scaleb(-3 * power)
        if scaled == scaled.to_integral_value():
            if style == "DecimalExponent" and power > 0:
                return f"{int(scaled)}e{3 * power}"
            return f"{int(scaled)}{name}"
    return f"{value.normalize():f}"


def style(text: str | int | float) -> str:
    """BinarySI, DecimalSI or DecimalExponent, as the quantity was written."""
    return _split(str(text).strip())[1]
