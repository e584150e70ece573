"""What a project lacks, in words: names of quota lines, and the sentence for a quota that is overdrawn already."""

from __future__ import annotations

from decimal import Decimal

from gpu.limits import amount
from gpu.messages import Text, gettext_noop

RESOURCE_NAMES = {
    "requests.cpu": gettext_noop("CPU requests"),
    "limits.cpu": gettext_noop("CPU limits"),
    "requests.memory": gettext_noop("memory requests"),
    "limits.memory": gettext_noop("memory limits"),
    "requests.storage": gettext_noop("storage"),
    "persistentvolumeclaims": gettext_noop("volumes"),
    "pods": gettext_noop("pods"),
}


def resource_name(key: str) -> Text:
    """Return a quota key in words; an unknown key as it is written."""
    return Text(RESOURCE_NAMES[key]) if key in RESOURCE_NAMES else Text("%(key)s", {"key": key})


def overdrawn(key: str, needed: Decimal, short_by: Decimal) -> Text | None:
    """Return what is short where the project holds more than its quota allows; None where it does not.

    "0 left, 1.6 short" of a need of 1 does not add up for a reader: what is over has to be said.
    """
    if short_by <= needed:
        return None
    return Text(
        gettext_noop(
            "With what runs and waits, the project is %(over)s over its quota of %(what)s already. This needs "
            "%(needed)s more, so %(short)s must become free first."
        ),
        {
            "over": amount(key, short_by - needed, round_up=True),
            "what": resource_name(key),
            "needed": amount(key, needed),
            "short": amount(key, short_by, round_up=True),
        },
    )
