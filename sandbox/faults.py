"""Misbehaviour on command: what ``POST /sandbox/faults`` can make the server do."""

import random
import re
import threading
from dataclasses import dataclass, field

from sandbox.api import Obj
from sandbox.refusals import bad_request

KINDS = ("latency", "late", "status", "drop", "half", "lost", "silent")
"""latency: wait ``seconds``. late: carry it out, then wait ``seconds`` with the answer. status: answer ``code`` (429
with Retry-After ``retry_after``). drop: close before the request is carried out. half: carry it out, send half of the
answer, close. lost: carry it out, send nothing, close. silent: a watch that stays open and says nothing."""


@dataclass
class Fault:
    """One kind of misbehaviour for some requests: the next ``count`` (None: all), or a ``ratio`` of them."""

    kind: str
    count: int | None = None
    ratio: float = 1.0
    seed: int = 0
    path: str = ""
    method: str = ""
    seconds: float = 1.0
    code: int = 500
    retry_after: int | None = None
    hits: int = 0
    _random: random.Random = field(default_factory=random.Random, repr=False)

    def __post_init__(self) -> None:
        self._random.seed(self.seed)

    def strikes(self, method: str, path: str) -> bool:
        """Whether this request is hit; counts it."""
        if self.count is not None and self.hits >= self.count:
            return False
        if self.method and method != self.method:
            return False
        if self.path and not re.search(self.path, path):
            return False
        if self._random.random() >= self.ratio:
            return False
        self.hits += 1
        return True


class Faults:
    """The faults in force."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._faults: list[Fault] = []

    def set(self, items: list[Obj]) -> None:
        """Replace all faults; 400 for an unknown kind or field."""
        allowed = {"kind", "count", "ratio", "seed", "path", "method", "seconds", "code", "retry_after"}
        for item in items:
            if item.get("kind") not in KINDS or not item.keys() <= allowed:
                raise bad_request(f"a fault has a kind of {KINDS} and fields of {sorted(allowed)}: {item}")
        with self._lock:
            self._faults = [Fault(**item) for item in items]

    def strike(self, method: str, path: str) -> dict[str, Fault]:
        """The faults that hit a request (path with its query), by kind."""
        with self._lock:
            return {fault.kind: fault for fault in self._faults if fault.strikes(method, path)}

    def report(self) -> list[Obj]:
        """What is in force and how often it struck."""
        with self._lock:
            return [
                {"kind": f.kind, "count": f.count, "ratio": f.ratio, "path": f.path, "hits": f.hits}
                for f in self._faults
            ]
