"""Refusals of an order or an action: a stable code, what, why with the figures, what to do now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpu.contract import Finding
from gpu.holders import Holder
from gpu.messages import Text


class OrderRefused(Exception):
    """The order or action cannot be done. Nothing was changed.

    `code` is stable (API, metrics), `sentence` and `next_step` are for the person, `fields` are findings at the place
    where something was typed, `holders` are the slices that hold what is wanted.
    """

    conflict = True

    def __init__(
        self,
        code: str,
        sentence: Text,
        next_step: Text,
        *,
        fields: Sequence[Finding] = (),
        holders: Sequence[Holder] = (),
        figures: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(str(sentence))
        self.code = code
        self.sentence = sentence
        self.next_step = next_step
        self.fields = tuple(fields)
        self.holders = tuple(holders)
        self.figures = dict(figures or {})


class InvalidOrder(OrderRefused):
    """What was asked for can never work as it was typed (API: 422)."""

    conflict = False


class StaleRow(OrderRefused):
    """Somebody else changed the slice since it was shown (API: 412)."""
