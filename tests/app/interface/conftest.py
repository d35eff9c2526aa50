"""Fixtures of the tests of the page: a playground in a fresh page, and one for touch."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import TYPE_CHECKING

import pytest

from .playground import Playground, broken_words, write_page

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    Tab = tuple[Page, list[str]]

_NUMBERS = count()


@pytest.fixture(scope="session")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A page with the playground, as a file."""
    return write_page(tmp_path_factory.mktemp("playground"))


def _tab(browser: Browser, **options: object) -> Iterator[Tab]:
    context = browser.new_context(**options)  # type: ignore[arg-type]
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(f"uncaught: {error}"))
    page.on("console", lambda message: errors.append(message.text) if message.type in ("error", "warning") else None)
    yield page, errors
    context.close()


@pytest.fixture(scope="module")
def desktop_tab(browser: Browser) -> Iterator[Tab]:
    yield from _tab(browser, viewport={"width": 1280, "height": 800})


@pytest.fixture(scope="module")
def phone_tab(browser: Browser) -> Iterator[Tab]:
    yield from _tab(browser, viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)


def _opened(tab: Tab, address: str) -> Iterator[Playground]:
    page, errors = tab
    opened = Playground(page, f"{address}?{next(_NUMBERS)}")  # another address, so that the page starts afresh
    yield opened
    broken = broken_words(opened.text)
    found, errors[:] = sorted(set(errors)), []
    assert found == []
    assert broken == []


@pytest.fixture
def playground(desktop_tab: Tab, address: str) -> Iterator[Playground]:
    """The playground at 1280 x 800, loaded anew; at the end nothing broken may stand on it and no error in the log."""
    yield from _opened(desktop_tab, address)


@pytest.fixture
def phone(phone_tab: Tab, address: str) -> Iterator[Playground]:
    """The playground on a phone with a touch screen."""
    yield from _opened(phone_tab, address)
