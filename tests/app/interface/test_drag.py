"""Dragging with mouse, touch and pen: what moves, what follows, what is said."""

from __future__ import annotations

import math
from typing import Any

import pytest

from .playground import Playground


def _token(state: dict[str, Any], i: int, t: int) -> list[float]:
    place: list[float] = state["problem"]["inputs"][i]["tokens"][t]["x"]
    return place


def _ray_angle(playground: Playground) -> float:
    """Direction of the first max-margin ray on screen, in degrees."""
    angle: float = playground.page.evaluate(
        """() => { const root = document.getElementById('playground').shadowRoot;
        const line = root.querySelector('.plane line[stroke-width="9"]');
        const at = (name) => Number(line.getAttribute(name));
        return Math.atan2(at('y1') - at('y2'), at('x2') - at('x1')) * 180 / Math.PI; }"""
    )
    return angle


def test_a_token_follows_the_mouse_and_scores_recolour(playground: Playground) -> None:
    before = playground.state
    fill = playground.item("token-0-3").locator("path").nth(1).get_attribute("fill")
    x, y = playground.centre("token-0-3")
    playground.drag("token-0-3", (30, -60))
    after = playground.centre("token-0-3")
    assert after == pytest.approx((x + 30, y - 60), abs=2)
    old, new = _token(before, 0, 3), _token(playground.state, 0, 3)
    assert new[0] > old[0]
    assert new[1] > old[1]
    assert playground.item("token-0-3").locator("path").nth(1).get_attribute("fill") != fill
    others = [_token(before, 0, t) == _token(playground.state, 0, t) for t in range(3)]
    assert all(others)


def test_a_bystander_does_not_move_the_ray_and_a_support_token_turns_it(playground: Playground) -> None:
    playground.load("bystander")
    before = _ray_angle(playground)
    playground.drag("token-0-3", (40, 20))
    assert _ray_angle(playground) == before
    assert "the max-margin direction has not moved" in playground.words.lower()
    playground.drag("token-0-2", (0, -40))
    assert abs(_ray_angle(playground) - before) > 1
    assert "turned by" in playground.words


def test_a_token_that_crosses_the_margin_is_said_to_support(playground: Playground) -> None:
    playground.load("bystander")
    playground.drag("token-0-3", (0, -150))
    assert "token 3 is now a support token" in playground.words.lower()


def test_the_start_decides_between_two_destinations(playground: Playground) -> None:
    playground.load("single-input-local")
    assert playground.selected == [1]
    assert "only locally optimal" in playground.words
    playground.drag("start-0", (0, -170), grip=(12, 0))
    assert playground.state["settings"]["start"]["p"][1] > 0
    assert playground.selected == [0]
    assert "the optimal token" in playground.words


def test_queries_head_and_companions_can_be_dragged(playground: Playground) -> None:
    before = playground.state
    playground.drag("query-1", (-40, 25))
    playground.drag("head", (60, 30))
    after = playground.state
    assert after["problem"]["inputs"][1]["query"] != before["problem"]["inputs"][1]["query"]
    assert after["problem"]["head"][0] > 0
    playground.drag("start-0", (50, -20), grip=(12, 0))
    weights = playground.state["settings"]["start"]["W"]
    query = playground.state["problem"]["inputs"][0]["query"]
    reached = [sum(w * z for w, z in zip(row, query, strict=True)) for row in weights]
    assert reached[0] > 0
    assert reached[1] > 0
    playground.load("single-input-global")
    playground.drag("companion-0", (40, 0), grip=(6, 0))
    assert playground.state["companions"][0]["start"]["p"][0] > 0


def test_the_trained_head_is_dragged_at_its_start(playground: Playground) -> None:
    playground.load("joint-training-tight")
    playground.drag("head", (20, -60))
    state = playground.state
    assert state["settings"]["startHead"][1] > 0
    assert state["problem"]["head"] == [0, 1]


def test_a_drag_out_of_the_picture_stays_on_the_disc(playground: Playground) -> None:
    farthest = max(
        math.hypot(*token["x"]) for each in playground.state["problem"]["inputs"] for token in each["tokens"]
    )
    playground.drag("token-0-1", (-2000, -100))
    assert math.hypot(*_token(playground.state, 0, 1)) == pytest.approx(1.12 * farthest, rel=0.01)


def test_a_drag_is_one_step_to_undo(playground: Playground) -> None:
    first = playground.state
    playground.drag("token-1-2", (25, 25))
    second = playground.state
    playground.button("undo").click()
    playground.settle()
    assert playground.state == first
    playground.button("redo").click()
    playground.settle()
    assert playground.state == second


def test_double_click_adds_a_token_to_the_input_last_touched(playground: Playground) -> None:
    playground.drag("token-1-3", (5, 5))
    x, y = playground.centre("token-0-3")
    playground.page.mouse.dblclick(x - 90, y + 30)
    playground.settle()
    assert [len(each["tokens"]) for each in playground.state["problem"]["inputs"]] == [4, 5]


def test_a_finger_drags_a_token_and_the_page_does_not_scroll(phone: Playground) -> None:
    before = phone.state
    x, y = phone.centre("token-0-2")
    session = phone.page.context.new_cdp_session(phone.page)

    def touch(kind: str, *points: tuple[float, float]) -> None:
        session.send(
            "Input.dispatchTouchEvent", {"type": kind, "touchPoints": [{"x": px, "y": py} for px, py in points]}
        )

    touch("touchStart", (x, y))
    for step in range(1, 7):
        touch("touchMove", (x + 4 * step, y - 8 * step))
    touch("touchEnd")
    phone.settle()
    old, new = _token(before, 0, 2), _token(phone.state, 0, 2)
    assert new[0] > old[0]
    assert new[1] > old[1]
    assert phone.page.evaluate("scrollY") == 0


def test_two_fingers_drag_two_tokens(phone: Playground) -> None:
    before = phone.state
    session = phone.page.context.new_cdp_session(phone.page)
    first, second = phone.centre("token-0-2"), phone.centre("token-1-3")

    def touch(kind: str, dy: float, both: bool = True) -> None:
        points = [{"x": p[0], "y": p[1] + dy, "id": k} for k, p in enumerate((first, second))] if both else []
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    touch("touchStart", 0)
    for dy in (5, 10, 15, 20):
        touch("touchMove", dy)
    touch("touchEnd", 0, both=False)
    phone.settle()
    after = phone.state
    assert _token(after, 0, 2)[1] < _token(before, 0, 2)[1]
    assert _token(after, 1, 3)[1] < _token(before, 1, 3)[1]


def test_a_pen_drags_too(playground: Playground) -> None:
    before = playground.state
    x, y = playground.centre("token-0-1")
    session = playground.page.context.new_cdp_session(playground.page)
    for kind, dx, buttons in (
        ("mousePressed", 0, 1),
        ("mouseMoved", 15, 1),
        ("mouseMoved", 30, 1),
        ("mouseReleased", 30, 0),
    ):
        session.send(
            "Input.dispatchMouseEvent",
            {
                "type": kind, "x": x + dx, "y": y, "button": "left", "buttons": buttons, "clickCount": 1,
                "pointerType": "pen",
            },
        )  # fmt: skip
    playground.settle()
    assert _token(playground.state, 0, 1)[0] > _token(before, 0, 1)[0]


def test_frames_are_counted_while_a_token_of_the_largest_preset_moves(playground: Playground) -> None:
    playground.load("multi-input")
    x, y = playground.centre("token-0-1")
    mouse = playground.page.mouse
    mouse.move(x, y)
    mouse.down()
    playground.page.evaluate("handle.frames.start()")
    for step in range(60):
        mouse.move(x + 40 * math.sin(step / 6), y + 30 * math.sin(step / 5))
    frames = playground.page.evaluate("handle.frames.stop()")
    mouse.up()
    playground.settle()
    print(f"{frames['perSecond']:.0f} frames a second over {frames['count']} frames")
    assert frames["count"] > 10
    assert frames["perSecond"] > 0
    assert playground.selected == [0, 0, 0]
