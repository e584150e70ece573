"""What the diagnosis takes and gives, and the table of states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal

from gpu.headroom import Shortage
from gpu.messages import Text, gettext_noop

Object = Mapping[str, Any]
Who = Literal["nobody", "member", "owner", "operator"]

LATE = timedelta(seconds=30)
"""How long our own action may wait for a worker before that is said."""

HELD_UP = ("work_stands_still", "not_taken_up")
"""Reasons of a slice whose intent no worker has taken up, in whatever state it is."""

NOTHING_TO_DO = Text(gettext_noop("Nothing. It goes on by itself."))


@dataclass(frozen=True)
class Degraded:
    """Why a slice that runs does not do what was paid for, as checks and its log have shown; `operator` must act."""

    reason: str
    sentence: Text
    mend: Text
    operator: bool = False


@dataclass(frozen=True)
class Intent:
    """What a Slice row says: what is wanted, and how our own action went.

    `wanted` is "run", "stop" or "release"; `action` is "pending", "applied", "retrying", "refused",
    "needs_operator" or "released". `action_message` holds the platform's own words, `action_at` when our own
    action last ended, where that is known. `due_at` is since when it waits for a worker, None where it does not;
    `begun` whether one has begun with it; `idle` whether no worker gives a sign of life.
    """

    slice_id: str
    app: str
    namespace: str
    wanted: str
    action: str
    action_code: str
    action_message: str
    action_policy: str
    ordered_at: datetime
    device_class: str
    package_label: str
    has_volume: bool
    has_port: bool
    generation: int
    action_at: datetime | None = None
    degraded: Degraded | None = None
    due_at: datetime | None = None
    begun: bool = False
    idle: bool = False


@dataclass(frozen=True)
class Seen:
    """What the watcher last saw: objects by kind, with Kubernetes' field names.

    `as_of` is None before anything was seen; `reachable` is False while the cluster does not answer.
    """

    objects: Mapping[str, Sequence[Object]]
    as_of: datetime | None
    reachable: bool


@dataclass(frozen=True)
class Step:
    """One step on the way to a ready slice; `at` is when it was done, where that is known."""

    code: str
    state: Literal["done", "current", "waiting", "failed"]
    at: datetime | None = None


@dataclass(frozen=True)
class Diagnosis:
    """Where a slice stands, why, who can act, and what to do next.

    `state` is a code of `STATES`, `reason` a finer stable code below it. `causes` are further causes beside the
    first. `platform_term` is Kubernetes' own word for it. `settled` is True where nothing is expected to change
    soon, so that a page may stop asking.
    """

    state: str
    reason: str
    sentence: Text
    who: Who = "nobody"
    next_step: Text = NOTHING_TO_DO
    platform_term: str = ""
    since: datetime | None = None
    causes: tuple[Text, ...] = ()
    steps: tuple[Step, ...] = ()
    shortage: Shortage | None = field(default=None)
    settled: bool = False


@dataclass(frozen=True)
class StateInfo:
    """How a state is shown: an English message id, a colour, and the name of a Tabler icon."""

    label: str
    colour: Literal["blue", "amber", "red", "green", "grey"]
    icon: str


STATES: Mapping[str, StateInfo] = {
    "ordered": StateInfo(gettext_noop("Ordered, being set up"), "blue", "loader-2"),
    "waiting_for_card": StateInfo(gettext_noop("Waiting for a free card"), "amber", "hourglass"),
    "entitlement_used_up": StateInfo(gettext_noop("Your entitlement is used up"), "amber", "stack-2"),
    "blocked_by_quota": StateInfo(gettext_noop("Not enough quota left in the project"), "amber", "gauge"),
    "blocked_by_policy": StateInfo(gettext_noop("Refused by the platform"), "red", "shield-off"),
    "waiting_for_volume": StateInfo(gettext_noop("Waiting for its volume"), "amber", "database"),
    "waiting_for_node": StateInfo(gettext_noop("No server can take it"), "amber", "server-2"),
    "pulling_image": StateInfo(gettext_noop("Fetching the image"), "blue", "cloud-download"),
    "image_failed": StateInfo(gettext_noop("The image cannot be fetched"), "red", "photo-off"),
    "starting": StateInfo(gettext_noop("Started, not ready yet"), "blue", "rocket"),
    "running": StateInfo(gettext_noop("Running"), "green", "circle-check"),
    "running_degraded": StateInfo(gettext_noop("Running with limitations"), "amber", "alert-triangle"),
    "crashing": StateInfo(gettext_noop("Crashes again and again"), "red", "rotate-clockwise"),
    "out_of_memory": StateInfo(gettext_noop("Killed: out of memory (host)"), "red", "memory"),
    "node_lost": StateInfo(gettext_noop("Its server does not answer"), "red", "server-off"),
    "stopping": StateInfo(gettext_noop("Stopping"), "grey", "clock-pause"),
    "stopped": StateInfo(gettext_noop("Stopped"), "grey", "player-stop"),
    "releasing": StateInfo(gettext_noop("Being given back"), "grey", "arrow-back-up"),
    "released": StateInfo(gettext_noop("Given back"), "grey", "circle-dashed"),
    "refused": StateInfo(gettext_noop("Order refused"), "red", "circle-x"),
    "cluster_unreachable": StateInfo(gettext_noop("The cluster does not answer"), "grey", "cloud-off"),
    "missing": StateInfo(gettext_noop("Gone from the cluster without our doing"), "red", "ghost-2"),
}
