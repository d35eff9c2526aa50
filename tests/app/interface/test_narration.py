"""What the explanatory line says is true at the step that is shown, and its reasons are the true ones."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from .playground import Playground
from .test_degenerate import CASES

_RUN = """(time) => { const { problem, settings } = handle.getState();
const run = maths.train(problem, settings, [time]); const at = run.steps.indexOf(time);
return { attention: run.attention[at], length: run.norm[at], selected: run.selected }; }"""


def _at(playground: Playground, time: int | None) -> dict[str, Any]:
    """Show a step; what the run holds there, computed anew."""
    playground.page.evaluate("(time) => handle.setState({ ...handle.getState(), time })", time)
    playground.settle()
    steps = playground.state["settings"]["steps"]
    run: dict[str, Any] = playground.page.evaluate(_RUN, steps if time is None else time)
    return run


def _said(words: str, pattern: str) -> float:
    found = re.search(pattern, words)
    assert found is not None, words
    return float(found[1].replace("\N{NARROW NO-BREAK SPACE}", "").replace("\N{MINUS SIGN}", "-"))


@pytest.mark.parametrize("preset", ["two-inputs", "multi-input", "single-input-local", "optimal-not-reached"])
def test_the_line_follows_the_time_slider(playground: Playground, preset: str) -> None:
    playground.load(preset)
    told = set()
    for time in (0, 2, 20, 90, 400, None):
        run = _at(playground, time)
        words = playground.words
        told.add(words)
        shares = np.array([max(each) for each in run["attention"]])
        settled = bool(shares.min() >= 0.9)
        if time is None:
            assert ("Descent from here selects" in words) is settled
        elif time > 0:
            assert _said(words, r"At step ([\d\u202f]+) ") == time
            assert ("attention has settled on" in words) is settled
        else:
            assert words.startswith("At the start attention")
        spread = bool(np.ptp([share for each in run["attention"] for share in each]) > 1e-9)
        if not settled and spread:
            assert _said(words, r"(?:share,|with) ([\d.]+) %") == pytest.approx(100 * shares.min(), abs=0.51)
        leaders = [int(np.argmax(each)) for each in run["attention"]]
        assert ("that will change: the run ends on" in words) is (leaders != run["selected"] and spread)
        if run["length"] > 0:
            assert _said(words, r"has length ([\d.]+)") == pytest.approx(run["length"], rel=6e-3)
        else:
            assert "is zero and points nowhere yet" in words
    assert len(told) == 6


def test_a_run_that_changes_its_mind_says_so_before(playground: Playground) -> None:
    playground.load("single-input-global")
    seen = set()
    for time in (0, 5, 10, 20, 40, 80, None):
        run = _at(playground, time)
        leader = int(np.argmax(run["attention"][0]))
        seen.add(leader)
        assert (f"the run ends on token {run['selected'][0]}" in playground.words) is (leader != run["selected"][0])
    assert len(seen) > 1


@pytest.mark.parametrize(("name", "reason", "others"), [
    ("twins", "lie on top of each other", ("tie", "score the same")),
    ("all at the origin", "all tokens lie in one place", ("tie", "score the same", "query")),
    ("zero query", "query", ("on top", "score the same", "in one place")),
    ("one token", "one token has all the attention", ("tie", "score the same", "query")),
    ("zero head", "score the same", ("on top", "in one place", "query")),
    ("tie", "tie for the best score", ("on top", "in one place", "query")),
])  # fmt: skip
def test_the_reason_is_the_true_one(playground: Playground, name: str, reason: str, others: tuple[str, ...]) -> None:
    playground.page.evaluate("(state) => handle.setState(state)", CASES[name][0])
    playground.settle()
    playground.until(lambda: "Looking" not in playground.find(".local .hint").first.inner_text())
    text = " ".join([playground.words, *playground.find(".notes, .local .hint").all_inner_texts()]).lower()
    assert reason in text
    assert [other for other in others if re.search(rf"\b{other}\b", text)] == []


def test_live_regions_are_quiet_while_the_run_plays(playground: Playground) -> None:
    page = playground.page
    page.evaluate("""() => { globalThis.spoken = []; const root = document.getElementById('playground').shadowRoot;
    const live = [...root.querySelectorAll('[aria-live], [role="status"], [role="alert"], output, progress')];
    globalThis.regions = live.length;
    for (const each of live) new MutationObserver(() => spoken.push(each.textContent))
      .observe(each, { childList: true, characterData: true, subtree: true }); }""")
    playground.button("play the run").click()
    page.wait_for_timeout(1500)
    assert page.evaluate("spoken") == []
    playground.button("pause the run").click()
    playground.until(lambda: page.evaluate("spoken.length") > 0)
    page.wait_for_timeout(300)
    assert page.evaluate("spoken") == [playground.words]
    assert re.match(r"At step \d+ ", playground.words)
