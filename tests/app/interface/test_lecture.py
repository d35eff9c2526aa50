"""Lectures: short links, large type, hidden panels, speed, a page in a frame, and keys on a page just opened."""

from __future__ import annotations

import re
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from .playground import Playground, write_page

if TYPE_CHECKING:
    from playwright.sync_api import Page

ROOT = "document.getElementById('playground').shadowRoot"
VISIBLE = f"(selector) => [...{ROOT}.querySelectorAll(selector)].filter((each) => each.checkVisibility()).length"


def _goes_to(playground: Playground, address: str) -> None:
    playground.page.evaluate("(text) => { location.hash = text; }", address)
    playground.settle()


def test_a_short_link_names_scene_and_step(page: Page, address: str) -> None:
    playground = Playground(page, f"{address}#scene=basins&step=40")
    state = playground.state
    assert (state["preset"], state["time"], state["view"]["layers"]["basin"]) == ("single-input-local", 40, True)
    playground.find('input[aria-label="step of the run"]').press("ArrowRight")
    playground.until(lambda: page.url.endswith(f"#scene=basins&step={playground.state['time']}"))
    playground.load("hyperplanes")
    playground.until(lambda: re.search(r"#scene=hyperplanes(&step=0)?$", page.url) is not None)
    moved = playground.state
    playground.drag("token-0-1", (20, 30))
    playground.until(lambda: "#s=" in page.url)
    assert playground.state["problem"] != moved["problem"]
    playground.button("undo").click()
    playground.until(lambda: "#scene=hyperplanes" in page.url)


WRONG = {
    "scene=nothing": 'no scene is called "nothing"',
    "scene=basins&step=soon": "step must be a whole number",
    "scene=basins&speed=3": "speed must be one of",
    "theme=pink": "theme must be dark, light or auto",
    "hide=everything": 'nothing called "everything" can be hidden',
    "scean=basins": 'the address names "scean"',
    "scene=%E0%A4%A&hide=__proto__": 'no scene is called "%E0%A4%A"',
}


def test_what_a_link_cannot_ask_for_is_said(playground: Playground) -> None:
    for text, words in WRONG.items():
        _goes_to(playground, text)
        playground.until(lambda words=words: words in playground.find(".toast").inner_text())


def test_a_lecture_fits_the_screen_and_is_large(page: Page, address: str) -> None:
    for width, height in ((1920, 1080), (1024, 768)):
        page.set_viewport_size({"width": width, "height": height})
        playground = Playground(page, f"{address}?{width}#scene=multi-input&lecture&step=end")
        assert page.evaluate("document.documentElement.scrollHeight") <= height
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        words = playground.find(".explanation").bounding_box()
        picture = playground.find(".plane").bounding_box()
        assert words is not None
        assert picture is not None
        assert words["y"] + words["height"] <= height
        assert picture["height"] > 0.55 * height
        # Letters of the explanation in pixels of the screen, against those of the plain page.
        size = page.evaluate(f"{ROOT}.querySelector('.explanation').getBoundingClientRect().height / 2.9")
        assert size > 0.025 * height
        assert page.evaluate(VISIBLE, ".setup, .inspector, .panel.certified") == 0
        assert page.evaluate(VISIBLE, ".panel.going, .panel.attention, .timeline") == 3
    before = playground.state["problem"]["inputs"][0]["tokens"][0]["x"]
    x, y = playground.centre("token-0-0")
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 60, y)
    page.mouse.up()
    playground.settle()
    moved, _ = playground.centre("token-0-0")
    assert playground.state["problem"]["inputs"][0]["tokens"][0]["x"][0] > before[0]
    assert moved == pytest.approx(x + 60, abs=3), "what is dragged stays under the pointer, however large it is drawn"


def test_the_key_f_and_the_button_begin_and_end_a_lecture(playground: Playground) -> None:
    lecture = playground.button("lecture")
    playground.page.keyboard.press("f")
    playground.until(lambda: lecture.get_attribute("aria-pressed") == "true")
    playground.until(lambda: "&lecture" in playground.page.url)
    playground.until(lambda: playground.page.evaluate("document.fullscreenElement !== null"))
    playground.page.evaluate("document.exitFullscreen()")  # as Escape does
    playground.until(lambda: lecture.get_attribute("aria-pressed") == "false")
    lecture.click()
    playground.until(lambda: lecture.get_attribute("aria-pressed") == "true")
    lecture.click()
    playground.until(lambda: "lecture" not in playground.page.url)


def test_panels_are_hidden_by_link_and_the_link_keeps_them(page: Page, address: str) -> None:
    page.set_viewport_size({"width": 1600, "height": 900})
    plain = Playground(page, f"{address}?a")
    before = plain.find(".plane").bounding_box()
    playground = Playground(page, f"{address}?b#hide=setup,along,toolbar&theme=dark&speed=2")
    wide = playground.find(".plane").bounding_box()
    assert before is not None
    assert wide is not None
    assert wide["width"] > before["width"] + 200
    assert page.evaluate(VISIBLE, ".setup, .panel.along, .toolbar") == 0
    assert page.evaluate(VISIBLE, ".panel.going") == 1
    assert page.evaluate(f"{ROOT}.firstChild.dataset.theme") == "dark"
    assert playground.find("select.pace").input_value() == "2"
    playground.drag("token-0-1", (10, 10))
    playground.until(lambda: page.url.endswith("&hide=setup,along,toolbar&speed=2&theme=dark"))


def test_speed_changes_how_long_playing_takes(playground: Playground) -> None:
    def walked(speed: str) -> int:
        playground.find("select.pace").select_option(speed)
        playground.button("play the run").click()
        playground.page.wait_for_timeout(250)
        playground.button("pause the run").click()
        at: int = playground.page.evaluate(f"Number({ROOT}.querySelector('.timeline input').value)")
        playground.page.keyboard.press("Home")
        playground.find(".explanation").click()
        playground.page.keyboard.press("Home")
        playground.settle()
        return at

    assert walked("4") > 3 * max(1, walked("0.25"))
    playground.page.keyboard.press("]")
    playground.settle()
    assert playground.find("select.pace").input_value() == "0.5"


def test_keys_work_on_a_page_just_opened_and_after_a_button_is_disabled(playground: Playground) -> None:
    press = playground.page.keyboard.press
    press("Home")
    playground.settle()
    assert playground.state["time"] == 0
    press(".")
    playground.settle()
    assert playground.state["time"] == 1
    playground.drag("token-0-1", (20, 10))
    moved = playground.state["problem"]
    playground.button("undo").click()
    playground.settle()
    assert playground.button("undo").is_disabled()
    press("Control+Shift+Z")
    playground.settle()
    assert playground.state["problem"] == moved
    press("End")
    playground.settle()
    assert playground.state["time"] is None
    press("?")
    assert playground.find("dialog.help").is_visible()
    press("Escape")


def test_keys_of_a_notebook_are_left_alone(page: Page, tmp_path: Path) -> None:
    playground = Playground(page, write_page(tmp_path, host="widget"))
    page.keyboard.press("Home")
    page.keyboard.press("f")
    playground.settle()
    assert playground.button("lecture").get_attribute("aria-pressed") == "false"
    assert playground.find(".step").inner_text().startswith("step 2")


def test_a_click_leaves_no_frame_around_the_picture(playground: Playground) -> None:
    box = playground.find(".plane").bounding_box()
    assert box is not None
    playground.page.mouse.click(box["x"] + box["width"] - 30, box["y"] + 30)
    assert playground.page.evaluate(f"{ROOT}.activeElement?.classList.contains('plane') ?? false") is False
    outline = playground.find(".plane").evaluate("each => getComputedStyle(each).outlineStyle")
    assert outline == "none"
    playground.page.keyboard.press("Tab")
    focused = playground.page.evaluate(f"{ROOT}.activeElement?.dataset.item ?? ''")
    assert focused.startswith(("token", "query", "head", "start")), "the next stop is something that can be moved"


def test_bands_reach_the_disc(playground: Playground) -> None:
    """A point of the rim between the two edges of a margin lies in its band."""
    playground.load("hyperplanes")
    inside = playground.page.evaluate(
        f"""() => {{ const svg = {ROOT}.querySelector('.plane');
        return [...svg.querySelectorAll('polygon')].map((band) => {{
          const [, , near, far] = band.parentElement.children;
          const end = (line, k) => [1, 2].includes(k) && [Number(line.getAttribute(`x${{k}}`)),
            Number(line.getAttribute(`y${{k}}`))];
          const disc = svg.querySelector('clipPath circle');
          const [cx, cy, r] = ['cx', 'cy', 'r'].map((name) => Number(disc.getAttribute(name)));
          return [1, 2].map((k) => {{
            const [a, b] = [end(near, k), end(far, k)];
            const middle = [(a[0] + b[0]) / 2 - cx, (a[1] + b[1]) / 2 - cy];
            const scale = (0.995 * r) / Math.hypot(...middle);
            const point = new DOMPoint(cx + scale * middle[0], cy + scale * middle[1]);
            return band.isPointInFill(point) && band.getAttribute('clip-path') !== null;
          }}); }}); }}"""
    )
    assert inside == [[True, True], [True, True]]


def test_basins_do_not_wear_the_colours_of_inputs() -> None:
    """In CIELAB every destination is further from every input than neighbouring inputs are from one another."""
    text = (files("attsvm.app") / "playground" / "view" / "colours.js").read_text(encoding="utf-8")
    palettes = {name: re.findall(r"#[0-9A-Fa-f]{6}", row) for name, row in re.findall(r"const (\w+) = \[(.*?)\]", text)}
    for theme in ("LIGHT", "DARK"):
        inputs, destinations = palettes[f"{theme}_INPUTS"], palettes[f"{theme}_DESTINATIONS"]
        assert len(inputs) == len(destinations) == 8
        away = min(_distance(a, b) for a, b in product(inputs, destinations))
        apart = min(_distance(a, b) for a, b in product(inputs, inputs) if a != b)
        assert away > 30 > apart


def _distance(first: str, second: str) -> float:
    return float(np.linalg.norm(_lab(first) - _lab(second)))


def _lab(colour: str) -> np.ndarray:
    plain = np.array([int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)])
    linear = np.where(plain <= 0.04045, plain / 12.92, ((plain + 0.055) / 1.055) ** 2.4)
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    scaled = to_xyz @ linear / np.array([0.9505, 1.0, 1.089])
    f = np.where(scaled > 0.008856, np.cbrt(scaled), 7.787 * scaled + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("size", [(844, 390), (667, 375), (932, 430)])
def test_a_phone_on_its_side_shows_picture_and_words(playground: Playground, size: tuple[int, int]) -> None:
    page = playground.page
    page.set_viewport_size({"width": size[0], "height": size[1]})
    playground.settle()
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
    for selector in (".plane", ".timeline", ".explanation"):
        box = playground.find(selector).bounding_box()
        assert box is not None
        assert box["y"] + box["height"] <= size[1], selector
    disc = playground.find(".plane circle[stroke]").first.bounding_box()
    assert disc is not None
    assert disc["height"] > 0.5 * size[1]
    page.set_viewport_size({"width": 1280, "height": 800})


def test_a_page_in_a_frame_follows_the_theme_and_leaves_the_wheel(page: Page, tmp_path: Path, address: str) -> None:
    page.set_viewport_size({"width": 900, "height": 700})
    outer = tmp_path / "outer.html"
    outer.write_text(
        f'<body style="height: 3000px"><iframe src="{address}#theme=dark" style="width: 800px; height: 600px">'
        "</iframe></body>",
        encoding="utf-8",
    )
    page.goto(outer.as_uri())
    frame = page.frames[1]
    frame.wait_for_selector(".plane")
    theme = f"{ROOT}.firstChild.dataset.theme"
    frame.wait_for_function(f"{theme} === 'dark'")
    page.evaluate(
        "document.querySelector('iframe').src = document.querySelector('iframe').src.replace('dark', 'light')"
    )
    frame.wait_for_function(f"{theme} === 'light'")
    assert frame.evaluate("document.documentElement.scrollHeight <= innerHeight")
    page.mouse.move(400, 300)
    page.mouse.wheel(0, 400)
    page.wait_for_function("scrollY > 300")
    whole = frame.locator("a.own-page").get_attribute("href")
    assert whole is not None
    assert "embed" not in whole
