"""Every control changes what it says it changes."""

from __future__ import annotations

import pytest

from .playground import Playground

NOTHING = "\N{EN DASH}"


def _choose(playground: Playground, value: str) -> None:
    playground.find(f'.choices button[data-value="{value}"]').click()
    playground.settle()


def _type(playground: Playground, label: str, text: str) -> None:
    field = playground.find(f'.side input[aria-label="{label}"]')
    field.fill(text)
    field.press("Enter")
    playground.settle()


def test_what_is_trained(playground: Playground) -> None:
    for trained, kind, paths in (("KQ", "matrix", 2), ("p", "prompt", 1), ("W", "matrix", 2)):
        _choose(playground, trained)
        state = playground.state
        assert (state["settings"]["trained"], state["problem"]["kind"]) == (trained, kind)
        assert playground.find('.plane path[stroke-width="2.6"][stroke-opacity="1"]').count() == paths
    _choose(playground, "KQ")
    assert "nuclear" in playground.find(".aim").inner_text()


@pytest.mark.parametrize(
    ("optimizer", "aim"),
    [("gradient", "Frobenius"), ("normalized", "Frobenius"), ("sign", "max-entry"), ("spectral", "spectral")],
)
def test_optimizers_and_their_predictions(playground: Playground, optimizer: str, aim: str) -> None:
    _choose(playground, optimizer)
    assert playground.state["settings"]["optimizer"] == optimizer
    assert aim in playground.find(".aim").inner_text()


def test_losses_step_size_and_iterations(playground: Playground) -> None:
    for loss in ("exponential", "linear", "logistic"):
        _choose(playground, loss)
        assert playground.state["settings"]["loss"] == loss
    _type(playground, "step size", "0.25")
    _type(playground, "iterations", "123")
    settings = playground.state["settings"]
    assert (settings["stepSize"], settings["steps"]) == (0.25, 123)
    assert "of 123" in playground.find(".timeline").inner_text()


def test_bad_numbers_are_marked_and_not_taken(playground: Playground) -> None:
    field = playground.find('.side input[aria-label="iterations"]')
    for bad in ("0", "99999999", "1.5", ""):
        field.fill(bad)
        field.press("Enter")
        playground.settle()
        assert field.get_attribute("aria-invalid") == "true"
        words = "iterations must be a whole number from 1 to 20000"
        assert field.get_attribute("title") == words
        assert playground.find(".toast").inner_text() == f"I{words[1:]}.", "in words that everyone sees"
        assert playground.state["settings"]["steps"] == 2000
    field.fill("50")
    field.press("Enter")
    playground.settle()
    assert field.get_attribute("aria-invalid") is None


def test_the_head_is_trained_only_where_there_is_one(playground: Playground) -> None:
    box = playground.page.get_by_label("train the head v too")
    box.check()
    playground.settle()
    assert playground.state["settings"]["trainHead"] is True
    assert playground.item("head").get_attribute("aria-label", timeout=1000).startswith("starting point of the head")  # type: ignore[union-attr]
    _choose(playground, "typed")
    assert box.is_disabled()
    assert playground.state["settings"]["trainHead"] is False
    tokens = playground.state["problem"]["inputs"][0]["tokens"]
    assert [each["score"] for each in tokens] == [0.9, 0.1, -0.4, -0.9]
    assert playground.item("head").count() == 0
    _choose(playground, "head")
    assert playground.state["problem"]["inputs"][0]["tokens"][0]["score"] is None


def test_exact_coordinates(playground: Playground) -> None:
    _type(playground, "token 1 of input 0, first coordinate", "-0.123456789")
    _type(playground, "query of input 1, second coordinate", "-0.5")
    _type(playground, "head v, first coordinate", "0.75")
    _type(playground, "row 1 of W(0), second coordinate", "0.3")
    state = playground.state
    assert state["problem"]["inputs"][0]["tokens"][1]["x"] == [-0.123456789, 0.1]
    assert state["problem"]["inputs"][1]["query"] == [0.28, -0.5]
    assert state["problem"]["head"] == [0.75, 1]
    assert state["settings"]["start"]["W"] == [[0, 0], [0, 0.3]]


def test_leaving_a_shortened_number_does_not_change_it(playground: Playground) -> None:
    playground.load("hyperplanes")
    before = playground.state
    field = playground.find('.side input[aria-label="token 1 of input 0, first coordinate"]')
    assert field.input_value() == "-1.1084"
    field.focus()
    field.press("Enter")
    field.blur()
    playground.settle()
    assert playground.state == before


@pytest.mark.parametrize(
    ("typed", "value", "shown"),
    [("1,5", 1.5, "1.5"), ("-0,25", -0.25, "-0.25"), ("1.23456789e-7", 1.23456789e-7, "1.235e-7")],
)
def test_commas_and_tiny_numbers_are_read_and_shown_as_meant(
    playground: Playground, typed: str, value: float, shown: str
) -> None:
    field = playground.find('.side input[aria-label="token 1 of input 0, first coordinate"]')
    field.select_text()
    playground.page.keyboard.type(typed)
    field.press("Enter")
    playground.settle()
    assert playground.state["problem"]["inputs"][0]["tokens"][1]["x"][0] == value
    assert field.input_value() == shown


def test_inputs_and_tokens_come_and_go(playground: Playground) -> None:
    playground.button("Add an input").click()
    playground.settle()
    assert len(playground.state["problem"]["inputs"]) == 3
    playground.button("remove input 1").click()
    playground.settle()
    assert len(playground.state["problem"]["inputs"]) == 2
    playground.find(".input-block .add").first.click()
    playground.settle()
    assert len(playground.state["problem"]["inputs"][0]["tokens"]) == 5
    playground.button("remove token 4 of input 0").click()
    playground.settle()
    assert len(playground.state["problem"]["inputs"][0]["tokens"]) == 4
    playground.find(".input-block .label").first.click()
    playground.settle()
    assert playground.state["problem"]["inputs"][0]["label"] == -1
    for _ in range(6):
        playground.button("Add an input").click()
        playground.settle()
    assert len(playground.state["problem"]["inputs"]) == 8
    assert not playground.find(".toast").is_visible()
    playground.button("Add an input").click()
    assert "at most 8 inputs of 12 tokens each" in playground.find(".toast").inner_text()


def test_the_limit_of_tokens_is_said_however_one_comes_to_it(playground: Playground) -> None:
    ways = {
        "key": lambda: (playground.item("token-0-11").focus(), playground.page.keyboard.press("a")),
        "inspector": playground.button("Add token").click,
        "table": playground.find(".input-block .add").first.click,
        "double click": lambda: playground.find(".plane").dblclick(position={"x": 330, "y": 40}),
    }
    for _ in range(8):
        playground.button("Add token").click()
        playground.settle()
    for name, way in ways.items():
        playground.page.evaluate(f"{_TOAST}.textContent = ''")
        way()
        playground.settle()
        assert len(playground.state["problem"]["inputs"][0]["tokens"]) == 12, name
        assert "at most 8 inputs of 12 tokens each" in playground.find(".toast").inner_text(), name


_TOAST = "document.getElementById('playground').shadowRoot.querySelector('.toast')"


def test_the_last_token_of_an_input_takes_the_input_with_it(playground: Playground) -> None:
    for _ in range(4):
        playground.button("remove token 0 of input 0").click()
        playground.settle()
    assert len(playground.state["problem"]["inputs"]) == 1
    for _ in range(3):
        playground.button("remove token 0 of input 0").click()
        playground.settle()
    assert playground.button("remove token 0 of input 0").is_disabled()
    assert len(playground.state["problem"]["inputs"][0]["tokens"]) == 1


def test_the_slider_walks_along_the_run(playground: Playground) -> None:
    slider = playground.find('input[aria-label="step of the run"]')
    end = playground.find(".cosine").inner_text()
    slider.fill("0")
    playground.settle()
    assert playground.state["time"] == 0
    assert playground.find(".cosine").inner_text() == NOTHING
    slider.fill("30")
    playground.settle()
    middle = playground.find(".cosine").inner_text()
    assert 0 < float(middle) < float(end) < 1


def test_play_walks_and_pause_stops(playground: Playground) -> None:
    playground.button("play the run").click()
    playground.until(lambda: (playground.state["time"] or 0) > 2)
    playground.button("pause the run").click()
    assert playground.button("play the run").is_visible()


def test_keep_a_run_and_remove_it(playground: Playground) -> None:
    playground.button("Clone this run").click()
    _choose(playground, "sign")
    assert playground.find(".kept li").count() == 1
    assert "normalized gradient" in playground.find(".kept li").inner_text()
    playground.button("remove the run W, normalized gradient, step 0.1").click()
    playground.settle()
    assert playground.state["companions"] == []


def test_layers(playground: Playground) -> None:
    playground.load("hyperplanes")
    counts = {
        "paths": '.plane path[stroke-width="2.6"]',
        "rays": '.plane line[stroke-width="9"]',
        "lines": ".plane polygon",
    }
    for layer, selector in counts.items():
        assert playground.find(selector).count() > 0
        playground.find(f'input[data-layer="{layer}"]').uncheck()
        playground.settle()
        assert playground.find(selector).count() == 0


def test_locally_optimal_selections_are_listed_and_one_click_shows_ray_and_basin(playground: Playground) -> None:
    playground.load("single-input-local")
    playground.until(lambda: playground.find(".optimum").count() == 2)
    labels = playground.find(".optimum").all_inner_texts()
    assert sum("optimal ★" in each for each in labels) == 1
    assert sum("reached" in each for each in labels) == 1
    playground.find(".optimum").filter(has_text="token 0").click()
    playground.settle()
    state = playground.state
    assert state["shown"] == [0]
    assert state["view"]["layers"]["basin"] is True
    assert "Shown: token 0, the optimal token" in playground.find(".choice").inner_text()
    image = playground.find(".plane image")
    playground.until(lambda: (image.get_attribute("href") or "").startswith("data:image/png"))
    playground.until(lambda: playground.find("progress").is_hidden(), tries=600)
    playground.button("Follow the run again").click()
    playground.settle()
    assert playground.state["shown"] is None


def test_reset_goes_back_to_the_preset(playground: Playground) -> None:
    first = playground.state
    playground.drag("token-0-0", (30, 30))
    _choose(playground, "exponential")
    playground.button("Reset").click()
    playground.settle()
    assert playground.state == first
    playground.button("undo").click()
    playground.settle()
    assert playground.state["settings"]["loss"] == "exponential"


def test_the_line_under_the_picture_edits_what_is_chosen(playground: Playground) -> None:
    playground.item("token-1-2").click()
    playground.settle()
    line = playground.find(".inspector")
    assert "Token 2 of input 1" in line.inner_text()
    field = line.locator('input[aria-label="first coordinate of what is chosen"]')
    field.fill("1.25")
    field.press("Enter")
    line.get_by_role("button", name="Add token").click()
    playground.settle()
    tokens = playground.state["problem"]["inputs"][1]["tokens"]
    assert tokens[2]["x"] == [1.25, -0.1]
    assert len(tokens) == 5
    line.get_by_role("button", name="Label +1").click()
    line.get_by_role("button", name="Remove").click()
    playground.settle()
    assert playground.state["problem"]["inputs"][1]["label"] == -1
    assert len(playground.state["problem"]["inputs"][1]["tokens"]) == 4


def test_removing_what_is_chosen_chooses_another_token_until_one_is_left(playground: Playground) -> None:
    playground.load("lever")
    playground.item("token-0-3").click()
    button = playground.find(".inspector").get_by_role("button", name="Remove")
    for left in (3, 2, 1):
        button.click()
        playground.settle()
        assert len(playground.state["problem"]["inputs"][0]["tokens"]) == left
        assert playground.find(".inspected").inner_text() == f"Token {left - 1}"
    assert button.is_disabled()


def test_what_is_chosen_and_no_longer_drawn_gives_way_to_a_token(playground: Playground) -> None:
    playground.item("query-1").focus()
    playground.settle()
    assert playground.find(".inspected").inner_text() == "Query of input 1"
    _choose(playground, "p")
    assert playground.find(".inspected").inner_text() == "Token 0 of input 0"


def test_a_basin_of_fewer_steps_than_the_run_says_so(playground: Playground) -> None:
    playground.find('[data-layer="basin"]').check()
    playground.settle()
    text = playground.find(".side .hint").filter(has_text="of the disc").inner_text
    assert "after 1\N{NARROW NO-BREAK SPACE}000 steps" in text()
    _type(playground, "iterations", "800")
    assert "Its colour says where descent from it ends;" in text()
