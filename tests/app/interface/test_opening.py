"""The first ten seconds of a page, its legend, the names of its marks, and where to read on."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from attsvm.app import standalone_page

from .playground import Playground, write_page

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A page that nobody gave a state."""
    return write_page(tmp_path_factory.mktemp("fresh"), opening=True)


@pytest.fixture
def calm(browser: Browser) -> Iterator[Page]:
    """For someone who asked for less motion."""
    context = browser.new_context(reduced_motion="reduce", viewport={"width": 1280, "height": 800})
    yield context.new_page()
    context.close()


def _advice(playground: Playground) -> str:
    return playground.find(".advice > span").first.inner_text()


def test_a_fresh_page_stands_at_step_0_plays_once_and_invites(page: Page, fresh: str) -> None:
    page.clock.install()
    playground = Playground(page, fresh)
    first = _advice(playground)
    assert len(re.findall(r"[.?!](?:\s|$)", first)) == 1, "one sentence"
    assert all(word in first for word in ("token", "attention", "training", "weights"))
    assert playground.state["time"] == 0
    assert playground.words.startswith("At the start attention is spread evenly")
    page.clock.run_for(2700)
    times = []
    for _ in range(6):
        page.clock.run_for(900)
        times.append(playground.state["time"])
    assert times == sorted(times)
    assert len(set(times)) == 6
    assert _advice(playground) == first
    page.clock.run_for(3000)
    assert playground.state["time"] is None
    assert "Now you" in _advice(playground)
    page.clock.run_for(12000)
    assert playground.state["time"] is None, "it plays once"
    assert "#" not in page.url, "the page's own doing is no state to share"
    playground.item("token-0-1").focus()
    page.keyboard.press("ArrowUp")
    page.clock.run_for(1000)
    assert "Drag any token" in _advice(playground)


def test_whoever_touches_the_page_takes_over(page: Page, fresh: str) -> None:
    page.clock.install()
    playground = Playground(page, fresh)
    page.mouse.click(600, 40)
    page.clock.run_for(6000)
    assert playground.state["time"] == 0
    playground.button("play the run").click()
    page.clock.run_for(8000)
    assert playground.state["time"] is None
    assert "Now you" in _advice(playground)


def test_less_motion_means_that_nothing_plays_by_itself(calm: Page, fresh: str) -> None:
    calm.clock.install()
    playground = Playground(calm, fresh)
    calm.clock.run_for(6000)
    assert playground.state["time"] == 0
    assert "token" in _advice(playground)


@pytest.mark.parametrize("address", ["#scene=two-inputs", "#scene=two-inputs&step=40"])
def test_a_link_opens_as_it_was_shared(page: Page, fresh: str, address: str) -> None:
    page.clock.install()
    playground = Playground(page, fresh + address)
    page.clock.run_for(4000)
    assert playground.state["time"] == (40 if "step" in address else None)
    assert "Drag any token" in _advice(playground)


def test_the_legend_tells_of_the_marks_that_are_there(playground: Playground) -> None:
    def marks() -> set[str]:
        return set(playground.find(".legend li").evaluate_all("all => all.map((each) => each.dataset.mark)"))

    assert playground.find(".legend li").first.is_visible()
    assert marks() == {"tokens", "size", "score", "selected", "support", "query", "head", "start", "ring"}
    playground.load("bystander")
    assert marks() == {"token", "size", "score", "selected", "support", "start", "ring"}


def test_the_legend_of_a_phone_is_folded(phone: Playground) -> None:
    assert not phone.find(".legend li").first.is_visible()
    phone.find(".legend summary").tap()
    assert phone.find(".legend li").first.is_visible()
    phone.item("token-0-1").tap()
    assert phone.find(".hover-name").inner_text().startswith("Token 1 of input 0 at")


def test_hovering_names_a_mark(playground: Playground) -> None:
    page, name = playground.page, playground.find(".hover-name")
    page.mouse.move(*playground.centre("token-1-2"))
    assert name.inner_text().startswith("Token 2 of input 1 at (1.4, ")
    assert "support token" in name.inner_text()
    page.mouse.move(*playground.centre("query-0"))
    assert name.inner_text().startswith("Query of input 0")
    playground.find('[data-layer="lines"]').check()
    playground.settle()
    for selector, words in [
        (
            'g[data-name^="max-margin direction of input 1"] line',
            "Max-margin direction of input 1: theory says that W z₁",
        ),
        ('g[data-name^="training: the path of W z₀"] path', "Training: the path of W z₀ of input 0"),
        ('g[data-name^="separating line of input 1"] line', "Separating line of input 1"),
    ]:
        x, y = page.evaluate(_ON_LINE, selector)
        page.mouse.move(x, y)
        assert name.inner_text().startswith(words)
    page.mouse.move(5, 300)
    assert not name.is_visible()


_ON_LINE = """(selector) => { const line = document.getElementById('playground').shadowRoot.querySelector(selector);
const at = line.getPointAtLength(0.86 * line.getTotalLength()).matrixTransform(line.getScreenCTM());
return [at.x, at.y]; }"""


def test_the_page_leads_on(page: Page, tmp_path: Path) -> None:
    for docs, wanted in (("./", ["idea.html", "index.html"]), (None, [])):
        path = tmp_path / "page.html"
        path.write_text(standalone_page(docs=docs), encoding="utf-8")
        page.goto(path.as_uri())
        links = page.locator(".links a").evaluate_all("all => all.map((link) => link.href)")
        assert [link for link in links if "arxiv.org" in link] == [
            "https://arxiv.org/abs/2306.13596",
            "https://arxiv.org/abs/2308.16898",
        ]
        assert [link.rsplit("/", 1)[1] for link in links if link.startswith("file:")] == wanted
