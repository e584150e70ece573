"""What the browser tests of the pages share: words in both languages, and the way through the order form."""

from __future__ import annotations

from playwright.sync_api import Page, expect

STATES = {
    "en": {
        "running": "Running",
        "waiting": "Waiting for a free card",
        "stopped": "Stopped",
        "released": "Given back",
    },
    "de": {
        "running": "Läuft",
        "waiting": "Wartet auf eine freie Karte",
        "stopped": "Gestoppt",
        "released": "Zurückgegeben",
    },
}
PATIENCE_MS = 30_000


def fill_order(page: Page, name: str, *, namespace: str = "acme-ai", package: str = "v100-25") -> None:
    """Open the order form, choose the package and give the name; the preview has answered."""
    page.goto(f"/projects/{namespace}/order/?template=cuda-check&package={package}")
    with page.expect_response(lambda answer: answer.request.method == "POST" and "/order/" in answer.url):
        page.locator("#id_display_name").fill(name)


def order(page: Page, name: str, *, wait: bool = False, **where: str) -> None:
    """Order the CUDA check; with `wait` the person agrees to the queue."""
    fill_order(page, name, **where)
    if wait:
        page.locator("#id_allow_queue").check()
    page.locator("#order-button").click()
    page.wait_for_url("**/slices/sl_*/")


def expect_state(page: Page, words: str) -> None:
    """The page shows this state without a reload."""
    expect(page.locator("#state .state")).to_have_text(words, timeout=PATIENCE_MS)


def act(page: Page, action: str) -> None:
    """Press the button of an action and confirm it in the dialog."""
    page.locator(f"#act-{action}").click()
    expect(page.locator("dialog[open]")).to_be_visible()
    page.locator("dialog[open] form button[class*=btn-]").first.click()
    expect(page.locator("dialog[open]")).to_have_count(0)


def release(page: Page, words: str) -> None:
    """Give the slice back, so that the next test finds its card free."""
    act(page, "release")
    expect_state(page, words)
