"""Undo, reset and the Back button lead where a person expects."""

from __future__ import annotations

from .playground import Playground


def test_reset_after_undoing_a_preset_stays_with_the_preset_on_screen(playground: Playground) -> None:
    first = playground.state
    playground.load("lever")
    second = playground.state
    for name, state in (("undo", first), ("redo", second)):
        playground.button(name).click()
        playground.button("Reset").click()  # nothing to reset, so the other preset can still be redone
        playground.settle()
        assert playground.state == state
    playground.button("undo").click()
    playground.drag("token-0-0", (20, 20))
    playground.button("Reset").click()
    playground.settle()
    assert playground.state == first


def test_an_undo_in_the_midst_of_a_drag_leaves_one_step_to_undo(playground: Playground) -> None:
    first = playground.state
    x, y = playground.centre("token-0-0")
    mouse = playground.page.mouse
    mouse.move(x, y)
    mouse.down()
    for step in range(1, 13):
        mouse.move(x + 3 * step, y)
        if step == 4:
            playground.page.keyboard.press("Control+z")
    mouse.up()
    playground.settle()
    assert playground.state != first
    playground.page.keyboard.press("Control+z")
    playground.settle()
    assert playground.state == first
    assert playground.button("undo").is_disabled()


def test_an_undone_preset_is_not_compared_with_the_one_before(playground: Playground) -> None:
    words = playground.words
    playground.load("optimizers")  # the same tokens, so that pictures could be compared
    playground.load("hyperplanes")
    playground.button("undo").click()
    playground.button("undo").click()
    playground.settle()
    assert playground.words == words


def test_the_back_button_leads_to_the_state_of_the_address(playground: Playground) -> None:
    first = playground.state
    link = playground.page.evaluate("""() => {
        const state = handle.getState();
        state.problem.inputs[0].tokens[0].x = [0.5, 0.5];
        return `#s=${btoa(JSON.stringify(state))}`; }""")
    playground.page.evaluate("(link) => { location.hash = link; }", link)
    playground.until(lambda: playground.state != first)
    playground.page.go_back()
    playground.until(lambda: playground.state == first)
    playground.page.go_forward()
    playground.until(lambda: playground.state["problem"]["inputs"][0]["tokens"][0]["x"] == [0.5, 0.5])
