"""CPU, memory and storage as typed in a form."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

from gpu import quantities
from gpu.contract.finding import By, Finding, Level
from gpu.manifest_spec import WorkloadSpec
from gpu.messages import Cpu, Memory, Text, gettext_noop
from gpu.templates_catalogue import Template

MAX_CORES = 1024
MIN_MEMORY = 6 * 1024**2
"""Bytes; container runtimes refuse a lower memory limit."""
MAX_BYTES = 2**50
"""A pebibyte: more is a slip of the keyboard."""
MIN_VOLUME = 1024**2


def check_resources(workload: WorkloadSpec, template: Template | None) -> Iterator[Finding]:
    """Yield what is wrong with the four quantities: each by itself, limit against request, what the template wants."""
    values: dict[str, Decimal] = {}
    for place in ("cpu_request", "cpu_limit", "memory_request", "memory_limit"):
        text: str = getattr(workload, place)
        found = list(_quantity(place, text))
        yield from found
        if not found:
            values[place] = quantities.parse(text)
    for kind in ("cpu", "memory"):
        request, limit = values.get(f"{kind}_request"), values.get(f"{kind}_limit")
        if request is not None and limit is not None and limit < request:
            yield _limit_below_request(kind, request, getattr(workload, f"{kind}_request"))
    limit = values.get("memory_limit")
    if limit is not None and template is not None and template.memory_wanted is not None:
        wanted = quantities.parse(template.memory_wanted)
        if limit < wanted:
            yield _finding(
                "memory-below-template",
                "memory_limit",
                Text(
                    gettext_noop(
                        "%(limit)s of memory is too small for %(template)s: it would be killed while loading."
                    ),
                    {"limit": Memory(int(limit)), "template": Text(template.title)},
                ),
                Text(gettext_noop("Set at least %(wanted)s."), {"wanted": Memory(int(wanted))}),
                level="warning",
                suggest=template.memory_wanted,
            )


def check_volume_size(text: str) -> Iterator[Finding]:
    """Yield what is wrong with the size of a volume."""
    yield from _quantity("volume.size", text)


def _quantity(place: str, text: str) -> Iterator[Finding]:
    is_cpu = place.startswith("cpu")
    example = Text(
        gettext_noop("Write cores, such as 2 or 500m.")
        if is_cpu
        else gettext_noop("Write a size, such as 4Gi or 512Mi.")
    )
    if not text:
        yield _finding(
            "requests-missing", place, Text(gettext_noop("This is needed.")), example, by="platform"
        )
        return
    try:
        value = quantities.parse(text)
    except quantities.QuantityError as error:
        yield _finding(
            "quantity-invalid", place, error.sentence, example, by="platform", suggest=_spelled(text)
        )
        return
    if value <= 0:
        sentence = Text(gettext_noop("“%(text)s” is not above zero."), {"text": text})
        yield _finding("quantity-not-positive", place, sentence, example, by="platform")
    elif is_cpu:
        yield from _cpu(place, text, value, example)
    else:
        yield from _bytes(place, text, value, example)


def _cpu(place: str, text: str, value: Decimal, example: Text) -> Iterator[Finding]:
    if value > MAX_CORES:
        suggest = f"{text[:-2]}m" if text.endswith("Mi") and text[:-2].isdigit() else None
        sentence = Text(gettext_noop("“%(text)s” are more cores than any server has."), {"text": text})
        yield _finding("quantity-too-large", place, sentence, example, suggest=suggest)
    elif value * 1000 % 1 != 0:
        sentence = Text(gettext_noop("“%(text)s” is finer than a thousandth of a core."), {"text": text})
        yield _finding("quantity-too-fine", place, sentence, example, by="platform")


def _bytes(place: str, text: str, value: Decimal, example: Text) -> Iterator[Finding]:
    least = MIN_VOLUME if place == "volume.size" else MIN_MEMORY
    if value < least:
        sentence = Text(
            gettext_noop(
                "“%(text)s” is less than %(least)s. A small m means thousandths; Mi and Gi are sizes."
            ),
            {"text": text, "least": Memory(least)},
        )
        yield _finding(
            "quantity-too-small", place, sentence, example, by="platform", suggest=_with_unit(text)
        )
    elif value > MAX_BYTES:
        sentence = Text(gettext_noop("“%(text)s” is more than there is."), {"text": text})
        yield _finding("quantity-too-large", place, sentence, example)
    elif value % 1 != 0:
        sentence = Text(gettext_noop("“%(text)s” is no whole number of bytes."), {"text": text})
        yield _finding("quantity-too-fine", place, sentence, example, by="platform")


def _limit_below_request(kind: str, request: Decimal, written: str) -> Finding:
    amount = Cpu(request * 1000) if kind == "cpu" else Memory(int(request))
    return _finding(
        "limit-below-request",
        f"{kind}_limit",
        Text(gettext_noop("The limit is below the request.")),
        Text(gettext_noop("Set the limit to %(amount)s or more, or lower the request."), {"amount": amount}),
        by="platform",
        suggest=written,
    )


def _spelled(text: str) -> str | None:
    """Return the quantity that was probably meant by "4 GB", "4gb" or "4 GiB"; None when there is no telling."""
    compact = "".join(text.split())
    for ending, unit in (
        ("gib", "Gi"),
        ("gb", "Gi"),
        ("mib", "Mi"),
        ("mb", "Mi"),
        ("gi", "Gi"),
        ("mi", "Mi"),
        ("g", "Gi"),
    ):
        number = compact[: -len(ending)]
        if compact.lower().endswith(ending) and number.isascii() and number.isdigit():
            return f"{number}{unit}"
    return None


def _with_unit(text: str) -> str | None:
    """Return "512Mi" for "512m" and "512": a bare number or thousandths of a byte were hardly meant."""
    number = text.removesuffix("m")
    return f"{number}Mi" if number.isascii() and number.isdigit() and int(number) >= 6 else None


def _finding(
    rule: str,
    place: str,
    sentence: Text,
    mend: Text,
    *,
    level: Level = "refused",
    by: By = "advice",
    suggest: str | None = None,
) -> Finding:
    return Finding(rule, place, sentence, mend, level, by, suggest)
