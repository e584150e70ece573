"""A `Text` as JSON and back, so that what a task found can be kept and told in any reader's language. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from gpu.messages import Count, Cpu, Memory, Text


def to_json(text: Text) -> dict[str, Any]:
    """Return `text` as plain values; parameters of other types than those of gpu.messages become words."""
    return {"msgid": text.msgid, "params": {key: _packed(value) for key, value in text.params.items()}}


def from_json(data: Mapping[str, Any]) -> Text:
    """Return the `Text` that `to_json` was given."""
    return Text(data["msgid"], {key: _unpacked(value) for key, value in data["params"].items()})


def _packed(value: object) -> Any:
    match value:
        case Text():
            return {"text": to_json(value)}
        case Cpu(millicores):
            return {"cpu": str(millicores)}
        case Memory(amount, round_up):
            return {"memory": [amount, round_up]}
        case Count(count):
            return {"count": count}
        case bool() | int() | str():
            return value
        case _:
            return str(value)


def _unpacked(value: Any) -> object:
    match value:
        case {"text": data}:
            return from_json(data)
        case {"cpu": millicores}:
            return Cpu(Decimal(millicores))
        case {"memory": [amount, round_up]}:
            return Memory(amount, round_up)
        case {"count": count}:
            return Count(count)
        case _:
            return value
