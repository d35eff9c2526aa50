"""The report in Chromium: it draws, sorts and answers, and throws nothing (the fixture fails on page errors)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.accessibility import WIDTHS, violations
from heads.planted import many_heads, planted_report

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


def test_a_head_says_how_to_ask_why(page, address, tmp_path):
    page.goto(address)
    assert page.locator(".why").count() == 0  # arrays read no texts
    page.goto(replace(planted_report(), architecture="bert").save_html(tmp_path / "heads.html").as_uri())
    page.click('tr[data-head="L0H0"]')
    assert page.locator(".why a").get_attribute("href") == "why_L0H0.html"
    told = page.locator(".why code").inner_text()
    assert told.startswith("attsvm why planted 'sentence ")
    assert " --head L0H0 --query " in told


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


@pytest.fixture(scope="module")
def many(tmp_path_factory) -> str:
    """300 heads: those of the planted model over and over, under other names."""
    return many_heads().save_html(tmp_path_factory.mktemp("heads") / "many.html").as_uri()


def test_an_address_opens_its_head_and_scrolls_to_it(page, many):
    page.goto(f"{many}#L7H5")
    assert page.locator("#detail h2").inner_text() == "L7H5"
    page.wait_for_function("Math.abs(document.getElementById('detail').getBoundingClientRect().top) < 40")
    page.evaluate("location.hash = '#L20H2'")
    page.wait_for_function("document.querySelector('#detail h2').textContent === 'L20H2'")
    page.goto(f"{many}#nothing")
    page.reload()
    assert page.locator("#detail h2").inner_text() == "L0H0"


def test_a_head_that_is_chosen_has_an_address(page, many):
    page.goto(many)
    page.click('tr[data-head="L1H4"]')
    assert page.url.endswith("#L1H4")
    page.go_back()
    page.go_forward()
    page.wait_for_function("document.querySelector('#detail h2').textContent === 'L1H4'")


def test_search_and_filters_say_how_many_heads_are_shown(page, many):
    page.goto(many)
    count = page.locator("#count")
    rows = page.locator("table.all tbody tr:visible")
    assert count.inner_text() == "300 of 300 heads shown"
    page.fill("#find", "L7H")
    assert count.inner_text() == "10 of 300 heads shown"
    assert rows.count() == 10
    page.select_option("#kind", "first")
    assert 0 < rows.count() < 10
    assert count.inner_text() == f"{rows.count()} of 300 heads shown"
    page.select_option("#kind", "")
    page.fill("#find", "unsolved")
    assert rows.count() == 100
    page.fill("#find", "")
    page.select_option("#layer", "3")
    page.fill("#least", "50")
    assert {name[:2] for name in column(page, 1) if name} >= {"L3"}
    assert all(row.get_attribute("data-head").startswith("L3H") for row in rows.all())
    assert rows.count() < 10


def test_no_column_is_cut_off_on_a_screen_of_1280(page, many):
    page.set_viewport_size({"width": 1280, "height": 900})
    page.goto(many)
    for box in page.locator(".scroll").all():
        assert box.evaluate("box => box.scrollWidth <= box.clientWidth")


def test_columns_of_the_detail_table_are_explained(page, address):
    page.goto(f"{address}#L0H0")
    titles = page.locator("#detail .controls thead abbr")
    assert titles.count() == 14
    assert all(title.get_attribute("title") for title in titles.all())
    page.click("#detail summary")
    assert page.locator("#detail dl").inner_text().count("max margin") >= 2


def test_heads_without_a_confident_query_share_a_sentence(page, many):
    page.goto(many)
    told = [line for line in page.locator(".notes li").all_inner_texts() if "nothing to separate" in line]
    assert len(told) == 1
    assert told[0].startswith("100 heads (")


def test_many_heads_are_accessible(page, many):
    page.set_viewport_size({"width": 1280, "height": 900})
    page.goto(f"{many}#L7H5")
    assert violations(page) == []
