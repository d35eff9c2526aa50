"""The scene of a text: typed, asked, shared, by keyboard, and the same as Python; its arithmetic is tested in maths."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote

import pytest

from .playground import Playground, exported_python

if TYPE_CHECKING:
    from playwright.sync_api import Page

_ROOT = "document.getElementById('playground').shadowRoot"


@pytest.fixture
def scene(page: Page, address: str) -> Playground:
    page.set_viewport_size({"width": 1280, "height": 800})
    return Playground(page, f"{address}#scene=text")


def _shares(scene: Playground) -> dict[str, list[str]]:
    rows = scene.find(".shares tbody tr")
    return {row.locator("th").inner_text(): row.locator("td").all_inner_texts() for row in rows.all()}


def _percent(share: float) -> str:
    """A share as the page writes it."""
    if 0 < share < 0.0005 or 0.9995 < share < 1:
        return "< 0.1 %" if share < 0.5 else "> 99.9 %"
    return f"{100 * share:.{int(0 < share < 0.005 or 0.995 < share < 1)}f} %"


def test_the_screen_says_what_python_says(scene: Playground) -> None:
    scene.find("#own-steps").fill("30")
    scene.settle()
    names = exported_python(scene)
    predicted, trained = names["predicted"], names["trained"]
    limit = dict.fromkeys(predicted.dropped, 0.0) | dict(zip(predicted.words, predicted.probabilities, strict=True))
    assert _shares(scene) == {word: [_percent(limit[word]), _percent(trained[word])] for word in trained}
    answer = scene.find(".answer").inner_text()
    best = " or ".join(f"“{word}” ({_percent(limit[word])})" for word in predicted.words)
    assert answer == f"After “the” training ends with {best}: they beat each other in turn, and every other word here."
    graph, words = names["limit"].graph, names["data"].words
    groups, arrows = graph.collapsed(words.index("the"))
    boxes = scene.find(".priorities .box")
    drawn = [" ".join(box.locator("text").all_text_contents()) for box in boxes.all()]
    signs = ["⇄" if len(group) == 1 else "·" for group in groups]
    named = [[words[token] for part in group for token in part] for group in groups]
    assert drawn == [f" {sign} ".join(each) for sign, each in zip(signs, named, strict=True)]
    assert scene.find(".priorities .link").count() == len(arrows)
    assert scene.find(".priorities .shared").count() == sum(len(group[0]) > 1 for group in groups) == 1


def test_everything_by_keyboard_and_the_link_keeps_it(scene: Playground) -> None:
    press, write = scene.page.keyboard.press, scene.page.keyboard.type

    def walk_to(name: str) -> None:
        for _ in range(30):
            if scene.page.evaluate(f"{_ROOT}.activeElement?.id") == name:
                return
            press("Tab")
        raise AssertionError(f"Tab never comes to {name}")

    walk_to("own-text")
    press("Control+a")
    write("Is it far? Is it for us? It is. Far it is for us!")
    walk_to("own-prompt")
    press("Control+a")
    write("is it")
    scene.settle()
    assert not scene.find("dialog.help").is_visible(), "a question mark is a letter here"
    assert scene.page.evaluate("document.fullscreenElement === null"), "and so is an f"
    scene.find(".answer").filter(
        has_text="After “it” training ends with "
    ).wait_for()  # the page trains in its own time
    walk_to("own-steps")
    press("Home")
    scene.settle()
    assert {each[1] for each in _shares(scene).values()} == {"50 %"}, "before training attention is even"
    last = scene.page.get_by_role("combobox", name="last word")
    scene.page.get_by_role("spinbutton", name="words of a window").fill("4")
    press("Enter")
    scene.settle()
    last.focus()
    press("ArrowDown")
    scene.settle()
    chosen = last.evaluate("each => each.selectedOptions[0].textContent.split('”')[0].slice(1)")
    label = scene.page.get_by_role("img", name=f"Priorities after “{chosen}”")
    assert label.count() == 1
    scene.until(lambda: "ask=is%20it" in scene.page.url and "window=4" in scene.page.url)
    assert "text=Is it far? Is" in unquote(scene.page.url)
    scene.page.reload()
    scene.settle()
    assert scene.find("#own-text").input_value().endswith("Far it is for us!")
    assert scene.find("#own-prompt").input_value() == "is it"


def test_what_cannot_be_read_or_asked_is_said(scene: Playground) -> None:
    ask, text, answer, samples = (
        scene.find(each) for each in ("#own-prompt", "#own-text", ".answer", ".text-scene .hint")
    )
    for given, words in {
        "a cow": "“a” is no word of the text.",
        "": "Ask with one word of the text or more.",
        "dog mouse": "After “mouse” training ends with “dog”: the text does not compare all these words",
        "dog mouse cat saw": "After “saw” training ends with “dog”, “mouse”, “cat” or “saw”: the text does not",
    }.items():
        ask.fill(given)
        scene.settle()
        assert answer.inner_text().startswith(words)
    assert {each[0] for each in _shares(scene).values()} == {"open"}, "how they share is not predicted"
    for given, words in {
        "": "The text is empty.",
        "one": "The text is one word",
        "one two": "A window of 6 words",
    }.items():
        text.fill(given)
        scene.settle()
        assert samples.first.inner_text().startswith(words)
        assert not scene.find(".priorities").is_visible()
        assert not scene.find(".shares").is_visible()
    scene.page.evaluate("() => { location.hash = 'theme=dark'; }")
    scene.until(lambda: scene.page.evaluate(f"{_ROOT}.firstChild.dataset.theme") == "dark")
    assert text.input_value() == "one two", "another theme leaves what was typed"
    scene.page.evaluate("() => { location.hash = 'scene=text&window=99'; }")
    scene.until(lambda: "window must be a whole number from 1 to 16" in scene.find(".toast").inner_text())


def test_the_plane_is_as_it_was_left(playground: Playground) -> None:
    playground.drag("token-0-1", (20, 30))
    before = playground.state
    playground.find('select[aria-label="preset"]').select_option("text")
    playground.until(lambda: playground.page.url.endswith("#scene=text"))
    assert playground.find(".text-scene").is_visible()
    assert not playground.find(".plane").is_visible()
    playground.page.keyboard.press("Control+z")
    playground.page.keyboard.press("Home")
    assert playground.state == before
    assert not playground.button("undo").is_visible()
    playground.button("Story").click()
    playground.settle()
    assert not playground.find(".text-scene").is_visible()
    assert playground.find(".story").is_visible()
    playground.find('select[aria-label="preset"]').select_option("text")
    playground.settle()
    assert not playground.find(".story").is_visible()
    playground.load("multi-input")
    assert playground.find(".plane").is_visible()
    playground.until(lambda: "#scene=multi-input" in playground.page.url)
