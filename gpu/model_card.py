"""The models of a slice for page and API alike: what is on the volume, what is under way, what was found."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from django.db.models import Q
from django.utils import timezone

from gpu import gpu_use, pulls, wording
from gpu.fit import SERVER_DEFAULT_CONTEXT
from gpu.gpu_use import Warning
from gpu.messages import Count, Memory, Text, gettext_noop
from gpu.models import ModelCheck, ModelOnVolume, ModelPull, ModelShelf, Slice, SliceReceipt
from gpu.pull_status import PullStatus, pull_statuses
from gpu.quantities import parse
from gpu.status import SliceStatus, slice_status
from gpu.wording import render

ENDED_SHOWN = timedelta(hours=24)
MOST_ENDED = 5
WRONG_NAME = ("unknown_model", "bad_name", "no_access")


@dataclass(frozen=True)
class PullLine:
    """One pull in the reader's language; figures in bytes and seconds as in its row."""

    pull: ModelPull
    status: PullStatus
    label: str
    sentence: str
    next_step: str
    causes: tuple[str, ...]
    step: str

    @property
    def done_of(self) -> str:
        """Bytes there of bytes known to be needed; empty before any is known."""
        if not self.pull.total:
            return ""
        return f"{wording.memory(self.pull.completed)} / {wording.memory(self.pull.total)}"

    @property
    def speed(self) -> str:
        """Bytes a second in the reader's format; empty while nothing comes."""
        return f"{wording.memory(self.pull.speed)}/s" if self.pull.speed else ""

    @property
    def percent(self) -> Decimal:
        """Percent with one digit, never falling."""
        return Decimal(f"{self.pull.percent:.1f}")

    @property
    def again(self) -> bool:
        """Whether ordering the same once more makes sense; a wrong name stays wrong."""
        if self.pull.outcome in WRONG_NAME:
            return False
        return (
            self.pull.finished
            and self.pull.mode == "pull"
            and self.status.state in ("failed", "unknown", "cancelled")
        )


@dataclass(frozen=True)
class WarningLine:
    """A warning in the reader's language."""

    code: str
    sentence: str
    mend: str
    alarm: bool


@dataclass(frozen=True)
class ModelsCard:
    """Everything a slice's page says about its models.

    `listed_at` None: never listed, which is not the same as none. `taken` and `volume` in bytes, None where unknown.
    """

    slice: Slice
    models: tuple[ModelOnVolume, ...]
    listed_at: datetime | None
    busy: frozenset[str]
    under_way: tuple[PullLine, ...]
    ended: tuple[PullLine, ...]
    check: ModelCheck | None
    gpu_percent: int | None
    warnings: tuple[WarningLine, ...]
    receipt: SliceReceipt | None
    taken: int | None
    volume: int | None
    running: bool
    notes: tuple[str, ...]

    @property
    def settled(self) -> bool:
        """Whether nothing is under way."""
        return not self.under_way


def models_card(row: Slice, status: SliceStatus | None = None) -> ModelsCard | None:
    """Return the card of a slice that runs Ollama, None for any other."""
    if not pulls.is_ollama(row):
        return None
    status = status or slice_status(row)
    recent = Q(finished_at=None) | Q(finished_at__gt=timezone.now() - ENDED_SHOWN)
    lines = pull_lines(row, ModelPull.objects.filter(recent, slice=row))
    under_way = tuple(line for line in lines if not line.pull.finished)
    models = tuple(ModelOnVolume.objects.filter(slice=row))
    shelf = ModelShelf.objects.filter(slice=row).first()
    check = ModelCheck.objects.filter(slice=row).first()
    receipt = SliceReceipt.objects.filter(slice=row).first()
    volume = row.workload.volume
    return ModelsCard(
        slice=row,
        models=models,
        listed_at=shelf.listed_at if shelf else None,
        busy=frozenset(line.pull.model_key for line in under_way),
        under_way=under_way,
        ended=_worth_telling(lines),
        check=check,
        gpu_percent=gpu_use.gpu_percent(check) if check else None,
        warnings=tuple(_warning(item) for item in gpu_use.warnings(row, check, receipt)),
        receipt=receipt,
        taken=sum(model.size for model in models) if shelf else None,
        volume=int(parse(volume.size)) if volume else None,
        running=pulls.is_running(row, status),
        notes=tuple(render(note) for note in _notes(row)),
    )


def advice_lines(advice: pulls.Advice) -> tuple[tuple[str, str], ...]:
    """Return what a pull would meet as (colour, sentence): fit on the GPU, room on the volume, room for its Job."""
    found: list[tuple[str, Text]] = []
    if advice.fit is not None:
        colour = {"fits": "green", "tight": "amber", "too_large": "red"}[advice.fit.verdict]
        found.append((colour, advice.fit.sentence))
    else:
        found.append(
            (
                "grey",
                Text(gettext_noop("The size of this model is not known here; the download will tell it.")),
            )
        )
    if advice.volume is None:
        found.append(
            ("amber", Text(gettext_noop("The slice has no volume: the model is lost at the next restart.")))
        )
    elif advice.missing and advice.model is not None:
        found.append(
            (
                "red",
                Text(
                    gettext_noop(
                        "It does not fit on the volume: it takes %(size)s, %(taken)s of %(volume)s are in use, "
                        "%(missing)s are missing. Delete a model first, or order a slice with a larger volume."
                    ),
                    {
                        "size": Memory(advice.model.weights),
                        "taken": Memory(advice.taken or 0),
                        "volume": Memory(advice.volume),
                        "missing": Memory(advice.missing, round_up=True),
                    },
                ),
            )
        )
    elif advice.model is not None:
        left = advice.volume - (advice.taken or 0) - advice.model.weights
        found.append(
            (
                "green",
                Text(
                    gettext_noop("It takes %(size)s of the volume and leaves %(left)s."),
                    {"size": Memory(advice.model.weights), "left": Memory(left)},
                ),
            )
        )
    found += [("amber", pulls.shortage_text(item)) for item in advice.shortages]
    return tuple((colour, render(text)) for colour, text in found)


def pull_lines(row: Slice, found: Iterable[ModelPull]) -> list[PullLine]:
    """Return pulls of a slice in the reader's language, in the order given."""
    return [_line(status) for status in pull_statuses(row, found)]


def _line(found: PullStatus) -> PullLine:
    return PullLine(
        pull=found.pull,
        status=found,
        label=render(Text(found.info.label)),
        sentence=render(found.sentence),
        next_step=render(found.next_step) if found.next_step.msgid else "",
        causes=tuple(render(cause) for cause in found.causes),
        step=render(found.step) if found.step.msgid else "",
    )


def _worth_telling(lines: Sequence[PullLine]) -> tuple[PullLine, ...]:
    """Ended pulls, and what else failed, the newest of each model; a later success answers an earlier failure.

    A check that went well is told by its figures, and leaves what was told of its model.
    """
    newest: dict[str, PullLine] = {}
    for line in lines:
        good_check = line.pull.mode == "check" and line.status.state == "done"
        if line.pull.finished and line.pull.mode != "list" and not good_check:
            newest.setdefault(line.pull.model_key, line)
    told = [line for line in newest.values() if line.pull.mode == "pull" or line.status.state != "done"]
    return tuple(told[:MOST_ENDED])


def _warning(item: Warning) -> WarningLine:
    return WarningLine(item.code, render(item.sentence), render(item.mend), item.alarm)


def _notes(row: Slice) -> list[Text]:
    """What holds for the slice whatever runs on it."""
    found = []
    if not any(item.name == "OLLAMA_CONTEXT_LENGTH" for item in row.workload.env):
        found.append(
            Text(
                gettext_noop(
                    "No context length is set, so the server's own holds: %(tokens)s tokens on 8 GiB."
                ),
                {"tokens": Count(SERVER_DEFAULT_CONTEXT)},
            )
        )
    if row.workload.volume is None:
        found.append(Text(gettext_noop("Without a volume the models are lost at each restart.")))
    return found
