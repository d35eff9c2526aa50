"""Everything by keyboard, and what a screen reader is told."""

from __future__ import annotations

from typing import Any

import pytest

from .playground import Playground


def _place(playground: Playground, i: int, t: int) -> list[float]:
    place: list[float] = playground.state["problem"]["inputs"][i]["tokens"][t]["x"]
    return place


def test_arrows_move_the_focused_token_and_a_run_of_them_is_undone_at_once(playground: Playground) -> None:
    press = playground.page.keyboard.press
    playground.item("token-0-3").focus()
    x, y = _place(playground, 0, 3)
    press("ArrowRight")
    press("ArrowUp")
    playground.settle()
    near = _place(playground, 0, 3)
    assert near[0] > x
    assert near[1] > y
    press("Shift+ArrowRight")
    playground.settle()
    far = _place(playground, 0, 3)
    assert far[0] - near[0] > 3 * (near[0] - x)
    press("Alt+ArrowLeft")
    playground.settle()
    assert 0 < far[0] - _place(playground, 0, 3)[0] < near[0] - x
    press("Control+z")
    playground.settle()
    assert _place(playground, 0, 3) == [x, y]
    press("Control+Shift+Z")
    playground.settle()
    assert _place(playground, 0, 3) != [x, y]
    press("Control+y")
    press("Control+z")
    playground.settle()
    assert _place(playground, 0, 3) == [x, y]


def test_tab_reaches_every_token_query_head_and_start(playground: Playground) -> None:
    items = playground.page.locator("[data-item]")
    keys = items.evaluate_all("all => all.map((each) => each.dataset.item)")
    items.first.focus()
    walked = []
    for _ in keys:
        walked.append(
            playground.page.evaluate("document.getElementById('playground').shadowRoot.activeElement.dataset.item")
        )
        playground.page.keyboard.press("Tab")
    assert walked == keys
    assert {"head", "query-0", "query-1", "start-0", "start-1", "token-1-3"} <= set(keys)


def test_delete_add_and_label_work_on_the_focused_token(playground: Playground) -> None:
    press = playground.page.keyboard.press
    playground.item("token-0-1").focus()
    press("Delete")
    playground.settle()
    assert len(playground.state["problem"]["inputs"][0]["tokens"]) == 3
    press("a")
    playground.settle()
    assert len(playground.state["problem"]["inputs"][0]["tokens"]) == 4
    press("l")
    playground.settle()
    assert [each["label"] for each in playground.state["problem"]["inputs"]] == [-1, 1]
    focused = playground.page.evaluate("document.getElementById('playground').shadowRoot.activeElement.dataset.item")
    assert focused == "token-0-3"


def test_scores_by_keyboard_where_they_are_typed(playground: Playground) -> None:
    playground.load("single-input-local")
    playground.item("token-0-2").focus()
    for _ in range(12):
        playground.page.keyboard.press("+")
    playground.settle()
    assert playground.state["problem"]["inputs"][0]["tokens"][2]["score"] == 1.2
    playground.page.keyboard.press("-")
    playground.settle()
    assert playground.state["problem"]["inputs"][0]["tokens"][2]["score"] == 1.1


def test_time_by_keyboard(playground: Playground) -> None:
    press = playground.page.keyboard.press
    playground.item("token-0-0").focus()
    press("Home")
    playground.settle()
    assert playground.state["time"] == 0
    assert "no direction yet" in playground.text
    press(".")
    playground.settle()
    assert playground.state["time"] == 1
    press(",")
    press("End")
    playground.settle()
    assert playground.state["time"] is None
    press(" ")
    playground.until(lambda: playground.state["time"] not in (None, 0))
    press(" ")
    playground.settle()
    stopped = playground.state["time"]
    playground.page.wait_for_timeout(150)
    assert playground.state["time"] == stopped


def test_help_lists_the_keys_and_closes(playground: Playground) -> None:
    playground.item("token-0-0").focus()
    playground.page.keyboard.press("?")
    dialog = playground.find("dialog.help")
    assert dialog.is_visible()
    assert "Ctrl Z" in dialog.inner_text()
    assert "count from 0" in dialog.inner_text()
    playground.page.keyboard.press("Escape")
    assert not dialog.is_visible()


def test_keys_go_no_further_than_the_page(playground: Playground) -> None:
    playground.page.evaluate("document.addEventListener('keydown', () => { globalThis.leaked = true; })")
    playground.item("token-0-0").focus()
    playground.page.keyboard.press("a")
    playground.page.keyboard.press("x")
    playground.settle()
    assert playground.page.evaluate("globalThis.leaked === undefined")


def test_labels_and_live_region_speak(playground: Playground) -> None:
    playground.load("single-input-local")
    label = playground.item("token-0-1").get_attribute("aria-label")
    assert label is not None
    assert label.startswith("token 1 at (1, 0), score 0.9")
    assert "selected" in label
    assert "support token" in (playground.item("token-0-2").get_attribute("aria-label") or "")
    live = playground.find('[role="status"][aria-live="polite"]')
    playground.until(lambda: live.inner_text() == playground.words)
    unnamed = playground.page.evaluate(
        """() => [...document.getElementById('playground').shadowRoot
        .querySelectorAll('button, input, select, [tabindex]')]
        .filter((each) => !(each.getAttribute('aria-label') || each.textContent.trim() || each.labels?.length))
        .map((each) => each.outerHTML.slice(0, 80))"""
    )
    assert unnamed == []


def test_the_focus_can_be_seen(playground: Playground) -> None:
    playground.item("token-0-1").focus()
    playground.page.keyboard.press("Tab")
    ring = playground.item("token-0-2").locator(".reach")
    assert ring.evaluate("each => getComputedStyle(each).strokeWidth") == "2.5px"
    assert ring.evaluate("each => getComputedStyle(each).stroke") != "none"


def test_keys_faster_than_frames_lose_nothing(playground: Playground) -> None:
    for key in ("token-0-1", "query-0", "head", "start-1"):
        playground.item(key).focus()
        before = playground.state
        moved = playground.page.evaluate(
            """(key) => { const root = document.getElementById('playground').shadowRoot;
            const item = root.querySelector(`[data-item="${key}"]`);
            for (const name of ['ArrowRight', 'ArrowRight', 'ArrowUp', 'ArrowLeft', 'ArrowLeft', 'ArrowDown']) {
              item.dispatchEvent(new KeyboardEvent('keydown', { key: name, bubbles: true, composed: true }));
            }
            return handle.getState(); }""",
            key,
        )
        for part in ("problem", "settings"):
            assert _flat(moved[part]) == pytest.approx(_flat(before[part]), abs=0.011)


def _flat(value: Any) -> list[float]:
    """All numbers of a state, in order."""
    if isinstance(value, dict):
        return [number for each in value.values() for number in _flat(each)]
    if isinstance(value, list):
        return [number for each in value for number in _flat(each)]
    return [float(value)] if isinstance(value, int | float) else []
