"""Projects that are gone, cards and all, when their test is over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.clusters import Target, eventually
from tests.controlplane.play import PLAN, Project


@pytest.fixture
def project(cluster: Target) -> Iterator[Callable[..., Project]]:
    made: list[Project] = []

    def make(quota: dict[str, str] | None = PLAN, limit_range: list[dict[str, Any]] | None = None) -> Project:
        made.append(Project(cluster, quota, limit_range))
        return made[-1]

    yield make
    for one in made:
        one.clear()
    for one in made:  # the next test wants the cards
        eventually(lambda claims=one.claims: not claims(), "the end of all claims", 40)
