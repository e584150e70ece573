"""Finds a Chromium for the browser tests, or installs one.

In this order: CHROMIUM, an installed one, Debian's package where the user is root, Playwright's download.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


class NoBrowser(Exception):
    """No Chromium is there and none could be installed; the text says what to do."""


def find() -> str | None:
    """The path of a Chromium that runs, or None."""
    named = os.environ.get("CHROMIUM")
    if named:
        if not _runs(named):
            raise NoBrowser(f"CHROMIUM={named} does not run.")
        return named
    for name in NAMES:
        path = shutil.which(name)
        if path and _runs(path):
            return path
    return _playwrights()


def find_or_install() -> str:
    """The path of a Chromium. Raises NoBrowser."""
    found = find()
    if found:
        return found
    if os.geteuid() == 0 and shutil.which("apt-get"):
        print("Installing Debian's chromium", flush=True)
        quiet = {"env": os.environ | {"DEBIAN_FRONTEND": "noninteractive"}, "stdout": subprocess.DEVNULL}
        subprocess.run(["apt-get", "update", "-q"], check=False, **quiet)  # type: ignore[call-overload]
        command = ["apt-get", "install", "-q", "-y", "--no-install-recommends", "chromium"]
        subprocess.run(command, check=False, **quiet)  # type: ignore[call-overload]
        found = find()
    if not found:
        print("Downloading Playwright's Chromium", flush=True)
        subprocess.run([sys.executable, "-m", "playwright", "install", "chromium"], check=False)
        found = find()
    if not found:
        raise NoBrowser(
            "The browser tests need a Chromium, and none could be installed. "
            "Install one (Debian: apt-get install chromium) or set CHROMIUM to its path."
        )
    return found


def _runs(path: str) -> bool:
    try:
        answer = subprocess.run([path, "--version"], capture_output=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return answer.returncode == 0


def _playwrights() -> str | None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        path = playwright.chromium.executable_path
    return path if Path(path).exists() and _runs(path) else None


if __name__ == "__main__":
    try:
        print(find_or_install())
    except NoBrowser as error:
        sys.exit(str(error))
