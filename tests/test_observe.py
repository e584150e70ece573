"""Observed rows: replace, upsert, remove; what comes twice or late changes nothing; freshness."""

from __future__ import annotations

import json
import weakref
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from gpu.cluster.errors import Gone
from gpu.facts import WATCHED_KINDS, freshness, project_facts
from gpu.models import Observed, WatchState
from gpu.observe import BATCH, RowSink, forget_old_events, prune
from tests.factories import claim, observe, quota, watched, world

pytestmark = pytest.mark.django_db


def pod(name: str, uid: str = "", **metadata: Any) -> dict[str, Any]:
    """A pod of the app `chat`."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "acme-ai",
            "uid": uid or f"uid-{name}",
            "resourceVersion": "7",
            "labels": {"app.kubernetes.io/name": "chat"},
            **metadata,
        },
        "status": {"phase": "Pending"},
    }


def names() -> set[str]:
    """The pods that are known."""
    return set(Observed.objects.filter(kind="Pod").values_list("name", flat=True))


def test_a_list_replaces_what_was_known() -> None:
    sink = RowSink()
    sink.replace("Pod", [pod("a"), pod("b")], "5")
    sink.replace("Pod", [pod("b"), pod("c")], "9")
    assert names() == {"b", "c"}
    state = WatchState.objects.get(kind="Pod")
    assert (state.resource_version, state.relists) == ("9", 2)


def test_a_list_of_one_kind_leaves_the_others_alone() -> None:
    observe(claim("acme-ai", "chat"))
    RowSink().replace("Pod", [], "1")
    assert Observed.objects.filter(kind="ResourceClaim").count() == 1


def test_an_object_twice_is_one_row_with_the_newer_state() -> None:
    sink = RowSink()
    sink.upsert("Pod", pod("a"))
    sink.upsert("Pod", {**pod("a"), "status": {"phase": "Running"}})
    assert Observed.objects.get(kind="Pod").data["status"] == {"phase": "Running"}


def test_a_late_removal_of_an_older_object_leaves_its_successor() -> None:
    sink = RowSink()
    sink.upsert("Pod", pod("a", uid="new"))
    sink.remove("Pod", pod("a", uid="old"))
    assert names() == {"a"}
    sink.remove("Pod", pod("a", uid="new"))
    assert names() == set()


def test_what_no_reader_needs_is_dropped_and_nul_is_replaced() -> None:
    noisy = pod(
        "a",
        managedFields=[{"manager": "x"}],
        annotations={"kubectl.kubernetes.io/last-applied-configuration": "{}", "k": "v"},
    )
    assert prune(noisy)["metadata"]["annotations"] == {"k": "v"}
    assert "managedFields" not in prune(noisy)["metadata"]
    noisy["status"]["message"] = "a\x00b"
    RowSink().upsert("Pod", noisy)
    assert "\x00" not in Observed.objects.get(kind="Pod").data["status"]["message"]


def versions_of_rows() -> dict[str, str]:
    """Where each row is in the table: a row that is written, even with the same content, moves."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT name, ctid::text FROM gpu_observed")
        return dict(cursor.fetchall())


def test_a_list_of_what_is_known_writes_only_what_changed() -> None:
    sink, pods = RowSink(), [pod(f"p{number}") for number in range(3)]
    sink.replace("Pod", pods, "5")
    before = versions_of_rows()
    sink.replace("Pod", [*pods[:2], {**pods[2], "status": {"phase": "Running"}}], "9")
    sink.upsert("Pod", pods[0])
    after = versions_of_rows()
    assert [name for name in before if after[name] != before[name]] == ["p2"]


def test_a_list_is_seen_only_as_a_whole_and_read_page_by_page() -> None:
    sink = RowSink()
    sink.replace("Pod", [pod("old")], "5")
    alive: weakref.WeakSet[Any] = weakref.WeakSet()
    most: list[int] = []

    class Item(dict[str, Any]):
        def __hash__(self) -> int:  # type: ignore[override]
            return id(self)

    def items() -> Iterator[Item]:
        for number in range(3 * BATCH):
            item = Item(pod(f"p{number}"))
            alive.add(item)
            if number % BATCH == BATCH - 1:
                most.append(len(alive))
                assert names() == {"old"}
            yield item

    sink.replace("Pod", items(), "9")
    assert Observed.objects.count() == 3 * BATCH
    assert max(most) <= 2 * BATCH


def test_a_list_that_names_an_object_on_two_pages_is_taken_in() -> None:
    items = [pod(f"p{number}") for number in range(BATCH)]
    RowSink().replace("Pod", [*items, items[0], items[0]], "9")
    assert Observed.objects.count() == BATCH


def test_a_list_that_breaks_off_changes_nothing() -> None:
    sink = RowSink()
    sink.replace("Pod", [pod("a"), pod("b")], "5")

    def items() -> Iterator[dict[str, Any]]:
        yield from (pod(f"p{number}") for number in range(BATCH + 1))
        raise Gone("too old")

    with pytest.raises(Gone):
        sink.replace("Pod", items(), "9")
    assert names() == {"a", "b"}
    assert WatchState.objects.get(kind="Pod").resource_version == "5"
    sink.replace("Pod", [pod("b")], "10")
    assert names() == {"b"}


def test_the_newest_version_wins_whatever_comes_last() -> None:
    sink = RowSink()

    def phase() -> str:
        found: str = Observed.objects.get(kind="Pod").data["status"]["phase"]
        return found

    for version, given, told in (
        ("10", "Running", "Running"),
        ("9", "Pending", "Running"),
        ("11", "Failed", "Failed"),
        ("no number", "Unknown", "Unknown"),
    ):
        sink.upsert("Pod", {**pod("a", resourceVersion=version), "status": {"phase": given}})
        assert phase() == told
    sink.upsert("Pod", {**pod("a", resourceVersion="20"), "status": {"phase": "Running"}})
    sink.upsert("Pod", {**pod("a", uid="another", resourceVersion="3"), "status": {"phase": "Pending"}})
    assert phase() == "Pending"
    # A cluster that was restored from a backup counts from an earlier version: its list is right.
    sink.replace(
        "Pod", [{**pod("a", uid="another", resourceVersion="2"), "status": {"phase": "Failed"}}], "2"
    )
    assert phase() == "Failed"


def test_changes_that_came_together_are_one_statement(
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    with django_assert_num_queries(1):
        RowSink().changes("Service", [("ADDED", pod(f"p{number}")) for number in range(400)])
    assert Observed.objects.filter(kind="Service").count() == 400


@pytest.mark.parametrize(
    ("changes", "left"),
    [
        ([("DELETED", "old"), ("ADDED", "new")], ["new"]),
        ([("DELETED", "old"), ("ADDED", "new"), ("DELETED", "new")], []),
        ([("MODIFIED", "old"), ("DELETED", "old")], []),
        ([("DELETED", "old"), ("ADDED", "new"), ("DELETED", "old")], ["new"]),
        ([("DELETED", "older")], ["old"]),
        ([("DELETED", "old"), ("ADDED", "new"), ("DELETED", "new"), ("ADDED", "newest")], ["newest"]),
    ],
)
def test_changes_that_came_together_end_as_one_after_the_other(
    changes: list[tuple[str, str]], left: list[str]
) -> None:
    sink = RowSink()
    for together in (True, False):
        Observed.objects.all().delete()
        sink.changes("Service", [("ADDED", pod("a", uid="old")), ("ADDED", pod("other"))])
        found = [(event, pod("a", uid=uid)) for event, uid in changes]
        for part in [found] if together else [[each] for each in found]:
            sink.changes("Service", part)
        assert list(Observed.objects.filter(name="a").values_list("uid", flat=True)) == left
        assert Observed.objects.filter(name="other").exists()


def test_what_a_database_cannot_hold_is_replaced_in_lists_and_changes() -> None:
    sink = RowSink()
    broken = json.loads('"a\\u0000b \\ud800 \\ud83d\\ude00 \\\\u0000"')
    obj = {**pod("a"), "status": {"message": broken, broken: 1}}
    for listed in (True, False):
        Observed.objects.all().delete()
        if listed:
            sink.replace("Pod", [obj], "1")
        else:
            sink.upsert("Pod", obj)
        mended = "a\ufffdb ? \U0001f600 \\u0000"
        assert Observed.objects.get(kind="Pod").data["status"] == {"message": mended, mended: 1}


def test_facts_hold_an_apps_objects_its_events_and_the_quotas() -> None:
    world()
    observe(
        pod("a"),
        quota("acme-ai", {"pods": "1"}, {"pods": "0"}),
        {
            "kind": "Event",
            "metadata": {"name": "e", "namespace": "acme-ai", "uid": "e"},
            "involvedObject": {"uid": "uid-a"},
            "reason": "Failed",
        },
        {
            "kind": "Event",
            "metadata": {"name": "old", "namespace": "acme-ai", "uid": "old"},
            "involvedObject": {"uid": "uid-of-a-deleted-pod"},
            "reason": "Failed",
        },
    )

    seen = project_facts("acme-ai").seen("chat")
    assert [item["metadata"]["name"] for item in seen.objects["Pod"]] == ["a"]
    assert [item["metadata"]["name"] for item in seen.objects["Event"]] == ["e"]
    assert [item["metadata"]["name"] for item in seen.objects["ResourceQuota"]] == ["plan-quota"]


def test_facts_are_as_old_as_the_oldest_watch() -> None:
    assert freshness().as_of is None
    watched()
    WatchState.objects.filter(kind="Pod").update(seen_at=timezone.now() - timedelta(seconds=12))
    found = freshness()
    assert found.age_s == pytest.approx(12, abs=2)
    assert (found.stale, found.reachable) == (False, True)


@pytest.mark.parametrize(
    ("age", "failing", "stale", "reachable"), [(0, True, False, False), (31, False, True, False)]
)
def test_a_failing_or_silent_watch_is_told(age: float, failing: bool, stale: bool, reachable: bool) -> None:
    watched(age, failing)
    assert (freshness().stale, freshness().reachable) == (stale, reachable)


def test_a_failure_is_dated_from_its_beginning_and_ends_with_a_sign_of_life() -> None:
    watched()
    sink = RowSink()
    sink.failed("Pod", RuntimeError())
    since = WatchState.objects.get(kind="Pod").failing_since
    sink.failed("Pod", RuntimeError())
    assert WatchState.objects.get(kind="Pod").failing_since == since
    assert since is not None
    sink.alive("Pod")
    assert WatchState.objects.get(kind="Pod").failing_since is None
    assert WatchState.objects.count() == len(WATCHED_KINDS)


def test_events_older_than_an_hour_are_forgotten() -> None:
    for name, created in (
        ("old", "2026-01-01T00:00:00Z"),
        ("new", timezone.now().strftime("%Y-%m-%dT%H:%M:%SZ")),
    ):
        observe(
            {
                "kind": "Event",
                "metadata": {"name": name, "namespace": "acme-ai", "uid": name, "creationTimestamp": created},
                "involvedObject": {"uid": "x"},
            }
        )
    assert forget_old_events() == 1


def test_an_event_about_no_uid_stops_no_watch() -> None:
    """Whoever may make events in a namespace writes what they like into `involvedObject`."""
    events = [
        {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"odd-{number}", "namespace": "acme-ai", "uid": f"uid-odd-{number}"},
            "involvedObject": {"kind": "Pod", "uid": about},
        }
        for number, about in enumerate(("u" * 65, "u" * 1_000_000, 7, None, "uid-a"))
    ]
    sink = RowSink()
    sink.replace("Event", events, "5")
    sink.changes("Event", [("MODIFIED", event) for event in events])
    found = Observed.objects.filter(kind="Event").order_by("name")
    assert list(found.values_list("involved_uid", flat=True)) == ["", "", "", "", "uid-a"]
