"""Container logs as the API server passes them on from a kubelet."""

import datetime
import time
from collections.abc import Iterator

from sandbox import refusals
from sandbox.api import Obj
from sandbox.store import Store

_FOLLOW_PAUSE = 0.2


def stamped(text: str) -> str:
    """Lines with the moment they were written in front, as they are stored."""
    moment = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return "".join(f"{moment} {line}\n" for line in text.splitlines())


def container_of(pod: Obj, wanted: str | None) -> str:
    """The container whose log is meant; 400 where that is not clear or there is no such one."""
    name = pod["metadata"]["name"]
    names = [container["name"] for container in pod["spec"]["containers"]]
    if wanted is None:
        if len(names) > 1:
            raise refusals.bad_request(
                f"a container name must be specified for pod {name}, choose one of: [{' '.join(names)}]"
            )
        return str(names[0])
    if wanted not in names:
        raise refusals.bad_request(f"container {wanted} is not valid for pod {name}")
    return wanted


def text(store: Store, pod: Obj, container: str, query: dict[str, str]) -> str:
    """The log by the request's parameters; 400 where the container has not begun or has no earlier run."""
    metadata = pod["metadata"]
    previous = query.get("previous") in ("true", "1")
    if not store.has_log(metadata["namespace"], metadata["name"], container, previous):
        if previous:
            raise refusals.bad_request(
                f'previous terminated container "{container}" in pod "{metadata["name"]}" not found'
            )
        _refuse_waiting(pod, container)
    lines = store.log(metadata["namespace"], metadata["name"], container, previous).splitlines()
    if "sinceSeconds" in query:
        age = datetime.timedelta(seconds=int(query["sinceSeconds"]))
        oldest = (datetime.datetime.now(datetime.UTC) - age).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        lines = [line for line in lines if line >= oldest]
    if "tailLines" in query:
        count = int(query["tailLines"])
        lines = lines[-count:] if count else []
    if query.get("timestamps") not in ("true", "1"):
        lines = [line.partition(" ")[2] for line in lines]
    whole = "".join(f"{line}\n" for line in lines)
    if "limitBytes" in query:
        whole = whole.encode()[: int(query["limitBytes"])].decode(errors="ignore")
    return whole


def _refuse_waiting(pod: Obj, container: str) -> None:
    name = pod["metadata"]["name"]
    if not pod["spec"].get("nodeName"):
        raise refusals.bad_request(f"pod {name} does not have a host assigned")
    for status in pod.get("status", {}).get("containerStatuses", []):
        waiting = status.get("state", {}).get("waiting")
        if status["name"] == container and waiting is not None:
            reason = waiting.get("reason", "ContainerCreating")
            raise refusals.bad_request(
                f'container "{container}" in pod "{name}" is waiting to start: {waiting.get("message") or reason}'
            )


def follow(store: Store, pod: Obj, container: str, query: dict[str, str]) -> Iterator[str]:
    """The log so far and what is added to it, until the container has ended or the pod is gone."""
    namespace, name, uid = (pod["metadata"][field] for field in ("namespace", "name", "uid"))
    yield text(store, pod, container, query)
    stamps = query.get("timestamps") in ("true", "1")
    seen = store.log(namespace, name, container)
    while True:
        time.sleep(_FOLLOW_PAUSE)
        stored = store.get("Pod", namespace, name)
        present = store.log(namespace, name, container)
        if present != seen:
            fresh = present[len(seen) :] if present.startswith(seen) else present
            seen = present
            yield "".join(f"{line if stamps else line.partition(' ')[2]}\n" for line in fresh.splitlines())
        if stored is None or stored.obj["metadata"]["uid"] != uid or _has_ended(stored.obj, container):
            return


def _has_ended(pod: Obj, container: str) -> bool:
    if pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):
        return True
    return any(
        status["name"] == container and "terminated" in status.get("state", {})
        for status in pod.get("status", {}).get("containerStatuses", [])
    )
