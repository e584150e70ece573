"""The whole life of a slice in the browser: order, run, log, stop, start, give back; the queue; one click too many."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from gpu.models import Order
from tests.browser.conftest import SignIn
from tests.browser.kit import PATIENCE_MS, STATES, act, expect_state, fill_order, order, release

Shot = Callable[[Page, str], None]


def test_order_run_log_and_give_back(sign_in: SignIn, language: str, shot: Shot) -> None:
    words = STATES[language]
    page = sign_in("kim@acme.example", language)
    fill_order(page, f"Prüfung {language}")
    expect(page.locator("#order-button")).to_contain_text("0.35 EUR" if language == "en" else "0,35 EUR")
    expect(page.locator("#preview")).to_contain_text("V100 25 %")
    shot(page, f"order-{language}")
    page.locator("#order-button").click()
    page.wait_for_url("**/slices/sl_*/")
    expect_state(page, words["running"])
    expect(page.locator("#log-text")).to_contain_text("8192MiB", timeout=PATIENCE_MS)
    expect(page.locator(".stepper li.done")).to_have_count(7)
    shot(page, f"slice-running-{language}")
    act(page, "stop")
    expect_state(page, words["stopped"])
    act(page, "start")
    expect_state(page, words["running"])
    act(page, "restart")
    expect_state(page, words["running"])
    release(page, words["released"])
    expect(page.locator("[data-live]")).to_have_count(0, timeout=PATIENCE_MS)
    shot(page, f"slice-released-{language}")
    page.goto("/projects/acme-ai/slices/?show=ended")
    expect(page.get_by_role("link", name=f"Prüfung {language}")).to_be_visible()


def test_the_page_follows_within_two_seconds(sign_in: SignIn) -> None:
    """Two people look at the same slice; what one does the other sees without a reload."""
    kim, lee = sign_in("kim@acme.example"), sign_in("lee@acme.example")
    order(kim, "Zu zweit")
    expect_state(kim, "Running")
    lee.goto(kim.url)
    expect_state(lee, "Running")
    lee.locator("#log-search").fill("NVIDIA")
    act(kim, "stop")
    seen = time.monotonic()
    expect(lee.locator("#state .state")).not_to_have_text("Running", timeout=2_500)
    assert time.monotonic() - seen < 2.5
    expect(lee.locator("#log-search")).to_be_focused()
    expect(lee.locator("#log-search")).to_have_value("NVIDIA")
    expect(lee.locator("#announce")).to_contain_text("stop", ignore_case=True)
    release(kim, "Given back")


def test_with_all_cards_busy_the_order_waits_and_then_runs(
    sign_in: SignIn, language: str, shot: Shot
) -> None:
    """Birch takes a whole card, acme another half and a half; the next one agrees to wait, and gets its turn."""
    words = STATES[language]
    robin, kim = sign_in("robin@birch.example"), sign_in("kim@acme.example", language)
    order(robin, "Training", namespace="birch-lab", package="v100-100")
    expect_state(robin, "Running")
    order(kim, "Ganze Karte", package="v100-100")
    expect_state(kim, words["running"])
    holder = kim.url
    fill_order(kim, "In der Schlange")
    expect(kim.locator("#id_allow_queue")).to_be_visible()
    kim.locator("#order-button").click()
    expect(kim.locator("#error-summary")).to_be_focused()
    expect(kim.locator("#id_display_name")).to_have_value("In der Schlange")
    shot(kim, f"queue-consent-{language}")
    kim.locator("#id_allow_queue").check()
    kim.locator("#order-button").click()
    kim.wait_for_url("**/slices/sl_*/")
    expect_state(kim, words["waiting"])
    shot(kim, f"slice-waiting-{language}")
    waiting = kim.url
    release(robin, "Given back")
    expect_state(kim, words["running"])
    for page in (waiting, holder):
        kim.goto(page)
        release(kim, words["released"])


def test_a_double_click_and_the_back_button_are_one_order(sign_in: SignIn) -> None:
    page = sign_in("kim@acme.example")
    before = Order.objects.count()
    fill_order(page, "Nur einmal")
    page.locator("#order-button").dblclick()
    page.wait_for_url("**/slices/sl_*/")
    first = page.url
    page.go_back()
    page.locator("#order-button").click()
    page.wait_for_url("**/slices/sl_*/")
    assert page.url == first
    assert Order.objects.count() == before + 1
    release(page, "Given back")


def test_an_admin_raises_a_quota_and_the_order_goes_through(sign_in: SignIn, shot: Shot) -> None:
    """Birch holds its one slice of 25 %; the second is refused with the holder named, until an admin allows two."""
    robin = sign_in("robin@birch.example")
    order(robin, "Der erste", namespace="birch-lab")
    expect_state(robin, "Running")
    first = robin.url
    fill_order(robin, "Der zweite", namespace="birch-lab")
    expect(robin.locator("#preview")).to_contain_text("held by “Der erste”")
    robin.locator("#order-button").click()
    expect(robin.locator("#error-summary")).to_contain_text("held by “Der erste”")
    shot(robin, "entitlement-used-up")

    admin = sign_in("admin@portal.example")
    admin.goto("/admin/")
    raise_entitlement(admin, 2)
    shot(admin, "admin-entitlements")

    robin.locator("#order-button").click()
    robin.wait_for_url("**/slices/sl_*/")
    expect_state(robin, "Running")
    release(robin, "Given back")
    robin.goto(first)
    release(robin, "Given back")
    raise_entitlement(admin, 1)


def raise_entitlement(admin: Page, count: int) -> None:
    """Set birch's entitlement for 25 % in the administration; the worker has written it when this returns."""
    from gpu.models import Entitlement, QuotaState

    row = Entitlement.objects.get(project__namespace="birch-lab", package__slug="v100-25")
    admin.goto(f"/admin/tenants/project/{row.project_id}/change/")
    prefix = admin.locator(f"input[type=hidden][value='{row.pk}'][name$='-id']").get_attribute("name") or ""
    admin.locator(f"input[name='{prefix.removesuffix('-id')}-count']").fill(str(count))
    admin.locator("input[name=_save]").click()
    expect(admin.locator(".messagelist .success")).to_be_visible()
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        state = QuotaState.objects.get(project=row.project_id)
        if state.applied_generation == state.generation:
            return
        time.sleep(0.2)
    pytest.fail("the quota was not written")


def test_manifests_can_be_copied_and_downloaded(sign_in: SignIn, tmp_path: Path) -> None:
    page = sign_in("kim@acme.example", permissions=["clipboard-read", "clipboard-write"])
    fill_order(page, "Kopie")
    page.locator("#fold-yaml summary").click()
    with page.expect_download() as download:
        page.locator("[data-download]").click()
    download.value.save_as(tmp_path / "slice.yaml")
    text = (tmp_path / "slice.yaml").read_text()
    assert text == page.locator("#yaml").text_content()
    page.locator("[data-copy='#yaml']").click()
    expect(page.locator("[data-copy='#yaml']")).to_contain_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == text.removesuffix("\n")
