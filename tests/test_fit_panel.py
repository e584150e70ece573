"""Fit in the order form (C-10), the empty image (C-09), and the volume that is left out."""

from __future__ import annotations

import pytest
from django.test import Client

from gpu.fit_panel import fit_panel
from gpu.forms import setting_name, workload_fields
from gpu.models import ImageRule, Slice
from gpu.templates_catalogue import TEMPLATES
from tests.factories import World, world
from tests.view_kit import cluster_seen, hidden, signed_in

pytestmark = pytest.mark.django_db
OLLAMA = TEMPLATES["ollama"]
CONTEXT = setting_name(OLLAMA, next(item for item in OLLAMA.settings if item.code == "context_length"))
PARALLEL = setting_name(OLLAMA, next(item for item in OLLAMA.settings if item.code == "parallel"))


@pytest.fixture
def made() -> World:
    cluster_seen()
    return world(entitled=3)


@pytest.fixture
def kim(made: World) -> Client:
    return signed_in(made.kim)


def send(client: Client, *, preview: bool = True, **changes: str) -> str:
    """Send the order form of the Ollama template; returns the page or the preview."""
    page = client.get("/projects/acme-ai/order/?template=ollama").content.decode()
    fields = {name: str(value) for name, value in workload_fields(OLLAMA.first(), OLLAMA).items() if value}
    fields |= {
        "operation_key": hidden(page, "operation_key"),
        "template": "ollama",
        "package": "v100-25",
        "display_name": "Chat",
        "volume": "on",
        "allow_queue": "on",
    } | {name.replace("__", "-"): value for name, value in changes.items()}
    fields = {name: value for name, value in fields.items() if value != "-"}
    headers = {"HX-Request": "true"} if preview else {}
    return client.post("/projects/acme-ai/order/", fields, headers=headers, follow=True).content.decode()


@pytest.mark.parametrize(
    ("context", "parallel", "package", "verdict"),
    [
        ("16384", "1", "v100-25", "It fits: "),
        ("65536", "1", "v100-25", "It is too large: "),
        ("65536", "1", "v100-50", "It fits: "),
        ("16384", "4", "v100-25", "It is too large: "),
        ("16384", "4", "v100-50", "It fits: "),
    ],
)
def test_the_verdict_moves_with_context_requests_and_package(
    kim: Client, context: str, parallel: str, package: str, verdict: str
) -> None:
    text = send(kim, **{CONTEXT: context, PARALLEL: parallel, "package": package})
    assert 'id="fit"' in text
    assert verdict in text


def test_it_warns_and_does_not_forbid(kim: Client) -> None:
    send(kim, preview=False, **{CONTEXT: "65536"})
    row = Slice.objects.get()
    assert {item.name: item.value for item in row.workload.env}["OLLAMA_CONTEXT_LENGTH"] == "65536"


def test_blanks_around_the_context_are_dropped_and_empty_sends_none(kim: Client) -> None:
    send(kim, preview=False, **{CONTEXT: " 8192 "})
    send(kim, preview=False, **{CONTEXT: "-", "display_name": "Second"})
    stored = [
        {item.name: item.value for item in row.workload.env}.get("OLLAMA_CONTEXT_LENGTH")
        for row in Slice.objects.order_by("pk")
    ]
    assert stored == ["8192", None]


@pytest.mark.parametrize("wrong", ["16.384", "0", "-1", "abc"])
def test_a_context_that_is_no_whole_number_is_refused_in_the_form(kim: Client, wrong: str) -> None:
    assert "Write a whole number" in send(kim, preview=False, **{CONTEXT: wrong})
    assert not Slice.objects.exists()


def test_any_other_model_is_judged_by_its_figures(kim: Client) -> None:
    figures = {"weights": "1,88", "blocks": "28", "kv_heads": "8", "head": "128"}
    typed = {f"fit__ollama__{name}": value for name, value in figures.items()}
    text = send(kim, fit_model="own", **{CONTEXT: "65536"}, **typed)
    assert "It is too large: " in text
    assert "Enter the model's figures" in send(kim, fit_model="own").replace("&#x27;", "'")


@pytest.mark.parametrize("wrong", ["0", "-1", "nan", "inf", "1e99", "x", "9" * 40])
def test_figures_that_are_none_give_no_verdict(made: World, wrong: str) -> None:
    data = {f"fit-ollama-{name}": wrong for name in ("weights", "blocks", "kv_heads", "head")}
    found = fit_panel(made.packages[25], OLLAMA.first(), {"fit_model": "own", **data})
    assert found is not None
    assert found.colour == "grey"


def test_the_table_has_every_common_model_and_others_have_no_panel(made: World, kim: Client) -> None:
    found = fit_panel(made.packages[25], OLLAMA.first(), {})
    assert found is not None
    assert {line.verdict for line in found.lines} >= {"fits", "too large"}
    assert fit_panel(made.packages[25], TEMPLATES["custom"].first(), {}) is None
    vllm = fit_panel(made.packages[25], TEMPLATES["vllm"].first(), {})
    assert vllm is not None
    assert vllm.lines == ()


def test_an_empty_image_gives_the_pinned_default_by_its_digest_once_entered(kim: Client) -> None:
    send(kim, preview=False, image="")
    assert Slice.objects.get().workload.image == "ollama/ollama:0.24.0"
    ImageRule.objects.filter(path="ollama/ollama").update(digest="sha256:" + "b" * 64)
    send(kim, preview=False, image="", display_name="Second")
    newest = Slice.objects.order_by("-pk").first()
    assert newest is not None
    assert newest.workload.image == "ollama/ollama:0.24.0@sha256:" + "b" * 64


def test_without_a_volume_the_page_says_what_is_lost(kim: Client) -> None:
    assert "models are lost at each restart" not in send(kim)
    assert "models are lost at each restart" in send(kim, volume="-")
