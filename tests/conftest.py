"""What concerns all tests. The environment and the services are set up in tests/env.py, before Django's settings."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest_plugins = ["tests.clusters"]
TESTS = Path(__file__).resolve().parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests in tests/browser carry the mark `browser`, so that `-m` chooses without naming folders."""
    for item in items:
        if item.path.is_relative_to(TESTS / "browser"):
            item.add_marker(pytest.mark.browser)
