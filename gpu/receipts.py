"""Is it really on the GPU? What the container's own log says about the card, the loaded model and its context.

Read without exec, from the log as it is stored for the page: GPU ids and bus addresses are taken out before. The forms
of the lines are Ollama's (0.9 and newer) and nvidia-smi's. A tenant writes these lines: every pattern takes time
linear in the line's length.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

from gpu.messages import Memory, Text, gettext_noop

type Shortage = Literal["", "host", "gpu"]
type Finding = Literal["as_ordered", "whole_card", "less_memory", "no_gpu", "nothing_seen"]

GIB = 1024**3
MIB = 1024**2
WHOLE_CARD = 1.05
"""A slice that shows this share of what was ordered shows more than it: limits of memory are exact, cards round."""
MAX_LINE_LENGTH = 4096
"""A longer line is nobody's who is read here."""
MOST_MEMORY = 2**50
"""Bytes above which a size is not believed."""
TOO_LITTLE = 0.9
"""The driver keeps some of a card's memory to itself: a whole V100 shows 31.7 of 32 GiB."""

_PAIR = re.compile(r'(?<!\S)("(?:[^"\\]|\\.)*"|[\w.]+)=("(?:[^"\\]|\\.)*"|\S*)')
_SIZE = re.compile(r"(\d{1,9}(?:\.\d{1,9})?) (B|KiB|MiB|GiB|TiB)")
_UNITS = {"B": 1, "KiB": 1024, "MiB": MIB, "GiB": GIB, "TiB": 1024 * GIB}
_KV = re.compile(r"Parallel:(\d{1,9})\b.{0,500}?KvSize:(\d{1,9})")
_OFFLOADED = re.compile(r"offloaded (\d{1,9})/(\d{1,9}) layers to GPU")
_NEEDED = re.compile(r"requires more system memory \(([^)]{0,40})\) than is available \(([^)]{0,40})\)")
_GPU_FULL = re.compile(
    r"CUDA error: out of memory|cudaMalloc failed: out of memory|failed to allocate CUDA\d+ buffer"
)
_NO_KERNEL = re.compile(r"not compiled with any CUDA arch|no kernel image is available")
_OLD_DRIVER = re.compile(r"CUDA driver version is insufficient|driver library init failure")
_SMI_DRIVER = re.compile(r"Driver Version: ([\d.]+)")
_SMI_NAME = re.compile(r"^\|\s+\d+\s{1,3}(\S.{0,120}?)\s{2,120}(?:On|Off)\b")
_SMI_MEMORY = re.compile(r"(?<!\d)(\d{1,9})MiB\s*/\s*(\d{1,9})MiB")


@dataclass(frozen=True)
class Card:
    """The GPU as the container sees it. `memory` in bytes; `driver` as told: CUDA's version by Ollama."""

    name: str
    memory: int | None
    driver: str
    compute: str
    library: str


@dataclass(frozen=True)
class Cut:
    """A prompt that was cut: `limit` tokens of `prompt` were read."""

    at: datetime | None
    limit: int
    prompt: int


@dataclass(frozen=True)
class ServerLog:
    """What a log tells; None and "" where it tells nothing.

    `weights` is the memory in bytes of the last loaded model's weights by device; `layers` how many of all are on
    the GPU; `context` the tokens of one request's context in effect; `asked_context` what was asked for where the
    model allows less; `cuts` how many prompts were cut, `last_cut` the newest.
    """

    card: Card | None = None
    cpu_only: bool = False
    kernels_missing: bool = False
    driver_too_old: bool = False
    weights: Mapping[str, int] | None = None
    layers: tuple[int, int] | None = None
    context: int | None = None
    asked_context: int | None = None
    cuts: int = 0
    last_cut: Cut | None = None
    shortage: Shortage = ""
    needed: int | None = None
    available: int | None = None
    runner_killed: bool = False

    @property
    def on_gpu(self) -> bool | None:
        """Whether the last loaded model has any of its weights on the GPU; None where none was loaded."""
        if self.weights is not None:
            return any(device != "CPU" and size for device, size in self.weights.items())
        return self.layers[0] > 0 if self.layers is not None else None


@dataclass(frozen=True)
class Receipt:
    """What was ordered against what is seen; `alarm`: the operator has to look at it at once."""

    finding: Finding
    sentence: Text
    alarm: bool = False


def read_server_log(lines: Iterable[str] | str) -> ServerLog:
    """Read the log of a slice's container."""
    found = ServerLog()
    for line in lines.splitlines() if isinstance(lines, str) else lines:
        if len(line) <= MAX_LINE_LENGTH:
            found = _take(found, line)
    return found


def receipt(seen: ServerLog, ordered_mib: int) -> Receipt:
    """Compare what the container sees with the ordered memory in MiB."""
    ordered = Memory(ordered_mib * MIB)
    card = seen.card
    if card is None or card.memory is None:
        if seen.cpu_only:
            return Receipt("no_gpu", Text(gettext_noop("The container sees no GPU: it runs on the CPU.")))
        return Receipt("nothing_seen", Text(gettext_noop("The log says nothing about the GPU.")))
    params = {"seen": Memory(card.memory), "ordered": ordered}
    if card.memory > ordered.bytes * WHOLE_CARD:
        text = gettext_noop(
            "The container sees %(seen)s where %(ordered)s were ordered: the slice is not limited."
        )
        return Receipt("whole_card", Text(text, params), alarm=True)
    if card.memory < ordered.bytes * TOO_LITTLE:
        text = gettext_noop("The container sees only %(seen)s where %(ordered)s were ordered.")
        return Receipt("less_memory", Text(text, params))
    return Receipt("as_ordered", Text(gettext_noop("The container sees %(seen)s, as ordered."), params))


def size_in_bytes(text: str) -> int | None:
    """Read a size as Ollama writes it ("8.0 GiB"), to the precision it has; None for what is none or too much."""
    match = _SIZE.fullmatch(text)
    size = round(float(match[1]) * _UNITS[match[2]]) if match else None
    return size if size is not None and size <= MOST_MEMORY else None


def _take(found: ServerLog, line: str) -> ServerLog:
    if "level=" in line and "msg=" in line:
        return _message(found, {key.strip('"'): _unquoted(value) for key, value in _PAIR.findall(line)})
    if match := _OFFLOADED.search(line):
        return replace(found, layers=(int(match[1]), int(match[2])))
    if _GPU_FULL.search(line):
        return replace(found, shortage="gpu", needed=None, available=None)
    if _NO_KERNEL.search(line):
        return replace(found, kernels_missing=True)
    if _OLD_DRIVER.search(line):
        return replace(found, driver_too_old=True)
    return _nvidia_smi(found, line)


def _message(found: ServerLog, fields: Mapping[str, str]) -> ServerLog:
    match fields.get("msg"):
        case "inference compute":
            return _compute(found, fields)
        case "starting runner":
            return replace(found, weights=None, layers=None)
        case "model weights":
            weights = dict(found.weights or {})
            weights[fields.get("device", "")] = size_in_bytes(fields.get("size", "")) or 0
            return replace(found, weights=weights)
        case "load" if match := _KV.search(fields.get("request", "")):
            return replace(found, context=int(match[2]) // max(1, int(match[1])))
        case "requested context size too large for model":
            return replace(found, asked_context=_number(fields.get("num_ctx")))
        case "truncating input prompt":
            limit, prompt = _number(fields.get("limit")), _number(fields.get("prompt"))
            if limit is None or prompt is None:
                return found
            cut = Cut(_moment(fields.get("time", "")), limit, prompt)
            return replace(found, cuts=found.cuts + 1, last_cut=cut)
        case "llama runner process no longer running" if "killed" in fields.get("string", ""):
            # Nobody but the kernel kills a runner: the container's memory was used up.
            return replace(found, runner_killed=True, shortage="host", needed=None, available=None)
    error = fields.get("error", "") + " " + fields.get("msg", "")
    if match := _NEEDED.search(error):
        needed, available = size_in_bytes(match[1]), size_in_bytes(match[2])
        return replace(found, shortage="host", needed=needed, available=available)
    if _GPU_FULL.search(error):
        return replace(found, shortage="gpu", needed=None, available=None)
    if _NO_KERNEL.search(error):
        return replace(found, kernels_missing=True)
    if _OLD_DRIVER.search(error):
        return replace(found, driver_too_old=True)
    return found


def _compute(found: ServerLog, fields: Mapping[str, str]) -> ServerLog:
    library = fields.get("library", "")
    if library.lower() == "cpu":
        return replace(found, cpu_only=True, card=None)
    name = fields.get("description") or fields.get("name", "")  # before 0.12 the model's name was in `name`
    memory = size_in_bytes(fields.get("total", ""))
    card = Card(name, memory, fields.get("driver", ""), fields.get("compute", ""), library)
    return replace(found, cpu_only=False, card=card)


def _nvidia_smi(found: ServerLog, line: str) -> ServerLog:
    card = found.card or Card("", None, "", "", "")
    if match := _SMI_DRIVER.search(line):
        return replace(found, card=replace(card, driver=match[1]))
    if found.card is None or found.card.library:
        return found
    if match := _SMI_NAME.search(line):
        return replace(found, card=replace(card, name=match[1]))
    if match := _SMI_MEMORY.search(line):
        return replace(found, card=replace(card, memory=min(int(match[2]) * MIB, MOST_MEMORY)))
    return found


def _unquoted(value: str) -> str:
    return re.sub(r"\\(.)", r"\1", value[1:-1]) if value.startswith('"') else value


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() and len(text) < 10 else None


def _moment(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None
