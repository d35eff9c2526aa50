"""Headless Chromium for tests: fixtures `browser` (one a session) and `page` (fresh, with its errors collected)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

ARGUMENTS = ("--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu")


def missing(sentence: str) -> NoReturn:
    """Skip where a browser cannot be had; in CI (environment variable CI) that is a failure."""
    if os.environ.get("CI"):
        pytest.fail(sentence)
    pytest.skip(sentence)


@contextmanager
def chromium() -> Iterator[Browser]:
    """A headless Chromium, the one on the PATH; skips with a sentence where there is none."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing("browser tests need playwright: pip install playwright")
    executable = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if executable is None:
        missing("browser tests need Chromium, and none is on the PATH: install the package chromium")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=executable, args=list(ARGUMENTS))
        try:
            yield opened
        finally:
            opened.close()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One browser for all tests."""
    with chromium() as opened:
        yield opened


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page of its own context; the test fails at its end if the page threw or logged an error."""
    context = browser.new_context()
    opened = context.new_page()
    errors: list[str] = []
    opened.on("pageerror", lambda error: errors.append(f"uncaught: {error}"))
    opened.on("console", lambda message: errors.append(f"console: {message.text}") if message.type == "error" else None)
    try:
        yield opened
    finally:
        context.close()
    assert errors == [], errors
