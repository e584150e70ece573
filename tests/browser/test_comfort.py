"""What makes the pages good to use: keyboard, focus, phone, dark, kept input, sign-in in between, axe-core."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from tests.browser.conftest import SignIn
from tests.browser.kit import PATIENCE_MS, act, expect_state, fill_order, order, release
from tests.browser.whole_portal import WholePortal

Shot = Callable[[Page, str], None]
PAGES = ["", "catalogue/", "order/", "slices/", "tokens/", "members/"]
PHONE = {"width": 390, "height": 844}


def accessible(page: Page, where: str) -> None:
    """Axe-core finds nothing."""
    found = Axe().run(page)
    assert found.violations_count == 0, f"{where}\n{found.generate_report()}"


def unfold(page: Page) -> None:
    """Open everything that is folded."""
    page.evaluate("for (const fold of document.querySelectorAll('details.fold')) fold.open = true")


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
def test_axe_finds_nothing(sign_in: SignIn, shot: Shot, scheme: str, width: int) -> None:
    page = sign_in("kim@acme.example", color_scheme=scheme, viewport={"width": width, "height": 844})
    for path in PAGES:
        page.goto(f"/projects/acme-ai/{path}")
        unfold(page)
        accessible(page, path)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
        shot(page, f"{path.strip('/') or 'overview'}-{scheme}-{width}")
    page.goto("/projects/acme-ai/order/")
    page.locator("#order-button").click()
    accessible(page, "errors of the order form")
    page.goto("/nowhere/")
    accessible(page, "404")
    order(page, f"Zugänglich {scheme}")
    expect_state(page, "Running")
    unfold(page)
    accessible(page, "slice")
    shot(page, f"slice-{scheme}-{width}")
    page.locator("#act-release").click()
    expect(page.locator("dialog[open]")).to_be_visible()
    accessible(page, "dialog")
    page.keyboard.press("Escape")
    release(page, "Given back")


def test_the_keyboard_reaches_everything(sign_in: SignIn) -> None:
    page = sign_in("kim@acme.example")
    page.goto("/projects/acme-ai/slices/")
    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#content")).to_be_focused()
    page.keyboard.press("/")
    expect(page.locator("#q")).to_be_focused()
    page.keyboard.type("a/b")
    expect(page.locator("#q")).to_have_value("a/b")
    menu = page.locator("details.menu").last
    menu.locator("summary").focus()
    page.keyboard.press("Enter")
    expect(menu).to_have_attribute("open", "")
    page.keyboard.press("Escape")
    expect(menu).not_to_have_attribute("open", "")
    expect(menu.locator("summary")).to_be_focused()


def test_a_dialog_gives_the_focus_back(sign_in: SignIn) -> None:
    page = sign_in("kim@acme.example")
    order(page, "Fokus")
    expect_state(page, "Running")
    page.locator("#act-stop").focus()
    page.keyboard.press("Enter")
    expect(page.locator("dialog[open]")).to_be_visible()
    assert page.evaluate("document.querySelector('dialog').contains(document.activeElement)")
    page.keyboard.press("Escape")
    expect(page.locator("#act-stop")).to_be_focused()
    release(page, "Given back")


def test_the_focus_stays_where_another_person_changes_the_page(sign_in: SignIn) -> None:
    """In a list on the row's link; on the page of a slice by the buttons, when the one that had it is gone."""
    kim, lee = sign_in("kim@acme.example"), sign_in("lee@acme.example")
    order(kim, "Tastatur")
    expect_state(kim, "Running")
    listed = lee.context.new_page()
    listed.goto("/projects/acme-ai/slices/")
    link = listed.get_by_role("link", name="Tastatur")
    link.focus()
    lee.goto(kim.url)
    expect_state(lee, "Running")
    lee.locator("#act-stop").focus()
    act(kim, "stop")
    expect_state(lee, "Stopped")
    expect(lee.locator("#actions")).to_be_focused()
    lee.keyboard.press("Tab")
    expect(lee.locator("#act-start")).to_be_focused()
    listed.bring_to_front()
    expect(listed.get_by_role("row", name="Tastatur").locator(".state")).to_have_text("Stopped")
    expect(link).to_be_focused()
    release(kim, "Given back")


def test_the_theme_can_be_set_and_stays(sign_in: SignIn) -> None:
    page = sign_in("kim@acme.example")
    page.locator("details.menu:has([data-theme]) summary").click()
    page.locator("[data-theme=dark]").click()
    page.goto("/projects/acme-ai/catalogue/")
    expect(page.locator("html")).to_have_attribute("data-bs-theme", "dark")
    page.locator("details.menu:has([data-theme]) summary").click()
    page.locator("[data-theme='']").click()
    page.reload()
    assert page.locator("html").get_attribute("data-bs-theme") is None


def test_the_language_can_be_set_on_the_page_one_is_on(sign_in: SignIn) -> None:
    page = sign_in("kim@acme.example")
    page.goto("/projects/acme-ai/catalogue/")
    page.locator("details.menu:has([name=language]) summary").click()
    page.locator("button[value=de]").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Katalog")
    assert page.url.endswith("/catalogue/")


def test_nothing_typed_is_lost_when_the_session_ends(sign_in: SignIn, portal: WholePortal) -> None:
    """C-18: the preview leads to the sign-in as a whole page, and back to a form that still holds everything."""
    page = sign_in("kim@acme.example")
    fill_order(page, "Bleibt stehen")
    page.locator("#fold-env summary").click()
    # The preview of just this: one that is still to come would lead away before the name is typed.
    with page.expect_response(lambda answer: "zwei" in (answer.request.post_data or "")):
        page.locator("#id_env").fill("A=1\nB=zwei")
    page.context.clear_cookies(name="sessionid")
    page.locator("#id_display_name").fill("Bleibt wirklich stehen")
    page.wait_for_url("**/login/?next=/projects/acme-ai/order/**")
    page.locator("#id_username").fill("kim@acme.example")
    page.locator("#id_password").fill(portal.logins["password"])
    page.locator("#id_password").press("Enter")
    page.wait_for_url("**/projects/acme-ai/order/**")
    expect(page.locator("#id_display_name")).to_have_value("Bleibt wirklich stehen")
    expect(page.locator("#id_env")).to_have_value("A=1\nB=zwei")


def test_a_token_from_before_the_sign_in_is_said_and_a_reload_mends_it(sign_in: SignIn) -> None:
    page = sign_in("kim@acme.example")
    fill_order(page, "Altes Formular")
    page.context.clear_cookies(name="csrftoken")
    page.locator("#id_display_name").fill("Altes Formular, neuer Name")
    expect(page.locator("#toasts")).to_contain_text("Your sign-in has changed")
    page.locator("#toasts [data-reload]").click()
    expect(page.locator("#id_display_name")).to_have_value("Altes Formular, neuer Name")
    expect(page.locator("#order-button")).to_contain_text("Order for")


def test_a_template_fills_in_what_nobody_typed(sign_in: SignIn) -> None:
    page = sign_in("kim@acme.example")
    fill_order(page, "Vorlage")
    page.locator("#fold-resources summary").click()
    page.locator("#id_cpu_limit").fill("3")
    page.get_by_role("radio", name="Ollama").check()
    expect(page.locator("#id_cpu_limit")).to_have_value("3")
    expect(page.locator("#id_image")).to_have_value("ollama/ollama:0.24.0")
    expect(page.locator("#id_set-ollama-context_length")).to_be_visible()
    expect(page.locator("#preview")).to_contain_text("11434", timeout=PATIENCE_MS)


def test_the_offline_notice_comes_and_goes(sign_in: SignIn) -> None:
    page = sign_in("kim@acme.example")
    page.goto("/projects/acme-ai/")
    page.route("**/projects/acme-ai/", lambda route: route.abort())
    expect(page.locator("#toasts")).to_contain_text("cannot be reached", timeout=10_000)
    page.unroute("**/projects/acme-ai/")
    expect(page.locator("#toasts")).to_be_empty(timeout=10_000)


def test_a_token_is_shown_once_and_ended_after_a_question(sign_in: SignIn) -> None:
    page = sign_in("lee@acme.example")
    page.goto("/projects/acme-ai/tokens/")
    page.locator("#id_name").fill("aus dem Browser")
    page.get_by_role("button", name="Make a token").click()
    token = page.locator("#token").inner_text()
    page.goto("/projects/acme-ai/tokens/")
    expect(page.get_by_text(token)).to_have_count(0)
    page.get_by_role("button", name="End aus dem Browser").click()
    expect(page.locator("dialog[open]")).to_contain_text("locked out at once")
    page.locator("[data-confirm-yes]").click()
    expect(page.get_by_text("The token “aus dem Browser” has ended.")).to_be_visible()


def test_a_kept_draft_never_overrides_what_was_asked_for(sign_in: SignIn) -> None:
    """A draft of Ollama on 25 %, then "Order" on 100 %: the address wins, and the draft's fields belong together."""
    page = sign_in("kim@acme.example")
    page.goto("/projects/acme-ai/order/?package=v100-25")
    page.get_by_role("radio", name="Ollama").check()
    expect(page.locator("#preview")).to_contain_text("11434", timeout=PATIENCE_MS)
    expect(page.locator("#fold-start summary")).to_contain_text("ollama/ollama:0.24.0")
    expect(page.locator("#fold-volume summary")).to_contain_text("20Gi, /data")
    page.goto("/projects/acme-ai/")
    page.locator("#order-v100-100").click()
    expect(page.locator("#preview .big")).to_contain_text("1.30", timeout=PATIENCE_MS)
    expect(page.locator("#preview")).to_contain_text("11434", timeout=PATIENCE_MS)
    expect(page.locator("[name=package][value=v100-100]")).to_be_checked()
    expect(page.locator("[name=template][value=ollama]")).to_be_checked()
    expect(page.locator("#id_image")).to_have_value("ollama/ollama:0.24.0")
    expect(page.locator("#id_port")).to_have_value("11434")
    page.goto("/projects/acme-ai/order/?template=cuda-check&package=v100-50")
    expect(page.locator("[name=template][value=cuda-check]")).to_be_checked()
    expect(page.locator("#id_port")).to_have_value("")
    page.get_by_role("radio", name="V100 25 %").check()
    expect(page).to_have_url(re.compile("package=v100-25"))
    page.reload()
    expect(page.locator("[name=package][value=v100-25]")).to_be_checked()


def test_a_phone_can_order_from_the_catalogue_and_sees_its_tab(sign_in: SignIn) -> None:
    page = sign_in("kim@acme.example", viewport=PHONE)
    page.goto("/projects/acme-ai/members/")
    expect(page.locator(".tabs [aria-current]")).to_be_in_viewport(ratio=1)
    page.goto("/projects/acme-ai/catalogue/")
    page.get_by_role("link", name="Order V100 50 %").click()
    expect(page.locator("[name=package][value=v100-50]")).to_be_checked()


def test_what_a_change_gets_wrong_is_said_once_at_its_field(sign_in: SignIn) -> None:
    page = sign_in("kim@acme.example")
    order(page, "Falsche Zahl")
    page.goto(f"{page.url}change/")
    field = page.locator(".field:has(#id_cpu_limit)")
    page.locator("#fold-resources summary").click()
    page.locator("#id_cpu_limit").fill("abc")
    expect(field.locator(".error")).to_contain_text("abc", timeout=PATIENCE_MS)
    expect(page.locator("#preview").get_by_text("abc").locator("visible=true")).to_have_count(0)
    page.locator("#id_cpu_limit").fill("1")
    expect(field.locator(".error")).to_have_count(0, timeout=PATIENCE_MS)
