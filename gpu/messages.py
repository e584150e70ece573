"""Sentences of the pure modules: English message ids with typed parameters, translated by the page.

A pure module never formats for a reader. It gives a `Text`; `gpu.wording.render` translates the message id and
formats the typed parameters (`Cpu`, `Memory`, `Count`, `Moment`) in the reader's language.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal


def gettext_noop(msgid: str) -> str:
    """Mark `msgid` for makemessages and return it unchanged."""
    return msgid


@dataclass(frozen=True)
class Cpu:
    """An amount of CPU in millicores."""

    millicores: Decimal

    def __str__(self) -> str:
        return f"{self.millicores.normalize():f}m"


@dataclass(frozen=True)
class Memory:
    """An amount of memory or storage in bytes; `round_up` where a shortfall is shown."""

    bytes: int
    round_up: bool = False

    def __str__(self) -> str:
        return f"{self.bytes} B"


@dataclass(frozen=True)
class Count:
    """A number of things."""

    value: int

    def __str__(self) -> str:
        return str(self.value)


@dataclass(frozen=True)
class Moment:
    """A point in time, aware."""

    at: datetime

    def __str__(self) -> str:
        return self.at.isoformat()


@dataclass(frozen=True)
class Names:
    """Names that people gave, to be listed in the reader's quotation marks; at most `most` of them."""

    values: tuple[str, ...]
    most: int = 5

    def __str__(self) -> str:
        return ", ".join(self.values[: self.most]) + (" …" if len(self.values) > self.most else "")


@dataclass(frozen=True)
class Text:
    """A translatable sentence: an English message id with %(name)s places, and its parameters."""

    msgid: str
    params: Mapping[str, object] = field(default_factory=dict)

    def __str__(self) -> str:
        return (
            self.msgid % {key: str(value) for key, value in self.params.items()}
            if self.params
            else self.msgid
        )
