"""A pod that has a server: its image, its start, its crashes, its readiness, its server's silence."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from gpu.diagnosis import volumes
from gpu.diagnosis.crashes import crashed, ended, restarted_lately
from gpu.diagnosis.model import Diagnosis, Object
from gpu.diagnosis.view import (
    View,
    condition,
    container_status,
    created,
    deleting,
    detail,
    event_message,
    event_time,
    holds,
    moment,
    status,
)
from gpu.messages import Text, gettext_noop

READY_PATIENCE = timedelta(minutes=10)
"""How long a container may run without being ready before it counts as never becoming so."""

STEADY = timedelta(minutes=1)
LOOPING = 2
"""A container restarted this often counts as crashing until it has run for `STEADY`, lest the page flicker."""

_IMAGE_WAITS = (
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "ImageInspectError",
    "RegistryUnavailable",
)
_CRASH_WAITS = ("CrashLoopBackOff", "CreateContainerConfigError", "CreateContainerError", "RunContainerError")

# Why an image cannot be fetched, by what registries and container runtimes say.
_IMAGE_CAUSES = (
    ("registry_limit", re.compile(r"toomanyrequests|429 Too Many|pull rate limit", re.IGNORECASE)),
    (
        "image_denied",
        re.compile(
            r"unauthorized|authentication required|access denied|denied:|403 Forbidden", re.IGNORECASE
        ),
    ),
    (
        "image_not_found",
        re.compile(r"manifest unknown|not found|repository does not exist|no such image", re.IGNORECASE),
    ),
    (
        "registry_unreachable",
        re.compile(
            r"no such host|timeout|connection refused|connection reset|x509|TLS|dial tcp", re.IGNORECASE
        ),
    ),
    ("node_disk_full", re.compile(r"no space left on device", re.IGNORECASE)),
)
_IMAGE_SENTENCES = {
    "image_name_invalid": gettext_noop("The image's name is not valid: %(image)s"),
    "image_not_found": gettext_noop("The registry does not know the image %(image)s."),
    "image_denied": gettext_noop(
        "The registry does not give out the image %(image)s: it does not exist or needs a login."
    ),
    "registry_limit": gettext_noop("The registry lets nobody fetch more images for now: %(image)s"),
    "registry_unreachable": gettext_noop("The registry of the image %(image)s does not answer."),
    "node_disk_full": gettext_noop("The server has no disk left for the image %(image)s."),
    "pull_failed": gettext_noop("The image %(image)s cannot be fetched: %(detail)s"),
}
_IMAGE_MENDS = {
    "node_disk_full": Text(gettext_noop("An operator of the platform must make room on the server.")),
    "registry_limit": Text(
        gettext_noop("It is tried again by itself. A registry of your own has no such limit.")
    ),
    "registry_unreachable": Text(
        gettext_noop("It is tried again by itself. Check the registry's name, and whether it is up.")
    ),
}
_CHECK_IMAGE = Text(gettext_noop("Check the image's name and tag, and change the image."))
_NODE_OPERATOR = Text(gettext_noop("An operator of the platform must look at the server."))


def scheduled(view: View, pod: Object, now: datetime) -> Diagnosis:
    """The pod has a server: how far its container is."""
    container = container_status(pod)
    state = container.get("state") or {}
    waiting, terminated = state.get("waiting") or {}, state.get("terminated")
    reason = str(waiting.get("reason") or "")
    if reason in _IMAGE_WAITS:
        return _image_failed(view, pod, container, waiting)
    if (
        reason in _CRASH_WAITS
        or terminated
        or (waiting and (container.get("lastState") or {}).get("terminated"))
    ):
        return crashed(view, pod, container)
    if state.get("running"):
        return _running(view, pod, container, now)
    return _before_start(view, pod, reason, now)


def node_lost(pod: Object) -> bool:
    """Whether the pod's server has stopped answering.

    Nobody but the node controller turns `Ready` off while the container itself still counts as ready: the kubelet,
    which would change both, is silent.
    """
    if status(pod).get("reason") == "NodeLost":
        return True
    ready, containers = condition(pod, "Ready"), condition(pod, "ContainersReady")
    return (
        ready is not None
        and ready.get("status") != "True"
        and containers is not None
        and containers.get("status") == "True"
        and container_status(pod).get("ready") is True
        and "readinessGates" not in (pod.get("spec") or {})
    )


def lost(view: View, pod: Object) -> Diagnosis:
    """The server of `pod` does not answer; a newer pod may wait for what the old one still holds."""
    waits = view.pod is not None and view.pod is not pod
    ready = condition(pod, "Ready") or {}
    return Diagnosis(
        "node_lost",
        "replacement_waits" if waits else "node_lost",
        Text(
            gettext_noop(
                "Its server does not answer, and still holds the slice that the new container waits for."
            )
            if waits
            else gettext_noop("The server it runs on does not answer.")
        ),
        "operator",
        Text(
            gettext_noop(
                "An operator of the platform must look at the server. It goes on by itself once it answers."
            )
        ),
        "Terminating" if deleting(pod) else "Running: NodeLost",
        moment(ready.get("lastTransitionTime")),
    )


def _image_failed(
    view: View, pod: Object, container: Mapping[str, Any], waiting: Mapping[str, Any]
) -> Diagnosis:
    term, since, message = str(waiting["reason"]), created(pod), str(waiting.get("message") or "")
    event = view.last_event(
        pod,
        lambda each: (
            each.get("reason") == "Failed" and event_message(each).startswith("Failed to pull image")
        ),
    )
    if event is not None:
        since = moment(event.get("firstTimestamp")) or event_time(event)
        message = f"{message} {event_message(event)}"
    if term == "InvalidImageName":
        code = "image_name_invalid"
    else:
        code = next((name for name, phrase in _IMAGE_CAUSES if phrase.search(message)), "pull_failed")
    image = str(container.get("image") or "")
    params: dict[str, object] = {"image": image}
    if code == "pull_failed":
        params["detail"] = detail(message)
    return Diagnosis(
        "image_failed",
        code,
        Text(_IMAGE_SENTENCES[code], params),
        "operator" if code == "node_disk_full" else "member",
        _IMAGE_MENDS.get(code, _CHECK_IMAGE),
        term,
        since,
    )


_BEFORE_START = (
    "FailedMount",
    "FailedAttachVolume",
    "FailedCreatePodSandBox",
    "FailedPrepareDynamicResources",
    "Pulling",
    "Pulled",
    "Created",
    "Started",
    "SuccessfulAttachVolume",
)


def _before_start(view: View, pod: Object, reason: str, now: datetime) -> Diagnosis:
    """Given a server, and the container does not exist yet."""
    term = f"Pending: {reason or 'ContainerCreating'}"
    scheduled_at = moment((condition(pod, "PodScheduled") or {}).get("lastTransitionTime")) or created(pod)
    event = view.last_reason(pod, *_BEFORE_START)
    last = "" if event is None else str(event.get("reason"))
    message = "" if event is None else event_message(event)
    at = scheduled_at if event is None else moment(event.get("firstTimestamp")) or event_time(event)
    if last in ("FailedMount", "FailedAttachVolume"):
        code, sentence = (
            ("mount_failed", gettext_noop("Its volume cannot be mounted: %(detail)s"))
            if last == "FailedMount"
            else (
                "attach_failed",
                gettext_noop("Its volume is still held elsewhere or cannot be attached: %(detail)s"),
            )
        )
        return volumes.waiting(code, Text(sentence, {"detail": detail(message)}), at, now, last)
    if last in ("FailedCreatePodSandBox", "FailedPrepareDynamicResources"):
        code, sentence = (
            ("network_failed", gettext_noop("The server cannot prepare its network: %(detail)s"))
            if last == "FailedCreatePodSandBox"
            else (
                "card_not_prepared",
                gettext_noop("The server cannot prepare its slice of the card: %(detail)s"),
            )
        )
        return Diagnosis(
            "waiting_for_node",
            code,
            Text(sentence, {"detail": detail(message)}),
            "operator",
            _NODE_OPERATOR,
            last,
            at,
        )
    if last == "Pulling":
        return Diagnosis(
            "pulling_image",
            "pulling",
            Text(gettext_noop("The server is fetching the image.")),
            platform_term=term,
            since=at,
        )
    return Diagnosis(
        "starting",
        "container_creating",
        Text(gettext_noop("It has a card, and its container is being made.")),
        platform_term=term,
        since=at,
    )


def _running(view: View, pod: Object, container: Mapping[str, Any], now: datetime) -> Diagnosis:
    """The container runs: ready or not, and whether it was killed lately."""
    started = moment((container["state"]["running"] or {}).get("startedAt"))
    restarts = int(container.get("restartCount") or 0)
    if restarts >= LOOPING and started is not None and now - started < STEADY and ended(container):
        return crashed(view, pod, container)
    if holds(pod, "Ready"):
        since = moment((condition(pod, "Ready") or {}).get("lastTransitionTime"))
        limited = restarted_lately(container, now, since)
        if limited is not None:
            return limited
        return Diagnosis(
            "running",
            "ready",
            Text(gettext_noop("It runs and is ready.")),
            platform_term="Running",
            since=since,
        )
    probe = view.last_reason(pod, "Unhealthy")
    if probe is not None and started is not None and (event_time(probe) or started) < started:
        probe = None
    said = (
        Text(gettext_noop("Its last check said: %(detail)s"), {"detail": detail(event_message(probe))})
        if probe
        else None
    )
    if started is not None and now - started >= READY_PATIENCE:
        return Diagnosis(
            "starting",
            "never_ready",
            Text(gettext_noop("It runs, but it has not become ready for more than ten minutes.")),
            "member",
            Text(gettext_noop("Read its log, and check the port and what it answers there.")),
            "Running: not ready",
            started,
            (said,) if said else (),
        )
    return Diagnosis(
        "starting",
        "not_ready",
        Text(gettext_noop("Its container runs and is not ready yet.")),
        platform_term="Running: not ready",
        since=started,
        causes=(said,) if said else (),
    )
