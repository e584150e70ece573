"""dev/check.py counts what pytest wrote and passes failures on."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dev import check

SUITE = '<testsuites><testsuite tests="{}" failures="{}" errors="{}" skipped="{}"/></testsuites>'


def test_counts_are_summed_over_the_runs(tmp_path: Path) -> None:
    first, second = tmp_path / "1.xml", tmp_path / "2.xml"
    first.write_text(SUITE.format(10, 1, 2, 3))
    second.write_text(SUITE.format(5, 0, 0, 0))
    assert check.counts([first, second]) == (9, 3, 3)


def test_a_run_that_left_no_counts_is_a_failure(tmp_path: Path) -> None:
    assert check.counts([tmp_path / "none.xml"]) == (0, 1, 0)


@pytest.mark.parametrize(
    ("code", "with_counts", "passed"),
    [(0, False, True), (1, False, False), (5, True, True), (5, False, False)],
)
def test_a_step_passes_by_its_exit_code(code: int, with_counts: bool, passed: bool, tmp_path: Path) -> None:
    command = (sys.executable, "-c", f"raise SystemExit({code})")
    step = check.Step("stand-in", command, counts=tmp_path / "x.xml" if with_counts else None)
    assert check.run(step, {}) is passed
