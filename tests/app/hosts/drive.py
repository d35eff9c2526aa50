"""Driving the playground in a browser: wait, drag, read its state."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

COMMAND = (sys.executable, "-c", "from attsvm.cli import main; main()")


def loaded(page: Page) -> None:
    """Wait until the playground has drawn itself."""
    page.locator('[data-item="token-0-0"]').wait_for()
    page.evaluate("document.getElementById('playground').playground.ready")


def state(page: Page) -> dict[str, Any]:
    """What is on the page."""
    return page.evaluate("document.getElementById('playground').playground.getState()")


def drag(page: Page, item: str, right: float, down: float) -> None:
    """Drag an item with the mouse, by this many pixels."""
    handle = page.locator(f'[data-item="{item}"] .reach')
    handle.scroll_into_view_if_needed()
    box, before = handle.bounding_box(), None
    while box != before:  # a notebook may still be scrolling
        page.wait_for_timeout(60)
        box, before = handle.bounding_box(), box
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + right, y + down, steps=4)
    page.mouse.up()


def says(locator: Locator, text: str) -> None:
    """Wait until there is this text."""
    from playwright.sync_api import expect  # here, so that tests can be collected where there is no playwright

    expect(locator).to_contain_text(text, timeout=20_000)


def requests(page: Page) -> list[str]:
    """A list that collects the addresses the page asks for; what is inside the page itself does not count."""
    asked: list[str] = []

    def note(request: Any) -> None:
        if not request.url.startswith(("data:", "blob:")):
            asked.append(request.url)

    page.on("request", note)
    return asked


@contextmanager
def command(*arguments: str) -> Iterator[str]:
    """`attsvm play` as a person starts it, without a browser: the address it prints."""
    with subprocess.Popen(
        [*COMMAND, "play", "--no-browser", "--port", "0", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            found = re.search(r"http://127\.0\.0\.1:\d+/", process.stdout.readline())
            assert found is not None, process.stderr.read()
            yield found[0]
        finally:
            process.terminate()
