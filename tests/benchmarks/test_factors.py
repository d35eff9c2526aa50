"""Who wins a data set, and each selection solved once."""

from __future__ import annotations

import pytest
import torch
from benchmarks.factors import Solved, bad_start, summary

import attsvm
from attsvm.theory.identify import NORMS, in_every_norm


def test_level_with_the_framed_norm_is_a_win_and_unsolved_data_sets_are_counted() -> None:
    nan = float("nan")
    made = {"a": torch.tensor([0.9, 0.9, 0.9, nan]), "b": torch.tensor([0.5, 0.9 - 1e-9, 0.95, 0.9])}
    found = summary("row", "b", made)
    assert (found["data_sets"], found["judged"], found["framed_wins"]) == (4, 3, 2)
    assert (found["a wins"], found["b wins"]) == (1, 2)


def test_efficiencies_are_those_of_the_library() -> None:
    data = attsvm.data.random_sphere(n=2, T=3, d=3, batch=4, seed=1)
    run = attsvm.fit(data, steps=100)
    norms = {name: NORMS[name] for name in ("Frobenius", "spectral")}
    solved = Solved(data)
    for _ in range(2):  # the second time nothing is solved
        made = solved.efficiencies(run.weights, run.selected, norms)
    for name, _, _, efficiency in in_every_norm(run.weights, attsvm.AttentionSVM(data, run.selected), norms):
        torch.testing.assert_close(made[name], efficiency)
    assert 0 <= solved.largest_gap() < 1e-6


def test_the_bad_start_holds_sign_steps_near_a_third() -> None:
    data, start = bad_start(8)
    rule = attsvm.SteepestDescent(attsvm.MaxEntry(), attsvm.descent.InverseSqrt(0.03))
    run = attsvm.fit(data, optimizer=rule, parameterization=attsvm.KeyQuery(8), initial=start, steps=2000)
    problem = attsvm.AttentionSVM(data, torch.zeros(2, dtype=torch.int64))
    efficiency = attsvm.margin_efficiency(run.weights, problem, attsvm.norms.Projective())
    assert float(efficiency) == pytest.approx(1 / 3, abs=0.02)
