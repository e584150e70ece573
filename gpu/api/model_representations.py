"""What the API gives of models and pulls: plain data of api.md's conventions."""

from __future__ import annotations

from typing import Any

from gpu import quantities
from gpu.api.representations import moment
from gpu.model_card import ModelsCard, PullLine
from gpu.models import ModelCheck, ModelOnVolume, SliceReceipt


def models(card: ModelsCard) -> dict[str, Any]:
    """The models of a slice as last listed, with check, receipt and warnings."""
    return {
        "slice": card.slice.public_id,
        "results": [model(item) for item in card.models],
        "listed_at": moment(card.listed_at),
        "taken_bytes": card.taken,
        "volume_bytes": card.volume,
        "under_way": [line.pull.public_id for line in card.under_way],
        "check": _check(card.check, card.gpu_percent) if card.check else None,
        "receipt": _receipt(card.receipt, card.slice.package_terms.memory_mib) if card.receipt else None,
        "warnings": [
            {"code": item.code, "detail": item.sentence, "mend": item.mend, "alarm": item.alarm}
            for item in card.warnings
        ],
    }


def model(item: ModelOnVolume) -> dict[str, Any]:
    """A model on the volume."""
    return {
        "name": item.name,
        "size": quantities.canonical(str(item.size)),
        "size_bytes": item.size,
        "digest": item.digest,
        "modified_at": moment(item.modified_at),
    }


def _check(found: ModelCheck, percent: int | None) -> dict[str, Any]:
    return {
        "model": found.model,
        "gpu_percent": percent,
        "size_bytes": found.size,
        "size_vram_bytes": found.size_vram,
        "tokens_per_second": found.tokens_per_second,
        "context_length": found.context_length,
        "load_seconds": found.load_seconds,
        "at": moment(found.at),
    }


def _receipt(found: SliceReceipt, ordered_mib: int) -> dict[str, Any]:
    return {
        "gpu_name": found.gpu_name or None,
        "memory_mib": found.memory_mib,
        "ordered_mib": ordered_mib,
        "driver": found.driver or None,
        "compute_capability": found.compute_capability or None,
        "on_cpu": found.on_cpu,
        "whole_card": found.whole_card,
        "read_at": moment(found.read_at),
    }


def pull(line: PullLine) -> dict[str, Any]:
    """A pull with its state, its progress and how it ended."""
    row, status = line.pull, line.status
    return {
        "id": row.public_id,
        "slice": status.slice.public_id,
        "mode": row.mode,
        "model": row.model,
        "intent": row.intent,
        "state": status.state,
        "reason": status.reason,
        "label": line.label,
        "sentence": line.sentence,
        "next_step": line.next_step,
        "causes": list(line.causes),
        "tried_again": status.tried_again,
        "settled": status.settled,
        "outcome": row.outcome or None,
        "may_retry": row.may_retry,
        "tries": row.tries,
        "progress": {
            "step": row.step,
            "completed_bytes": row.completed,
            "total_bytes": row.total,
            "percent": round(row.percent, 1),
            "speed_bytes": row.speed,
            "seconds_left": row.eta_s,
            "stalled_seconds": row.stalled_s,
            "at": moment(row.progress_at),
        },
        "created_at": moment(row.created_at),
        "finished_at": moment(row.finished_at),
    }
