"""Comparisons: clones that survive every change, W beside (K, Q), names on the picture, and all of it as Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import attsvm

from .playground import Playground, exported_python

TRAIN = """([problem, settings]) => { const run = maths.train(problem, settings, []);
return { weights: run.weights.at(-1), selected: run.selected }; }"""


def _choose(playground: Playground, value: str) -> None:
    playground.find(f'.choices button[data-value="{value}"]').click()
    playground.settle()


def _settings(state: dict[str, Any], companion: dict[str, Any]) -> dict[str, Any]:
    own = {key: value for key, value in companion.items() if key not in ("name", "problem")}
    start = {**state["settings"]["start"], **companion.get("start", {})}
    return {**state["settings"], **own, "start": start}


def _same_run(run: Any, page: dict[str, Any]) -> None:
    expected = np.array(page["weights"])
    assert run.selected.tolist() == page["selected"]
    assert np.abs(run.weights.flatten().numpy() - expected).max() < 1e-9 * np.abs(expected).max()


def _check_all_runs(playground: Playground) -> dict[str, Any]:
    """Run the exported Python: every run on the screen is in it, and comes to the page's numbers."""
    state = playground.state
    names = exported_python(playground)
    _same_run(names["run"], playground.page.evaluate(TRAIN, [state["problem"], state["settings"]]))
    assert len(names.get("others", {})) == len(state["companions"])
    for (run, _, _), companion in zip(names.get("others", {}).values(), state["companions"], strict=True):
        asked = [companion.get("problem", state["problem"]), _settings(state, companion)]
        _same_run(run, playground.page.evaluate(TRAIN, asked))
    return names


@pytest.mark.parametrize(
    ("preset", "changes"),
    [
        ("single-input-local", {}),
        ("descent-vs-normalized", {}),
        ("loss-comparison", {}),
        ("trajectories", {"steps": 150}),  # later the run of (K, Q) is chaotic
        ("optimizers", {"steps": 400}),
    ],
)
def test_exported_python_holds_every_run_on_the_screen(
    playground: Playground, preset: str, changes: dict[str, Any]
) -> None:
    playground.load(preset)
    playground.page.evaluate(
        """(changes) => { const state = handle.getState(); Object.assign(state.settings, changes);
        handle.setState(state); }""",
        changes,
    )
    playground.settle()
    _check_all_runs(playground)


def test_a_clone_stays_what_it_was_whatever_is_changed(playground: Playground) -> None:
    playground.page.evaluate("""() => { const state = handle.getState(); state.settings.steps = 200;
        handle.setState(state); }""")
    playground.settle()
    before = playground.state
    playground.button("Clone this run").click()
    playground.settle()
    ran = playground.page.evaluate(TRAIN, [before["problem"], before["settings"]])
    playground.drag("token-0-1", (40, -30))
    _choose(playground, "gradient")
    _choose(playground, "exponential")
    (companion,) = playground.state["companions"]
    assert companion["name"] == "W, normalized gradient, step 0.1"
    assert companion["problem"] == before["problem"]
    assert _settings(playground.state, companion) == before["settings"]
    names = _check_all_runs(playground)
    _same_run(names["others"][companion["name"]][0], ran)
    assert not torch.equal(names["data"].tokens, names["data_0"].tokens)
    legend = playground.find(".plane").text_content() or ""
    assert "W, normalized gradient, step 0.1, on the data as they were" in legend
    assert "this run: W, gradient, exponential loss, step 0.1" in legend
    # Another kind of problem, where W has no place: the clone is still there, and undo brings all back.
    _choose(playground, "p")
    assert playground.state["companions"] == [companion]
    _check_all_runs(playground)
    playground.button("undo").click()
    playground.settle()
    playground.find(".kept .hold").click()
    playground.settle()
    assert "problem" not in playground.state["companions"][0]
    _check_all_runs(playground)


def test_two_clones_have_two_names_and_more_than_twelve_are_refused_in_words(playground: Playground) -> None:
    for _ in range(12):
        playground.button("Clone this run").click()
    playground.settle()
    names = [each["name"] for each in playground.state["companions"]]
    assert len(set(names)) == 12
    clone = playground.button("Clone this run")
    assert clone.is_disabled()
    assert "at most 12 runs" in (clone.get_attribute("title") or "")


def test_w_beside_key_and_query(playground: Playground) -> None:
    beside = playground.button("(K, Q) beside W")
    beside.click()
    playground.settle()
    assert [each["trained"] for each in playground.state["companions"]] == ["KQ"]
    rows = playground.find(".run-table tbody tr")
    assert rows.count() == 2
    assert rows.nth(0).inner_text().startswith("this run: W")
    assert rows.nth(1).inner_text().startswith("(K, Q)")
    cosines = [float(rows.nth(k).locator("td").nth(1).inner_text()) for k in range(2)]
    state = playground.state
    for k, norm in enumerate((attsvm.Frobenius(), attsvm.Nuclear())):
        settings = state["settings"] if k == 0 else _settings(state, state["companions"][0])
        page = playground.page.evaluate(TRAIN, [state["problem"], settings])
        data = attsvm.app.problem.problem_to_data(state["problem"])
        solution = attsvm.solve(attsvm.AttentionSVM(data, torch.tensor(page["selected"])), norm=norm)
        weights = torch.tensor(page["weights"], dtype=torch.float64).reshape(2, 2)
        cosine = float(attsvm.direction_cosine(weights, solution.weights))
        assert cosines[k] <= cosine < cosines[k] + 1e-3, "cut, never rounded up"
    beside.click()
    playground.settle()
    assert playground.state["companions"] == []


def test_advice_is_about_the_scene_as_it_was(playground: Playground) -> None:
    playground.load("multi-input")
    edited = playground.find(".edited")
    assert not edited.is_visible()
    scene = playground.state
    place = playground.centre("start-0")
    playground.find('input[aria-label="step of the run"]').fill("12")
    playground.settle()
    assert not edited.is_visible(), "the time is no edit"
    playground.drag("token-0-1", (20, 30))
    assert "the scene as it was" in edited.inner_text()
    assert playground.centre("start-0") == pytest.approx(place, abs=0.5), "nothing moves under the pointer"
    playground.button("Back to the scene").click()
    playground.settle()
    assert not edited.is_visible()
    assert playground.state["problem"] == scene["problem"]
    playground.button("undo").click()
    playground.settle()
    assert edited.is_visible()
