"""How a pull can end, in words: what happened, and a mend that works. Sources: the cases and what a real server did."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from gpu.messages import Count, Memory, Text, gettext_noop
from gpu.model_names import ModelNameRefused, parse
from gpu.models import ModelPull, Slice
from gpu.quantities import parse as parse_quantity

Params = Callable[[ModelPull, Slice], Mapping[str, object]]
NOTHING = Text("")


def _model(pull: ModelPull, row: Slice) -> Mapping[str, object]:
    return {"model": pull.model}


def _tag(pull: ModelPull, row: Slice) -> Mapping[str, object]:
    try:
        name = parse(pull.model)
    except ModelNameRefused:
        return {"model": pull.model, "tag": ""}
    return {"model": name.model, "tag": name.tag}


def _figures(pull: ModelPull, row: Slice) -> Mapping[str, object]:
    volume = row.spec.get("volume")
    return {
        "model": pull.model,
        "needed": Memory(pull.total),
        "volume": Memory(int(parse_quantity(volume["size"]))) if volume else Text(gettext_noop("no volume")),
    }


def _percent(pull: ModelPull, row: Slice) -> Mapping[str, object]:
    share = pull.completed * 100 // pull.total if pull.total else int(pull.percent)
    return {"model": pull.model, "percent": Count(share)}


@dataclass(frozen=True)
class Ending:
    """One way to end: the sentence, what fills it, and the mend. `causes` are finer sentences by cause; `unmeasured`
    is the sentence where the server told no size."""

    sentence: str
    mend_text: str = ""
    params: Params = _model
    good: bool = False
    causes: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    detail: bool = False
    unmeasured: str = ""

    def text(self, pull: ModelPull, row: Slice) -> Text:
        """Return the sentence for a pull, with the server's own words where they say more."""
        msgid = self._finer(pull)[0]
        if self.detail and pull.detail and pull.cause not in self.causes:
            params = {"sentence": _filled(msgid, self.params(pull, row)), "detail": pull.detail}
            return Text(gettext_noop("%(sentence)s The server says: “%(detail)s”"), params)
        return _filled(msgid, self.params(pull, row))

    def mend(self, pull: ModelPull) -> Text:
        """Return what to do now."""
        return Text(self._finer(pull)[1])

    def _finer(self, pull: ModelPull) -> tuple[str, str]:
        sentence = self.sentence if pull.total else self.unmeasured or self.sentence
        return self.causes.get(pull.cause, (sentence, self.mend_text))


def _filled(msgid: str, params: Mapping[str, object]) -> Text:
    return Text(msgid, {name: value for name, value in params.items() if f"%({name})s" in msgid})


_LATER = gettext_noop("Try again in a while.")
_AGAIN = gettext_noop("Try again: it goes on where it stopped, as long as the slice is not restarted.")
_OPERATOR = gettext_noop("Show this to the operators of the platform.")
_REGISTRY = gettext_noop("Check the name of the registry, or try again later.")

ENDINGS: Mapping[tuple[str, str], Ending] = {
    ("pull", "done"): Ending(
        gettext_noop("%(model)s is on the volume."), gettext_noop("Use it by its name."), good=True
    ),
    ("pull", "already_there"): Ending(
        gettext_noop("%(model)s was on the volume already, in the newest version."),
        gettext_noop("Use it by its name."),
        good=True,
    ),
    ("list", "done"): Ending(gettext_noop("The models were listed."), good=True),
    ("delete", "done"): Ending(gettext_noop("%(model)s was deleted."), good=True),
    ("check", "done"): Ending(gettext_noop("%(model)s was checked."), good=True),
    ("pull", "unknown_model"): Ending(
        gettext_noop("The registry does not know %(model)s."),
        gettext_noop("Check name and tag in the library, and order it anew."),
        causes={
            "unknown_tag": (
                gettext_noop("The registry does not know the tag %(tag)s of %(model)s."),
                gettext_noop("Choose a tag that the model has, and order it anew."),
            )
        },
        params=_tag,
    ),
    ("", "unknown_model"): Ending(
        gettext_noop("%(model)s is not on the volume."), gettext_noop("Let the models be listed anew.")
    ),
    ("", "bad_name"): Ending(
        gettext_noop("The server does not take the name %(model)s."),
        gettext_noop("Write it as the library shows it, and order it anew."),
    ),
    ("", "no_access"): Ending(
        gettext_noop("The registry does not give %(model)s to anybody without an account."),
        gettext_noop("Choose a model that is public, or let an operator list a registry of the house."),
    ),
    ("pull", "interrupted"): Ending(
        gettext_noop("The download was interrupted at %(percent)s %%."),
        _AGAIN,
        params=_percent,
        causes={
            "stalled": (
                gettext_noop("Nothing came any more, and it was given up at %(percent)s %%."),
                gettext_noop("Try again later: the registry or the network in between is stuck."),
            )
        },
    ),
    ("", "interrupted"): Ending(gettext_noop("The server broke off before it had answered."), _LATER),
    ("", "volume_full"): Ending(
        gettext_noop(
            "The volume is full: %(model)s takes at least %(needed)s, and the volume has %(volume)s in all."
        ),
        gettext_noop(
            "Delete models you no longer need and restart the slice: only a start removes the half-fetched files. "
            "Or order a slice with a larger volume."
        ),
        params=_figures,
        # Ollama tells sizes every 60 ms: a volume that is full before that, or already, ends the pull without one.
        unmeasured=gettext_noop(
            "The volume is full: %(model)s does not fit beside what is there, and the volume has %(volume)s in all."
        ),
    ),
    ("", "not_ollama"): Ending(
        gettext_noop("The answer did not come from Ollama; something in between answered."),
        gettext_noop("Try again; if it stays, show this to the operators of the platform."),
    ),
    ("", "digest_mismatch"): Ending(
        gettext_noop("What came is not what the registry had announced, twice; it was thrown away."),
        gettext_noop("Try again later, or tell those who run the registry."),
    ),
    ("", "unreachable"): Ending(
        gettext_noop("Ollama did not answer in the slice."),
        gettext_noop("See the slice's state and log, and try again when it runs."),
    ),
    ("", "time_limit"): Ending(
        gettext_noop("It was not done within the time limit, and was ended."),
        gettext_noop("Try again; if it stays, a smaller model comes faster."),
    ),
    ("", "model_broken"): Ending(
        gettext_noop("The server cannot read the weights of %(model)s."),
        gettext_noop("Delete the model and fetch another build of it."),
        detail=True,
    ),
    ("", "out_of_memory"): Ending(
        gettext_noop("There was not enough memory for %(model)s."),
        gettext_noop("Take a smaller model or less context, or a larger package."),
        causes={
            "host": (
                gettext_noop(
                    "The container's memory was too small to load %(model)s; the GPU is not the limit."
                ),
                gettext_noop("Change the slice and raise its memory limit."),
            ),
            "gpu": (
                gettext_noop("The GPU memory of the slice is too small for %(model)s with this context."),
                gettext_noop("Take less context, a smaller model, or a larger package."),
            ),
        },
    ),
    ("", "cancelled"): Ending(
        gettext_noop("It was cancelled."),
        causes={
            "slice_stopped": (
                gettext_noop("It ended because the slice was stopped or given back."),
                gettext_noop("Start the slice and order it anew; it begins from the start."),
            )
        },
    ),
    ("", "unknown"): Ending(
        gettext_noop("How it ended is not known: its Job was gone from the cluster."),
        gettext_noop("Try again."),
    ),
    ("pull", "unknown"): Ending(
        gettext_noop("How it ended is not known: its Job was gone, and the model is not there."),
        gettext_noop("Try again."),
    ),
    ("", "refused"): Ending(gettext_noop("The platform refused it."), _OPERATOR, detail=True),
    ("", "failed"): Ending(
        gettext_noop("It failed."),
        _LATER,
        detail=True,
        causes={
            "registry_down": (gettext_noop("The registry does not answer."), _REGISTRY),
            "registry_name": (gettext_noop("There is no registry of this name."), _REGISTRY),
            "registry_error": (gettext_noop("The registry answers with an error of its own."), _LATER),
            "registry_busy": (gettext_noop("The registry lets nobody fetch more for now."), _LATER),
            "registry_page": (
                gettext_noop("Instead of the registry a web page answered, as proxies send one."),
                _OPERATOR,
            ),
            "registry_protocol": (
                gettext_noop("The registry speaks plain HTTP, and HTTPS was expected."),
                gettext_noop("Let an operator list it as a registry reached over plain HTTP."),
            ),
            "registry_certificate": (gettext_noop("The registry's certificate is not trusted."), _OPERATOR),
            "needs_newer_ollama": (
                gettext_noop("%(model)s needs a newer Ollama than this slice runs."),
                gettext_noop("Choose an older model: newer versions of Ollama leave the V100 out."),
            ),
            "volume_not_writable": (gettext_noop("The server may not write to the volume."), _OPERATOR),
            "not_listed": (
                gettext_noop("It was fetched, and yet the server does not list %(model)s."),
                gettext_noop("Try again."),
            ),
            "no_generate": (
                gettext_noop(
                    "%(model)s gives no text, such as a model for embeddings; it cannot be checked so."
                ),
                gettext_noop("Use it as it is."),
            ),
            "runner_stopped": (
                gettext_noop("The server's runner died while it loaded %(model)s."),
                gettext_noop("Raise the slice's memory limit, or take a smaller model or less context."),
            ),
            "agent_out_of_memory": (gettext_noop("The portal's own helper ran out of memory."), _OPERATOR),
            "agent": (gettext_noop("The portal's own helper failed."), _OPERATOR),
            "worker_lost": (gettext_noop("The portal's workers died over it, again and again."), _OPERATOR),
        },
    ),
}
