"""What concerns all tests. The environment and the services are set up in tests/env.py, before Django's settings."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.utils import timezone, translation

pytest_plugins = ["tests.clusters"]
TESTS = Path(__file__).resolve().parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests in tests/browser carry the mark `browser`, so that `-m` chooses without naming folders."""
    for item in items:
        if item.path.is_relative_to(TESTS / "browser"):
            item.add_marker(pytest.mark.browser)


@pytest.fixture(autouse=True)
def _language_and_zone_of_nobody() -> None:
    """A request of an earlier test leaves its person's language and time zone active in this thread."""
    translation.deactivate()
    timezone.deactivate()
