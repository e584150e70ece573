"""The order form: one form is one order (C-17), nothing typed is lost, the preview says what will happen."""

from __future__ import annotations

import re
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection
from django.test import Client

from gpu import enqueue
from gpu.models import Order, Slice
from tests.factories import World, claim, observe, quota, watched, world
from tests.view_kit import cluster_seen, order_data, signed_in

ORDER = "/projects/acme-ai/order/"
HTMX = {"HX-Request": "true"}


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The slices for which a task was sent."""
    calls: list[int] = []
    monkeypatch.setattr(enqueue, "_send", lambda task, pk: calls.append(pk))
    return calls


@pytest.fixture
def made(db: None, sent: list[int]) -> World:
    """acme is entitled to three slices, and the cluster has a free card."""
    cluster_seen()
    return world(entitled=3)


@pytest.fixture
def kim(made: World) -> Client:
    """Kim's browser."""
    return signed_in(made.kim)


def test_an_order_leads_to_its_slice(kim: Client) -> None:
    answer = kim.post(
        ORDER, order_data(kim, display_name="Übersetzer", env="A=1\n# note\n\nB=x=y ", port="8080")
    )
    row = Slice.objects.get()
    assert (answer.status_code, answer["Location"]) == (302, f"/slices/{row.public_id}/")
    assert row.display_name == "Übersetzer"
    assert [(item.name, item.value) for item in row.workload.env] == [("A", "1"), ("B", "x=y ")]
    assert row.workload.port == 8080
    assert row.workload.volume is None


def test_the_form_sent_twice_is_one_order(kim: Client) -> None:
    data = order_data(kim)
    first = kim.post(ORDER, data)
    again = kim.post(ORDER, data)
    assert first["Location"] == again["Location"]
    assert Order.objects.count() == 1
    assert "placed already" in kim.get(again["Location"]).content.decode()


def test_the_page_opened_anew_is_a_second_order(kim: Client) -> None:
    kim.post(ORDER, order_data(kim))
    kim.post(ORDER, order_data(kim))
    assert Order.objects.count() == 2


def test_a_form_of_kim_sent_by_lee_is_refused(made: World, kim: Client) -> None:
    answer = signed_in(made.lee).post(ORDER, order_data(kim))
    assert answer.status_code == 200
    assert "made for another person" in answer.content.decode()
    assert Order.objects.count() == 0


def test_a_forged_form_is_refused(kim: Client) -> None:
    html = kim.post(ORDER, order_data(kim, operation_key="made-up")).content.decode()
    assert "out of date" in html
    assert Order.objects.count() == 0


@pytest.mark.django_db(transaction=True)
def test_two_clicks_at_once_are_one_order(sent: list[int]) -> None:
    """C-17: two identical posts close together on two workers: one order, one task, the same place."""
    cluster_seen()
    made = world(entitled=3)
    data = order_data(signed_in(made.kim))
    clients = [signed_in(made.kim), signed_in(made.kim)]
    together = threading.Barrier(2)

    def click(client: Client) -> str:
        together.wait()
        try:
            return client.post(ORDER, data)["Location"]
        finally:
            connection.close()

    with ThreadPoolExecutor(2) as pool:
        places = list(pool.map(click, clients))
    assert places[0] == places[1]
    assert Order.objects.count() == 1
    assert len(sent) == 1


def test_a_mistake_keeps_everything_typed_and_says_so_at_the_field(kim: Client) -> None:
    data = order_data(
        kim,
        image="team/app:latest",
        display_name="Mit Tücken",
        command="echo 'ä b'",
        env="A=<b>",
        port="70000",
    )
    html = kim.post(ORDER, data).content.decode()
    assert Order.objects.count() == 0
    for typed in ("team/app:latest", "Mit Tücken", "echo &#x27;ä b&#x27;", "A=&lt;b&gt;", "70000"):
        assert typed in html
    assert 'href="#id_port"' in html
    assert re.search(r'name="port"[^>]*aria-invalid="true"', html)
    assert f'value="{data["operation_key"]}"' in html


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("image", "team/app:latest", "names no version"),
        ("display_name", "", "Give the slice a name."),
        ("display_name", "a\u202eb", "cannot be shown"),
        ("command", "echo 'x", "quotation mark"),
        ("env", "NAME", "Line 1: write NAME=value."),
        ("env", "1X=2", "name of a variable"),
        ("cpu_limit", "50m", "The limit is below the request."),
        ("memory_limit", "8 GB", "Write a size"),
        ("package", "nope", "valid choice"),
    ],
)
def test_what_cannot_work_is_refused_beside_its_field(
    kim: Client, field: str, value: str, sentence: str
) -> None:
    html = kim.post(ORDER, order_data(kim, **{field: value})).content.decode()
    assert Order.objects.count() == 0
    summary = html[html.index('id="error-summary"') :]
    assert sentence in summary[: summary.index("</div>")]
    assert f'href="#id_{field}"' in summary


def test_over_entitlement_names_the_holders(made: World, kim: Client) -> None:
    made.entitle(1)
    made.order("Chat der Küche")
    html = kim.post(ORDER, order_data(kim)).content.decode()
    assert Order.objects.count() == 1
    assert "1 of 1 × V100 25 %, held by “Chat der Küche”" in html


def test_a_busy_cluster_asks_for_consent_to_wait(made: World, kim: Client) -> None:
    """Without the tick nothing is ordered; with it the order is in the queue."""
    made.entitle(3, share=100)
    observe(claim("acme-ai", made.order("großer", share=100).app, 100))
    data = order_data(kim, package="v100-100")
    preview = kim.post(ORDER, data, headers=HTMX).content.decode()
    assert "Order and wait in the queue" in preview
    assert 'name="allow_queue"' in preview
    answer = kim.post(ORDER, data).content.decode()
    assert 'href="#id_allow_queue">Wait in the queue: All cards' in answer
    assert "API: allow_queue" not in answer
    assert Order.objects.count() == 1
    assert kim.post(ORDER, {**data, "allow_queue": "on"}).status_code == 302
    assert Order.objects.filter(allow_queue=True).count() == 2


class TestPreview:
    """The right column, asked for by htmx while the form is filled in."""

    def test_it_orders_nothing(self, kim: Client) -> None:
        answer = kim.post(ORDER, order_data(kim), headers=HTMX)
        html = answer.content.decode()
        assert html.strip().startswith('<div class="pad stack-m" id="preview"')
        assert "<html" not in html
        assert Order.objects.count() == 0

    def test_it_tells_price_start_quota_and_manifests(self, kim: Client) -> None:
        observe(quota("acme-ai", {"requests.cpu": "8"}, {"requests.cpu": "6"}))
        html = kim.post(ORDER, order_data(kim, display_name="Mein Modell"), headers=HTMX).content.decode()
        assert "Order for 0.25 EUR an hour" in html
        assert "It will start at once" in html
        assert "0 → <b>1</b>" in html
        assert "6 CPU → <b>6.1 CPU</b> of 8 CPU" in html
        assert "kind: ResourceClaimTemplate" in html
        assert "name: mein-modell-gpu" in html

    def test_a_short_pool_is_said_with_its_quota(self, kim: Client) -> None:
        observe(quota("acme-ai", {"requests.cpu": "8"}, {"requests.cpu": "7950m"}))
        html = kim.post(ORDER, order_data(kim), headers=HTMX).content.decode()
        assert "0.1 CPU needed, 0.05 CPU left, 0.05 CPU short (quota plan-quota)" in html
        assert "It will wait for room in the project" in html

    def test_unseen_cards_are_unknown(self, made: World, kim: Client) -> None:
        from gpu.models import Observed

        Observed.objects.all().delete()
        html = kim.post(ORDER, order_data(kim), headers=HTMX).content.decode()
        assert "not known" in html

    def test_a_mend_is_a_button(self, kim: Client) -> None:
        html = kim.post(ORDER, order_data(kim, template="ollama", image="ollama/ollama:0.24.0"), headers=HTMX)
        assert re.search(
            r'data-mend-field="memory_limit"\s+data-mend-value="[0-9]+Gi"', html.content.decode()
        )

    def test_it_lives_with_half_a_form(self, kim: Client) -> None:
        for name in ("display_name", "image", "cpu_request", "package"):
            answer = kim.post(ORDER, order_data(kim, **{name: ""}), headers=HTMX)
            assert answer.status_code == 200
        assert kim.post(ORDER, {}, headers=HTMX).status_code == 200

    def test_it_is_in_the_readers_language(self, kim: Client) -> None:
        watched()
        html = kim.post(ORDER, order_data(kim), headers={**HTMX, "accept-language": "de"}).content.decode()
        assert "Für 0,25 EUR pro Stunde bestellen" in html


def test_a_template_brings_its_defaults_and_settings(kim: Client) -> None:
    html = kim.get(f"{ORDER}?template=ollama&package=v100-50").content.decode()
    assert re.search(r'name="template" value="ollama"[^>]*\bchecked', html)
    assert re.search(r'name="package" value="v100-50" checked', html)
    assert 'name="set-ollama-context_length"' in html


def test_settings_of_a_template_reach_the_workload(kim: Client) -> None:
    data = order_data(
        kim,
        template="ollama",
        image="ollama/ollama:0.24.0",
        port="11434",
        memory_limit="8Gi",
        **{
            "set-ollama-context_length": "16384",
            "set-ollama-parallel": "",
            "volume": "on",
            "volume_path": "/models",
        },
    )
    assert kim.post(ORDER, data).status_code == 302
    row = Slice.objects.get()
    env = {item.name: item.value for item in row.workload.env}
    assert env["OLLAMA_CONTEXT_LENGTH"] == "16384"
    assert "OLLAMA_NUM_PARALLEL" not in env
    assert row.workload.volume is not None
    assert row.workload.volume.mount_path == "/models"
    wrong = kim.post(ORDER, {**data, **order_key(kim), "set-ollama-context_length": "8.192"}).content.decode()
    assert 'href="#id_set-ollama-context_length"' in wrong


def order_key(client: Client) -> dict[str, str]:
    """A fresh operation key."""
    return {"operation_key": order_data(client)["operation_key"]}
