"""One pretended container from its first pull to its last exit: a clockwork without any API."""

from collections.abc import Callable
from dataclasses import dataclass, field

from sandbox.api import Obj
from sandbox.controllers.objects import moment, stamp
from sandbox.images import Behaviour, chatter, segments
from sandbox.options import Options

NEVER = float("inf")
CALM_SECONDS = 600.0  # a container that ran this long starts its back-off anew
PULL_CAP = 300.0
CHATTER_PAUSE = 60.0

type Tell = Callable[[str, str, str], None]
"""(Normal or Warning, reason, message) of an event about the container."""


@dataclass
class Container:
    """Where a container is. ``due`` is the moment of its next step, in seconds since the epoch."""

    spec: Obj
    behaviour: Behaviour
    options: Options
    restart_policy: str
    pod: str  # name_namespace(uid), as the kubelet writes it
    stage: str = "new"
    due: float = 0.0
    restarts: int = 0
    pulls: int = 0
    crashes: int = 0
    started: float = 0.0
    ready: bool = False
    waiting: tuple[str, str] = ("ContainerCreating", "")
    ended: Obj | None = None
    last: Obj = field(default_factory=dict)
    said: int = 0
    next_probe: float = NEVER

    @property
    def name(self) -> str:
        """The container's name in its pod."""
        return str(self.spec["name"])

    @property
    def image(self) -> str:
        """The image as the pod names it."""
        return str(self.spec["image"])

    @property
    def running(self) -> bool:
        """Whether its process is there."""
        return self.stage == "running"

    @property
    def ready_at(self) -> float:
        """When its probes pass."""
        if self.behaviour.ready is None:
            return NEVER
        return self.started + max(self.behaviour.ready, probe_delay(self.spec))

    @property
    def end_at(self) -> float:
        """When it ends by itself."""
        return NEVER if self.behaviour.runs is None else self.started + self.behaviour.runs

    def step(self, at: float, tell: Tell) -> None:
        """Do what is due at the moment ``at``."""
        match self.stage:
            case "new":
                self._pull(at, tell)
            case "pulling":
                self._pulled(at, tell)
            case "pull-failed":
                tell("Normal", "BackOff", f'Back-off pulling image "{self.image}"')
                tell("Warning", "Failed", "Error: ImagePullBackOff")
                self.waiting = (
                    "ImagePullBackOff",
                    f'Back-off pulling image "{self.image}": {self._not_found()}',
                )
                pause = min(self.options.pull_backoff * 2.0 ** (self.pulls - 1), PULL_CAP)
                self.stage, self.due = "pull-backoff", at + pause
            case "pull-backoff":
                self._pull(at, tell)
            case "back-off":
                tell("Normal", "Pulled", f'Container image "{self.image}" already present on machine')
                self._start(at, tell)
            case "running":
                self._live(at, tell)

    def _pull(self, at: float, tell: Tell) -> None:
        tell("Normal", "Pulling", f'Pulling image "{self.image}"')
        self.stage, self.due = "pulling", at + self.behaviour.pull

    def _not_found(self) -> str:
        return (
            f'ErrImagePull: rpc error: code = NotFound desc = failed to pull and unpack image "{self.image}": '
            f'failed to resolve reference "{self.image}": {self.image}: not found'
        )

    def _pulled(self, at: float, tell: Tell) -> None:
        if self.behaviour.missing:
            self.pulls += 1
            message = self._not_found().removeprefix("ErrImagePull: ")
            tell("Warning", "Failed", f'Failed to pull image "{self.image}": {message}')
            tell("Warning", "Failed", "Error: ErrImagePull")
            self.waiting = ("ErrImagePull", message)
            self.stage, self.due = "pull-failed", at + min(2.0, self.options.pull_backoff / 2)
            return
        took = f"{round(self.behaviour.pull * 1000)}ms"
        tell(
            "Normal",
            "Pulled",
            f'Successfully pulled image "{self.image}" in {took} ({took} including waiting). '
            "Image size: 104857600 bytes.",
        )
        self._start(at, tell)

    def _start(self, at: float, tell: Tell) -> None:
        tell("Normal", "Created", f"Created container: {self.name}")
        tell("Normal", "Started", f"Started container {self.name}")
        self.stage, self.started, self.ready, self.said, self.ended = "running", at, False, 0, None
        self.due = at
        self.next_probe = at + probe_delay(self.spec) if "readinessProbe" in self.spec else NEVER

    def _live(self, at: float, tell: Tell) -> None:
        if at >= self.end_at:
            behaviour = self.behaviour
            self.end(at, behaviour.exit_code, behaviour.reason, behaviour.message, tell)
            return
        self.ready = at >= self.ready_at
        if self.ready:
            self.next_probe = NEVER
        elif at >= self.next_probe:
            self.next_probe = at + float(self.spec["readinessProbe"].get("periodSeconds", 10))
            tell("Warning", "Unhealthy", "Readiness probe failed: connect: connection refused")
        self.due = min(self.end_at, self.next_probe, self._next_word(at))
        if not self.ready:
            self.due = min(self.due, self.ready_at)

    def end(self, at: float, code: int, reason: str, message: str, tell: Tell) -> None:
        """The process has exited; the restart policy says what comes next."""
        self.ended = {
            "exitCode": code,
            "reason": reason,
            "startedAt": stamp(self.started),
            "finishedAt": stamp(at),
        }
        if message:
            self.ended["message"] = message
        self.ready = False
        again = self.restart_policy == "Always" or (self.restart_policy == "OnFailure" and code != 0)
        if not again:
            self.stage, self.due = "ended", NEVER
            return
        self.crashes = 1 if at - self.started > CALM_SECONDS else self.crashes + 1
        self.restarts += 1
        self.last = {"terminated": self.ended}
        # The first restart comes at once, the next after 10 s, 20 s, 40 s and so on.
        pause = 0.0
        if self.crashes > 1:
            longest = self.options.crash_backoff_cap
            pause = min(self.options.crash_backoff * 2.0 ** (self.crashes - 2), longest)
            tell("Warning", "BackOff", f"Back-off restarting failed container {self.name} in pod {self.pod}")
        wait = f"{pause:.0f}s" if pause < 60 else f"{pause // 60:.0f}m{pause % 60:.0f}s"
        message = f"back-off {wait} restarting failed container={self.name} pod={self.pod}"
        self.waiting = ("CrashLoopBackOff", message)
        self.stage, self.due = "back-off", at + pause

    def _next_word(self, at: float) -> float:
        if self.behaviour.process:
            return NEVER
        age = at - self.started
        return at + (1.0 if age < self.options.log_seconds else CHATTER_PAUSE)

    def words(self, at: float) -> list[str]:
        """The lines it has said up to now and not yet told; none twice."""
        lines: list[str] = []
        if self.said == 0:
            lines += self.behaviour.opening
            self.said = 1
        if self.running and not self.behaviour.process:
            age = min(at - self.started, self.options.log_seconds)
            age += max(at - self.started - self.options.log_seconds, 0.0) // CHATTER_PAUSE
            first, self.said = self.said, max(self.said, int(age) + 1)
            lines += [chatter(segments(self.image), number) for number in range(first, self.said)]
        elif self.ended is not None and self.said > 0:
            lines += self.behaviour.ending
            self.said = -1
        return lines

    def status(self) -> Obj:
        """The entry of ``containerStatuses``."""
        state: Obj
        if self.running:
            state = {"running": {"startedAt": stamp(self.started)}}
        elif self.ended is not None and (self.stage == "ended" or self.crashes == 1):
            state = {"terminated": self.ended}
        else:
            reason, message = self.waiting
            state = {"waiting": {"reason": reason} | ({"message": message} if message else {})}
        pulled = self.running or self.ended is not None
        return {
            "name": self.name,
            "image": self.image,
            "imageID": self.image if pulled else "",
            "ready": self.ready,
            "started": self.running,
            "restartCount": self.restarts,
            "state": state,
            "lastState": self.last,
        }

    def resume(self, status: Obj, at: float) -> None:
        """Take up what a pod's status says after the sandbox was restarted."""
        self.restarts = self.crashes = int(status.get("restartCount", 0))
        self.last = status.get("lastState") or {}
        state = status.get("state") or {}
        if running := state.get("running"):
            self.stage, self.started, self.due = "running", moment(running["startedAt"]), at
            age = at - self.started
            self.said = (
                int(min(age, self.options.log_seconds) + max(age - self.options.log_seconds, 0) // 60) + 1
            )
        elif ended := state.get("terminated"):
            self.ended = ended
            self.started = moment(ended["startedAt"])
            over = self.restart_policy == "Never" or (
                self.restart_policy == "OnFailure" and not ended["exitCode"]
            )
            self.stage, self.due = ("ended", NEVER) if over else ("back-off", at)
            self.said = -1
        elif self.last:
            self.waiting = ("CrashLoopBackOff", state.get("waiting", {}).get("message", ""))
            self.ended, self.stage = self.last.get("terminated"), "back-off"
            self.due = at + self.options.crash_backoff
            self.said = -1


def probe_delay(spec: Obj) -> float:
    """Seconds that the start-up and readiness probes of a container leave to it before they are tried."""
    probes = [spec[name] for name in ("startupProbe", "readinessProbe") if name in spec]
    return float(max((probe.get("initialDelaySeconds", 0) for probe in probes), default=0))
