"""C-18: the session ends while the page is open; sign-in, its way back, and refused requests."""

from __future__ import annotations

import pytest
from django.test import Client

from gpu.models import Order
from tests.factories import World, world
from tests.view_kit import cluster_seen, hidden, order_data, signed_in

PASSWORD = "correct horse battery"
ORDER = "/projects/acme-ai/order/"


@pytest.fixture
def made(db: None, monkeypatch: pytest.MonkeyPatch) -> World:
    """Two tenants; acme may order."""
    monkeypatch.setattr("gpu.enqueue._send", lambda task, pk: None)
    cluster_seen()
    return world(entitled=2)


def htmx(page: str) -> dict[str, str]:
    """The headers htmx sends from `page`."""
    return {"HX-Request": "true", "HX-Current-URL": page}


@pytest.mark.parametrize("method", ["get", "post"])
def test_a_htmx_request_is_led_to_the_sign_in_as_a_whole_page(made: World, method: str) -> None:
    row = made.order()
    page = f"/slices/{row.public_id}/"
    answer = getattr(Client(), method)(f"{page}stop/", headers=htmx(f"http://testserver{page}"))
    assert 200 <= answer.status_code < 300
    assert answer["HX-Redirect"] == f"/login/?next={page}"
    assert "Location" not in answer
    assert answer.content == b""


def test_other_requests_get_a_redirect(made: World) -> None:
    answer = Client().get("/projects/acme-ai/?show=all")
    assert (answer.status_code, answer["Location"]) == (302, "/login/?next=/projects/acme-ai/%3Fshow%3Dall")
    assert "HX-Redirect" not in answer


def test_a_page_of_somebody_else_is_no_way_back(made: World) -> None:
    answer = Client().get("/projects/acme-ai/", headers=htmx("https://evil.example.test/x"))
    assert answer["HX-Redirect"] == "/login/"


@pytest.mark.parametrize(
    "target",
    ["//evil.example.test/", "https://evil.example.test/", "/\\evil.example.test", "javascript:alert(1)"],
)
def test_after_the_sign_in_nobody_leaves_the_portal(made: World, target: str) -> None:
    client = Client()
    page = client.get("/login/", {"next": target}).content.decode()
    assert '<input type="hidden" name="next" value="">' in page
    answer = client.post("/login/", {"username": "kim@acme.example", "password": PASSWORD, "next": target})
    assert (answer.status_code, answer["Location"]) == (302, "/")


def test_after_the_sign_in_one_is_where_one_was(made: World) -> None:
    answer = Client().post(
        "/login/", {"username": "kim@acme.example", "password": PASSWORD, "next": "/projects/acme-ai/order/"}
    )
    assert answer["Location"] == "/projects/acme-ai/order/"


def test_a_wrong_password_keeps_the_name(made: World) -> None:
    html = Client().post("/login/", {"username": "kim@acme.example", "password": "x"}).content.decode()
    assert 'value="kim@acme.example"' in html
    assert "Name or password is wrong" in html


def test_a_token_from_before_the_sign_in_orders_nothing_and_says_so(made: World) -> None:
    """d) The answer to htmx is a notice that is swapped in; after a reload the same order works."""
    client = Client(enforce_csrf_checks=True)
    client.force_login(made.kim)
    page = client.get(ORDER).content.decode()
    data = {**order_data(client), "csrfmiddlewaretoken": hidden(page, "csrfmiddlewaretoken")}
    client.post("/logout/", data)
    sign_in = {"username": "kim@acme.example", "password": PASSWORD}
    token = hidden(client.get("/login/").content.decode(), "csrfmiddlewaretoken")
    assert client.post("/login/", {**sign_in, "csrfmiddlewaretoken": token}).status_code == 302

    answer = client.post(ORDER, data, headers=htmx(f"http://testserver{ORDER}"))
    assert answer.status_code == 403
    assert (answer["HX-Retarget"], answer["HX-Reswap"]) == ("#toasts", "innerHTML")
    assert "data-reload" in answer.content.decode()
    assert "<html" not in answer.content.decode()
    whole = client.post(ORDER, data)
    assert whole.status_code == 403
    assert "Open the page anew" in whole.content.decode()
    assert Order.objects.count() == 0

    fresh = client.get(ORDER).content.decode()
    again = {**data, **{name: hidden(fresh, name) for name in ("csrfmiddlewaretoken", "operation_key")}}
    assert client.post(ORDER, again).status_code == 302
    assert Order.objects.count() == 1


def test_htmx_swaps_a_refusal_in(made: World) -> None:
    """The notice above would be dropped without this line of the page's configuration."""
    html = signed_in(made.kim).get("/projects/acme-ai/").content.decode()
    assert '{"code":"403","swap":true,"error":true}' in html
    assert '"includeIndicatorStyles":false' in html
    assert '"allowEval":false' in html


def test_errors_are_pages_in_the_readers_language(made: World) -> None:
    answer = signed_in(made.kim).get("/nichts/", headers={"accept-language": "de"})
    assert answer.status_code == 404
    assert "Hier ist nichts für Sie" in answer.content.decode()


def test_a_surprise_tells_its_number(made: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object) -> None:
        raise RuntimeError("surprise")

    monkeypatch.setattr("gpu.views.project.project_status", broken)
    client = signed_in(made.kim)
    client.raise_request_exception = False
    answer = client.get("/projects/acme-ai/")
    assert answer.status_code == 500
    assert answer["X-Request-Id"] in answer.content.decode()
    assert "surprise" not in answer.content.decode()
