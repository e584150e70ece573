"""The controllers of the pretended cluster, and the way to start them all."""

import threading

from sandbox.api import Api
from sandbox.options import Options

KINDS = (
    "Namespace",
    "Node",
    "Lease",
    "StorageClass",
    "DeviceClass",
    "ResourceSlice",
    "LimitRange",
    "ResourceQuota",
    "ConfigMap",
    "Secret",
    "Service",
    "PersistentVolumeClaim",
    "ResourceClaimTemplate",
    "Deployment",
    "ReplicaSet",
    "Job",
    "Pod",
    "ResourceClaim",
)


def run_all(api: Api, stop: threading.Event, options: Options | None = None) -> list[threading.Thread]:
    """Start nodes, kubelet, scheduler and controllers; they end after ``stop`` is set.

    Returns once the nodes are registered and everything runs. Join the threads before closing the store.
    """
    # Imported here: scheduler and kubelet stand beside this package and use modules of it.
    from sandbox.controllers.claims import ClaimRelease, PodClaims
    from sandbox.controllers.deployments import Deployments
    from sandbox.controllers.engine import Engine
    from sandbox.controllers.events import EventExpiry
    from sandbox.controllers.garbage import Garbage, Namespaces
    from sandbox.controllers.jobs import Jobs
    from sandbox.controllers.quota import QuotaStatus
    from sandbox.controllers.replicasets import ReplicaSets
    from sandbox.controllers.volumes import Volumes
    from sandbox.kubelet import run_kubelet
    from sandbox.node import NodeLifecycle
    from sandbox.scheduler import Scheduler

    options = options or Options()
    threads = run_kubelet(api, stop, options)
    engine = Engine(api, KINDS, options, stop)
    for controller in (
        Namespaces,
        NodeLifecycle,
        Volumes,
        Deployments,
        ReplicaSets,
        Jobs,
        PodClaims,
        Scheduler,
        ClaimRelease,
        Garbage,
        QuotaStatus,
        EventExpiry,
    ):
        engine.add(controller(engine))
    return threads + engine.run()
