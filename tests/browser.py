"""Headless Chromium for tests of pages: do they fit, are they accessible?

The browser is the system's own (Debian's package chromium): none is downloaded, and nothing outside is asked.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PHONE, DESK = 390, 1280  # pixels wide
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
QUIET = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip

needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed (apt-get install chromium)")


@contextmanager
def browser() -> "Iterator[Browser]":
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        try:
            yield started
        finally:
            started.close()


@contextmanager
def page_of(
    started: "Browser", url: str, width: int = DESK, scheme: Literal["light", "dark"] = "light"
) -> "Iterator[Page]":
    """Yield a loaded page. An error in its console fails the test."""
    context = started.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(url)
    try:
        yield page
    finally:
        context.close()
    assert errors == []


def assert_fits(page: "Page") -> None:
    """Nothing is wider than the window: no sideways scrolling of the page, and no text that leaves its box."""
    widest = page.evaluate("document.documentElement.scrollWidth")
    assert widest <= page.evaluate("window.innerWidth"), f"the page is {widest} pixels wide"


def assert_accessible(page: "Page") -> None:
    """No rule of axe-core is broken."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
