"""What a check found: the rule, where, in a sentence, and the mend."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gpu.messages import Text

Level = Literal["refused", "warning"]
By = Literal["policy", "platform", "advice"]


@dataclass(frozen=True)
class Finding:
    """One finding.

    `rule` is a stable id. `place` is a JSON pointer into the checked documents ("/1/spec/strategy"), or the field
    of the form ("env.2.name"). `by` tells who would say no: an admission "policy", something else of the
    "platform" (validation, quota, pod security, a later refusal of the pods), or nobody ("advice"). `suggest` is a
    value that mends it, where there is one.
    """

    rule: str
    place: str
    sentence: Text
    mend: Text
    level: Level = "refused"
    by: By = "policy"
    suggest: str | None = None


def refused(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Return those findings that stand in the way of an order."""
    return tuple(finding for finding in findings if finding.level == "refused")
