"""Signing in, in both languages."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import Page, expect

from tests.browser.conftest import LOCALES, SignIn
from tests.browser.whole_portal import WholePortal

HEADINGS = {"en": "Sign in", "de": "Anmelden"}


def test_the_form_speaks_the_readers_language_and_keeps_the_name(
    portal: WholePortal, new_context: Callable, language: str, shot: Callable[[Page, str], None]
) -> None:
    page = new_context(locale=LOCALES[language], base_url=portal.url).new_page()
    page.goto("/")
    expect(page.get_by_role("heading", level=1)).to_have_text(HEADINGS[language])
    page.locator("input[name=username]").fill("kim@acme.example")
    page.locator("input[name=password]").fill("wrong")
    page.locator("input[name=password]").press("Enter")
    expect(page.get_by_role("alert")).to_be_visible()
    expect(page.locator("input[name=username]")).to_have_value("kim@acme.example")
    shot(page, f"sign-in-refused-{language}")


def test_a_member_gets_to_the_page_asked_for(
    sign_in: SignIn, language: str, shot: Callable[[Page, str], None]
) -> None:
    page = sign_in("kim@acme.example", language)
    expect(page.locator("html")).to_have_attribute("lang", language)
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    shot(page, f"start-{language}")
