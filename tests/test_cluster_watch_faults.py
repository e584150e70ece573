"""Whatever goes wrong at whatever time, the view ends up as the cluster is (C-12)."""

from __future__ import annotations

import copy
import json
import random
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpu.cluster.watch import WatchOptions
from tests.fake_api import Asked, FakeApi, Reply, listed, streamed
from tests.watch_helpers import BOOKMARK, TOO_OLD, View, cluster_for, job, until, versions, watching


class History:
    """A server with a memory of changes, whose streams end as the seeded luck has it."""

    def __init__(self, seed: int, changes: Sequence[tuple[str, bool]]) -> None:
        self.luck = random.Random(seed)  # noqa: S311
        self.events: list[tuple[int, dict[str, Any]]] = []
        self.state: dict[str, dict[str, Any]] = {}
        self.pending = list(changes)
        self.version = 100
        self.oldest = 0
        self.faults = 8
        self.lock = threading.Lock()

    def change(self, name: str, present: bool) -> None:
        if not present and name not in self.state:
            return
        self.version += 1
        kind = "DELETED" if not present else "MODIFIED" if name in self.state else "ADDED"
        obj = job(name, str(self.version))
        if present:
            self.state[name] = obj
        else:
            del self.state[name]
        self.events.append((self.version, {"type": kind, "object": obj}))

    def names(self) -> dict[str, str]:
        with self.lock:
            return {name: obj["metadata"]["resourceVersion"] for name, obj in self.state.items()}

    def list(self, asked: Asked) -> Reply:
        with self.lock:
            names = sorted(self.state)
            if self.faults and self.luck.random() < 0.3:
                self.faults -= 1
                return self.luck.choice(
                    [Reply(500), Reply(-1), Reply(200, b'{"items": [', {"Content-Length": "99"})]
                )
            return listed("Job", str(self.version), [self.state[each] for each in names])

    def watch(self, asked: Asked) -> Reply:
        with self.lock:
            since = int(asked.query["resourceVersion"])
            for _ in range(self.luck.randint(0, 3)):
                if self.pending:
                    self.change(*self.pending.pop(0))
            if since < self.oldest:
                return streamed(TOO_OLD)
            if not self.pending and not self.faults:
                later = [each for version, each in self.events if version > since]
                return streamed(*copy.deepcopy(later), end="hang")
            later = [each for version, each in self.events if version > since]
            shown = later[: self.luck.randint(0, len(later))]
            self.faults = max(0, self.faults - 1)
            if self.luck.random() < 0.2:
                self.oldest = self.version
            line = json.dumps(later[-1] if later else BOOKMARK).encode()
            ending: list[Any] = self.luck.choice([[], [], [line[: len(line) // 2]], [TOO_OLD], [b"<html>\n"]])
            return streamed(*copy.deepcopy(shown), *ending, end=self.luck.choice(["close", "cut"]))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 2**32),
    changes=st.lists(st.tuples(st.sampled_from("abcd"), st.booleans()), max_size=25),
)
def test_the_view_ends_up_as_the_cluster(seed: int, changes: list[tuple[str, bool]], tmp_path: Path) -> None:
    history, view = History(seed, changes), View()
    with FakeApi() as api:
        api.on("GET", "watch=true", history.watch)
        api.on("GET", "/jobs", history.list)
        client = cluster_for(api, tmp_path)
        options = WatchOptions(silence_s=5.0, first_pause_s=0.0005, longest_pause_s=0.002)
        with watching(client, view, options):
            until(lambda: not history.pending and not history.faults and view.names == history.names())
        client.close()
        assert api.unexpected == []
        assert all(version not in ("", "None") for version in versions(api.asked))
