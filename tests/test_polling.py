"""Polls of a page where nothing has changed: they cost next to nothing, and no change is ever missed."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

import pytest
from django.db import connection
from django.http import HttpResponse
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from gpu.models import (
    Entitlement,
    Milestone,
    ModelCheck,
    ModelOnVolume,
    ModelPull,
    ModelShelf,
    Observed,
    Package,
    Slice,
    SliceReceipt,
    SliceSecret,
    TimelineEntry,
)
from gpu.row_versions import row_versions
from gpu.views import polling
from tenants.models import Membership, Tenant, User
from tests.diagnosis_kit import Slice as Recorded
from tests.diagnosis_kit import recorded
from tests.factories import World, card, claim, observe, watched, workload, world
from tests.view_kit import cluster_seen, signed_in

pytestmark = pytest.mark.django_db

PAGES = ("/projects/acme-ai/", "/projects/acme-ai/slices/", "slice")
LISTS = PAGES[:2]


@dataclass
class Page:
    """An open page of a browser that polls as static/portal.js does."""

    client: Client
    path: str
    seen: dict[str, str]
    basis: str = ""

    @classmethod
    def open(cls, client: Client, path: str) -> Page:
        """Open the page and poll once, so that the page knows what it rests on."""
        page = cls(client, path, _parts(client.get(path).content.decode()))
        page.poll()
        return page

    def poll(self, **headers: str) -> HttpResponse:
        """Ask once and take in the answer."""
        sent = {"HX-Request": "true", "X-Seen": " ".join(f"{name}:{it}" for name, it in self.seen.items())}
        if self.basis:
            sent["X-Basis"] = self.basis
        answer = self.client.get(self.path, headers=sent | headers)
        self.basis = answer.headers.get("X-Basis", "")
        self.seen |= _parts(answer.content.decode())
        return answer


def _parts(html: str) -> dict[str, str]:
    return dict(re.findall(r'<div id="([\w-]+)" data-version="(\w+)"', html))


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> World:
    """acme is entitled to three slices, and the cluster has a free card."""
    monkeypatch.setattr("gpu.enqueue._send", lambda task, pk: None)
    cluster_seen()
    return world(entitled=3)


@pytest.fixture
def row(made: World) -> Slice:
    """A slice of kim's that runs Ollama."""
    row = made.order("chat", workload=workload(template="ollama", port=11434))
    before = timezone.now() - timedelta(hours=1)
    Slice.objects.update(action="applied", applied_generation=1, action_at=before, changed_at=before)
    for items in recorded("running").values():
        observe(*items)
    watched()
    row.refresh_from_db()
    return row


@pytest.fixture
def kim(made: World) -> Client:
    """Kim's browser."""
    return signed_in(made.kim)


def path_of(where: str, row: Slice) -> str:
    """The address of one of PAGES."""
    return f"/slices/{row.public_id}/" if where == "slice" else where


@pytest.mark.parametrize("where", PAGES)
def test_a_poll_where_nothing_changed_reads_no_rows_and_draws_nothing(
    kim: Client, row: Slice, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = Page.open(kim, path_of(where, row))
    assert opened.basis
    monkeypatch.setattr("gpu.diagnosis.explain", lambda *_: pytest.fail("judged a slice"))
    with CaptureQueriesContext(connection) as captured:
        answer = opened.poll()
    assert (answer.status_code, answer.content) == (204, b"")
    # Session, person, what is asked for, age of the facts, versions; on the start page the cards.
    assert len(captured) <= (8 if where == LISTS[0] else 5)
    assert not any('"gpu_observed"."data"' in query["sql"] for query in captured)
    assert opened.poll().status_code == 204


@pytest.mark.parametrize("where", PAGES)
def test_the_age_of_the_facts_goes_on(kim: Client, row: Slice, where: str) -> None:
    opened = Page.open(kim, path_of(where, row))
    watched(age_s=3)
    html = opened.poll().content.decode()
    assert set(_parts(html)) == {"data-age"}
    assert "3 seconds ago" in html
    assert opened.basis


@pytest.mark.parametrize("where", PAGES)
def test_a_cluster_that_falls_silent_is_told_at_the_next_poll(kim: Client, row: Slice, where: str) -> None:
    opened = Page.open(kim, path_of(where, row))
    watched(age_s=31)
    html = opened.poll().content.decode()
    assert {"stale", "data-age"} < set(_parts(html))
    assert "The cluster does not answer. Last known" in html
    watched()
    assert "The cluster does not answer" not in opened.poll().content.decode()
    assert "stale" in opened.seen


def _pull(row: Slice) -> ModelPull:
    return ModelPull.objects.create(slice=row, actor=row.order.user, model="llama3.2:3b", model_key="x")


CHANGES: dict[str, tuple[tuple[str, ...], Callable[[World, Slice], object]]] = {
    "name": (PAGES[:2], lambda made, row: Slice.objects.update(display_name="Anders")),
    "intent": (PAGES, lambda made, row: Slice.objects.update(intent="stop")),
    "pod": (PAGES, lambda made, row: observe(Recorded().waits("CrashLoopBackOff", restarts=4).pod)),
    "pod gone": (PAGES, lambda made, row: Observed.objects.filter(kind="Pod").delete()),
    "entitlement": (LISTS[:1], lambda made, row: Entitlement.objects.update(count=2)),
    "package": (LISTS, lambda made, row: Package.objects.update(name="Neu")),
    "card": (LISTS[:1], lambda made, row: observe(card("second"))),
    "foreign claim": (LISTS[:1], lambda made, row: observe(claim("birch-lab", "other"))),
    "person": (LISTS, lambda made, row: User.objects.update(first_name="Kimberly")),
    "timeline": (("slice",), lambda made, row: TimelineEntry.objects.create(slice=row, code="stop_asked")),
    "milestone": (
        ("slice",),
        lambda made, row: Milestone.objects.create(
            slice=row, pod="p", code="started", at=timezone.now(), last_at=timezone.now()
        ),
    ),
    "pull": (("slice",), lambda made, row: _pull(row)),
    "model": (
        ("slice",),
        lambda made, row: ModelOnVolume.objects.create(slice=row, name="llama", seen_at=timezone.now()),
    ),
    "models listed": (
        ("slice",),
        lambda made, row: ModelShelf.objects.create(slice=row, listed_at=timezone.now()),
    ),
    "check": (("slice",), lambda made, row: ModelCheck.objects.create(slice=row, model="llama")),
    "receipt": (("slice",), lambda made, row: SliceReceipt.objects.create(slice=row, gpu_name="V100")),
}


@pytest.mark.parametrize(
    ("change", "where"), [(name, page) for name, (pages, _make) in CHANGES.items() for page in pages]
)
def test_every_change_is_seen_by_the_next_poll(
    made: World, kim: Client, row: Slice, change: str, where: str
) -> None:
    opened = Page.open(kim, path_of(where, row))
    assert opened.basis
    CHANGES[change][1](made, row)
    answer = opened.poll()
    assert answer.status_code == 200
    assert set(_parts(answer.content.decode())) - {"data-age"}


@pytest.mark.parametrize("where", PAGES)
def test_all_tables_an_answer_is_made_of_count(kim: Client, row: Slice, where: str) -> None:
    _pull(row)
    SliceSecret.objects.create(slice=row, value="x" * 40)
    path = path_of(where, row)
    opened = Page(kim, path, _parts(kim.get(path).content.decode()))
    with CaptureQueriesContext(connection) as captured:
        opened.poll()
    versions = next(query["sql"] for query in captured if "hashtextextended" in query["sql"])
    read = {
        table
        for query in captured
        if query["sql"] != versions
        for table in re.findall(r'(?:FROM|JOIN) "?([a-z_]+)"?', query["sql"])
    }
    # Who asks, and which project, is looked up before; ages are drawn each time; the log has a poll of its own.
    read -= {"django_session", "tenants_project", "tenants_tenant", "tenants_membership"}
    read -= {"gpu_watchstate", "gpu_logcopy", "jsonb_each"}
    if where != "slice":
        read -= {"gpu_order"}  # never changes
    missing = {table for table in read if f'"{table}".xmin' not in versions}
    assert "gpu_slice" in read
    assert not missing


def test_what_comes_between_the_version_and_the_reading_is_told(
    kim: Client, row: Slice, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = Page.open(kim, f"/slices/{row.public_id}/")

    def just_before(*found: object) -> str:
        Slice.objects.update(intent="stop")
        return row_versions(*found)  # type: ignore[arg-type]

    monkeypatch.setattr(polling, "row_versions", just_before)
    opened.poll()
    monkeypatch.undo()
    assert 'id="act-start"' in kim.get(opened.path).content.decode()
    shown = opened.seen["actions"]
    opened.basis = ""
    opened.poll()
    assert opened.seen["actions"] == shown


def _deployment_of_age(**age: int) -> None:
    """All that is there of the slice is a Deployment of this age, without any pod."""
    deployment = recorded("running")["Deployment"][0]
    deployment["metadata"]["creationTimestamp"] = (timezone.now() - timedelta(**age)).isoformat()
    deployment["status"] = {}
    Observed.objects.filter(app="chat").delete()
    observe(deployment)


@pytest.mark.parametrize("where", PAGES)
def test_what_time_alone_changes_soon_is_drawn_anew_each_time(kim: Client, row: Slice, where: str) -> None:
    _deployment_of_age(minutes=4, seconds=50)
    opened = Page.open(kim, path_of(where, row))
    assert not opened.basis
    _deployment_of_age(minutes=5, seconds=1)
    assert "unusually long" in opened.poll().content.decode()
    assert opened.basis


@pytest.mark.parametrize(("seconds_old", "lasts"), [(120, 60), (270, 10), (400, 300)])
def test_a_basis_ends_before_time_changes_what_is_said(
    kim: Client, row: Slice, seconds_old: int, lasts: int
) -> None:
    _deployment_of_age(seconds=seconds_old)
    until = int(Page.open(kim, f"/slices/{row.public_id}/").basis.partition(".")[0])
    assert lasts - 5 <= until - time.time() <= lasts


def test_a_slice_that_waits_for_a_worker_is_drawn_anew_each_time(kim: Client, row: Slice) -> None:
    Slice.objects.update(action="retrying")
    assert not Page.open(kim, f"/slices/{row.public_id}/").basis


def test_a_pull_nobody_looks_at_any_more_is_told_by_an_open_page(
    kim: Client, row: Slice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that stands still writes nothing: only time tells of it."""
    ModelPull.objects.filter(pk=_pull(row).pk).update(look_at=timezone.now() - timedelta(seconds=5))
    opened = Page.open(kim, f"/slices/{row.public_id}/")
    monkeypatch.setattr("gpu.pull_status.LATE", timedelta(seconds=1))  # as if the time had passed
    assert "nobody looks at this" in opened.poll().content.decode()


def test_a_slice_the_cluster_may_soon_be_found_without_is_drawn_anew_soon(kim: Client, row: Slice) -> None:
    Observed.objects.filter(app="chat").delete()
    Slice.objects.update(action_at=timezone.now())
    watched(age_s=5)
    until = int(Page.open(kim, "/projects/acme-ai/slices/").basis.partition(".")[0])
    assert until - time.time() <= 10


def test_a_basis_is_believed_until_it_ends(kim: Client, row: Slice, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Page.open(kim, "/projects/acme-ai/slices/")
    basis = opened.basis
    digest = basis.partition(".")[2]
    judged: list[object] = []
    real = polling.Poll

    def noted(*values: object) -> object:
        judged.append(values[-1])
        return real(*values)  # type: ignore[arg-type]

    monkeypatch.setattr(polling, "Poll", noted)
    now = int(time.time())
    for told in (basis, f"{now - 1}.{digest}", f"{now + 330}.{digest}", f".{digest}", "²." + digest, "x"):
        opened.basis = told
        opened.poll()
    assert judged == [True, False, False, False, False, False]


def test_another_language_person_or_address_has_another_basis(made: World, kim: Client, row: Slice) -> None:
    opened = Page.open(kim, "/projects/acme-ai/slices/")
    basis = opened.basis
    assert basis
    for client, path, language in (
        (kim, "/projects/acme-ai/slices/", "de"),
        (kim, "/projects/acme-ai/slices/?show=stopped", "en"),
        (signed_in(made.lee), "/projects/acme-ai/slices/", "en"),
    ):
        headers = {"X-Seen": "slices:none", "X-Basis": basis, "Accept-Language": language}
        answer = client.get(path, headers=headers)
        assert "slices" in _parts(answer.content.decode())


@pytest.mark.parametrize("where", PAGES)
def test_a_basis_opens_nothing(made: World, kim: Client, row: Slice, where: str) -> None:
    opened = Page.open(kim, path_of(where, row))
    headers = {"X-Seen": "slices:none", "X-Basis": opened.basis}
    assert signed_in(made.robin).get(opened.path, headers=headers).status_code == 404
    assert Client().get(opened.path, headers=headers).status_code == 302
    Membership.objects.filter(user=made.kim).delete()
    assert opened.poll().status_code == 404


def test_versions_of_rows(made: World) -> None:
    rows = Tenant.objects.filter(slug__in=("acme", "third"))
    found = [row_versions(rows, Package.objects.none())]
    Tenant.objects.filter(slug="acme").update(name="Acme")
    found.append(row_versions(rows))
    Tenant.objects.create(slug="third", name="Third")
    found.append(row_versions(rows))
    Tenant.objects.filter(slug="third").delete()
    found.append(row_versions(rows))
    assert row_versions(rows) == found[-1]
    Tenant.objects.filter(slug="birch").update(name="Elsewhere")
    assert row_versions(rows) == found[-1]
    assert len(set(found[:3])) == 3
    assert found[1] == found[3]
