"""Is it really on the GPU? What checks and logs found, as warnings with their mend. Reads rows, calls nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gpu.diagnosis import Degraded
from gpu.messages import Count, Memory, Text, gettext_noop
from gpu.models import ModelCheck, Slice, SliceReceipt
from gpu.receipts import MIB

_CPU_MENDS = {
    "image": gettext_noop("Change the image to a version known to work on this card."),
    "size": gettext_noop("Take a smaller model, less context or a larger package; then restart the slice."),
}


@dataclass(frozen=True)
class Warning:
    """One thing that is not as it should be; `alarm` is the operator's business at once."""

    code: str
    sentence: Text
    mend: Text
    alarm: bool = False


def gpu_percent(check: ModelCheck) -> int | None:
    """Return how much of a model lay in the GPU's memory, rounded down; None where no model was loaded."""
    if not check.size or check.size_vram is None:
        return None
    return min(100, check.size_vram * 100 // check.size)


def warnings(row: Slice, check: ModelCheck | None, receipt: SliceReceipt | None) -> tuple[Warning, ...]:
    """Return what is wrong, the worst first. What was found before the slice's last change says nothing any more."""
    found: list[Warning] = []
    if receipt is not None and receipt.read_at >= row.changed_at:
        found += _of_receipt(row, receipt)
    if check is not None and check.at >= row.changed_at:
        found += _of_check(check, on_cpu=receipt is not None and receipt.on_cpu)
    return tuple({item.code: item for item in found}.values())


def _of_receipt(row: Slice, receipt: SliceReceipt) -> Iterable[Warning]:
    notes = receipt.notes
    if receipt.whole_card and receipt.memory_mib:
        yield Warning(
            "whole_card",
            Text(
                gettext_noop(
                    "The container sees %(seen)s where %(ordered)s were ordered: the slice is not limited."
                ),
                {
                    "seen": Memory(receipt.memory_mib * MIB),
                    "ordered": Memory(row.package_terms.memory_mib * MIB),
                },
            ),
            Text(gettext_noop("The platform's operators have been told. Use no more than you ordered.")),
            alarm=True,
        )
    if receipt.on_cpu:
        yield Warning(
            "no_gpu",
            Text(gettext_noop("The container sees no GPU: it runs on the CPU.")),
            Text(_CPU_MENDS["image"]),
        )
    elif notes.get("kernels_missing") or notes.get("driver_too_old"):
        yield Warning(
            "image_without_gpu",
            Text(gettext_noop("The image was not built for this card, so the model runs on the CPU.")),
            Text(_CPU_MENDS["image"]),
        )
    elif notes.get("on_gpu") is False:
        yield _on_cpu()
    yield from _of_memory(notes)
    if notes.get("cuts"):
        yield Warning(
            "context_cut",
            Text(
                gettext_noop(
                    "A prompt of %(prompt)s tokens was cut to the context of %(limit)s without a word to the caller."
                ),
                {"prompt": Count(notes.get("cut_prompt", 0)), "limit": Count(notes.get("cut_limit", 0))},
            ),
            Text(gettext_noop("Change the slice and set a longer context; it takes more GPU memory.")),
        )
    if notes.get("asked_context") and notes.get("context"):
        yield Warning(
            "context_of_model",
            Text(
                gettext_noop(
                    "A context of %(asked)s tokens was asked for, and the model was made for %(context)s."
                ),
                {"asked": Count(notes["asked_context"]), "context": Count(notes["context"])},
            ),
            Text(gettext_noop("Set the context to what the model can use.")),
        )


def _of_memory(notes: dict[str, int]) -> Iterable[Warning]:
    shortage: object = notes.get("shortage")
    if shortage == "host":
        figures = {"needed": Memory(notes["needed"])} if notes.get("needed") else {}
        msgid = (
            gettext_noop(
                "Loading a model needs %(needed)s, more than the container's memory; the GPU is not the limit."
            )
            if figures
            else gettext_noop(
                "The container's memory was used up while a model was loaded; the GPU is not the limit."
            )
        )
        yield Warning(
            "host_memory",
            Text(msgid, figures),
            Text(gettext_noop("Change the slice and raise its memory limit.")),
        )
    elif shortage == "gpu":
        yield Warning(
            "gpu_memory",
            Text(gettext_noop("The GPU memory of the slice was used up.")),
            Text(gettext_noop("Take less context, a smaller model, or a larger package.")),
        )


def _of_check(check: ModelCheck, *, on_cpu: bool) -> Iterable[Warning]:
    percent = gpu_percent(check)
    if percent is None or percent == 100:
        return
    if percent == 0 and not check.size_vram:
        if not on_cpu:
            yield _on_cpu()
        return
    yield Warning(
        "partly",
        Text(
            gettext_noop(
                "%(model)s runs with %(percent)s %% on the GPU and the rest on the CPU, which is slow."
            ),
            {"model": check.model, "percent": Count(percent)},
        ),
        Text(_CPU_MENDS["size"]),
    )


def _on_cpu() -> Warning:
    return Warning(
        "cpu",
        Text(gettext_noop("The model runs on the CPU, 0 % on the GPU: the slice you pay for is not used.")),
        Text(_CPU_MENDS["image"]),
    )


def degraded(rows: Iterable[Slice]) -> dict[int, Degraded]:
    """Return for slices by primary key why they run with limitations; two queries, none where no slice can."""
    able = {
        row.pk: row
        for row in rows
        if row.ended_at is None and row.intent == Slice.Intent.RUN and row.applied_generation
    }
    if not able:
        return {}
    receipts = {item.slice_id: item for item in SliceReceipt.objects.filter(slice__in=able)}
    checks = ModelCheck.objects.filter(slice__in=able).order_by("slice_id", "-at", "-id").distinct("slice_id")
    newest = {item.slice_id: item for item in checks}
    found = {pk: warnings(row, newest.get(pk), receipts.get(pk)) for pk, row in able.items()}
    return {
        pk: Degraded(items[0].code, items[0].sentence, items[0].mend, operator=items[0].alarm)
        for pk, items in found.items()
        if items
    }
