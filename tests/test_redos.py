"""No text a tenant can write takes more than linear time to read: 128 KiB of the worst are read in a second."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from time import process_time

import pytest

from gpu import images, model_names, quantities
from gpu.diagnosis.view import detail
from gpu.pull_lines import Models, read_agent_log, read_line, read_verdict
from gpu.receipts import MAX_LINE_LENGTH, read_server_log, size_in_bytes
from gpu.redact import HIDDEN, redact
from gpu.refusals import device_class, read

LENGTH = 131_072
MOST_SECONDS = 1.0
"""Of the processor, not of the clock; a quadratic pattern takes a minute and more."""

PARTS = (
    *("a", "-", ".", "1", "/", ":", "'", '"', "\\", " ", "_", "=", "{", "[", "|", "é"),
    *("a-", "a.", "1.", "a:", "1:", "a/", "aa ", "a=", '\\"', '"\\', '""', ' "', '"=', "a='", "=\\"),
    *("assigned /", "assigned a/", "assigned a/b to ", "node ", "node: ", "node a-1", "node=", "host '"),
    *(
        "ip-",
        "ip-1-",
        "ip-1-1-1-1.",
        "ip-1-1-1-1_",
        ".internal",
        "a.internal_",
        "GPU-",
        "GPU-000000/1/",
        "hami-gpu-1",
    ),
    *("Parallel:1 ", "Parallel:1 KvSize:", "offloaded 1/", "1MiB ", "1MiB / ", "MiB", "Driver Version: "),
    *("exceeded quota: a, requested: a,", "failed quota: a", "minimum a usage per Pod is .", "maximum "),
    *("a max limit ", "expression '", "no such key: ", "ValidatingAdmissionPolicy '", "a' with binding '"),
    *('violates PodSecurity "', "must specify ", "requires more system memory (", "level= msg= ", '{"v":1,'),
)
HEADS = (
    "level=INFO msg=load request=",
    'level=INFO msg=load request="',
    'violates PodSecurity "',
    "|   0  x",
    "node ",
    "node a",
    "ip-1-1-1-",
    "1MiB",
    "assigned a",
    "exceeded quota: ",
    "minimum a usage per Pod is ",
    "ValidatingAdmissionPolicy 'a' with binding 'b' denied request: expression '",
)
TAILS = ("a", "1", " ", "-", "a.", ":", '"', "'")
TEXTS = [("", part) for part in PARTS] + [(head, tail) for head in HEADS for tail in TAILS]
READERS: dict[str, Callable[[str], object]] = {
    "redact": redact,
    "detail": detail,
    "refusals": read,
    "device class": device_class,
    "server log": read_server_log,
    "server log in lines": lambda text: read_server_log(_lines(text)),
    "size": size_in_bytes,
    "agent log": read_agent_log,
    "verdict": read_verdict,
    "model name": model_names.parse,
    "image": images.parse,
    "image of full length": lambda text: images.parse(text[: images.MAX_NAME_LENGTH]),
    "version": images.parse_version,
    "quantity": quantities.parse,
}


def _lines(text: str) -> list[str]:
    """The text in lines that are just short enough to be read, each with what makes it a message."""
    size = MAX_LINE_LENGTH - 20
    return [f"level=INFO msg={text[at : at + size]}" for at in range(0, len(text), size)] + [
        text[at : at + MAX_LINE_LENGTH] for at in range(0, len(text), MAX_LINE_LENGTH)
    ]


@pytest.mark.parametrize("reader", READERS)
def test_reading_takes_linear_time(reader: str) -> None:
    slow = []
    for head, part in TEXTS:
        text = (head + part * (LENGTH // len(part)))[:LENGTH]
        start = process_time()
        with suppress(model_names.ModelNameRefused, images.ImageRefused, quantities.QuantityError):
            READERS[reader](text)
        took = process_time() - start
        if took > MOST_SECONDS:
            slow.append((head, part, round(took, 1)))
            if len(slow) > 2:
                break
    assert slow == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("on gpu-3.c.proj.internal now", f"on {HIDDEN} now"),
        ("*.c.proj.internal", f"*{HIDDEN}"),
        ("wait...node.internal", HIDDEN),
        ("Successfully assigned ns/pod-1 to server-7", "Successfully assigned ns/pod-1"),
        ("assigned ns/a/b to server-7", "assigned ns/a/b"),
    ],
)
def test_names_of_hosts_are_hidden_still(text: str, expected: str) -> None:
    assert redact(text) == expected


@pytest.mark.parametrize("text", ["1.2.3 GiB", ". GiB", "9" * 400 + " B", "999999999 TiB", "GiB"])
def test_a_size_that_is_none(text: str) -> None:
    assert size_in_bytes(text) is None


def test_an_endless_line_is_left_out_and_the_next_one_read() -> None:
    long = "offloaded 1/2 layers to GPU" + " " * MAX_LINE_LENGTH
    assert read_server_log(long).layers is None
    assert read_server_log(f"{long}\noffloaded 3/4 layers to GPU").layers == (3, 4)


def test_a_number_without_end_in_a_log_is_no_number() -> None:
    line = f'level=INFO msg="truncating input prompt" limit=1 prompt={"9" * 4000}'
    assert read_server_log(line).cuts == 0


def test_what_the_agent_cannot_have_meant_is_left_out() -> None:
    line = (
        '{"v":1,"kind":"models","at":"2026-11-30T00:00:00Z","models":[{"name":"a\\ud800\\u0000","size":%d}]}'
    )
    found = read_line(line % 2**63)
    assert isinstance(found, Models)
    assert (found.models[0].name, found.models[0].size) == ("a?\ufffd", 0)
