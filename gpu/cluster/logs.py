"""The log of a slice's container, short enough to store and free of what a tenant must not learn."""

from __future__ import annotations

from gpu import names
from gpu.cluster.client import Cluster
from gpu.cluster.errors import InvalidObject, NoLogYet, NotFound
from gpu.cluster.stream import Object
from gpu.manifests import CONTAINER
from gpu.redact import redact

TAIL_LINES = 1000
LIMIT_BYTES = 256 * 1024


def fetch_log(
    cluster: Cluster,
    namespace: str,
    app: str,
    *,
    previous: bool = False,
    tail_lines: int = TAIL_LINES,
    limit_bytes: int = LIMIT_BYTES,
) -> str:
    """The end of the log of the newest pod of `app`, or of the container before its last restart.

    Raises NoLogYet when no container has run, and any other ClusterError.
    """
    # A Job that pulls a model carries the app's name too, but never the GPU label.
    selector = f"{names.LABEL_NAME}={app},{names.LABEL_BACKEND}={names.BACKEND}"
    pods, _ = cluster.list("Pod", namespace, selector)
    if not pods:
        raise NoLogYet()
    pod = max(pods, key=_born)
    try:
        text = _newest_part(cluster, namespace, pod["metadata"]["name"], previous, tail_lines, limit_bytes)
    except (InvalidObject, NotFound) as error:
        # "container is waiting to start", "previous terminated container not found", or the pod has just gone
        raise NoLogYet(error.platform_message, status=error.status) from error
    node = pod.get("spec", {}).get("nodeName") or ""
    return redact(text, [node])


def _born(pod: Object) -> tuple[str, str]:
    return pod["metadata"].get("creationTimestamp") or "", pod["metadata"]["name"]


def _newest_part(
    cluster: Cluster, namespace: str, pod: str, previous: bool, tail_lines: int, limit_bytes: int
) -> str:
    """The last lines, as many as fit: the kubelet cuts a tail that is too long at its end, where the news is."""
    while True:
        text = cluster.pod_log(
            namespace, pod, CONTAINER, tail_lines=tail_lines, limit_bytes=limit_bytes, previous=previous
        )
        if len(text.encode()) < limit_bytes or tail_lines == 1:
            return text
        tail_lines = max(1, tail_lines // 4)
