"""C-01 and the API server's canonical form."""

import json
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu.quantities import (
    QuantityError,
    as_cpu_quantity,
    canonical,
    format_cpu,
    format_memory,
    parse,
    percent,
)

RECORDED = Path(__file__).parent / "data" / "recorded"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("250m", "0.25"),
        ("1500m", "1.5"),
        ("0.1", "0.1"),
        ("123Mi", "128974848"),
        ("128974848", "128974848"),
        ("129M", "129000000"),
        ("16Ki", "16384"),
        ("8Gi", "8589934592"),
        ("15k", "15000"),
        ("1e3", "1000"),
        ("1E3", "1000"),
        ("1E", "1000000000000000000"),
        ("1Ei", str(2**60)),
        ("1e-3", "0.001"),
        ("+1.5", "1.5"),
        ("-1", "-1"),
        ("1.", "1"),
        (".5", "0.5"),
        ("7n", "0.000000007"),
        ("7u", "0.000007"),
        (15000, "15000"),
    ],
)
def test_exact_values(text, value):
    assert parse(text) == Decimal(value)


def test_equality_is_not_decided_by_binary_floats():
    assert parse("0.1") * 3 == parse("0.3")


@pytest.mark.parametrize(
    "text",
    [
        "",
        " 1",
        "1 ",
        "1Gib",
        "1GB",
        "1K",
        "1ki",
        "1gi",
        "1mi",
        "NaN",
        "inf",
        "-",
        ".",
        "1e",
        "1e+",
        "1_000",
        "1,5",
        "1e999",
        "0x10",
        "٣",
        "1" * 65,
        "1ee3",
        "1Mi3",
        "+-1",
        True,
        None,
        1.5,
    ],
)
def test_what_the_api_server_refuses_is_refused_with_a_sentence(text):
    with pytest.raises(QuantityError) as caught:
        parse(text)
    assert str(caught.value.sentence)


def test_below_zero_is_refused_where_asked():
    assert parse("-1") == -1
    with pytest.raises(QuantityError):
        parse("-1", nonnegative=True)
    assert parse("-0", nonnegative=True) == 0


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("8192Mi", "8Gi"),
        ("16384Mi", "16Gi"),
        ("1000m", "1"),
        ("1500m", "1500m"),
        ("0.1", "100m"),
        ("1000", "1k"),
        ("1024", "1024"),
        ("0.5Gi", "512Mi"),
        ("0.5Ki", "512"),
        ("0.3Gi", "322122547200m"),
        ("1.5G", "1500M"),
        ("1e3", "1e3"),
        ("1E3", "1e3"),
        ("10e3", "10e3"),
        ("100000e0", "100e3"),
        ("0.0Gi", "0"),
        ("-1024Mi", "-1Gi"),
        ("0.1n", "1n"),
        ("+2", "2"),
        ("16Ei", str(2**63 - 1)),
        ("1000E", "1000E"),
    ],
)
def test_canonical_form(text, stored):
    assert canonical(text) == stored


def quantities_of(node, found):
    """Every text below a key under which the API server keeps quantities."""
    if isinstance(node, dict):
        for key, value in node.items():
            if key in (
                "hard",
                "used",
                "requests",
                "limits",
                "default",
                "defaultRequest",
                "max",
                "consumedCapacity",
            ):
                found.update(
                    text for text in (value.values() if isinstance(value, dict) else ()) if type(text) is str
                )
            quantities_of(value, found)
    elif isinstance(node, list):
        for value in node:
            quantities_of(value, found)


def test_what_the_api_server_recorded_is_canonical_already():
    found: set[str] = set()
    for path in RECORDED.glob("*.json"):
        quantities_of(json.loads(path.read_text()), found)
    assert {"500m", "8Gi", "160Gi", "1500m"} <= found
    assert {text: canonical(text) for text in found} == {text: text for text in found}


SUFFIXES = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "e3", "E-2"]


@given(st.decimals(-1000, 1000, places=3, allow_nan=False), st.sampled_from(SUFFIXES))
def test_canonical_is_stable_and_keeps_the_value(number, suffix):
    text = f"{number:f}{suffix}"
    stored = canonical(text)
    assert canonical(stored) == stored
    difference = abs(parse(stored)) - abs(parse(text))
    assert 0 <= difference < Decimal("1e-9")


@given(st.text(max_size=70))
def test_any_text_is_a_number_or_refused(text):
    try:
        value = parse(text)
    except QuantityError:
        return
    assert value.is_finite()


@pytest.mark.parametrize(
    ("used", "hard", "shown"),
    [
        ("1016", "15k", "6.8"),
        ("12288Mi", "24Gi", "50"),
        ("0", "4", "0"),
        ("0", "0", "0"),
        ("1", "0", "100"),
        ("3", "2", "150"),
    ],
)
def test_percent(used, hard, shown):
    assert percent(parse(used), parse(hard)) == Decimal(shown)


def test_percent_of_the_unknown_is_unknown():
    assert percent(Decimal(1), None) is None
    assert percent(None, Decimal(1)) is None


@pytest.mark.parametrize(
    ("amount", "shown"),
    [
        (128974848, "123 MiB"),
        (8589934592, "8 GiB"),
        (2019377376, "1.88 GiB"),
        (3898425568, "3.63 GiB"),
        (9535570144, "8.88 GiB"),
        (2**20 - 1, "1 MiB"),
        (2**30 - 1, "1 GiB"),
        (2**40, "1 TiB"),
        (1023, "1023 B"),
        (0, "0 B"),
        (Decimal("410065408"), "391 MiB"),
    ],
)
def test_memory_for_people(amount, shown):
    assert format_memory(amount) == shown


def test_a_shortfall_is_rounded_up():
    assert format_memory(410065408, round_up=True) == "392 MiB"
    assert format_memory(8 * 2**30, round_up=True) == "8 GiB"
    assert format_memory(8 * 2**30 + 1, round_up=True) == "8.01 GiB"


@pytest.mark.parametrize(
    ("cores", "shown", "written"), [("0.7", "0.7", "700m"), ("2", "2", "2"), ("10", "10", "10")]
)
def test_cpu(cores, shown, written):
    assert format_cpu(Decimal(cores)) == shown
    assert as_cpu_quantity(Decimal(cores)) == written
