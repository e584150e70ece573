"""Order, cancel, list, delete and check models on a slice: the sole writer of a pull's intent.

Each function locks the project, checks, writes, in that order, in one transaction, and queues the work on commit.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from django.db.models import F, Sum
from django.utils import timezone
from django.utils.crypto import get_random_string

from gpu import enqueue, fit, model_names, names
from gpu.contract import Finding
from gpu.facts import project_facts
from gpu.headroom import Shortage, amount, fits, headroom, parse_quota
from gpu.messages import Memory, Text, gettext_noop
from gpu.model_names import ModelName
from gpu.models import HouseRegistry, ModelOnVolume, ModelPull, ModelShelf, Slice, TimelineEntry
from gpu.order_errors import InvalidOrder, OrderRefused
from gpu.orders import Locked, lock_project
from gpu.pull_manifest import CPU_LIMIT, CPU_REQUEST, MEMORY_LIMIT, MEMORY_REQUEST
from gpu.quantities import parse
from gpu.shortages import overdrawn, resource_name
from gpu.status import SliceStatus, slice_status
from tenants.models import User

TEMPLATE = "ollama"
RUNNING = ("running", "running_degraded")
TOKEN_LENGTH = 8
MODE = ModelPull.Mode
DEMAND = {
    "requests.cpu": parse(CPU_REQUEST),
    "limits.cpu": parse(CPU_LIMIT),
    "requests.memory": parse(MEMORY_REQUEST),
    "limits.memory": parse(MEMORY_LIMIT),
    "pods": Decimal(1),
}
"""What a Job takes from the project while it runs, by quota key in base units."""


@dataclass(frozen=True)
class Advice:
    """What is known before a pull: none of it forbids, all of it is told with figures. Sizes in bytes.

    `model` holds the figures of a common model, None for any other; `volume` and `taken` are None where unknown.
    """

    name: ModelName
    model: fit.Model | None
    fit: fit.Fit | None
    volume: int | None
    taken: int | None
    shortages: tuple[Shortage, ...]

    @property
    def missing(self) -> int:
        """Bytes the volume lacks, 0 where it fits or where that is not known."""
        if self.model is None or self.volume is None:
            return 0
        return max(0, (self.taken or 0) + self.model.weights - self.volume)


def is_ollama(row: Slice) -> bool:
    """Whether the slice runs Ollama behind a port, so that models can be fetched into it."""
    return row.spec.get("template") == TEMPLATE and row.spec.get("port") is not None


def read_name(typed: str) -> ModelName:
    """Return the name as Ollama reads it. Raises InvalidOrder at the field `model`."""
    try:
        return model_names.parse(typed)
    except model_names.ModelNameRefused as error:
        raise _invalid(
            error.text, Text(gettext_noop("Write it as the library shows it, such as llama3.2:3b."))
        ) from error


def advise(row: Slice, name: ModelName) -> Advice:
    """Return what a pull of `name` would meet: the GPU's memory, the volume, the room for its Job."""
    model = fit.common_model(f"{name.model}:{name.tag}") if name.host == model_names.DEFAULT_HOST else None
    workload = row.workload
    settings = {item.name: item.value for item in workload.env}
    judged = None
    if model is not None:
        judged = fit.assess(
            model,
            row.package_terms.memory_mib,
            context=_number(settings.get("OLLAMA_CONTEXT_LENGTH"), fit.SERVER_DEFAULT_CONTEXT),
            parallel=_number(settings.get("OLLAMA_NUM_PARALLEL"), 1),
        )
    listed = ModelShelf.objects.filter(slice=row).exists()
    taken = ModelOnVolume.objects.filter(slice=row).aggregate(total=Sum("size"))["total"] or 0
    facts = project_facts(row.project.namespace, [row.app], events=False)
    return Advice(
        name=name,
        model=model,
        fit=judged,
        volume=int(parse(workload.volume.size)) if workload.volume else None,
        taken=taken if listed else None,
        shortages=fits(DEMAND, headroom(parse_quota(item, terminating=True) for item in facts.quotas)),
    )


def shortage_text(short: Shortage) -> Text:
    """Return what the project lacks for the Job of a pull, with the figures (case C-03)."""
    over = overdrawn(short.key, short.needed, short.short_by)
    return over or Text(
        gettext_noop(
            "The project has too little %(what)s for it: %(needed)s needed, %(left)s left, %(short)s missing. "
            "It waits until there is room."
        ),
        {
            "what": resource_name(short.key),
            "needed": amount(short.key, short.needed),
            "left": amount(short.key, short.left),
            "short": amount(short.key, short.short_by, round_up=True),
        },
    )


def place(
    user: User,
    row: Slice,
    typed: str,
    *,
    operation_key: str = "",
    update: bool = False,
    when_running: bool = False,
) -> tuple[ModelPull, bool]:
    """Order a pull; return it and whether this call made it.

    The same model again while it is being pulled, and the same `operation_key` again, give the pull there is. With
    `update` a model that is there already is pulled again; with `when_running` a slice that is still being set up is no
    reason to refuse: the pull begins once it runs. Raises InvalidOrder for a name that cannot be, OrderRefused
    for what the slice's state forbids.
    """
    name = read_name(typed)
    insecure = _insecure(name)
    with lock_project(row.project_id) as locked:
        earlier = _earlier(row, operation_key)
        if earlier is not None:
            return earlier, False
        current = _current(locked, row, when_running=when_running)
        busy = ModelPull.objects.filter(slice=current, model_key=name.key, finished_at=None).first()
        if busy is not None:
            if busy.mode != MODE.PULL:
                raise _busy(busy)
            return busy, False
        found = _on_volume(current, name)
        if found is not None and not update:
            raise OrderRefused(
                "already_there",
                Text(
                    gettext_noop("%(model)s is on the volume already (%(size)s)."),
                    {"model": found.name, "size": Memory(found.size)},
                ),
                Text(gettext_noop("Use it, or fetch it anew to get a newer version of the same tag.")),
            )
        return _insert(locked, user, current, MODE.PULL, typed, name, operation_key, insecure), True


def delete_model(user: User, row: Slice, typed: str, *, operation_key: str = "") -> ModelPull:
    """Delete a model from the slice's volume. Raises OrderRefused."""
    return _for_model(user, row, MODE.DELETE, typed, operation_key)


def check(user: User | None, row: Slice, typed: str, *, operation_key: str = "") -> ModelPull:
    """Let the slice load a model and say where it runs and how fast. Raises OrderRefused."""
    return _for_model(user, row, MODE.CHECK, typed, operation_key)


def refresh_list(user: User | None, row: Slice) -> ModelPull:
    """Ask the slice which models are on its volume; one asking at a time. Raises OrderRefused."""
    with lock_project(row.project_id) as locked:
        current = _current(locked, row)
        busy = ModelPull.objects.filter(slice=current, mode=MODE.LIST, finished_at=None).first()
        return busy or _insert(locked, user, current, MODE.LIST, "", None, "", insecure=False)


def cancel(user: User | None, pull: ModelPull) -> ModelPull:
    """Cancel a pull: its Job and pod are deleted. Cancelled twice is cancelled once. Raises OrderRefused."""
    with lock_project(pull.slice.project_id):
        current = ModelPull.objects.select_for_update(of=("self",)).select_related("slice").get(pk=pull.pk)
        if current.finished:
            raise OrderRefused(
                "finished",
                Text(gettext_noop("It has ended already; there is nothing to cancel.")),
                Text(gettext_noop("Load the page again to see how it ended.")),
            )
        if current.intent != ModelPull.Intent.CANCEL:
            ModelPull.objects.filter(pk=current.pk).update(
                intent=ModelPull.Intent.CANCEL,
                generation=F("generation") + 1,
                action=ModelPull.Action.PENDING,
                action_code="",
                action_message="",
                action_policy="",
                attempts=0,
                lost_runs=0,
                retry_at=None,
                look_at=timezone.now(),
            )
            current.refresh_from_db()
            _note(current.slice, user, "pull_cancelled", current.model)
            enqueue.pull(current.pk)
    return current


def unfinished(row: Slice) -> list[ModelPull]:
    """Return the pulls whose partial download is lost when the slice stops or restarts."""
    return list(ModelPull.objects.filter(slice=row, mode=MODE.PULL, finished_at=None))


def _for_model(
    user: User | None, row: Slice, mode: ModelPull.Mode, typed: str, operation_key: str
) -> ModelPull:
    name = read_name(typed)
    with lock_project(row.project_id) as locked:
        earlier = _earlier(row, operation_key)
        if earlier is not None:
            return earlier
        current = _current(locked, row)
        busy = ModelPull.objects.filter(slice=current, model_key=name.key, finished_at=None).first()
        if busy is not None:
            if busy.mode != mode:
                raise _busy(busy)
            return busy
        if ModelShelf.objects.filter(slice=current).exists() and _on_volume(current, name) is None:
            raise OrderRefused(
                "not_there",
                Text(gettext_noop("%(model)s is not on the volume."), {"model": name.shortest}),
                Text(gettext_noop("Choose one of the models that are listed, or fetch it first.")),
            )
        return _insert(locked, user, current, mode, typed, name, operation_key, insecure=False)


def is_running(row: Slice, status: SliceStatus | None = None) -> bool:
    """Whether the slice serves, as far as is known: while the cluster does not answer, as it was last seen."""
    status = status or slice_status(row)
    known = status.diagnosis.reason if status.state == "cluster_unreachable" else status.state
    return row.ended_at is None and row.intent == Slice.Intent.RUN and known in RUNNING


def _current(locked: Locked, row: Slice, *, when_running: bool = False) -> Slice:
    """Read the slice under the lock and refuse where it cannot be asked."""
    current = Slice.objects.select_related("project", "package", "order").get(
        pk=row.pk, project=locked.project
    )
    if not is_ollama(current):
        raise OrderRefused(
            "not_ollama",
            Text(gettext_noop("“%(name)s” does not run Ollama."), {"name": current.display_name}),
            Text(gettext_noop("Order a slice with the template Ollama to fetch models from here.")),
        )
    status = slice_status(current)
    on_its_way = when_running and current.ended_at is None and current.intent == Slice.Intent.RUN
    if not on_its_way and not is_running(current, status):
        raise OrderRefused(
            "slice_not_running",
            Text(
                gettext_noop("“%(name)s” is not running: %(state)s."),
                {"name": current.display_name, "state": status.state_label},
            ),
            Text(gettext_noop("Start it, or wait until it runs, and then try again.")),
        )
    return current


def _earlier(row: Slice, operation_key: str) -> ModelPull | None:
    return ModelPull.objects.filter(slice=row, operation_key=operation_key).first() if operation_key else None


def _on_volume(row: Slice, name: ModelName) -> ModelOnVolume | None:
    return ModelOnVolume.objects.filter(slice=row, name__iexact=name.shortest).first()


def _insecure(name: ModelName) -> bool:
    """Whether the registry is one of the house that is reached over plain HTTP."""
    house = HouseRegistry.objects.filter(host=name.host.lower(), insecure=True).exists()
    if name.scheme == "http" and not house:
        raise _invalid(
            Text(
                gettext_noop("The registry %(host)s is not listed as one that is reached over plain HTTP."),
                {"host": name.host},
            ),
            Text(gettext_noop("Leave out http://, or let an operator of the platform list the registry.")),
        )
    return house


def _insert(
    locked: Locked,
    user: User | None,
    row: Slice,
    mode: ModelPull.Mode,
    typed: str,
    name: ModelName | None,
    operation_key: str,
    insecure: bool,
) -> ModelPull:
    pull = ModelPull.objects.create(
        slice=row,
        actor=user,
        mode=mode,
        model=typed.strip(),
        model_key=name.key if name else "",
        insecure=insecure,
        operation_key=operation_key,
        job_name=new_job_name(row.app),
    )
    if user is not None and mode != MODE.LIST:
        _note(row, user, f"{mode}_asked", pull.model)
    enqueue.pull(pull.pk)
    return pull


def new_job_name(app: str) -> str:
    """Return the name of a Job that never was: every try gets a new one (case C-13)."""
    token = get_random_string(TOKEN_LENGTH, "abcdefghijklmnopqrstuvwxyz0123456789")
    return names.pull_job_name(app, token)


def _busy(pull: ModelPull) -> OrderRefused:
    msgid = {
        "pull": gettext_noop("%(model)s is being fetched just now."),
        "delete": gettext_noop("%(model)s is being deleted just now."),
        "check": gettext_noop("%(model)s is being checked just now."),
    }[pull.mode]
    return OrderRefused(
        "busy", Text(msgid, {"model": pull.model}), Text(gettext_noop("Wait until that has ended."))
    )


def _invalid(sentence: Text, mend: Text) -> InvalidOrder:
    finding = Finding(rule="model-name", place="model", sentence=sentence, mend=mend, level="refused")
    return InvalidOrder("bad_model_name", sentence, mend, fields=[finding])


def _number(text: str | None, default: int) -> int:
    if not text or not text.isascii() or not text.isdigit() or len(text) > 9:
        return default
    return int(text) or default


def _note(row: Slice, user: User | None, code: str, model: str) -> None:
    TimelineEntry.objects.create(slice=row, actor=user, code=code, params={"message": model})
