from __future__ import annotations

import numpy as np
import pytest
import torch

import attsvm
from attsvm.data import streams
from attsvm.experiments.base import DataSets
from attsvm.experiments.common import FARTHER_APART, long_table, offsets_of, path_steps, stacked, streams_apart
from attsvm.experiments.weights_and_factors import selected_attention


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
    table = long_table({"step": [4, 5], "dataset": [7, 8, 9]}, value=values, kind="W", first=values[:, :1])
    assert table["step"].tolist() == [4, 4, 4, 5, 5, 5]
    assert table["dataset"].tolist() == [7, 8, 9, 7, 8, 9]
    assert table["value"].tolist() == [0, 1, 2, 3, 4, 5]
    assert table["first"].tolist() == [0, 0, 0, 3, 3, 3]
    assert set(table["kind"]) == {"W"}
    with pytest.raises(ValueError, match="broadcast"):
        long_table({"step": [4, 5]}, value=[1, 2, 3])


def test_tables_are_stacked_in_order():
    table = stacked([{"a": np.array([1, 2]), "b": 0.5}, {"a": [3], "b": 1.5}])
    assert table["a"].tolist() == [1, 2, 3]
    assert table["b"].tolist() == [0.5, 0.5, 1.5]


def test_columns_of_a_table_are_flattened_and_a_part_may_be_empty():
    table = stacked([{"a": torch.arange(4).reshape(2, 2), "b": "x"}, {"a": np.zeros((0, 2), dtype=int), "b": "y"}])
    assert table["a"].tolist() == [0, 1, 2, 3]
    assert table["b"].tolist() == ["x"] * 4


def test_chunks_share_out_the_data_sets_and_their_streams():
    configuration = DataSets(datasets=5, chunk_size=2, seed=7)
    tasks = configuration.chunks("w", kind="W")
    assert [task.name for task in tasks] == ["w-00000", "w-00002", "w-00004"]
    assert {task.values["kind"] for task in tasks} == {"W"}
    assert [seed for task in tasks for seed in configuration.seeds(task)] == [(7, number) for number in range(5)]


def test_streams_apart_are_not_those_of_the_data():
    seeds = [(0, 3), (0, 4)]
    found = [[stream.random() for stream in drawn] for drawn in (
        streams_apart(seeds), streams_apart(seeds, FARTHER_APART), streams(seeds, (2,)),
    )]  # fmt: skip
    assert len({value for drawn in found for value in drawn}) == 6
    assert streams_apart(seeds[1:])[0].random() == found[0][1]


def test_attention_on_what_is_selected_in_the_end():
    data = attsvm.data.random_sphere(n=3, T=4, d=5, batch=2, seed=0)
    run = attsvm.fit(data, steps=20, record=10, engine=attsvm.descent.TorchEngine())
    found = selected_attention(run)
    assert found.shape == (3, 2, 3)
    assert torch.equal(found[-1], run.attention.amax(-1))


def test_the_line_lies_half_way():
    # Token 1 of the single input has its only support token in the origin: the line is p_mm^T x = 1/2.
    data = attsvm.data.example("single-input-local")
    for token in (0, 1):
        problem = attsvm.AttentionSVM(data, [token])
        offsets = offsets_of(problem, attsvm.solve(problem).weights)
        assert offsets.tolist() == pytest.approx([0.5])


def test_the_line_separates_every_input_of_a_batch():
    data = attsvm.data.example("hyperplanes", batch=5, seed=3)
    problem = attsvm.AttentionSVM(data, attsvm.optimal_tokens(data))
    solution = attsvm.solve(problem)
    offsets = offsets_of(problem, solution.weights)
    sides = attsvm.attention.logits(data, solution.weights) - offsets.unsqueeze(-1)
    above = (sides > 0).nonzero().tolist()
    chosen = attsvm.optimal_tokens(data)
    assert above == [[b, i, int(chosen[b, i])] for b in range(5) for i in range(2)]


def test_columns_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match=r"must have one length; got \[1, 2\]"):
        stacked([{"a": [1, 2], "b": [5]}])
