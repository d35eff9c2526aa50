"""The norm that an optimizer follows, on made-up numbers and on small panels."""

from __future__ import annotations

import json

import pytest
import torch

from attsvm import (
    Frobenius,
    KeyQuery,
    MaxEntry,
    NormalizedGradientDescent,
    Nuclear,
    SteepestDescent,
    identify_norm,
)
from attsvm.descent import InverseSqrt
from attsvm.norms import SpectralOfRank
from attsvm.theory import NormReport
from attsvm.theory.identify import NORMS

CHEAP = {name: NORMS[name] for name in ("Frobenius", "nuclear", "max entry", "l_3")}


def report(*efficiency: list[list[float]]) -> NormReport:
    """Two norms or three and three data sets, at one or several steps."""
    values = torch.tensor(efficiency, dtype=torch.float64)
    norms, steps = tuple("abc"[: values.shape[1]]), tuple(range(1, len(values) + 1))
    return NormReport("rule", "W", norms, steps, values, values.sqrt(), 1e-9)


def test_the_verdict_needs_wins_efficiency_and_a_trend() -> None:
    early, late = [[0.8, 0.8, 0.8], [0.7, 0.7, 0.7]], [[0.99, 0.98, 0.97], [0.6, 0.6, 0.99]]
    found = report(early, late)
    assert (found.winner, found.leader, found.share, found.wins.tolist()) == ("a", "a", 2 / 3, [[3, 0], [2, 1]])
    assert "follows the a norm: a wins 2 of 3 data sets; median efficiency 0.800, 0.980 after 1, 2" in found.sentence
    assert report(late, late).winner is None  # it does not rise
    low = report(early, [[0.85, 0.85, 0.85], [0.7, 0.7, 0.7]])
    assert low.winner is None
    assert low.sentence.endswith("an efficiency that rises to 0.9; this still rises: it has not settled.")
    assert report(late, late).sentence.endswith("an efficiency that rises to 0.9; this does not rise.")
    few = report([[0.8] * 3] * 3, [[0.99, 0.95, 0.95], [0.98, 0.99, 0.96], [0.97, 0.96, 0.99]])
    assert few.sentence.endswith("an efficiency that rises to 0.9; this wins fewer.")
    assert report([[1.0] * 3, [0.5] * 3], [[1.0] * 3, [0.5] * 3]).winner == "a"  # it is there
    assert json.loads(found.to_json())["wins"] == [[3, 0], [2, 1]]
    assert "rule on W" in str(found)


def test_of_norms_that_are_level_the_last_one_wins() -> None:
    level = [[0.9, 0.9 + 1e-8, 0.9], [0.9, 0.9, 0.8]]
    assert report(level, level).wins.tolist() == [[1, 2], [1, 2]]


def test_data_sets_without_a_solution_are_counted() -> None:
    nan = float("nan")
    found = report([[0.8, nan, 0.8], [0.7, 0.7, 0.7]], [[0.99, nan, 0.97], [0.6, 0.6, 0.99]])
    assert found.wins.tolist() == [[2, 0], [1, 1]]
    assert found.sentence.endswith("Data sets left out, as what was selected there has no certified solution: 1.")
    nothing = report([[nan] * 3, [0.7] * 3], [[nan] * 3, [0.7] * 3])
    assert nothing.sentence.startswith("Nothing can be said. Data sets left out")
    assert str(nothing)
    json.loads(nothing.to_json())


def test_gradient_descent_on_w_and_on_factors() -> None:
    on_w, on_factors = (
        identify_norm(NormalizedGradientDescent(InverseSqrt(size)), kind, norms=CHEAP, datasets=8, steps=3000, seed=3)
        for kind, size in ((None, 3.0), (KeyQuery(), 0.3))
    )
    assert on_w.winner == "Frobenius"
    assert on_factors.winner == "nuclear"
    assert on_w.steps == (750, 1500, 3000)
    assert on_w.efficiency.shape == (3, 4, 8)
    assert float(on_w.efficiency.max()) <= 1 + 1e-7
    assert on_w.largest_gap <= 1e-6


def test_the_rank_of_factors_adds_its_norm() -> None:
    rule = SteepestDescent(Frobenius(), 0.1)
    names = identify_norm(rule, KeyQuery(2), datasets=1, steps=8, n=3, T=2, d=3).norms
    assert names == (*NORMS, "spectral of rank 2")
    own = {"this": SpectralOfRank(2), "that": Nuclear()}
    assert identify_norm(rule, KeyQuery(2), norms=own, datasets=1, steps=8).norms == ("this", "that")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"optimizer": "adam"}, "optimizer must be an optimizer"),
        ({"norms": {}}, "norms must map names to norms"),
        ({"norms": {"a": 3}}, "norms must map names to norms"),
        ({"steps": 3}, "steps must be an integer of at least 4; got 3"),
        ({"datasets": 0}, "datasets must be"),
    ],
)
def test_refusals(options: dict[str, object], words: str) -> None:
    given: dict[str, object] = {"optimizer": SteepestDescent(MaxEntry(), 0.1), "steps": 8, "datasets": 1, **options}
    with pytest.raises(ValueError, match=words):
        identify_norm(given.pop("optimizer"), **given)  # type: ignore[arg-type]
