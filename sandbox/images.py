"""What a pretended container does: the reference of its image and its command decide."""

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass

from sandbox.api import Obj
from sandbox.options import PRODUCT, Options

_SLEEP = re.compile(r"\bsleep\s+(infinity|\d+(?:\.\d+)?)")
_EXIT = re.compile(r"\bexit\s+(\d+)")

DISK_FULL = '{"error": "no space left on device"}'


@dataclass(frozen=True)
class Behaviour:
    """The life of one container; times in seconds. ``runs`` None means until it is stopped."""

    missing: bool = False
    process: bool = False
    server: bool = False  # the process is a stand-in that serves, and not the container's own command
    pull: float = 0.1
    ready: float | None = 0.0  # None: never
    runs: float | None = None
    exit_code: int = 0
    reason: str = "Completed"
    message: str = ""
    opening: tuple[str, ...] = ()
    ending: tuple[str, ...] = ()


def segments(image: str) -> list[str]:
    """The parts of a reference's repository path, without registry, tag and digest."""
    parts = image.partition("@")[0].split("/")
    if len(parts) > 1 and (set(".:") & set(parts[0]) or parts[0] == "localhost"):
        parts = parts[1:]
    return [*parts[:-1], parts[-1].partition(":")[0]]


def behaviour(container: Obj, options: Options, card_memory: int | None) -> Behaviour:
    """What the container will do. ``card_memory`` is its slice in MiB, None where it has no claim."""
    image = str(container.get("image", ""))
    path = segments(image)
    command = " ".join([*(container.get("command") or []), *(container.get("args") or [])])
    pull = options.pull_seconds
    if "missing" in path:
        return Behaviour(missing=True, pull=pull)
    if "pull-agent" in path or (path[-1] == "python" and command.startswith("python -c ")):
        return Behaviour(process=True, pull=pull)
    opening: tuple[str, ...]
    if "crash" in path:
        opening = ("starting", "fatal: configuration is not valid")
        return Behaviour(
            pull=pull, ready=None, runs=options.crash_after, exit_code=1, reason="Error", opening=opening
        )
    if "oom" in path:
        opening = ("loading weights into host memory",)
        return Behaviour(
            pull=pull,
            ready=None,
            runs=options.crash_after,
            exit_code=137,
            reason="OOMKilled",
            opening=opening,
        )
    if "job-ok" in path:
        return Behaviour(pull=pull, runs=options.job_seconds, opening=("working",), ending=("done",))
    if "job-fail" in path:
        return Behaviour(
            pull=pull,
            runs=options.job_seconds,
            exit_code=3,
            reason="Error",
            message=DISK_FULL,
            opening=("working",),
            ending=(DISK_FULL,),
        )
    if path[-1] == "ollama" and (not command or command.endswith("ollama serve")):
        return Behaviour(process=True, server=True, pull=options.slow_seconds if "slow" in path else pull)
    opening = _opening(path, command, image, card_memory)
    runs, exit_code = _command_end(command)
    return Behaviour(
        pull=options.slow_seconds if "slow" in path else pull,
        ready=None if "unready" in path else options.slow_seconds if "slow" in path else 0.0,
        runs=runs,
        exit_code=exit_code,
        reason="Error" if exit_code else "Completed",
        opening=opening,
    )


def _command_end(command: str) -> tuple[float | None, int]:
    """How long a command with ``sleep`` or ``exit`` in it runs, and how it ends."""
    sleeps = _SLEEP.findall(command)
    ends = _EXIT.search(command)
    if "infinity" in sleeps or not (sleeps or ends):
        return None, 0
    return sum(map(float, sleeps)), int(ends[1]) if ends else 0


def _opening(path: Sequence[str], command: str, image: str, card_memory: int | None) -> tuple[str, ...]:
    checks = any(part.startswith("cuda-check") for part in path) or list(path[-2:]) == ["nvidia", "cuda"]
    if checks or "nvidia-smi" in command:
        return nvidia_smi(card_memory)
    return (f"starting {image.partition('@')[0]}", "ready")


def nvidia_smi(card_memory: int | None) -> tuple[str, ...]:
    """The table of ``nvidia-smi`` for a slice: its memory, and neither UUID nor bus address."""
    if card_memory is None:
        return (
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
            "Make sure that the latest NVIDIA driver is installed and running.",
        )
    rule = "+-----------------------------------------+------------------------+----------------------+"
    return (
        time.strftime("%a %b %d %H:%M:%S %Y", time.gmtime()),
        "+-----------------------------------------------------------------------------------------+",
        "| NVIDIA-SMI 570.86.15              Driver Version: 570.86.15      CUDA Version: 12.8     |",
        "|-----------------------------------------+------------------------+----------------------+",
        "| GPU  Name                 Persistence-M |                 Disp.A | Volatile Uncorr. ECC |",
        "| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |",
        "|=========================================+========================+======================|",
        f"|   0  {PRODUCT:<27}    On  |                    Off |                    0 |",
        f"| N/A   34C    P0              26W / 250W |       0MiB / {card_memory:>6}MiB |      0%      Default |",
        rule,
        "| Processes:  no running processes found                                                  |",
        rule.replace("+-", "--").replace("-+", "--"),
    )


def chatter(path: Sequence[str], number: int) -> str:
    """The ``number``-th line of what a running container says from time to time."""
    return f"alive, {number} s"
