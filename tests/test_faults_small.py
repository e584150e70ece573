"""The whole portal as many processes: the same result as one of each, and nothing lost while everything fails.

`make faults` does the same with a thousand injections. Both tests share one fleet, since its start takes longest.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SEED = 20261130
COUNT = 100
MOST_S = 420.0
"""No more is injected after this, which fails the test."""

pytestmark = pytest.mark.alone


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """What dev.faults.small found, in a process of its own: it has its own database and settings."""
    folder = tmp_path_factory.mktemp("faults")
    env = {key: value for key, value in os.environ.items() if key not in ("DATABASE_URL", "REDIS_URL")}
    command = [sys.executable, "-m", "dev.faults.small", str(folder), str(SEED), str(COUNT), str(MOST_S)]
    answer = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stdout[-3000:] + answer.stderr[-3000:]
    found: dict[str, object] = json.loads((folder / "small.json").read_text())
    return found


def test_two_watchers_four_workers_and_three_web_processes_give_the_same_result(
    result: dict[str, dict[str, object]],
) -> None:
    many = result["many"]
    assert many["slices"] == many["operations"]
    assert many["objects"] == many["wanted"]
    assert many["wrong"] == []
    assert many["watching"] == 1


def test_nothing_is_lost_doubled_or_left_over_while_everything_fails(
    result: dict[str, dict[str, object]],
) -> None:
    faults = result["faults"]
    assert faults["wrong"] == {}, f"python -m dev.faults --seed {SEED} --count {COUNT}"
    assert isinstance(faults["placed"], int)
    assert faults["placed"] > 5
    assert faults["injected"] == COUNT
