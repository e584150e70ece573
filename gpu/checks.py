"""System checks of the portal's own settings."""

from __future__ import annotations

from collections.abc import Sequence

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, register


@register()
def broker_outlasts_tasks(app_configs: Sequence[AppConfig] | None, **kwargs: object) -> list[CheckMessage]:
    """Fail when the broker hands a late-acknowledged task out again before its hard time limit (case C-16)."""
    if settings.BROKER_VISIBILITY_TIMEOUT > settings.TASK_HARD_LIMIT:
        return []
    return [
        Error(
            f"BROKER_VISIBILITY_TIMEOUT ({settings.BROKER_VISIBILITY_TIMEOUT} s) is not longer than "
            f"TASK_HARD_LIMIT ({settings.TASK_HARD_LIMIT} s): a running task would be handed out a second time.",
            hint="Set BROKER_VISIBILITY_TIMEOUT above TASK_HARD_LIMIT.",
            id="gpu.E001",
        )
    ]
