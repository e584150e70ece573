"""A container that ended: out of memory, a wrong command, a failed check, an error of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from gpu.diagnosis.model import Diagnosis, Object
from gpu.diagnosis.view import (
    View,
    container_status,
    created,
    detail,
    event_message,
    event_time,
    moment,
    status,
)
from gpu.limits import amount
from gpu.messages import Count, Text, gettext_noop
from gpu.quantities import QuantityError, parse

REMEMBERED = timedelta(hours=1)
"""How long a container that serves again is shown as limited after it was restarted."""

KILLED = 137
NOT_EXECUTABLE = (126, 127)

_MORE_MEMORY = Text(
    gettext_noop("Change the slice and give it more memory; the memory of the card is not the cause.")
)
_READ_LOG = Text(
    gettext_noop("Read its log, mend the command, the image or the settings, and change the slice.")
)
_CHECK_COMMAND = Text(gettext_noop("Check the command and the image, and change the slice."))
_CANNOT_START = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError")
_NO_COMMAND = ("executable file not found", "no such file or directory", "permission denied: unknown")


def ended(container: Mapping[str, Any]) -> Mapping[str, Any]:
    """How the container ended last: now, or before its present restart; empty where it never did."""
    now = (container.get("state") or {}).get("terminated")
    before = (container.get("lastState") or {}).get("terminated")
    return now or before or {}


def is_out_of_memory(terminated: Mapping[str, Any]) -> bool:
    """Whether the server's kernel killed it for the memory it took."""
    return terminated.get("reason") == "OOMKilled"


def memory_limit(pod: Object) -> object | None:
    """The container's memory limit for a sentence, None where there is none."""
    containers: Sequence[Mapping[str, Any]] = (pod.get("spec") or {}).get("containers") or ()
    resources = (containers[0].get("resources") or {}) if containers else {}
    text = (resources.get("limits") or {}).get("memory")
    try:
        return None if text is None else amount("limits.memory", parse(text))
    except QuantityError:
        return None


def crashed(view: View, pod: Object, container: Mapping[str, Any]) -> Diagnosis:
    """The container has ended, or cannot even be started, and is tried again and again."""
    waiting = (container.get("state") or {}).get("waiting") or {}
    term = str(waiting.get("reason") or "Error")
    terminated = ended(container)
    since = moment(terminated.get("finishedAt")) or created(pod)
    if term in _CANNOT_START and not is_out_of_memory(terminated):
        return _cannot_start(waiting, term, since)
    code = terminated.get("exitCode")
    if is_out_of_memory(terminated):
        limit = memory_limit(pod)
        sentence = (
            Text(gettext_noop("It used more than its %(limit)s of memory and was killed."), {"limit": limit})
            if limit is not None
            else Text(gettext_noop("It used more memory than the server has and was killed."))
        )
        return Diagnosis(
            "out_of_memory", "oom_killed", sentence, "member", _MORE_MEMORY, f"OOMKilled (exit {code})", since
        )
    term = f"{term} (exit {code})" if code is not None else term
    probe = _failed_probe(view, pod, moment(terminated.get("startedAt")))
    if probe is not None:
        return _crash(*probe, _READ_LOG, term, since)
    if code in NOT_EXECUTABLE or _says_no_command(terminated):
        return _crash(
            "command_not_found",
            Text(gettext_noop("Its command cannot be run in this image.")),
            _CHECK_COMMAND,
            term,
            since,
            _last_words(terminated),
        )
    if code == 0:
        return _crash(
            "ends_at_once",
            Text(gettext_noop("Its command ends without an error, and a slice has to keep running.")),
            _CHECK_COMMAND,
            term,
            since,
            _last_words(terminated),
        )
    if code == KILLED:
        return _crash(
            "killed",
            Text(gettext_noop("It was killed from outside; too little memory is the most common cause.")),
            _MORE_MEMORY,
            term,
            since,
            _last_words(terminated),
        )
    sentence = Text(gettext_noop("It ends with an error again and again."))
    if code is not None:
        sentence = Text(
            gettext_noop(
                "It ends with the exit code %(code)s again and again; restarts so far: %(restarts)s."
            ),
            {"code": code, "restarts": Count(int(container.get("restartCount") or 0))},
        )
    return _crash("exit_code", sentence, _READ_LOG, term, since, _last_words(terminated))


def _failed_probe(view: View, pod: Object, started: datetime | None) -> tuple[str, Text] | None:
    """Reason and sentence where the server killed the container for a failed probe since it `started`."""
    event = view.last_event(
        pod, lambda each: each.get("reason") == "Killing" and " probe, " in event_message(each)
    )
    at = None if event is None else event_time(event)
    if event is None or (at is not None and started is not None and at < started):
        return None
    if "startup probe" in event_message(event):
        sentence = gettext_noop("It did not start in the time it is given and was restarted.")
        return "startup_failed", Text(sentence)
    sentence = gettext_noop("It stopped answering its health check and was restarted.")
    return "liveness_failed", Text(sentence)


def _says_no_command(terminated: Mapping[str, Any]) -> bool:
    return terminated.get("reason") in ("ContainerCannotRun", "StartError") and any(
        phrase in str(terminated.get("message") or "") for phrase in _NO_COMMAND
    )


def _last_words(terminated: Mapping[str, Any]) -> tuple[Text, ...]:
    """What the container itself wrote as its reason to end, if it wrote any."""
    words = detail(terminated.get("message"))
    return (Text(gettext_noop("Its last words: %(words)s"), {"words": words}),) if words else ()


def _crash(
    reason: str,
    sentence: Text,
    mend: Text,
    term: str,
    since: datetime | None,
    causes: tuple[Text, ...] = (),
) -> Diagnosis:
    return Diagnosis("crashing", reason, sentence, "member", mend, term, since, causes)


def _cannot_start(waiting: Mapping[str, Any], term: str, since: datetime | None) -> Diagnosis:
    message = str(waiting.get("message") or "")
    if any(phrase in message for phrase in _NO_COMMAND):
        sentence = Text(gettext_noop("Its command cannot be run in this image."))
        return _crash("command_not_found", sentence, _CHECK_COMMAND, term, since)
    if "non-root" in message or "runAsNonRoot" in message:
        sentence = Text(gettext_noop("Its image wants to run as root, which the platform does not allow."))
        return _crash("image_wants_root", sentence, _CHECK_COMMAND, term, since)
    sentence = Text(gettext_noop("Its container cannot be started: %(detail)s"), {"detail": detail(message)})
    return _crash("cannot_start", sentence, _CHECK_COMMAND, term, since)


def failed_pod(pod: Object) -> Diagnosis:
    """The whole pod has ended and no other has taken its place yet."""
    reason = str(status(pod).get("reason") or status(pod).get("phase"))
    since = moment(ended(container_status(pod)).get("finishedAt")) or created(pod)
    if reason == "Evicted":
        return Diagnosis(
            "crashing",
            "evicted",
            Text(
                gettext_noop("Its server ran short of memory or disk and ended it: %(detail)s"),
                {"detail": detail(status(pod).get("message"))},
            ),
            "operator",
            Text(
                gettext_noop(
                    "It is started again by itself. If it happens often, an operator must look at it."
                )
            ),
            reason,
            since,
        )
    return Diagnosis(
        "crashing",
        "pod_failed",
        Text(
            gettext_noop("The server ended it: %(detail)s"),
            {"detail": detail(status(pod).get("message") or reason)},
        ),
        "operator",
        Text(
            gettext_noop("It is started again by itself. If it happens often, an operator must look at it.")
        ),
        reason,
        since,
    )


def restarted_lately(container: Mapping[str, Any], now: datetime, since: datetime | None) -> Diagnosis | None:
    """A container that serves again and was restarted within `REMEMBERED`; None where it was not."""
    before = (container.get("lastState") or {}).get("terminated") or {}
    at = moment(before.get("finishedAt"))
    restarts = int(container.get("restartCount") or 0)
    if not before or restarts == 0 or at is None or now - at > REMEMBERED:
        return None
    term = f"Running: {before.get('reason') or 'Error'} (exit {before.get('exitCode')})"
    if is_out_of_memory(before):
        return Diagnosis(
            "running_degraded",
            "restarted_out_of_memory",
            Text(gettext_noop("It serves again after it was killed for using more memory than it may.")),
            "member",
            _MORE_MEMORY,
            term,
            since,
        )
    return Diagnosis(
        "running_degraded",
        "restarted",
        Text(
            gettext_noop("It serves again after it ended by itself; restarts so far: %(restarts)s."),
            {"restarts": Count(restarts)},
        ),
        "member",
        _READ_LOG,
        term,
        since,
        _last_words(before),
    )
