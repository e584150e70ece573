"""Does it fit? The panel of the order form: common models, or any by its figures, against package and context."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from gpu import fit, wording
from gpu.manifests import WorkloadSpec
from gpu.models import Package
from gpu.templates_catalogue import TEMPLATES

OWN = "own"
FIRST_CHOICE = "llama3.2:3b"
COLOURS = {"fits": "green", "tight": "amber", "too_large": "red"}
ABLE = ("ollama", "vllm", "sglang")
FIGURES = {
    "weights": (gettext_noop("Weights in GiB"), 4096.0),
    "blocks": (gettext_noop("Layers"), 1000.0),
    "kv_heads": (gettext_noop("Key/value heads"), 1024.0),
    "head": (gettext_noop("Size of a head"), 4096.0),
}
"""The figures of any other model: label and the most that is taken."""


@dataclass(frozen=True)
class Line:
    """A common model and whether it fits; `largest` tokens of context fit well, 0 for none."""

    name: str
    weights: str
    verdict: str
    colour: str
    largest: int


@dataclass(frozen=True)
class FitPanel:
    """What the form says of fit: the chosen model in a sentence, and the common ones in a table."""

    colour: str
    sentence: str
    lines: tuple[Line, ...]
    source: str


@dataclass(frozen=True)
class Figure:
    """One field for a figure of a model."""

    name: str
    label: str
    value: str


@dataclass(frozen=True)
class Fields:
    """The fields of one template: its common models, if it has any, and the figures of any other."""

    code: str
    hidden: bool
    models: tuple[fit.Model, ...]
    chosen: str
    figures: tuple[Figure, ...]


def fit_fields(template: str, data: Mapping[str, str]) -> tuple[Fields, ...]:
    """Return the fields of every template that runs a model; only those of `template` are shown."""
    return tuple(
        Fields(
            code,
            code != template,
            fit.COMMON_MODELS if code == "ollama" else (),
            chosen(data, code),
            tuple(
                Figure(f"fit-{code}-{name}", _(label), data.get(f"fit-{code}-{name}", ""))
                for name, (label, _most) in FIGURES.items()
            ),
        )
        for code in ABLE
    )


def words() -> dict[str, str]:
    """Return each verdict in the reader's language."""
    return {"fits": _("fits"), "tight": _("tight"), "too_large": _("too large")}


def chosen(data: Mapping[str, str], template: str) -> str:
    """Return the model chosen in the form; other servers than Ollama take weights of other sizes, so figures alone."""
    names = {model.name for model in fit.COMMON_MODELS}
    wanted = data.get("fit_model", FIRST_CHOICE)
    return wanted if template == "ollama" and wanted in names else OWN


def fit_panel(package: Package, workload: WorkloadSpec, data: Mapping[str, str]) -> FitPanel | None:
    """Judge the chosen model on the package with the workload's context; None for a template without a model."""
    template = TEMPLATES.get(workload.template)
    if template is None or workload.template not in ABLE:
        return None
    settings = template.values_of(workload)
    context = _whole(settings.get("context_length", "")) or fit.SERVER_DEFAULT_CONTEXT
    parallel = _whole(settings.get("parallel", "")) or 1
    choice = chosen(data, workload.template)
    model = fit.common_model(choice) if choice != OWN else own_model(data, workload.template)
    lines: tuple[Line, ...] = ()
    if workload.template == "ollama":
        judged = [
            (one, fit.assess(one, package.memory_mib, context=context, parallel=parallel))
            for one in fit.COMMON_MODELS
        ]
        lines = tuple(
            Line(
                one.name,
                wording.memory(one.weights),
                words()[found.verdict],
                COLOURS[found.verdict],
                found.largest_context,
            )
            for one, found in judged
        )
    if model is None:
        told = _("Enter the model's figures to see whether it fits; its page lists them.")
        return FitPanel("grey", told, lines, "")
    found = fit.assess(model, package.memory_mib, context=context, parallel=parallel)
    source = _(model.source) if model.source else ""
    return FitPanel(COLOURS[found.verdict], wording.render(found.sentence), lines, source)


def own_model(data: Mapping[str, str], template: str) -> fit.Model | None:
    """Return a model by the figures typed (weights in GiB); None where one is missing or none."""
    figures = [
        _number(data.get(f"fit-{template}-{name}", ""), most) for name, (_label, most) in FIGURES.items()
    ]
    if any(figure is None for figure in figures):
        return None
    weights, blocks, heads, head = (figure or 0.0 for figure in figures)
    if min(int(blocks), int(heads), int(head)) < 1:
        return None
    return fit.Model(OWN, int(weights * 1024**3), int(blocks), int(heads), int(head), int(head))


def _number(text: str, most: float) -> float | None:
    try:
        value = float(text.strip().replace(",", "."))
    except ValueError:
        return None
    return value if 0 < value <= most else None


def _whole(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
