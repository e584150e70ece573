"""A language model in the browser: order Ollama, fetch a model, watch it come, see that it runs on the GPU."""

from __future__ import annotations

from collections.abc import Callable

from django.utils import translation
from django.utils.translation import gettext
from playwright.sync_api import Page, expect

from tests.browser.conftest import SignIn
from tests.browser.kit import PATIENCE_MS, STATES, act, expect_state, release

Shot = Callable[[Page, str], None]


def said(language: str, msgid: str, **params: str) -> str:
    """A sentence of the pages in the reader's language."""
    with translation.override(language):
        text = gettext(msgid)
    return text % params if params else text


def order_ollama(page: Page, name: str) -> None:
    """Order a slice with Ollama as it is proposed, and wait until it runs."""
    page.goto("/projects/acme-ai/order/?template=ollama&package=v100-25")
    expect(page.locator("#fit")).to_be_visible()
    with page.expect_response(lambda answer: answer.request.method == "POST" and "/order/" in answer.url):
        page.locator("#id_display_name").fill(name)
    page.locator("#order-button").click()
    page.wait_for_url("**/slices/sl_*/")


def fetch(page: Page, model: str) -> None:
    """Open the dialog, type the name, wait for what it would meet, and order it."""
    page.locator("#act-pull").click()
    expect(page.locator("dialog[open] #id_model")).to_be_focused()
    with page.expect_response(lambda answer: answer.request.method == "POST" and "/models/" in answer.url):
        page.locator("#id_model").fill(model)
    page.locator("dialog[open] button.btn-primary").click()


def test_a_model_from_the_order_to_its_first_words(sign_in: SignIn, language: str, shot: Shot) -> None:
    states = STATES[language]
    fetched = said(language, "%(model)s is on the volume.", model="slow:10")
    unknown = said(language, "The registry does not know %(model)s.", model="missing")
    page = sign_in("kim@acme.example", language)
    order_ollama(page, f"Sprachmodell {language}")
    shot(page, f"order-ollama-{language}")
    expect_state(page, states["running"])

    page.locator("#act-pull").click()
    with page.expect_response(lambda answer: answer.request.method == "POST" and "/models/" in answer.url):
        page.locator("#id_model").fill("llama 3")
    expect(page.locator("#pull-advice")).to_contain_text(
        said(language, "A model's name has no blanks in it.")
    )
    page.locator("[data-close-dialog]").click()

    fetch(page, "slow:10")
    bar = page.get_by_role("progressbar")
    expect(bar).to_be_visible(timeout=PATIENCE_MS)
    expect(bar).not_to_have_attribute("aria-valuenow", "0", timeout=PATIENCE_MS)
    shot(page, f"pull-under-way-{language}")
    page.reload()
    expect(page.locator("#models")).to_contain_text("slow:10")
    expect(page.locator("#models")).to_contain_text(fetched, timeout=PATIENCE_MS)
    expect(page.locator("#models table")).to_contain_text("slow:10")
    expect(page.locator("#models")).to_contain_text(
        said(language, "%(n)s tokens a second", n="").strip(), timeout=PATIENCE_MS
    )
    expect(page.locator("#models")).to_contain_text("100 %")
    expect(page.locator("#receipt")).to_contain_text("V100", timeout=PATIENCE_MS)
    expect(page.locator("#receipt")).to_contain_text("8 GiB")
    shot(page, f"pull-done-{language}")

    fetch(page, "missing")
    expect(page.locator("#models")).to_contain_text(unknown, timeout=PATIENCE_MS)
    shot(page, f"pull-failed-{language}")

    fetch(page, "slow:300")
    cancel = page.locator("[id^=cancel-pl_]")
    expect(cancel).to_be_visible(timeout=PATIENCE_MS)
    page.locator("#act-restart").click()
    expect(page.locator("dialog[open]")).to_contain_text(said(language, "A download is thrown away"))
    page.locator("[data-close-dialog]").click()
    cancel.click()
    page.locator("[data-confirm-yes]").click()
    expect(page.locator("#models")).to_contain_text(said(language, "It was cancelled."), timeout=PATIENCE_MS)

    page.locator("#delete-1").click()
    page.locator("[data-confirm-yes]").click()
    expect(page.locator("#models table")).to_have_count(0, timeout=PATIENCE_MS)
    act(page, "stop")
    expect_state(page, states["stopped"])
    release(page, states["released"])
