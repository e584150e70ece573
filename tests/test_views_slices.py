"""The page of a slice: what it says, what it sends again, its log, and the actions with their confirmation."""

from __future__ import annotations

import re

import pytest
from django.test import Client
from django.utils import timezone

from gpu import enqueue, orders
from gpu.logcopies import store_log
from gpu.manifest_spec import VolumeSpec
from gpu.manifest_yaml import to_yaml
from gpu.manifests import render
from gpu.models import LogCopy, Slice
from tests.factories import World, claim, observe, quota, watched, workload, world
from tests.view_kit import cluster_seen, hidden, signed_in

HTMX = {"HX-Request": "true"}


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tasks that were sent."""
    calls: list[str] = []
    monkeypatch.setattr(enqueue, "_send", lambda task, pk: calls.append(task))
    return calls


@pytest.fixture
def made(db: None, sent: list[str]) -> World:
    """acme is entitled to three slices, and the cluster has a free card."""
    cluster_seen()
    return world(entitled=3)


@pytest.fixture
def row(made: World) -> Slice:
    """Kim's slice, with a port and a volume."""
    what = workload(port=8080, volume=VolumeSpec("20Gi", "/data"))
    return made.order("Chat der Küche", workload=what)


@pytest.fixture
def kim(made: World) -> Client:
    """Kim's browser."""
    return signed_in(made.kim)


def url(row: Slice, action: str = "") -> str:
    """The address of a slice's page or action."""
    return f"/slices/{row.public_id}/{action}/" if action else f"/slices/{row.public_id}/"


def parts(html: str) -> dict[str, str]:
    """The live parts of an answer and their versions."""
    return dict(re.findall(r'<div id="([\w-]+)" data-version="(\w+)"', html))


def seen(html: str) -> dict[str, str]:
    """The header a page sends with its poll."""
    return {**HTMX, "X-Seen": " ".join(f"{name}:{version}" for name, version in parts(html).items())}


def test_it_says_state_address_workload_and_manifests(kim: Client, row: Slice) -> None:
    html = kim.get(url(row)).content.decode()
    assert "Ordered, being set up" in html
    assert "The order is being sent to the cluster." in html
    assert "curl http://chat-der-kueche.acme-ai.svc:8080/" in html
    assert "20 GiB" in html
    assert "kind: PersistentVolumeClaim" in html
    assert 'data-pace="1"' in html


def test_the_manifest_is_a_file_byte_for_byte(kim: Client, row: Slice) -> None:
    answer = kim.get(f"{url(row)}manifest.yaml")
    assert answer["Content-Type"] == "application/yaml; charset=utf-8"
    assert answer["Content-Disposition"] == 'attachment; filename="chat-der-kueche.yaml"'
    assert answer.content.decode() == to_yaml(render(row.manifest_spec("acme-ai")))


class TestPolling:
    """The page asks with what it shows and gets only what has changed."""

    def test_nothing_changed_is_an_empty_answer(self, kim: Client, row: Slice) -> None:
        page = kim.get(url(row)).content.decode()
        answer = kim.get(url(row), headers=seen(page))
        assert (answer.status_code, answer.content) == (204, b"")

    def test_times_that_run_on_change_nothing(
        self, kim: Client, row: Slice, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        page = kim.get(url(row)).content.decode()
        monkeypatch.setattr("gpu.templatetags.portal.ago", lambda moment: "long ago")
        assert kim.get(url(row), headers=seen(page)).status_code == 204

    def test_only_changed_parts_come_and_replace_themselves(
        self, made: World, kim: Client, row: Slice
    ) -> None:
        page = kim.get(url(row)).content.decode()
        orders.stop(made.lee, row)
        html = kim.get(url(row), headers=seen(page)).content.decode()
        assert {"state", "actions", "timeline"} <= set(parts(html))
        assert not {"resources", "log", "events"} & set(parts(html))
        assert html.count('hx-swap-oob="true"') == len(parts(html))
        assert "<html" not in html
        assert "Stop asked for" in html

    def test_the_log_shown_is_not_overwritten(self, kim: Client, row: Slice) -> None:
        page = kim.get(url(row)).content.decode()
        headers = seen(page)
        headers["X-Seen"] = headers["X-Seen"].replace(f"log:{parts(page)['log']}", "log:other")
        assert kim.get(url(row), headers=headers).status_code == 204

    def test_old_facts_come_to_an_open_page(self, kim: Client, row: Slice) -> None:
        page = kim.get(url(row)).content.decode()
        watched(age_s=40)
        html = kim.get(url(row), headers=seen(page)).content.decode()
        assert {"stale", "data-age"} <= set(parts(html))

    def test_it_ends_when_the_slice_has_ended(self, made: World, kim: Client, row: Slice) -> None:
        page = kim.get(url(row)).content.decode()
        orders.release(made.kim, row)
        Slice.objects.update(ended_at=timezone.now(), applied_generation=2, action="applied")
        html = kim.get(url(row), headers=seen(page)).content.decode()
        assert "poll" in parts(html)
        assert 'data-pace=""' in html
        assert "data-live" not in kim.get(url(row)).content.decode()
        assert "Given back" in html

    @pytest.mark.parametrize("path", ["/projects/acme-ai/", "/projects/acme-ai/slices/"])
    def test_lists_follow_too(self, kim: Client, row: Slice, path: str) -> None:
        page = kim.get(path).content.decode()
        assert kim.get(path, headers=seen(page)).status_code == 204
        Slice.objects.update(display_name="Anders")
        html = kim.get(path, headers=seen(page)).content.decode()
        assert set(parts(html)) == {"slices"}
        assert "Anders" in html


class TestLog:
    """A copy is shown with its age; the worker is asked for a newer one; the request waits for nobody."""

    def test_the_first_look_asks_the_worker(self, kim: Client, row: Slice, sent: list[str]) -> None:
        sent.clear()
        html = kim.get(url(row, "log"), headers={**HTMX, "X-Seen": "log:none"}).content.decode()
        assert "Fetching the log" in html
        assert len(sent) == 0  # on commit; the row says it is wanted
        assert LogCopy.objects.get().wanted_at is not None

    def test_the_text_is_shown_as_text(self, kim: Client, row: Slice) -> None:
        kim.get(url(row, "log"))
        store_log(row, "<script>alert(1)</script>\nline two")
        html = kim.get(url(row, "log"), headers={**HTMX, "X-Seen": "log:none"}).content.decode()
        assert "&lt;script&gt;alert(1)&lt;/script&gt;\nline two" in html
        assert "as of" in html

    def test_a_text_that_is_shown_does_not_come_again_with_its_new_age(self, kim: Client, row: Slice) -> None:
        kim.get(url(row, "log"))
        store_log(row, "line one")
        first = kim.get(url(row, "log"), headers={**HTMX, "X-Seen": "log:none"}).content.decode()
        store_log(row, "line one")
        again = kim.get(url(row, "log"), headers=seen(first)).content.decode()
        assert set(parts(again)) == {"log-age"}
        store_log(row, "line one\nline two")
        assert set(parts(kim.get(url(row, "log"), headers=seen(first)).content.decode())) == {
            "log",
            "log-age",
        }

    def test_without_a_container_it_says_so(self, kim: Client, row: Slice) -> None:
        kim.get(url(row, "log"))
        store_log(row, "", "no_container")
        assert "There is no log at present" in kim.get(url(row, "log")).content.decode()

    def test_the_last_text_stays_when_fetching_fails(self, kim: Client, row: Slice) -> None:
        kim.get(url(row, "log"))
        store_log(row, "last words")
        fetched = LogCopy.objects.get().fetched_at
        assert fetched is not None
        store_log(row, "", "unreachable")
        html = kim.get(url(row, "log")).content.decode()
        assert "last words" in html
        assert "no newer log can be fetched" in html
        assert f'<time datetime="{fetched.isoformat()}"' in html

    def test_of_a_stopped_slice_it_says_that_the_log_is_gone(
        self, made: World, kim: Client, row: Slice
    ) -> None:
        orders.stop(made.kim, row)
        kim.get(url(row, "log"))
        store_log(row, "", "no_container")
        html = kim.get(url(row, "log")).content.decode()
        assert "the container has ended, and its log with it" in html
        assert "has not started" not in html


class TestActions:
    """Each action says what it does, asks, and does it once."""

    @pytest.mark.parametrize(
        ("action", "says"),
        [
            ("stop", "What was not written to a volume is lost"),
            ("restart", "Somebody else may take it"),
            ("release", "This cannot be undone"),
        ],
    )
    def test_it_says_first_what_happens(self, kim: Client, row: Slice, action: str, says: str) -> None:
        assert says in kim.get(url(row, action)).content.decode()
        fragment = kim.get(url(row, action), headers=HTMX).content.decode()
        assert says in fragment
        assert "<html" not in fragment
        row.refresh_from_db()
        assert (row.intent, row.generation) == ("run", 1)

    def test_stop_and_start(self, kim: Client, row: Slice) -> None:
        assert kim.post(url(row, "stop"))["Location"] == url(row)
        row.refresh_from_db()
        assert row.intent == "stop"
        assert "costs 0.25 EUR an hour" in kim.get(url(row, "start")).content.decode()
        kim.post(url(row, "start"))
        row.refresh_from_db()
        assert row.intent == "run"

    def test_start_with_all_cards_busy_asks_for_consent(self, made: World, kim: Client, row: Slice) -> None:
        orders.stop(made.kim, row)
        for number in range(4):
            observe(claim("birch-lab", f"other-{number}"))
        assert 'name="allow_queue"' in kim.get(url(row, "start")).content.decode()
        assert "would wait in the queue" in kim.post(url(row, "start")).content.decode()
        kim.post(url(row, "start"), {"allow_queue": "on"})
        row.refresh_from_db()
        assert row.intent == "run"

    def test_restart_clicked_twice_restarts_once(self, kim: Client, row: Slice) -> None:
        data = {"expected": hidden(kim.get(url(row, "restart")).content.decode(), "expected")}
        kim.post(url(row, "restart"), data)
        again = kim.post(url(row, "restart"), data, follow=True)
        row.refresh_from_db()
        assert row.restarts == 1
        assert "had changed already" in again.content.decode()

    def test_release_keeps_the_volume_unless_its_name_is_typed(self, kim: Client, row: Slice) -> None:
        wrong = kim.post(url(row, "release"), {"delete_volume": "on", "name": "chat"})
        page = wrong.content.decode()
        assert "exactly as it is shown" in page
        assert 'name="delete_volume" data-shows="#confirm-name" checked' in page
        assert 'value="chat" aria-invalid="true"' in page
        row.refresh_from_db()
        assert row.intent == "run"
        kim.post(url(row, "release"), {"delete_volume": "on", "name": "Chat der Küche"})
        row.refresh_from_db()
        assert (row.intent, row.delete_volume) == ("release", True)

    def test_release_without_a_tick_asks_for_no_name(self, kim: Client, row: Slice) -> None:
        kim.post(url(row, "release"))
        row.refresh_from_db()
        assert (row.intent, row.delete_volume) == ("release", False)

    def test_what_the_state_forbids_is_said(self, made: World, kim: Client, row: Slice) -> None:
        orders.release(made.kim, row)
        answer = kim.post(url(row, "stop"))
        assert "“Chat der Küche” is being given back." in answer.content.decode()

    def test_there_are_no_other_actions(self, kim: Client, row: Slice) -> None:
        assert kim.post(url(row, "explode")).status_code == 404
        assert kim.put(url(row, "stop")).status_code == 405


class TestChange:
    """Image, command, CPU, memory and environment change; package, name and volume stay."""

    def data(self, client: Client, row: Slice, **values: str) -> dict[str, str]:
        """The form as shown, with `values` typed over it."""
        html = client.get(url(row, "change")).content.decode()
        shown = dict(re.findall(r'<input type="text" name="([\w-]+)"(?: value="([^"]*)")?', html))
        return {**shown, "env": "", "expected": hidden(html, "expected"), **values}

    def test_a_change_is_kept_and_the_rest_stays(self, kim: Client, row: Slice) -> None:
        answer = kim.post(url(row, "change"), self.data(kim, row, memory_limit="4Gi", env="DEBUG=1"))
        assert answer.status_code == 302
        row.refresh_from_db()
        assert row.workload.memory_limit == "4Gi"
        assert [item.name for item in row.workload.env] == ["DEBUG"]
        assert row.workload.volume == VolumeSpec("20Gi", "/data")
        assert row.workload.port == 8080
        assert row.generation == 2

    def test_a_preview_changes_nothing(self, kim: Client, row: Slice) -> None:
        html = kim.post(url(row, "change"), self.data(kim, row, memory_limit="4Gi"), headers=HTMX)
        assert "Change and restart" in html.content.decode()
        row.refresh_from_db()
        assert row.generation == 1

    def test_a_preview_counts_the_slice_itself_before_and_its_volume_once(
        self, kim: Client, row: Slice
    ) -> None:
        used = {"limits.memory": row.workload.memory_limit, "pods": "1", "requests.storage": "20Gi"}
        observe(quota("acme-ai", {"limits.memory": "100Gi", "pods": "20", "requests.storage": "100Gi"}, used))
        labels = {"app.kubernetes.io/name": row.app}
        for kind in ("Pod", "PersistentVolumeClaim"):
            named = {"name": f"{row.app}-1", "namespace": "acme-ai", "uid": kind, "labels": labels}
            observe({"apiVersion": "v1", "kind": kind, "metadata": named, "spec": {}, "status": {}})
        html = kim.post(url(row, "change"), self.data(kim, row, memory_limit="4Gi"), headers=HTMX)
        text = re.sub(r"<[^>]+>", "", html.content.decode())
        assert "2 GiB → 4 GiB of 100 GiB" in text
        assert "1 → 1 of 20" in text
        assert "Storage" not in text

    def test_a_mistake_keeps_what_was_typed(self, kim: Client, row: Slice) -> None:
        html = kim.post(url(row, "change"), self.data(kim, row, image="x:latest", cpu_limit="3")).content
        assert b'value="x:latest"' in html
        assert b'href="#id_image"' in html
        row.refresh_from_db()
        assert row.generation == 1

    def test_a_change_made_meanwhile_is_not_overwritten(self, made: World, kim: Client, row: Slice) -> None:
        data = self.data(kim, row, memory_limit="4Gi")
        orders.stop(made.lee, row)
        assert "was changed since you looked" in kim.post(url(row, "change"), data).content.decode()
        row.refresh_from_db()
        assert row.workload.memory_limit != "4Gi"
