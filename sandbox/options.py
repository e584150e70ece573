"""What can be set about the pretended cluster: its nodes, and every pause of its controllers."""

from collections.abc import Mapping
from dataclasses import dataclass, field

DRIVER = "hami-core-gpu.project-hami.io"
PRODUCT = "Tesla V100-PCIE-32GB"


@dataclass(frozen=True)
class NodeSpec:
    """One pretended machine; sizes are Kubernetes quantities."""

    name: str
    cpu: str = "16"
    memory: str = "64Gi"
    pods: str = "110"
    cards: int = 1
    card_memory: str = "32Gi"
    product: str = PRODUCT


@dataclass(frozen=True)
class Options:
    """Pauses are in seconds. The defaults are Kubernetes' own unless a comment says why not."""

    nodes: tuple[NodeSpec, ...] = (NodeSpec("gpu-node-1"), NodeSpec("gpu-node-2"))
    retry_base: float = 0.005
    retry_cap: float = 60.0  # Kubernetes waits up to 1000 s: too long for somebody who tries things out
    resync: float = 300.0
    lease_renewal: float = 10.0
    node_grace: float = 40.0
    crash_backoff: float = 10.0
    crash_backoff_cap: float = 300.0
    pull_backoff: float = 10.0
    job_backoff: float = 10.0
    event_ttl: float = 3600.0
    pull_seconds: float = 0.1
    slow_seconds: float = 5.0
    job_seconds: float = 2.0
    crash_after: float = 0.5
    log_seconds: float = 120.0  # a running container writes a line a second for this long, then one a minute
    default_storage_class: str | None = "standard"
    silent_nodes: frozenset[str] = frozenset()
    # For containers that run as processes: folders inside the image, and variables that win over the pod's.
    process_paths: Mapping[str, str] = field(default_factory=dict)
    process_env: Mapping[str, str] = field(default_factory=dict)
    volumes: str | None = None  # the folder for what servers keep on claims; None: a temporary one
    ollama_seconds: float = 12.0  # how long the stand-in for Ollama takes to pull an ordinary model
