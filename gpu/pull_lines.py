"""What the pull agent printed, as typed values: progress, models on the volume, checks, the verdict.

The agent (worker/pull_agent.py) prints one JSON object a line. A log can begin or end in the middle of a line, hold
lines of others, or come from an agent of another version: what cannot be read is left out, never guessed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

VERSION = 1
OUTCOMES = (
    "done",
    "already_there",
    "unknown_model",
    "no_access",
    "interrupted",
    "volume_full",
    "not_ollama",
    "digest_mismatch",
    "unreachable",
    "time_limit",
    "bad_name",
    "model_broken",
    "out_of_memory",
    "failed",
)
GOOD = ("done", "already_there")
CAUSES = (
    # interrupted
    "stalled",
    "terminated",
    # unknown_model
    "unknown_tag",
    # out_of_memory
    "host",
    "gpu",
    # failed
    "registry_down",
    "registry_error",
    "registry_busy",
    "registry_name",
    "registry_page",
    "registry_protocol",
    "registry_certificate",
    "needs_newer_ollama",
    "volume_not_writable",
    "not_listed",
    "no_generate",
    "runner_stopped",
    "agent",
)
"""What an outcome does not tell by itself; "" where there is nothing to add."""

type Placement = Literal["none", "cpu", "partly", "gpu"]


@dataclass(frozen=True)
class Progress:
    """Where a pull stands. Bytes over all layers known so far; `percent` (0 to 99) never falls within an attempt."""

    at: datetime
    step: str
    completed: int
    total: int
    layers: int
    speed: int
    eta_s: int | None
    percent: float
    attempt: int
    stalled_s: int

    @property
    def stalled(self) -> bool:
        """Whether nothing has come for so long that it is to be told."""
        return self.stalled_s > 0


@dataclass(frozen=True)
class Model:
    """A model on the volume; `name` as Ollama lists it, `size` in bytes over all its layers."""

    name: str
    size: int
    modified_at: datetime | None
    digest: str


@dataclass(frozen=True)
class Models:
    """All models on the volume."""

    at: datetime
    models: tuple[Model, ...]


@dataclass(frozen=True)
class Check:
    """Where a loaded model runs. `size` and `size_vram` in bytes, None where the server listed no loaded model."""

    at: datetime
    model: str
    size: int | None
    size_vram: int | None
    context_length: int | None
    tokens_per_second: float | None
    eval_count: int
    load_seconds: float

    @property
    def gpu_percent(self) -> int | None:
        """How much of the model is in the GPU's memory, rounded down; None where none is loaded."""
        if not self.size or self.size_vram is None:
            return None
        return min(100, self.size_vram * 100 // self.size)

    @property
    def placement(self) -> Placement:
        """ "none": no model loaded, so nothing can be said; "cpu": the slice is not used."""
        percent = self.gpu_percent
        if percent is None:
            return "none"
        return "gpu" if percent == 100 else "cpu" if not self.size_vram else "partly"


@dataclass(frozen=True)
class Verdict:
    """How a run of the agent ended. `retry`: the Job tries again by itself. `detail` is Ollama's own text, cleaned."""

    at: datetime
    outcome: str
    cause: str
    detail: str
    completed: int
    total: int
    retry: bool
    digest: str

    @property
    def good(self) -> bool:
        """Whether the agent did what it was asked for."""
        return self.outcome in GOOD


@dataclass(frozen=True)
class AgentLog:
    """The last of each kind of line; None where there is none."""

    progress: Progress | None = None
    models: Models | None = None
    check: Check | None = None
    verdict: Verdict | None = None


def read_agent_log(text: str) -> AgentLog:
    """Read the log of an agent's container, or the part of it at hand."""
    found = AgentLog()
    for line in text.splitlines():
        entry = read_line(line)
        match entry:
            case Progress():
                found = AgentLog(entry, found.models, found.check, found.verdict)
            case Models():
                found = AgentLog(found.progress, entry, found.check, found.verdict)
            case Check():
                found = AgentLog(found.progress, found.models, entry, found.verdict)
            case Verdict():
                found = AgentLog(found.progress, found.models, found.check, entry)
    return found


def read_verdict(message: str) -> Verdict | None:
    """Read a termination message; None where it is not the agent's."""
    entry = read_line(message.strip())
    return entry if isinstance(entry, Verdict) else None


def read_line(line: str) -> Progress | Models | Check | Verdict | None:
    """Read one line; None for what is no line of the agent."""
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict) or fields.get("v") != VERSION:
        return None
    at = _moment(fields.get("at"))
    if at is None:
        return None
    match fields.get("kind"):
        case "progress" | "stall":
            return _progress(at, fields)
        case "models":
            listed = fields.get("models")
            entries = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
            return Models(at, tuple(_model(one) for one in entries))
        case "check":
            return _check(at, fields)
        case "verdict":
            return _verdict(at, fields)
    return None


def _progress(at: datetime, fields: Mapping[str, object]) -> Progress:
    return Progress(
        at=at,
        step=_text(fields.get("step")),
        completed=_count(fields.get("completed")) or 0,
        total=_count(fields.get("total")) or 0,
        layers=_count(fields.get("layers")) or 0,
        speed=_count(fields.get("speed")) or 0,
        eta_s=_count(fields.get("eta_s")),
        percent=min(_number(fields.get("percent")) or 0.0, 100.0),
        attempt=_count(fields.get("attempt")) or 1,
        stalled_s=_count(fields.get("stalled_s")) or 0,
    )


def _model(fields: Mapping[str, object]) -> Model:
    return Model(
        name=_text(fields.get("name")),
        size=_count(fields.get("size")) or 0,
        modified_at=_moment(fields.get("modified_at")),
        digest=_text(fields.get("digest")),
    )


def _check(at: datetime, fields: Mapping[str, object]) -> Check:
    return Check(
        at=at,
        model=_text(fields.get("model")),
        size=_count(fields.get("size")),
        size_vram=_count(fields.get("size_vram")),
        context_length=_count(fields.get("context_length")),
        tokens_per_second=_number(fields.get("tokens_per_second")),
        eval_count=_count(fields.get("eval_count")) or 0,
        load_seconds=_number(fields.get("load_seconds")) or 0.0,
    )


def _verdict(at: datetime, fields: Mapping[str, object]) -> Verdict:
    outcome, cause = _text(fields.get("outcome")), _text(fields.get("cause"))
    return Verdict(
        at=at,
        outcome=outcome if outcome in OUTCOMES else "failed",
        cause=cause if cause in CAUSES else "",
        detail=_text(fields.get("detail")),
        completed=_count(fields.get("completed")) or 0,
        total=_count(fields.get("total")) or 0,
        retry=fields.get("retry") is True,
        digest=_text(fields.get("digest")),
    )


def _text(value: object) -> str:
    """A text that can be stored: short, no NUL, no half of a surrogate pair."""
    if not isinstance(value, str):
        return ""
    return value[:1000].replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63 else None


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e18:
        return None
    return float(value)


def _moment(value: object) -> datetime | None:
    """A time with its zone. Go writes nanoseconds, of which six digits are kept."""
    if not isinstance(value, str):
        return None
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        return None
    return found if found.tzinfo is not None else None
