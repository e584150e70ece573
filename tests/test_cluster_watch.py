"""C-12 and its kin over real HTTP: what the watcher shows, and exactly which requests it makes."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from gpu.cluster.client import Cluster
from gpu.cluster.stream import MOST_AT_ONCE
from gpu.cluster.watch import WatchOptions
from tests.fake_api import FakeApi, Reply, listed, status_object, streamed
from tests.watch_helpers import (
    BOOKMARK,
    TOO_OLD,
    View,
    cluster_for,
    event,
    job,
    until,
    versions,
    watching,
)

HANG = streamed(end="hang")


@pytest.fixture
def api() -> Iterator[FakeApi]:
    with FakeApi() as server:
        yield server


@pytest.fixture
def cluster(api: FakeApi, tmp_path: Path) -> Iterator[Cluster]:
    client = cluster_for(api, tmp_path)
    yield client
    client.close()


def script(api: FakeApi, lists: Sequence[Reply], watches: Sequence[Reply]) -> None:
    api.on("GET", "watch=true", *watches)
    api.on("GET", "^/apis/batch/v1/jobs", *lists)


FIRST = listed("Job", "100", [job("a", "90"), job("b", "91")])
SECOND = listed("Job", "5200", [job("b", "5100")])


@pytest.mark.parametrize(
    "too_old", [streamed(TOO_OLD), status_object(410, "Expired", "too old resource version: 100 (5000)")]
)
def test_c12_too_old_lists_once_and_goes_on_from_there(
    too_old: Reply, api: FakeApi, cluster: Cluster
) -> None:
    script(api, [FIRST, SECOND], [too_old, HANG])
    view = View()
    with watching(cluster, view):
        until(lambda: len(api.watches()) == 2)
    assert view.names == {"b": "5100"}
    assert versions(api.asked) == [None, "100", None, "5200"]
    assert [each.query.get("watch") for each in api.asked] == [None, "true", None, "true"]
    assert "resourceVersion" not in api.asked[2].query
    assert view.calls == ["replace 100", "replace 5200"]
    assert view.errors == []


def test_c12_bookmark_moves_the_version_and_nothing_else(api: FakeApi, cluster: Cluster) -> None:
    script(api, [FIRST], [streamed(BOOKMARK), HANG])
    view = View()
    with watching(cluster, view):
        until(lambda: len(api.watches()) == 2)
    assert view.names == {"a": "90", "b": "91"}
    assert versions(api.watches()) == ["100", "12746"]
    assert len(api.lists()) == 1
    assert not [call for call in view.calls if call.startswith(("upsert", "remove"))]


def test_c12_empty_stream_is_watched_again_without_a_list(api: FakeApi, cluster: Cluster) -> None:
    script(api, [FIRST], [streamed(), streamed(), streamed(end="cut"), streamed(), HANG])
    with watching(cluster, View()):
        until(lambda: len(api.watches()) == 5)
    assert versions(api.watches()) == ["100"] * 5
    assert len(api.lists()) == 1


def test_c12_no_list_storm_when_everything_is_too_old(api: FakeApi, cluster: Cluster) -> None:
    script(api, [FIRST], [streamed(TOO_OLD)])
    options = WatchOptions(first_pause_s=0.02, longest_pause_s=10.0)
    with watching(cluster, View(), options):
        until(lambda: len(api.lists()) == 6, 20)
    assert len(api.lists()) <= len(api.watches()) + 1
    gaps = [late.at - early.at for early, late in zip(api.lists(), api.lists()[1:], strict=False)]
    assert gaps[4] >= 0.02 * 2**4 / 2  # doubled each time, shortened by half at most


def test_events_change_the_view_and_the_version(api: FakeApi, cluster: Cluster) -> None:
    lines = [event("ADDED", "c", "101"), event("MODIFIED", "a", "102"), event("DELETED", "b", "103")]
    script(api, [FIRST], [streamed(*lines, *lines), HANG])
    view = View()
    with watching(cluster, view):
        until(lambda: len(api.watches()) == 2)
    assert view.names == {"a": "102", "c": "101"}
    assert versions(api.watches()) == ["100", "103"]
    assert view.calls[-1] == "progress 103"


def test_managed_fields_are_dropped(api: FakeApi, cluster: Cluster) -> None:
    kept: list[dict[str, Any]] = []

    class Keeper(View):
        def replace(self, kind: str, items: Iterable[dict[str, Any]], resource_version: str) -> None:
            kept.extend(items)

        def changes(self, kind: str, changes: Sequence[tuple[str, dict[str, Any]]]) -> None:
            kept.extend(obj for _event, obj in changes)

    script(api, [FIRST], [streamed(event("ADDED", "c", "101"), end="hang")])
    with watching(cluster, Keeper()):
        until(lambda: len(kept) == 3)
    assert all("managedFields" not in each["metadata"] for each in kept)


@pytest.mark.parametrize(
    "damage",
    [
        streamed(b'{"type":"ADDED","obj', end="cut"),
        streamed(b"no json\n"),
        streamed({"type": "ADDED", "object": {"metadata": {}}}),
        streamed({"type": "ADDED", "object": {"metadata": {"resourceVersion": "9"}}}),
        streamed({"type": "BOOKMARK", "object": {}}),
        streamed({"type": "NOVELTY", "object": job("x", "9")}),
        streamed({"type": "ERROR", "object": {"code": 500, "message": "etcd"}}),
    ],
)
def test_doubt_lists_again(damage: Reply, api: FakeApi, cluster: Cluster) -> None:
    script(api, [FIRST, SECOND], [damage, HANG])
    view = View()
    with watching(cluster, view):
        until(lambda: len(api.watches()) == 2)
    assert versions(api.asked) == [None, "100", None, "5200"]
    assert view.names == {"b": "5100"}
    assert len(view.errors) == 1


def test_silence_lists_again(api: FakeApi, cluster: Cluster) -> None:
    script(api, [FIRST, SECOND], [HANG])
    view = View()
    with watching(cluster, view, WatchOptions(silence_s=0.2, first_pause_s=0.01)):
        until(lambda: view.names == {"b": "5100"})
    assert view.errors


@pytest.mark.parametrize(
    "fault",
    [
        Reply(-1),
        Reply(503, b"starting"),
        status_object(401, "Unauthorized", "Unauthorized"),
        status_object(403, "Forbidden", "not you"),
        Reply(429, b"", {"Retry-After": "0"}),
    ],
)
def test_a_watch_that_cannot_start_keeps_its_version(fault: Reply, api: FakeApi, cluster: Cluster) -> None:
    script(api, [FIRST], [fault, fault, HANG])
    view = View()
    with watching(cluster, view):
        until(lambda: len(api.watches()) == 3)
    assert versions(api.watches()) == ["100"] * 3
    assert len(api.lists()) == 1
    assert len(view.errors) == 2


def test_the_wish_to_wait_is_honoured(api: FakeApi, cluster: Cluster) -> None:
    script(api, [FIRST], [Reply(429, b"", {"Retry-After": "1"}), HANG])
    with watching(cluster, View()):
        until(lambda: len(api.watches()) == 2)
    first, second = api.watches()
    assert second.at - first.at >= 1.0


def test_a_list_that_expires_half_way_begins_again(api: FakeApi, cluster: Cluster) -> None:
    expired = status_object(410, "Expired", "The provided continue parameter is too old")
    api.on("GET", "continue=", expired)
    script(api, [listed("Job", "100", [job("a", "90")], token="t"), SECOND], [HANG])
    view = View()
    with watching(cluster, view):
        until(lambda: api.watches())
    assert view.calls == ["replace 5200"]
    assert [each.query.get("continue") for each in api.lists()] == [None, "t", None]


def test_a_sink_that_failed_gets_the_whole_again(
    api: FakeApi, cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "gpu.cluster.watch")
    script(api, [FIRST, SECOND], [streamed(event("ADDED", "c", "101"), end="hang"), HANG])
    view = View()
    view.fail_at = {"upsert c"}
    with watching(cluster, view):
        until(lambda: len(api.watches()) == 2)
    assert view.calls == ["replace 100", "upsert c", "replace 5200"]
    assert view.names == {"b": "5100"}


def test_what_came_before_the_damage_is_taken_first(api: FakeApi, cluster: Cluster) -> None:
    script(api, [FIRST, SECOND], [streamed(event("ADDED", "c", "101"), b"no json\n"), HANG])
    view = View()
    with watching(cluster, view):
        until(lambda: len(api.watches()) == 2)
    assert view.calls == ["replace 100", "upsert c", "replace 5200"]


class Slow(View):
    """Takes its time with the first changes, and counts the calls."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    def changes(self, kind: str, changes: Sequence[tuple[str, dict[str, Any]]]) -> None:
        if not self.sizes:
            time.sleep(0.3)
        self.sizes.append(len(changes))
        super().changes(kind, changes)


def test_what_came_meanwhile_is_taken_together_in_its_order(api: FakeApi, cluster: Cluster) -> None:
    count = 2 * MOST_AT_ONCE + 50
    burst = [event("ADDED", f"n{number}", str(1000 + number)) for number in range(count)]
    script(api, [FIRST], [streamed(*burst, end="hang")])
    view = Slow()
    with watching(cluster, view):
        until(lambda: sum(view.sizes) == count)
        # More came than was taken, so what was known was not up to date; now it is.
        until(lambda: view.up[-1])
    assert view.calls[1:] == [f"upsert n{number}" for number in range(count)]
    assert len(view.sizes) < count / 10
    assert max(view.sizes) <= MOST_AT_ONCE
    assert False in view.up[:-2]


def test_a_lone_change_waits_for_no_other(api: FakeApi, cluster: Cluster) -> None:
    lines = [each for number in range(5) for each in (event("MODIFIED", "a", str(101 + number)), 0.3)]
    script(api, [FIRST], [streamed(*lines, end="hang")])
    view = Slow()
    view.sizes.append(0)
    with watching(cluster, view):
        until(lambda: view.names.get("a") == "101")
        assert view.sizes == [0, 1]
        until(lambda: view.names["a"] == "105")
    assert view.sizes == [0, 1, 1, 1, 1, 1]


def test_while_a_list_is_read_again_nothing_is_told_to_be_up_to_date(api: FakeApi, cluster: Cluster) -> None:
    late = Reply(SECOND.status, SECOND.body, SECOND.headers, before_s=0.5)
    script(api, [FIRST, late], [streamed(TOO_OLD), HANG])
    view = View()
    with watching(cluster, view):
        until(lambda: len(api.lists()) == 2)
        assert view.up == [True, False]
        until(lambda: len(api.watches()) == 2)
        until(lambda: view.up[-1])


def test_a_list_that_is_stopped_half_way_replaces_nothing(api: FakeApi, cluster: Cluster) -> None:
    api.on("GET", "continue=", Reply(SECOND.status, SECOND.body, SECOND.headers, before_s=0.3))
    script(api, [listed("Job", "100", [job("a", "90")], token="t")], [HANG])
    view = View()
    with watching(cluster, view):
        until(lambda: len(api.lists()) == 2)
    assert (view.calls, view.errors) == ([], [])


def test_no_request_ever_says_none(api: FakeApi, cluster: Cluster) -> None:
    nothing = listed("Job", "", [])
    script(
        api,
        [nothing, Reply(500), FIRST],
        [streamed(TOO_OLD), streamed({"type": "BOOKMARK", "object": {}}), HANG],
    )
    with watching(cluster, View()):
        until(lambda: len(api.watches()) == 3)
    assert api.unexpected == []
    assert all(version not in ("", "None", "0") for version in versions(api.asked))


def test_stop_is_honoured_in_a_long_pause(api: FakeApi, cluster: Cluster) -> None:
    api.on("GET", "jobs", Reply(500))
    with watching(cluster, View(), WatchOptions(first_pause_s=60, longest_pause_s=60)):
        until(lambda: api.asked)
