"""The pretended kubelet: runs the pods that are bound to its nodes, and tells how they are."""

import argparse
import base64
import functools
import hashlib
import logging
import signal
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sandbox.api import Api, Obj
from sandbox.containers import NEVER, Container
from sandbox.controllers.engine import Controller, Engine
from sandbox.controllers.events import Recorder
from sandbox.controllers.objects import (
    condition,
    is_finished,
    is_going,
    name_of,
    namespace_of,
    now,
    uid_of,
)
from sandbox.http_api import HttpApi
from sandbox.images import behaviour
from sandbox.kubelet_server import serve_logs
from sandbox.node import NodeAgent, is_silent
from sandbox.ollama_core import OUT_OF_MEMORY
from sandbox.ollama_pods import ROOT, OllamaPods
from sandbox.options import NodeSpec, Options
from sandbox.processes import Process, ProcessRunner
from sandbox.quantity import parse

KINDS = ("Node", "Pod", "ResourceClaim")
MEBI = 1024 * 1024


@dataclass
class _Pod:
    """What runs of a pod."""

    uid: str
    containers: list[Container]
    processes: dict[str, Process] = field(default_factory=dict)
    exits: dict[str, tuple[int, str]] = field(default_factory=dict)


class Kubelet(Controller):
    """Runs pods; one of it serves all nodes it is told of."""

    name = "kubelet"

    def __init__(self, engine: Engine, nodes: Sequence[str]) -> None:
        super().__init__(engine)
        self.nodes = {node: Recorder(self.api, self.name, node) for node in nodes}
        self.runner = ProcessRunner(self.options.process_paths)
        self.ollama = OllamaPods(self.api, self.options)
        self._pods: dict[tuple[str | None, str], _Pod] = {}

    def observe(self, change: str, obj: Obj, before: Obj | None) -> None:
        if obj["kind"] == "Pod" and obj["spec"].get("nodeName") in self.nodes:
            self.enqueue(namespace_of(obj), name_of(obj))
        elif obj["kind"] == "Node" and name_of(obj) in self.nodes:
            silent = self.options.silent_nodes
            old = [one["status"] for one in ((before or {}).get("status") or {}).get("conditions") or []]
            new = [one["status"] for one in (obj.get("status") or {}).get("conditions") or []]
            if old != new or is_silent(before, silent) != is_silent(obj, silent):
                for pod in self.cache.list("Pod"):
                    if pod["spec"].get("nodeName") == name_of(obj):
                        self.enqueue(namespace_of(pod), name_of(pod))

    def close(self) -> None:
        for known in self._pods.values():
            _stop(known)

    def reconcile(self, namespace: str | None, name: str) -> float | None:
        pod = self.cache.get("Pod", namespace, name)
        known = self._pods.get((namespace, name))
        if known is not None and (pod is None or uid_of(pod) != known.uid):
            _stop(known)
            del self._pods[(namespace, name)]
            known = None
        if pod is None or pod["spec"].get("nodeName") not in self.nodes:
            return None
        if is_silent(self.cache.get("Node", None, pod["spec"]["nodeName"]), self.options.silent_nodes):
            return None
        if is_going(pod):
            self._end(pod, known)
            return None
        if is_finished(pod):
            return None
        if known is None:
            known = self._pods[(namespace, name)] = self._take_up(pod)
        self._advance(pod, known)
        self._write(pod, known)
        due = min((container.due for container in known.containers), default=NEVER)
        return None if due == NEVER else max(due - time.time(), 0.0)

    def _take_up(self, pod: Obj) -> _Pod:
        """A pod's containers, new or as its status left them when the sandbox was stopped."""
        memory = self._card_memory(pod)
        policy = pod["spec"].get("restartPolicy", "Always")
        title = f"{name_of(pod)}_{namespace_of(pod)}({uid_of(pod)})"
        known = _Pod(uid_of(pod), [])
        statuses = {one["name"]: one for one in (pod.get("status") or {}).get("containerStatuses") or []}
        for spec in pod["spec"]["containers"]:
            container = Container(spec, behaviour(spec, self.options, memory), self.options, policy, title)
            if spec["name"] in statuses:
                container.resume(statuses[spec["name"]], time.time())
                if container.running and container.behaviour.server:
                    self._run(pod, known, container)
                elif container.running and container.behaviour.process:
                    known.exits[container.name] = (255, "the process did not survive the end of its node")
            known.containers.append(container)
        return known

    def _card_memory(self, pod: Obj) -> int | None:
        """The memory in MiB of the first card share that the pod holds."""
        for status in (pod.get("status") or {}).get("resourceClaimStatuses") or []:
            claim = self.api.get("ResourceClaim", namespace_of(pod), status["resourceClaimName"])
            allocation = ((claim or {}).get("status") or {}).get("allocation") or {}
            for result in (allocation.get("devices") or {}).get("results") or []:
                memory = (result.get("consumedCapacity") or {}).get("memory")
                return int(parse(memory)) // MEBI if memory else None
        return None

    def _advance(self, pod: Obj, known: _Pod) -> None:
        for container in known.containers:
            tell = functools.partial(self._tell, pod, container)
            if container.name in known.exits and container.running:
                code, message = known.exits.pop(container.name)
                known.processes.pop(container.name, None)
                reason = "Error" if code else "Completed"
                if code == OUT_OF_MEMORY and container.behaviour.server:
                    code, reason = 137, "OOMKilled"
                container.end(time.time(), code, reason, message, tell)
            while container.due <= (at := time.time()):
                was_running = container.running
                container.step(at, tell)
                if container.running and not was_running:
                    self._begin(pod, known, container)
                self._log(pod, container, at)
            self._log(pod, container, time.time())

    def _begin(self, pod: Obj, known: _Pod, container: Container) -> None:
        if container.restarts:
            self.api.plain.rotate_log(str(namespace_of(pod)), name_of(pod), container.name)
        if container.behaviour.process:
            self._run(pod, known, container)

    def _run(self, pod: Obj, known: _Pod, container: Container) -> None:
        """Start the process that is, or stands for, the container's command."""
        namespace, name = str(namespace_of(pod)), name_of(pod)

        def exited(code: int, message: str) -> None:
            known.exits[container.name] = (code, message)
            self.enqueue(namespace, name)

        append = functools.partial(self.api.plain.append_log, namespace, name, container.name)
        argv = [*(container.spec.get("command") or []), *(container.spec.get("args") or [])]
        try:
            environment = self._environment(namespace, container.spec)
            if container.behaviour.server:
                argv = self.ollama.command(pod, container.spec, environment, self._card_memory(pod))
                environment["PYTHONPATH"] = str(ROOT)
            known.processes[container.name] = self.runner.start(argv, environment, append, exited)
        except (OSError, IndexError) as error:
            exited(127, f"cannot start {argv}: {error}")

    def _environment(self, namespace: str, spec: Obj) -> dict[str, str]:
        found: dict[str, str] = {}
        for variable in spec.get("env") or []:
            source = variable.get("valueFrom") or {}
            if reference := source.get("secretKeyRef"):
                secret = self.api.get("Secret", namespace, reference["name"]) or {}
                found[variable["name"]] = _decoded((secret.get("data") or {}).get(reference["key"], ""))
            elif reference := source.get("configMapKeyRef"):
                values = self.api.get("ConfigMap", namespace, reference["name"]) or {}
                found[variable["name"]] = (values.get("data") or {}).get(reference["key"], "")
            else:
                found[variable["name"]] = str(variable.get("value", ""))
        if "OLLAMA_URL" in found:
            found["OLLAMA_URL"] = self.ollama.address(namespace, found["OLLAMA_URL"])
        return found | dict(self.options.process_env)

    def _tell(self, pod: Obj, container: Container, type_: str, reason: str, message: str) -> None:
        recorder = self.nodes[pod["spec"]["nodeName"]]
        recorder.event(pod, type_, reason, message, f"spec.containers{{{container.name}}}")

    def _log(self, pod: Obj, container: Container, at: float) -> None:
        if container.started and (lines := container.words(at)):
            text = "".join(f"{line}\n" for line in lines)
            self.api.plain.append_log(str(namespace_of(pod)), name_of(pod), container.name, text)

    def _write(self, pod: Obj, known: _Pod) -> None:
        old = pod.get("status") or {}
        status = old | {
            "phase": _phase(known.containers),
            "containerStatuses": [container.status() for container in known.containers],
            "startTime": old.get("startTime") or now(),
            "podIP": old.get("podIP") or _address(pod),
        }
        status["podIPs"] = [{"ip": status["podIP"]}]
        status["conditions"] = _conditions(old.get("conditions") or [], status["phase"], known.containers)
        if status != old:
            self.api.update_status({**pod, "status": status})

    def _end(self, pod: Obj, known: _Pod | None) -> None:
        """A pod that is to go: its containers stop at once, and then it is gone."""
        for container in known.containers if known is not None else ():
            if container.running:
                self._tell(pod, container, "Normal", "Killing", f"Stopping container {container.name}")
                container.restart_policy = "Never"
                container.end(time.time(), 137, "Error", "", functools.partial(self._tell, pod, container))
        if known is not None:
            _stop(known)
        if pod["metadata"].get("finalizers") and not is_finished(pod):
            # Somebody waits for its end, such as the Job that counts it.
            status = {**(pod.get("status") or {}), "phase": "Failed"}
            if known is not None:
                status["containerStatuses"] = [container.status() for container in known.containers]
                status["conditions"] = _conditions(status.get("conditions") or [], "Failed", known.containers)
            pod = self.api.update_status({**pod, "status": status})
        self.api.delete(pod, grace_seconds=0)


def _stop(known: _Pod) -> None:
    for process in known.processes.values():
        threading.Thread(target=process.stop, daemon=True).start()
    known.processes.clear()


def _decoded(text: str) -> str:
    return base64.b64decode(text).decode(errors="replace")


def _address(pod: Obj) -> str:
    """An address of the pods' network; the same for the same pod, though perhaps not its alone."""
    digest = hashlib.sha256(uid_of(pod).encode()).digest()
    return f"10.1.{digest[0]}.{digest[1] % 253 + 2}"


def _phase(containers: Sequence[Container]) -> str:
    if containers and all(container.stage == "ended" for container in containers):
        good = all((container.ended or {}).get("exitCode") == 0 for container in containers)
        return "Succeeded" if good else "Failed"
    begun = all(container.running or container.ended is not None for container in containers)
    return "Running" if begun else "Pending"


def _conditions(old: Sequence[Obj], phase: str, containers: Sequence[Container]) -> list[Obj]:
    reason = message = ""
    if phase in ("Succeeded", "Failed"):
        reason = "PodCompleted" if phase == "Succeeded" else "PodFailed"
    elif unready := [container.name for container in containers if not container.ready]:
        reason, message = "ContainersNotReady", f"containers with unready status: [{' '.join(unready)}]"
    ready = "False" if reason else "True"
    scheduled = condition(old, "PodScheduled")
    found = [
        _condition(old, "Initialized", "True"),
        _condition(old, "Ready", ready, reason, message),
        _condition(old, "ContainersReady", ready, reason, message),
        _condition(old, "PodScheduled", "True") if scheduled is None else scheduled,
    ]
    known = {one["type"] for one in found}
    return found + [one for one in old if one["type"] not in known]


def _condition(old: Sequence[Obj], type_: str, status: str, reason: str = "", message: str = "") -> Obj:
    before = condition(old, type_)
    same = before is not None and before["status"] == status
    found: Obj = {
        "type": type_,
        "status": status,
        "lastProbeTime": None,
        "lastTransitionTime": before["lastTransitionTime"] if same and before is not None else now(),
    }
    if reason:
        found["reason"] = reason
    if message:
        found["message"] = message
    return found


def run_kubelet(
    api: Api, stop: threading.Event, options: Options, address: tuple[str, int] | None = None
) -> list[threading.Thread]:
    """Register the nodes of ``options``, then run the pods on them until ``stop``."""
    engine = Engine(api, KINDS, options, stop)
    engine.add(NodeAgent(engine, options.nodes, address))
    engine.add(Kubelet(engine, [spec.name for spec in options.nodes]))
    return engine.run()


def main() -> None:
    """``python -m sandbox.kubelet``: pretended nodes of a real control plane."""
    parser = argparse.ArgumentParser(prog="python -m sandbox.kubelet", description=main.__doc__)
    parser.add_argument("--server", required=True, help="address of the API server")
    parser.add_argument("--token", help="bearer token")
    parser.add_argument("--token-file", type=Path, help="file with the bearer token")
    parser.add_argument("--ca", help="certificate of the server; without it https is not verified")
    parser.add_argument("--node", action="append", help="name of a node; may be given again")
    parser.add_argument("--cpu", default="16", help="cores of each node")
    parser.add_argument("--memory", default="64Gi", help="memory of each node")
    parser.add_argument("--cards", type=int, default=1, help="cards of each node")
    parser.add_argument("--silent", action="append", default=[], help="a node that never renews its lease")
    parser.add_argument("--address", default="127.0.0.1", help="where to serve container logs")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument(
        "--map", action="append", default=[], metavar="INSIDE=OUTSIDE", help="see ProcessRunner"
    )
    parser.add_argument(
        "--env", action="append", default=[], metavar="NAME=VALUE", help="for processes of pods"
    )
    arguments = parser.parse_args()
    token = arguments.token or (arguments.token_file.read_text().strip() if arguments.token_file else "")
    if not token:
        parser.error("give --token or --token-file")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    names = arguments.node or ["gpu-node-1", "gpu-node-2"]
    size = {"cpu": arguments.cpu, "memory": arguments.memory, "cards": arguments.cards}
    options = Options(
        nodes=tuple(NodeSpec(name, **size) for name in names),
        silent_nodes=frozenset(arguments.silent),
        process_paths=dict(pair.split("=", 1) for pair in arguments.map),
        process_env=dict(pair.split("=", 1) for pair in arguments.env),
    )
    api = HttpApi(arguments.server, token, arguments.ca)
    port = serve_logs(api.logbook, arguments.address, arguments.port, stop)
    threads = run_kubelet(api, stop, options, (arguments.address, port))
    print(f"kubelet ready: {', '.join(names)}; logs on https://{arguments.address}:{port}", flush=True)
    stop.wait()
    for thread in threads:
        thread.join(5.0)


if __name__ == "__main__":
    main()
