"""Widths, themes, motion, several pages at once, and coming and going."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pytest
from PIL import Image

from .playground import Playground, write_page

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


def _pixels(page: Page) -> np.ndarray[Any, Any]:
    with Image.open(io.BytesIO(page.screenshot())) as picture:
        return np.asarray(picture.convert("RGB"), dtype=float)


def test_nothing_overflows_at_any_width(playground: Playground) -> None:
    page = playground.page
    for preset in ("multi-input", "joint-training-tight"):
        playground.load(preset)
        for width in (360, 390, 768, 1280, 1920, 2560):
            page.set_viewport_size({"width": width, "height": 844 if width < 600 else 1000})
            playground.settle()
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            assert page.evaluate(_OUTSIDE, width) == []
            box = playground.find(".plane").bounding_box()
            assert box is not None
            assert box["width"] >= min(width - 30, 560)
            assert _pixels(page).std() > 8
    page.set_viewport_size({"width": 1280, "height": 800})


_OUTSIDE = """(width) => [...document.getElementById('playground').shadowRoot
.querySelectorAll('button, input, select, .panel, .main')]
.filter((each) => each.offsetParent !== null)
.filter((each) => { const box = each.getBoundingClientRect(); return box.right > width + 1 || box.left < -1; })
.map((each) => each.outerHTML.slice(0, 80))"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_forced_colours_keep_what_bars_slider_and_picture_tell(
    page: Page, address: str, scheme: Literal["light", "dark"]
) -> None:
    page.emulate_media(forced_colors="active", color_scheme=scheme)
    other = "dark" if scheme == "light" else "light"
    playground = Playground(page, f"{address}?{scheme}#scene=basins&theme={other}")
    fills = playground.find(".bar-fill").evaluate_all(
        "all => all.map((each) => getComputedStyle(each).backgroundColor)"
    )
    box = playground.find(".bar.chosen .bar-fill").bounding_box()
    assert box is not None
    shown = _pixels(page)[round(box["y"] + box["height"] / 2), round(box["x"] + box["width"] / 2)]
    assert {"rgb({:.0f}, {:.0f}, {:.0f})".format(*shown)} == set(fills), "bars keep their length in a colour"
    assert page.evaluate("document.getElementById('playground').shadowRoot.firstChild.dataset.theme") == scheme


@pytest.mark.parametrize("width", [360, 900])
def test_the_first_words_leave_the_picture_in_its_place(page: Page, tmp_path: Path, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    playground = Playground(page, write_page(tmp_path, opening=True))
    playground.item("token-0-1").evaluate("each => each.focus({ preventScroll: true })")
    places, advice = set(), set()
    for key in (None, "End", "ArrowUp"):
        if key is not None:
            page.keyboard.press(key)
        playground.settle()
        places.add((playground.find(".plane").bounding_box() or {}).get("y"))
        advice.add(playground.find(".advice > span").first.inner_text())
    assert len(advice) == 3, "the sentence, the invitation, the advice"
    assert len(places) == 1


def test_fingers_find_their_targets_on_a_phone(phone: Playground) -> None:
    small = phone.page.evaluate(
        """() => [...document.getElementById('playground').shadowRoot
        .querySelectorAll('.main button, .toolbar button, .timeline input')]
        .filter((each) => each.offsetParent !== null)
        .filter((each) => each.getBoundingClientRect().height < 28)
        .map((each) => each.outerHTML.slice(0, 80))"""
    )
    assert small == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_system_theme_is_followed_and_can_be_switched(
    page: Page, address: str, scheme: Literal["light", "dark"]
) -> None:
    page.emulate_media(color_scheme=scheme)
    playground = Playground(page, address)
    bright = _pixels(page).mean()
    assert (bright > 180) == (scheme == "light")
    assert (bright < 60) == (scheme == "dark")
    playground.find('button[aria-label^="switch to"]').click()
    playground.settle()
    assert (_pixels(page).mean() > 180) == (scheme == "dark")
    page.emulate_media(color_scheme="dark" if scheme == "light" else "light")


def test_less_motion_means_jumps(browser: Browser, address: str) -> None:
    context = browser.new_context(reduced_motion="reduce")
    playground = Playground(context.new_page(), address)
    playground.button("play the run").click()
    seen = set()
    for _ in range(14):
        playground.page.wait_for_timeout(60)
        seen.add(playground.state["time"])
    context.close()
    assert 1 <= len(seen) <= 3


def test_destroy_leaves_nothing_and_can_be_mounted_again(playground: Playground) -> None:
    playground.page.evaluate("handle.destroy()")
    root = "document.getElementById('playground').shadowRoot"
    assert playground.page.evaluate(f"{root}.childElementCount") == 0
    playground.page.evaluate("dispatchEvent(new Event('resize'))")
    playground.page.wait_for_timeout(100)
    assert playground.page.evaluate(f"{root}.childElementCount") == 0


def test_no_request_leaves_the_page(page: Page, address: str) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    playground = Playground(page, address)
    playground.load("multi-input")
    playground.drag("token-0-1", (10, 10))
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []


def test_curves_and_bars_tell_the_run(playground: Playground) -> None:
    playground.load("descent-vs-normalized")
    assert playground.find(".bar-group").count() == 3
    assert playground.find(".bar").count() == 21
    charts = playground.find(".curves .chart")
    assert charts.count() == 3
    for k in range(3):
        lines = charts.nth(k).locator("path").evaluate_all("all => all.map((path) => path.getAttribute('d').length)")
        assert len(lines) >= 2
        assert min(lines) > 100
    shares = playground.find(".bar-group").first.locator(".bar-value").all_inner_texts()
    assert len(shares) == 7
    assert all("%" in share for share in shares)


def test_widget_and_page_differ_in_the_address_only(page: Page, tmp_path: Path) -> None:
    playground = Playground(page, write_page(tmp_path, host="widget"))
    playground.drag("token-0-1", (10, 10))
    playground.until(lambda: bool(page.evaluate("changes.length")))
    page.wait_for_timeout(300)
    assert "#" not in page.url
    assert page.evaluate("changes.length") == 1
