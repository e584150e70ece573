"""One line of the table, and the numbers in it."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Line:
    """What was measured: named numbers with their unit, the goal in words and whether it was met (None: no goal)."""

    name: str
    numbers: dict[str, float] = field(default_factory=dict)
    unit: str = "ms"
    goal: str = ""
    met: bool | None = None

    def as_dict(self) -> dict[str, Any]:
        """The line as plain data."""
        return asdict(self)


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that `share` (0 to 1) of the values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, round(share * len(ordered) + 0.499999) - 1))]


def spread(seconds: Sequence[float]) -> dict[str, float]:
    """p50 and p95 of a series of seconds, in milliseconds."""
    return {
        "p50": round(statistics.median(seconds) * 1000, 1),
        "p95": round(percentile(seconds, 0.95) * 1000, 1),
    }
