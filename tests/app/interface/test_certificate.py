"""The certificate panel: the page's own gap, and Python's answer beside it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from attsvm.app.certify import certify

from .playground import Playground, write_page

if TYPE_CHECKING:
    from playwright.sync_api import Page


def _cell(playground: Playground, row: str, column: int) -> str:
    return playground.find(f'.certificate tr:has(th:text-is("{row}")) td').nth(column).inner_text()


def test_without_python_the_page_shows_its_own_gap(playground: Playground) -> None:
    assert playground.find(".certificate thead").first.locator("th").count() == 2
    assert _cell(playground, "status", 0) == "solved"
    assert "attsvm play" in playground.find(".certificate").inner_text()


def test_pythons_answer_stands_beside_and_is_asked_once_after_a_drag(page: Page, tmp_path: Path) -> None:
    page.set_viewport_size({"width": 1280, "height": 800})
    plain = Playground(page, write_page(tmp_path))
    answer = certify({"problem": plain.state["problem"], "selected": plain.selected})
    playground = Playground(page, write_page(tmp_path, certified=answer))
    agreement = playground.find(".agreement")
    playground.until(lambda: "agree to" in agreement.inner_text())
    assert _cell(playground, "status", 1) == "solved"
    assert _cell(playground, "solution", 0) == _cell(playground, "solution", 1)
    assert _cell(playground, "solver", 1).replace(" ", "") == answer["solver"]
    before = page.evaluate("asked.length")
    playground.drag("token-0-3", (40, 10))
    playground.until(lambda: page.evaluate("asked.length") > before)
    page.wait_for_timeout(500)
    asked = page.evaluate("asked")
    assert len(asked) == before + 1
    problem, selected, norm, weights = asked[-1]
    assert problem == playground.state["problem"]
    assert selected == playground.selected
    assert norm == "frobenius"
    assert len(weights) == 4


def test_a_failing_certifier_is_said_and_harms_nothing(page: Page, tmp_path: Path) -> None:
    page.set_viewport_size({"width": 1280, "height": 800})
    playground = Playground(page, write_page(tmp_path, certified={"error": "the server has gone"}))
    playground.until(lambda: "the server has gone" in playground.find(".certificate").inner_text())
    playground.drag("token-0-3", (40, 10))
    assert "descent" in playground.words.lower()


def test_a_trained_head_leaves_local_optimality_open_in_both_columns(page: Page, tmp_path: Path) -> None:
    page.set_viewport_size({"width": 1280, "height": 800})
    plain = Playground(page, write_page(tmp_path))
    plain.load("joint-training-tight")
    state = plain.state
    answer = certify({"problem": state["problem"], "selected": plain.selected})
    playground = Playground(page, write_page(tmp_path, state=state, certified=answer))
    playground.until(lambda: _cell(playground, "status", 1) == "solved")
    assert {_cell(playground, "locally optimal", column) for column in (0, 1)} == {"head is trained"}


def test_the_run_is_certified_beside_the_solution(page: Page, tmp_path: Path) -> None:
    """What the page measures on the run at a step is what Python measures on the same weights."""
    page.set_viewport_size({"width": 1280, "height": 800})
    plain = Playground(page, f"{write_page(tmp_path)}#scene=hyperplanes&step=30")
    weights = page.evaluate(
        """() => { const { problem, settings, time } = handle.getState();
        return maths.train(problem, settings, [time]).weights[0]; }"""
    )
    selected = plain.selected
    answer = certify({"problem": plain.state["problem"], "selected": selected, "weights": weights})
    playground = Playground(page, f"{write_page(tmp_path, certified=answer)}?certified#scene=hyperplanes&step=30")
    rows = ("selects", "norm of the weights", "margin of each input", "smallest margin over norm")
    playground.until(lambda: _cell(playground, "selects", 1) != "\N{EN DASH}")
    for row in (*rows, "short of the best margin by", "cosine to the solution"):
        assert _cell(playground, row, 0) == _cell(playground, row, 1) != "\N{EN DASH}", row
    assert page.evaluate("asked.at(-1)[3]") == weights
    assert "the run at step 30" in playground.find(".certificate").inner_text()
    # Seen by the page itself: on a slow machine the next answer may be there before a test looks.
    playground.find('.certificate tr:has(th:text-is("selects")) td').nth(1).evaluate(
        "cell => new MutationObserver(() => (globalThis.seen ??= []).push(cell.textContent))"
        ".observe(cell, { childList: true, characterData: true, subtree: true })"
    )
    playground.find('input[aria-label="step of the run"]').press("ArrowRight")
    playground.until(lambda: page.evaluate("globalThis.seen?.[0]") == "\N{EN DASH}")  # not those of another step
