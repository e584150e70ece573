"""Projects to play situations in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.clusters import Target
from tests.controlplane.play import PLAN, Project


@pytest.fixture
def project(cluster: Target) -> Callable[..., Project]:
    """Makes a project with a quota (its hard) and the limits of a LimitRange."""

    def make(quota: dict[str, str] | None = PLAN, limit_range: list[dict[str, Any]] | None = None) -> Project:
        return Project(cluster, quota, limit_range)

    return make
