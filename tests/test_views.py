"""Every page: works, anonymous, team mate, stranger; language, theme, time, and what a page must not hold."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from django.test import Client
from django.utils import translation

from gpu.models import Slice
from gpu.views.project import largest_model
from tests.factories import World, observe, quota, watched, world
from tests.view_kit import cluster_seen, signed_in

pytestmark = pytest.mark.django_db

PAGES = [
    "/projects/acme-ai/",
    "/projects/acme-ai/catalogue/",
    "/projects/acme-ai/order/",
    "/projects/acme-ai/slices/",
    "/projects/acme-ai/tokens/",
    "/projects/acme-ai/members/",
    "/slices/{id}/",
    "/slices/{id}/log/",
    "/slices/{id}/manifest.yaml",
    "/slices/{id}/change/",
    "/slices/{id}/stop/",
    "/slices/{id}/start/",
    "/slices/{id}/restart/",
    "/slices/{id}/release/",
]


@pytest.fixture
def made() -> World:
    """Tenants, packages, and a cluster that answers."""
    cluster_seen()
    return world(entitled=4)


@pytest.fixture
def slice_id(made: World, monkeypatch: pytest.MonkeyPatch) -> str:
    """A slice of acme."""
    monkeypatch.setattr("gpu.enqueue._send", lambda task, pk: None)
    return made.order("Chat der Küche").public_id


@pytest.mark.parametrize("path", PAGES)
def test_a_member_sees_the_page(made: World, slice_id: str, path: str) -> None:
    answer = signed_in(made.kim).get(path.format(id=slice_id))
    assert answer.status_code == 200


@pytest.mark.parametrize("path", PAGES)
def test_a_team_mate_sees_the_page(made: World, slice_id: str, path: str) -> None:
    assert signed_in(made.lee).get(path.format(id=slice_id)).status_code == 200


@pytest.mark.parametrize("path", PAGES)
def test_anonymous_is_led_to_the_sign_in_and_back(slice_id: str, path: str) -> None:
    path = path.format(id=slice_id)
    answer = Client().get(path)
    assert (answer.status_code, answer["Location"]) == (302, f"/login/?next={path}")


@pytest.mark.parametrize("path", PAGES)
def test_a_stranger_gets_the_page_of_things_that_are_not_there(made: World, slice_id: str, path: str) -> None:
    stranger = signed_in(made.robin)
    answer = stranger.get(path.format(id=slice_id))
    assert answer.status_code == 404
    assert "acme" not in answer.content.decode().lower().replace(path.format(id=slice_id), "")


@pytest.mark.parametrize(
    "path",
    [
        "/projects/acme-ai/order/",
        "/projects/acme-ai/tokens/",
        "/projects/acme-ai/members/",
        "/slices/{id}/change/",
        "/slices/{id}/stop/",
        "/slices/{id}/release/",
    ],
)
def test_a_stranger_cannot_post_either(made: World, slice_id: str, path: str) -> None:
    assert signed_in(made.robin).post(path.format(id=slice_id), {}).status_code == 404


class _Inline(HTMLParser):
    """Collects what the content security policy would refuse."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = {name for name, _value in attrs}
        if tag == "style" or "style" in names or any(name.startswith("on") for name in names):
            self.found.append(f"<{tag} {attrs}>")
        if tag == "script" and "src" not in names:
            self.found.append("<script> without src")


@pytest.mark.parametrize("path", ["/", "/login/", *PAGES])
def test_no_page_holds_inline_script_or_style(made: World, slice_id: str, path: str) -> None:
    client = Client() if path == "/login/" else signed_in(made.kim)
    answer = client.get(path.format(id=slice_id), follow=True)
    assert "default-src 'self'" in answer["Content-Security-Policy"]
    assert "unsafe" not in answer["Content-Security-Policy"]
    reader = _Inline()
    reader.feed(answer.content.decode())
    assert reader.found == []


@pytest.mark.parametrize("path", PAGES[:6])
def test_ids_are_unique_and_labels_lead_somewhere(made: World, path: str) -> None:
    html = signed_in(made.kim).get(path).content.decode()
    ids = re.findall(r'\sid="([^"]+)"', html)
    assert sorted(ids) == sorted(set(ids))
    assert set(re.findall(r'\sfor="([^"]+)"', html)) <= set(ids)
    described = {one for many in re.findall(r'aria-describedby="([^"]+)"', html) for one in many.split()}
    assert described <= set(ids)


def test_the_page_speaks_german(made: World) -> None:
    client = signed_in(made.kim)
    html = client.get("/projects/acme-ai/", headers={"accept-language": "de"}).content.decode()
    assert '<html lang="de"' in html
    assert "Slice bestellen" in html
    assert "0,25 EUR" in html


def test_the_chosen_language_stays(made: World) -> None:
    client = signed_in(made.kim)
    client.post("/i18n/setlang/", {"language": "de", "next": "/projects/acme-ai/"})
    assert '<html lang="de"' in client.get("/projects/acme-ai/").content.decode()
    translation.activate("en")


def test_the_chosen_theme_is_there_before_the_first_paint(made: World) -> None:
    client = signed_in(made.kim)
    assert "data-bs-theme" not in client.get("/projects/acme-ai/").content.decode()
    client.cookies["theme"] = "dark"
    assert 'data-bs-theme="dark"' in client.get("/projects/acme-ai/").content.decode()
    client.cookies["theme"] = '"><script>'
    assert "data-bs-theme" not in client.get("/projects/acme-ai/").content.decode()


def test_one_project_is_opened_at_once_and_none_says_what_to_do(made: World) -> None:
    assert signed_in(made.kim).get("/")["Location"] == "/projects/acme-ai/"
    made.kim.memberships.all().delete()
    assert "do not belong to a project yet" in signed_in(made.kim).get("/").content.decode()


def test_the_overview_tells_use_pool_and_what_binds(made: World, slice_id: str) -> None:
    observe(quota("acme-ai", {"requests.cpu": "8"}, {"requests.cpu": "6500m"}))
    html = signed_in(made.kim).get("/projects/acme-ai/").content.decode()
    assert "0 of 4 slices in use, 1 waiting." in html
    assert re.search(r"1\.5 CPU</b>\s*<span class=\"quiet\">left of 8 CPU", html)
    assert "plan-quota" in html
    assert "Chat der Küche" in html


def test_unknown_is_not_shown_as_nothing(made: World) -> None:
    observe({**quota("acme-ai", {"requests.cpu": "8"}, {}), "status": {}})
    html = signed_in(made.kim).get("/projects/acme-ai/").content.decode()
    assert "unknown" in html
    assert "0 CPU" not in html


def test_old_facts_are_said_to_be_old(made: World) -> None:
    client = signed_in(made.kim)
    assert "The cluster does not answer" not in client.get("/projects/acme-ai/").content.decode()
    watched(age_s=31)
    html = client.get("/projects/acme-ai/").content.decode()
    assert "The cluster does not answer" in html
    assert "this may be out of date" in html


def test_slices_are_found_by_name_image_and_what_they_do(made: World, slice_id: str) -> None:
    made.order("Nightly")
    client = signed_in(made.kim)

    def names(query: str) -> set[str]:
        html = client.get(f"/projects/acme-ai/slices/{query}").content.decode()
        return {name for name in ("Chat der Küche", "Nightly") if f">{name}</a>" in html}

    assert names("") == {"Chat der Küche", "Nightly"}
    assert names("?q=küche") == {"Chat der Küche"}
    assert names("?q=team/app") == {"Chat der Küche", "Nightly"}
    assert names("?show=waiting") == {"Chat der Küche", "Nightly"}
    assert names("?show=running") == set()
    assert names("?show=ended") == set()
    assert "Nothing fits" in client.get("/projects/acme-ai/slices/?q=nix").content.decode()


def test_slices_that_need_somebody_come_first(made: World, slice_id: str) -> None:
    Slice.objects.filter(public_id=slice_id).update(action="needs_operator")
    made.order("Nightly")
    html = signed_in(made.kim).get("/projects/acme-ai/slices/").content.decode()
    assert html.index(">Chat der Küche</a>") < html.index(">Nightly</a>")


def test_a_long_list_has_pages(made: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpu.enqueue._send", lambda task, pk: None)
    monkeypatch.setattr("gpu.views.project.PAGE_SIZE", 2)
    for number in range(3):
        made.order(f"Lauf {number}")
    client = signed_in(made.kim)
    first = client.get("/projects/acme-ai/slices/?q=Lauf").content.decode()
    assert "Page 1 of 2" in first
    assert "?q=Lauf&amp;page=2" in first
    second = client.get("/projects/acme-ai/slices/?q=Lauf&page=2").content.decode()
    assert ">Lauf 0</a>" in second
    assert ">Lauf 2</a>" not in second


@pytest.mark.parametrize(("share", "four", "sixteen"), [(25, 8, 3), (50, 14, 7), (100, 32, 14)])
def test_the_catalogue_names_models_that_fit(share: int, four: int, sixteen: int) -> None:
    from decimal import Decimal

    package = world().packages[share]
    assert largest_model(package, Decimal("0.62")) == four
    assert largest_model(package, Decimal(2)) == sixteen
