"""The built documentation in a browser: nothing scrolls sideways, formulas are formulas, figures move."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

import attsvm
from app.accessibility import WIDTHS, violations

from .built import ROOT, build, serve

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Page

pytestmark = pytest.mark.slow  # building takes about 15 s, once


@pytest.fixture(scope="module")
def pages(shared_folder: Path) -> Path:
    return build(shared_folder / "documentation")


@pytest.fixture(scope="module")
def address(pages: Path) -> Iterator[str]:
    with serve(pages) as found:
        yield found


def names(pages: Path) -> list[str]:
    """All pages but the playground itself."""
    found = sorted(path.relative_to(pages).as_posix() for path in pages.rglob("*.html"))
    return [name for name in found if name != "playground-page.html" and not name.startswith("_")]


TOO_WIDE = """() => document.scrollingElement.scrollWidth <= innerWidth ? null :
    [...document.querySelectorAll('article *')].find((x) => x.getBoundingClientRect().right > innerWidth)?.outerHTML
        ?? document.scrollingElement.scrollWidth"""


def test_no_page_scrolls_sideways(pages: Path, address: str, page: Page) -> None:
    page.route("**/playground-page.html*", lambda route: route.abort())  # it has tests of its own
    too_wide = []
    for name in names(pages):
        page.goto(f"{address}/{name}", wait_until="domcontentloaded")
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            if found := page.evaluate(TOO_WIDE):
                too_wide.append((name, width, str(found)[:200]))
    assert len(names(pages)) > 50
    assert too_wide == []
    page.set_content('<body><article><p style="width: 3000px">wide</p></article>')
    assert page.evaluate(TOO_WIDE)  # it can fail


@pytest.mark.parametrize(
    ("scheme", "checked"),
    [
        ("light", ("saturation", "experiments/index", "examples/index", "reference/plots")),
        ("dark", ("index", "idea", "notation", "examples/07_digits")),
    ],
)
def test_pages_are_accessible(address: str, page: Page, scheme: str, checked: tuple[str, ...]) -> None:
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": 1280, "height": 900})
    for name in checked:
        page.goto(f"{address}/{name}.html")
        assert violations(page) == [], name


def test_formulas_are_set_and_none_is_left_as_text(pages: Path) -> None:
    for name in ("idea", "theory", "proved", "saturation", "notation", "experiments/cones"):
        page = (pages / f"{name}.html").read_text(encoding="utf-8")
        assert page.count("<math ") > 5, name
        assert "$" not in page.split("<article")[1].split("</article>")[0].replace("$ attsvm", ""), name
    assert (pages / "_static/math.woff").stat().st_size < 250_000


def test_nothing_is_fetched_from_elsewhere(address: str, page: Page) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{address}/idea.html")
    assert (
        "STIX Two Math" in page.evaluate("async () => [...await document.fonts.ready].map((x) => x.family)").__str__()
    )
    assert [url for url in asked if not url.startswith((address, "data:"))] == []


def idea_in_python() -> attsvm.TokenDataset:
    """The input of docs/figures.py, which the live figures show."""
    spec = importlib.util.spec_from_file_location("figures", ROOT / "docs/figures.py")
    figures = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(figures)
    return figures.one_input()


def test_live_figures_compute_what_python_computes(address: str, page: Page) -> None:
    page.goto(f"{address}/idea.html")
    data = idea_in_python()
    engine = attsvm.descent.TorchEngine()
    run = attsvm.fit(data, initial="zeros", steps=100, record=[0, 10, 100], engine=engine)
    solution = attsvm.solve(attsvm.AttentionSVM(data, [0])).require_solved()

    says = page.locator("[data-figure=descent] output")
    for word, place in (("After ten steps", 1), ("after a hundred", 2)):
        page.get_by_role("button", name=word).click()
        away = 1 - float(attsvm.direction_cosine(run.history.weights[place], solution.weights))
        shown = says.inner_text()
        assert f"norm {float(run.history.norm[place]):.1f}" in shown
        assert float(shown.split("cosine ")[1].rstrip(".").replace(" · 10^", "e")) == pytest.approx(away, rel=0.06)

    page.get_by_role("button", name="there").click()
    margin = f"{1 / float(solution.weights.norm()):.2f}"
    assert f"{margin} ahead" in page.locator("[data-figure=margin] output").inner_text()
    page.get_by_role("button", name="at zero").click()
    assert "20 %" in page.locator("[data-figure=softmax] output").inner_text()
    slider = page.locator("[data-figure=softmax] input").nth(1)
    slider.focus()
    page.keyboard.press("End")
    assert "length of p is 16.0" in page.locator("[data-figure=softmax] output").inner_text()


def test_code_is_copied_without_prompts(address: str, page: Page) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto(f"{address}/playground.html")
    page.locator("div.highlight", has_text="attsvm play").first.hover()
    page.get_by_role("button", name="Copy").first.click()
    assert page.evaluate("() => navigator.clipboard.readText()") == "attsvm play"
