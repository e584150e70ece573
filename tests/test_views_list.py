"""The list of slices in the order that is asked for; the order is part of the address."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from gpu.models import Slice
from tests.factories import World, world
from tests.view_kit import cluster_seen, signed_in

pytestmark = pytest.mark.django_db

PATH = "/projects/acme-ai/slices/"


@pytest.fixture
def kim(monkeypatch: pytest.MonkeyPatch) -> Client:
    """Kim's browser; four slices of two sizes, one of which needs somebody."""
    monkeypatch.setattr("gpu.enqueue._send", lambda task, pk: None)
    cluster_seen()
    made = world(entitled=4)
    made.entitle(4, 50)
    _order(made, "beta", 25, age=3)
    _order(made, "Alpha", 50, age=2, action="refused", action_code="invalid")
    _order(made, "delta", 25, age=1)
    _order(made, "Gamma", 50, age=4)
    return signed_in(made.kim)


def _order(made: World, name: str, share: int, *, age: int, **values: str) -> None:
    row = made.order(name, share=share)
    Slice.objects.filter(pk=row.pk).update(created_at=timezone.now() - timedelta(minutes=age), **values)


def names(client: Client, query: str = "") -> list[str]:
    """The names of the list from top to bottom."""
    return re.findall(r'class="name"[^>]*>([^<]+)<', client.get(f"{PATH}{query}").content.decode())


@pytest.mark.parametrize(
    ("sort", "expected"),
    [
        ("", "Alpha delta beta Gamma"),
        ("name", "Alpha beta delta Gamma"),
        ("newest", "delta Alpha beta Gamma"),
        ("oldest", "Gamma beta Alpha delta"),
        ("package", "delta beta Alpha Gamma"),
        ("no such order", "Alpha delta beta Gamma"),
    ],
)
def test_the_order_asked_for(kim: Client, sort: str, expected: str) -> None:
    assert names(kim, f"?sort={sort}") == expected.split()
    Slice.objects.update(ended_at=timezone.now(), intent="release")
    ended = {"": "delta Alpha beta Gamma", "no such order": "delta Alpha beta Gamma"}.get(sort, expected)
    assert names(kim, f"?show=ended&sort={sort}") == ended.split()


def test_pages_follow_the_order(kim: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpu.views.project.PAGE_SIZE", 3)
    assert names(kim, "?sort=name") == ["Alpha", "beta", "delta"]
    assert names(kim, "?sort=name&page=2") == ["Gamma"]
    assert 'href="?sort=name&amp;page=2"' in kim.get(f"{PATH}?sort=name").content.decode()


def test_the_control_keeps_what_is_searched_for_and_the_search_keeps_the_order(kim: Client) -> None:
    html = kim.get(f"{PATH}?q=a&show=waiting&sort=oldest").content.decode()
    assert '<a id="sort-name" href="?q=a&amp;show=waiting&amp;sort=name" >By name' in html
    assert '<a id="sort-need" href="?q=a&amp;show=waiting" >Needs somebody first' in html
    assert re.search(r'id="sort-oldest"[^>]* aria-current="true">Oldest first', html)
    assert '<input type="hidden" name="sort" value="oldest">' in html
    assert 'class="chip" href="?q=a&amp;sort=oldest"' in html
    assert 'hx-get="/projects/acme-ai/slices/?q=a&amp;show=waiting&amp;sort=oldest"' in html


def test_the_control_in_german(kim: Client) -> None:
    html = kim.get(f"{PATH}?sort=package", headers={"Accept-Language": "de"}).content.decode()
    for text in ("Reihenfolge der Liste:", "Nach Name", "Älteste zuerst", "Nach Paket"):
        assert text in html


def test_a_slice_stopped_on_purpose_needs_nobody(kim: Client) -> None:
    stopped = Slice.objects.filter(display_name="beta")
    stopped.update(intent="stop", action="applied", applied_generation=1)
    assert names(kim, "?show=stopped") == ["beta"]
    assert names(kim, "?show=attention") == ["Alpha"]
    assert names(kim) == ["Alpha", "delta", "beta", "Gamma"]
