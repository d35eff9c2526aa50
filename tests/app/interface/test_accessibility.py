"""No serious or critical violation by axe-core in any state of the page, and no sideways scrolling in any of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from ..accessibility import violations
from .playground import Playground, share

if TYPE_CHECKING:
    from playwright.sync_api import Page

DESKTOP, PHONE, ON_ITS_SIDE = (1280, 800), (360, 740), (844, 390)


def _story(step: int) -> Callable[[Playground], None]:
    def open_step(playground: Playground) -> None:
        playground.button("Story").click()
        playground.find(".story-dots button").nth(step).click()

    return open_step


def _unfold(playground: Playground) -> None:
    folded = playground.find("details:not([open]):not(.menu)")
    folded.evaluate_all("all => all.forEach((each) => { each.open = true; })")


STATES: dict[str, tuple[str, tuple[int, int], Callable[[Playground], object]]] = {
    "plain": ("#random=3&inputs=8&tokens=2", DESKTOP, _unfold),
    "dark": ("#scene=basins&theme=dark", PHONE, _unfold),
    "story": ("", ON_ITS_SIDE, _story(0)),
    "story with a choice": ("#theme=dark", PHONE, _story(6)),
    "lecture": ("#scene=multi-input&lecture", DESKTOP, lambda playground: None),
    "lecture with the story": ("#lecture&theme=dark", ON_ITS_SIDE, _story(2)),
    "embedded": ("#scene=trajectories&embed", DESKTOP, lambda playground: None),
    "text": ("#scene=text", PHONE, lambda playground: None),
    "text in a lecture": ("#scene=text&lecture&theme=dark", ON_ITS_SIDE, lambda playground: None),
    "help": ("", DESKTOP, lambda playground: playground.button("help").click()),
    "python": ("", DESKTOP, lambda playground: share(playground, "python")),
    "refused": ("#scene=nothing", ON_ITS_SIDE, lambda playground: None),
}


@pytest.mark.slow  # axe-core reads some thousand elements, three seconds each time
@pytest.mark.parametrize("name", STATES)
def test_axe_finds_nothing_and_nothing_scrolls_sideways(page: Page, address: str, name: str) -> None:
    link, (width, height), act = STATES[name]
    page.set_viewport_size({"width": width, "height": height})
    playground = Playground(page, address + link)
    act(playground)
    playground.settle()
    assert violations(page) == []
    for wide in (360, 414, 768, 1072, 1440, 2560):
        page.set_viewport_size({"width": wide, "height": 900})
        playground.settle()
        assert page.evaluate("document.documentElement.scrollWidth") <= wide


def test_axe_can_find_something(page: Page) -> None:
    page.set_content('<html lang="en"><title>t</title><main><h1>h</h1><button></button></main>')
    assert [each.split(":")[0] for each in violations(page)] == ["button-name"]
