"""Observed rows: replace, upsert, remove; what comes twice or late changes nothing; freshness."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from gpu.facts import WATCHED_KINDS, freshness, project_facts
from gpu.models import Observed, WatchState
from gpu.observe import RowSink, forget_old_events, prune
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
