"""How long each migration holds up a version that goes on serving, on tables of a million rows (dev.upgrade)."""

from __future__ import annotations

import os

from dev import upgrade
from dev.bench.line import Line
from dev.fleet import Fleet

ROWS = int(os.environ.get("BENCH_ROWS", "1000000"))
GOAL_S = 1.0


def measure(fleet: Fleet) -> list[Line]:
    """Apply each migration while the old version reads and writes."""
    return [
        Line(
            f"migration {found.migration}, {ROWS:,} rows",
            {"wait": round(found.longest_wait_s, 3), "took": round(found.took_s, 1)},
            unit="s",
            goal=f"wait ≤ {GOAL_S:.0f} s",
            met=found.longest_wait_s <= GOAL_S,
        )
        for found in upgrade.measure(fleet.env["DATABASE_URL"], ROWS)
    ]
