"""The guided story: seven steps by keyboard alone, by touch, left and taken up again, heard by a screen reader."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from .playground import Playground

if TYPE_CHECKING:
    from .conftest import Tab

STEPS = 7
_ROOT = "document.getElementById('playground').shadowRoot"


@pytest.fixture(autouse=True)
def forgotten(desktop_tab: Tab, phone_tab: Tab) -> None:
    """No test remembers the story of another."""
    for page, _ in (desktop_tab, phone_tab):
        if page.url.startswith("file:"):
            page.evaluate("sessionStorage.clear()")


def _focus(playground: Playground, wanted: str) -> None:
    """Walk with Tab until the element of this selector has the focus."""
    for _ in range(140):
        if playground.page.evaluate(f"(wanted) => {_ROOT}.activeElement?.matches(wanted) ?? false", wanted):
            return
        playground.page.keyboard.press("Tab")
    raise AssertionError(f"Tab never comes to {wanted}")


def _title(playground: Playground) -> str:
    return playground.find(".story h2").inner_text()


def _done(playground: Playground) -> bool:
    return playground.find(".story").get_attribute("data-done") is not None


def _hold(playground: Playground, item: str, key: str) -> None:
    _focus(playground, f'[data-item="{item}"]')
    for _ in range(40):
        playground.page.keyboard.press(key)
        playground.settle()
        if _done(playground):
            return


def _slide(playground: Playground) -> None:
    _focus(playground, 'input[type="range"]')
    for _ in range(40):
        playground.page.keyboard.press("PageUp")
        playground.settle()
        if _done(playground):
            return


def _choose(playground: Playground, value: str) -> None:
    _focus(playground, f'.story-actions button[data-value="{value}"]')
    playground.page.keyboard.press("Enter")
    playground.settle()


TASKS: list[Callable[[Playground], None]] = [
    _slide,
    _slide,
    lambda playground: _hold(playground, "token-0-0", "Shift+ArrowUp"),
    lambda playground: _hold(playground, "token-0-3", "Shift+ArrowUp"),
    lambda playground: _hold(playground, "start-0", "Shift+ArrowLeft"),
    lambda playground: _choose(playground, "KQ"),
    lambda playground: _choose(playground, "naive"),
]


@pytest.mark.slow  # some five hundred presses of Tab, as a person would walk
def test_the_whole_story_by_keyboard(playground: Playground) -> None:
    press = playground.page.keyboard.press
    _focus(playground, ".story-button")
    press("Enter")
    titles, heard = [], []
    for k, do in enumerate(TASKS):
        playground.settle()
        focused = playground.page.evaluate(f"{_ROOT}.activeElement?.id")
        assert focused == "story-title", "a new step has the focus, so that a screen reader reads on from its title"
        assert playground.find(".story-count").inner_text() == f"Story, step {k + 1} of {STEPS}"
        titles.append(_title(playground))
        assert not _done(playground), f"{titles[-1]} is done before anything was done"
        do(playground)
        playground.until(lambda: _done(playground), tries=40)
        heard.append(playground.find('.story [role="status"]').inner_text())
        _focus(playground, ".story-walk button:last-child")
        press("Enter")
    assert len(set(titles)) == STEPS
    assert [each.split(".")[0] for each in heard] == [f"Done: {title}" for title in titles]
    playground.settle()
    assert not playground.find(".story").is_visible()
    assert playground.page.evaluate(f"{_ROOT}.activeElement?.className") == "story-button"


def test_the_story_is_left_and_taken_up_where_it_was(playground: Playground) -> None:
    playground.button("Story").click()
    for _ in range(2):
        playground.find(".story-walk button").last.click()
    playground.settle()
    assert _title(playground) == "The margin"
    assert not playground.find(".advice").is_visible()
    playground.item("token-0-0").focus()
    playground.page.keyboard.press("ArrowUp")
    playground.settle()
    edited = playground.state
    playground.find(".story h2").focus()
    playground.page.keyboard.press("Escape")
    playground.settle()
    assert not playground.find(".story").is_visible()
    assert playground.find(".advice").is_visible()
    assert playground.state == edited, "leaving keeps what is on screen"
    playground.button("Story").click()
    playground.settle()
    assert _title(playground) == "The margin"
    playground.load("multi-input")
    assert not playground.find(".story").is_visible(), "who loads another scene has left"
    playground.page.reload()
    playground.settle()
    playground.button("Story").click()
    assert _title(playground) == "The margin"
    assert playground.find(".story-dots [aria-current]").inner_text() == "3"


def _swipe(phone: Playground, item: str, dx: float, dy: float) -> None:
    """A finger takes an item, a ring by its rim, and moves until the step is done."""
    phone.item(item).scroll_into_view_if_needed()
    x, y = phone.centre(item)
    x -= 12 * item.startswith("start")
    session = phone.page.context.new_cdp_session(phone.page)
    for k in range(41):
        if k > 0 and _done(phone):
            break
        points = [{"x": x + k * dx, "y": y + k * dy}]
        session.send("Input.dispatchTouchEvent", {"type": "touchMove" if k else "touchStart", "touchPoints": points})
        phone.settle()
    session.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    phone.settle()


def _tap_on_slider(phone: Playground) -> None:
    slider = phone.page.get_by_role("slider", name="step of the run")
    box = slider.bounding_box()
    assert box is not None
    slider.tap(position={"x": 0.97 * box["width"], "y": box["height"] / 2})


def _tap(name: str) -> Callable[[Playground], None]:
    return lambda phone: phone.button(name).tap()


BY_TOUCH: list[Callable[[Playground], None]] = [
    _tap_on_slider,
    _tap_on_slider,
    lambda phone: _swipe(phone, "token-0-0", 0, -4),
    lambda phone: _swipe(phone, "token-0-3", 0, -4),
    lambda phone: _swipe(phone, "start-0", -4, 0),
    _tap("train (K, Q)"),
    _tap("naive gradient"),
]


@pytest.mark.parametrize("size", [(390, 844), (844, 390)])
def test_the_whole_story_by_touch(phone: Playground, size: tuple[int, int]) -> None:
    """Upright and on its side, every control found by the name that a screen reader says."""
    phone.page.set_viewport_size({"width": size[0], "height": size[1]})
    phone.settle()
    phone.button("Story").tap()
    for k, do in enumerate(BY_TOUCH):
        phone.settle()
        story = phone.page.get_by_role("region", name=_title(phone))
        assert story.get_by_role("heading", level=2).inner_text() == _title(phone)
        assert (
            story.get_by_role("button", name=f"step {k + 1}, {_title(phone)}").get_attribute("aria-current") == "step"
        )
        assert not _done(phone)
        if size[0] > size[1]:
            for selector in (".plane", ".timeline", ".story-walk"):
                box = phone.find(selector).bounding_box()
                assert box is not None
                assert box["y"] + box["height"] <= size[1], selector
        do(phone)
        phone.until(lambda: _done(phone), tries=40)
        small = phone.find(".story button").evaluate_all(
            "all => all.filter((each) => each.getBoundingClientRect().height < 28).map((each) => each.textContent)"
        )
        assert small == []
        phone.button("Next" if k < STEPS - 1 else "Finish").tap()
    assert not phone.find(".story").is_visible()
    phone.page.set_viewport_size({"width": 390, "height": 844})


def test_every_scene_of_the_story_can_be_shared_and_undone(playground: Playground) -> None:
    first = playground.state
    playground.button("Story").click()
    for k in range(STEPS):
        playground.find(".story-dots button").nth(k).click()
        playground.settle()
        state = playground.state
        assert playground.page.evaluate("(state) => handle.setState(state)", state) is None
        assert not playground.find(".story").is_visible() or playground.state == state
    while playground.button("undo").is_enabled():
        playground.button("undo").click()
        playground.settle()
    assert playground.state["problem"] == first["problem"]
