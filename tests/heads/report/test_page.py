"""The report in Chromium: it draws, sorts and answers, and throws nothing (the fixture fails on page errors)."""

from __future__ import annotations

import pytest

from app.accessibility import WIDTHS, violations
from heads.planted import planted_report

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def address(tmp_path_factory) -> str:
    file = tmp_path_factory.mktemp("heads") / "heads.html"
    return planted_report().save_html(file).as_uri()


def column(page, number):
    return page.locator(f"table.all tbody tr > :nth-child({number})").all_inner_texts()


def test_the_table_sorts(page, address):
    page.goto(address)
    heading = page.locator("table.all thead th", has_text="Efficiency").first
    number = 1 + page.locator("table.all thead th").all_inner_texts().index("Efficiency")
    heading.locator("button").click()
    assert heading.get_attribute("aria-sort") == "descending"
    down = column(page, number)
    assert down[-1] == "-"  # no number goes last
    assert float(down[0]) >= float(down[1])
    heading.locator("button").click()
    assert heading.get_attribute("aria-sort") == "ascending"
    up = column(page, number)
    assert float(up[0]) <= float(up[1])
    assert up[-1] == "-"
    page.locator("table.all thead button").first.click()
    assert column(page, 1) == ["L0H0", "L0H1", "L0H2"]


def test_a_head_opens_with_its_drawings(page, address):
    page.goto(address)
    page.click('tr[data-head="L0H0"]')
    assert page.locator("#detail h2").inner_text() == "L0H0"
    assert page.locator("#detail svg.heat .cell").count() > 5
    assert page.locator("#detail svg.heat .chosen").count() >= 1
    assert page.locator("#detail svg.heat .holds").count() >= 1
    assert page.locator("#detail .bar.trained").count() >= 1
    assert page.locator("#detail polyline").count() >= 3
    assert page.locator("#detail .controls tbody tr").count() == 4
    assert page.locator("#detail .stories li").count() >= 3
    box = page.locator("#detail svg.heat").bounding_box()
    assert box["width"] > 100
    assert box["height"] > 100


def test_a_query_can_be_asked_and_a_sentence_chosen(page, address):
    page.goto(address)
    page.click('tr[data-head="L0H0"]')
    page.locator(".strip [data-query='2']").click()
    assert page.locator(".strip .query").get_attribute("data-query") == "2"
    assert page.locator(".strip .selected").get_attribute("data-query") == "1"  # the token before
    tabs = page.locator(".tabs button")
    tabs.nth(1).click()
    assert tabs.nth(1).get_attribute("aria-pressed") == "true"
    assert tabs.nth(0).get_attribute("aria-pressed") == "false"


def test_the_keyboard_and_the_marks_choose_heads_too(page, address):
    page.goto(address)
    row = page.locator('tr[data-head="L0H2"]')
    row.focus()
    row.press("Enter")
    assert page.locator("#detail h2").inner_text() == "L0H2"
    assert "nothing to separate" in page.locator("#detail").inner_text()
    page.locator('.mark[data-head="L0H1"]').first.click(force=True)
    assert page.locator("#detail h2").inner_text() == "L0H1"


def test_light_and_dark(page, address):
    def paper():
        return page.evaluate("getComputedStyle(document.body).backgroundColor")

    page.emulate_media(color_scheme="light")
    page.goto(address)
    light = paper()
    page.click("#theme")
    dark = paper()
    assert light != dark
    page.click("#theme")
    assert paper() == light
    page.emulate_media(color_scheme="dark")
    page.reload()
    assert paper() == dark


def test_a_query_is_asked_by_keyboard_and_keeps_the_focus(page, address):
    page.goto(address)
    row = page.locator('tr[data-head="L0H0"]')
    row.focus()
    row.press("Enter")
    assert page.evaluate("document.activeElement.textContent") == "L0H0"  # where a screen reader goes on
    page.locator(".strip [data-query='2']").focus()
    page.keyboard.press("Enter")
    assert page.locator(".strip [aria-pressed=true]").get_attribute("data-query") == "2"
    assert page.evaluate("document.activeElement.dataset.query") == "2"


def test_no_width_scrolls_sideways(page, address):
    page.goto(address)
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_accessible(page, address, scheme):
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": 1280, "height": 900})
    page.goto(address)  # opens a head with drawings
    assert violations(page) == []
    page.click('tr[data-head="L0H2"]')  # a head with nothing to separate
    assert violations(page) == []
