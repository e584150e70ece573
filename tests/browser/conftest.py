"""Fixtures of the browser tests.

`portal` is the whole portal, once a session, with the demo's people and packages and no slices, in a database of its
own. During a browser test Django's models reach that database; nothing is rolled back, so each test uses names of its
own. `sign_in("kim@acme.example", language="de")` gives a page of a signed-in person. Screenshots go to
artefacts/screenshots with `shot(page, "name")`; those of failures to artefacts/playwright.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, ConsoleMessage, Page

from dev.browser import find_or_install
from tests.browser.whole_portal import WholePortal, other_number, own_database

ARTEFACTS = Path(__file__).resolve().parent.parent.parent / "artefacts"
LOCALES = {"en": "en-GB", "de": "de-DE"}
OF_THE_NETWORK = (
    "the server responded with a status of",
    "Response Status Error Code",
    "net::ERR_",
    "htmx:sendAbort",
    "htmx:sendError",
    "htmx:afterRequest",
)
"""What Chromium and htmx say of an answer that is an error or does not come: the tests provoke these."""


@pytest.fixture(scope="session")
def browser_type_launch_args(browser_type_launch_args: dict[str, Any]) -> dict[str, Any]:
    """Start the Chromium that is there; its own sandbox does not work for root."""
    flags = ["--no-sandbox"] if os.geteuid() == 0 else []
    path = os.environ.get("CHROMIUM") or find_or_install()
    return {**browser_type_launch_args, "executable_path": path, "args": flags}


@pytest.fixture(scope="session")
def portal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WholePortal]:
    """The whole portal, running."""
    logs = ARTEFACTS / "browser-logs"
    shutil.rmtree(logs, ignore_errors=True)
    database_url, redis_url = own_database(os.environ["DATABASE_URL"]), other_number(os.environ["REDIS_URL"])
    started = WholePortal(tmp_path_factory.mktemp("portal"), logs, database_url, redis_url)
    yield started
    started.stop()


@pytest.fixture(autouse=True)
def _open_database(portal: WholePortal, django_db_blocker: Any) -> Iterator[None]:
    """Let the test reach the portal's database, without a transaction that other processes could not see."""
    from django.db import connection

    with django_db_blocker.unblock():
        connection.close()
        before, connection.settings_dict["NAME"] = connection.settings_dict["NAME"], portal.database
        yield
        connection.close()
        connection.settings_dict["NAME"] = before


@pytest.fixture(autouse=True)
def _all_alive(portal: WholePortal) -> Iterator[None]:
    """A process of the portal that ended by itself fails the test it happened in."""
    yield
    assert not portal.dead(), "\n".join(portal.dead())


@pytest.fixture(autouse=True)
def _leave_nothing_behind(_open_database: None) -> Iterator[None]:
    """Give back what a failed test has left, so that the next one finds the cards as it expects them."""
    yield
    from django.db.models import F

    from gpu.models import Slice

    alive = Slice.objects.filter(ended_at=None)
    alive.exclude(intent="release").update(intent="release", generation=F("generation") + 1, action="pending")
    deadline = time.monotonic() + 30
    while alive.exists() and time.monotonic() < deadline:
        time.sleep(0.5)


SignIn = Callable[..., Page]


@pytest.fixture
def sign_in(portal: WholePortal, new_context: Callable[..., BrowserContext]) -> Iterator[SignIn]:
    """`sign_in(user, language="en", **context_options)`: a page of somebody who has just signed in.

    Whatever the page's console calls an error, a refusal of the content security policy included, fails the test;
    `page.expect_errors` is not needed for answers of the server, which are not counted.
    """
    complaints: list[str] = []

    def listen(message: ConsoleMessage) -> None:
        if message.type == "error" and not any(words in message.text for words in OF_THE_NETWORK):
            complaints.append(message.text)

    def enter(user: str, language: str = "en", **options: Any) -> Page:
        options = {"base_url": portal.url, "timezone_id": "Europe/Berlin", **options}
        page = new_context(locale=LOCALES[language], **options).new_page()
        page.on("console", listen)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto("/")
        page.locator("input[name=username]").fill(user)
        page.locator("input[name=password]").fill(portal.logins["password"])
        page.locator("input[name=password]").press("Enter")
        page.locator("input[name=password]").wait_for(state="detached")
        return page

    yield enter
    assert complaints == []


@pytest.fixture(params=["en", "de"])
def language(request: pytest.FixtureRequest) -> str:
    """Both languages, one after the other."""
    return str(request.param)


@pytest.fixture
def shot() -> Callable[[Page, str], None]:
    """`shot(page, "order-en")` keeps a picture of the whole page in artefacts/screenshots.

    The caret stays: to hide it, Playwright would add a style that the page refuses.
    """

    def take(page: Page, name: str) -> None:
        page.screenshot(path=ARTEFACTS / "screenshots" / f"{name}.png", full_page=True, caret="initial")

    return take
