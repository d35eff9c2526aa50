from __future__ import annotations

import numpy as np
import pytest
import torch

import attsvm
from attsvm.experiments.common import long_column, path_steps, separating_offsets, stacked


@pytest.mark.parametrize("steps", [1, 50, 200, 201, 1000, 20_000])
def test_recorded_steps(steps):
    found = path_steps(steps)
    assert found == sorted(set(found))
    assert found[0] == 0
    assert found[-1] == steps
    assert {step for step in (100, 200, 300, 1000, 5000) if step <= steps} <= set(found)
    assert len(found) < 320


def test_columns_run_through_the_axes_in_order():
    values = torch.arange(6).reshape(2, 3)
    assert long_column(values, (2, 3)).tolist() == [0, 1, 2, 3, 4, 5]
    assert long_column([7, 8, 9], (2, 3), axis=1).tolist() == [7, 8, 9, 7, 8, 9]


def test_tables_are_stacked_in_order():
    table = stacked([{"a": np.array([1, 2]), "b": 0.5}, {"a": [3], "b": 1.5}])
    assert table["a"].tolist() == [1, 2, 3]
    assert table["b"].tolist() == [0.5, 0.5, 1.5]


def test_the_line_lies_half_way():
    # Token 1 of the single input has its only support token in the origin: the line is p_mm^T x = 1/2.
    data = attsvm.data.example("single-input-local")
    for token in (0, 1):
        problem = attsvm.AttentionSVM(data, [token])
        offsets = separating_offsets(problem, attsvm.solve(problem).weights)
        assert offsets.tolist() == pytest.approx([0.5])


def test_the_line_separates_every_input_of_a_batch():
    data = attsvm.data.example("hyperplanes", batch=5, seed=3)
    problem = attsvm.AttentionSVM(data, attsvm.optimal_tokens(data))
    solution = attsvm.solve(problem)
    offsets = separating_offsets(problem, solution.weights)
    sides = attsvm.attention.logits(data, solution.weights) - offsets.unsqueeze(-1)
    above = (sides > 0).nonzero().tolist()
    chosen = attsvm.optimal_tokens(data)
    assert above == [[b, i, int(chosen[b, i])] for b in range(5) for i in range(2)]
