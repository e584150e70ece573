"""A pull goes on to its end while the processes around it are killed, the broker emptied, the cluster's API away."""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from dev import stack
from dev.fleet import Fleet
from dev.http import Answer, Browser
from tests.clusters import eventually

pytestmark = pytest.mark.alone


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """One of each process."""
    with Fleet(tmp_path_factory.mktemp("fleet"), extra={"SWEEP_EVERY_S": "2"}) as found:
        found.sandbox()
        found.manage("migrate", "--no-input")
        found.manage("seed_demo", "--no-slices")
        found.start("worker", stack.worker(concurrency=2))
        found.start("watcher", stack.watcher())
        found.start("beat", stack.beat(found.folder))
        found.web()
        yield found


class Reader:
    """Somebody with the demo's token, who asks again where nobody answers."""

    def __init__(self, fleet: Fleet) -> None:
        self._browser = Browser(fleet.url, fleet.demo()["api_token"])

    def __call__(self, method: str, path: str, body: Any = None) -> Any:
        def ask() -> Answer | None:
            try:
                answer = self._browser.call(method, f"/api/v1/{path}", body)
            except (OSError, http.client.HTTPException):
                return None
            return None if answer.status >= 500 else answer

        answer = eventually(ask, f"an answer to {method} {path}")
        assert answer.status in (200, 202), answer.text
        return answer.json()


@pytest.fixture(scope="module")
def reader(fleet: Fleet) -> Reader:
    return Reader(fleet)


@pytest.fixture(scope="module")
def chat(reader: Reader) -> str:
    """An Ollama slice that runs."""
    project = next(one for one in reader("GET", "projects/")["results"] if one["namespace"] == "acme-ai")
    body = {
        "project": project["id"],
        "package": "v100-25",
        "display_name": "Chat",
        "template": "ollama",
        "settings": {},
    }
    found: str = reader("POST", "slices/", body)["id"]
    eventually(lambda: reader("GET", f"slices/{found}/")["state"] == "running", "a running slice", 90.0)
    return found


def restart(name: str) -> Callable[[Fleet], None]:
    def injure(fleet: Fleet) -> None:
        fleet.kill(name)
        fleet.start(name)

    return injure


def empty_broker(fleet: Fleet) -> None:
    redis.Redis.from_url(fleet.services.redis_url, socket_timeout=5).flushall()


def api_away(fleet: Fleet) -> None:
    """Nobody but the nodes reaches the cluster for two seconds."""
    admin = fleet.admin()
    assert admin.call("POST", "/sandbox/faults", {"faults": [{"kind": "drop", "path": "/api"}]}).ok
    time.sleep(2.0)
    assert admin.call("DELETE", "/sandbox/faults").ok


INJURIES = {
    "worker killed": restart("worker"),
    "web killed": restart("web"),
    "watcher killed": restart("watcher"),
    "broker emptied": empty_broker,
    "API away": api_away,
}


@pytest.mark.parametrize("injury", INJURIES)
def test_a_pull_is_done_all_the_same(fleet: Fleet, reader: Reader, chat: str, injury: str) -> None:
    # Another model each time, since one that is there is not fetched again.
    model = f"slow:{5 + list(INJURIES).index(injury)}"
    pull = reader("POST", f"slices/{chat}/models/", {"model": model})["id"]
    eventually(lambda: reader("GET", f"pulls/{pull}/")["progress"]["percent"] > 0, "a first figure", 60.0)
    INJURIES[injury](fleet)
    assert not reader("GET", f"pulls/{pull}/")["settled"], "it was over before it was injured"
    found = eventually(
        lambda: (now := reader("GET", f"pulls/{pull}/"))["settled"] and now, "the end of the pull", 90.0
    )
    assert found["outcome"] == "done", found
    models = reader("GET", f"slices/{chat}/models/")["results"]
    assert [one["name"] for one in models].count(model) == 1


def test_who_is_signed_in_stays_so_when_the_broker_is_emptied(
    fleet: Fleet, reader: Reader, chat: str
) -> None:
    demo = fleet.demo()
    browser = Browser(fleet.url)
    browser.sign_in("kim@acme.example", demo["password"])
    assert browser.call("GET", f"/slices/{chat}/").status == 200
    empty_broker(fleet)
    assert browser.call("GET", f"/slices/{chat}/").status == 200
    assert reader("GET", f"slices/{chat}/")["state"] == "running"
