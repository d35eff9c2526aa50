"""The benchmark of next-token prediction, small and on data sets that it has not seen; and its counts can fail."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from benchmarks.next_token import Draw, main, theorem_row
from scipy.optimize import linprog

from attsvm.next_token import predict_limit


def unseen() -> int:
    """A first seed beyond those of the benchmark; another one with --fresh."""
    return int(np.random.default_rng(7).integers(10**3, 10**6))


@pytest.mark.slow
def test_the_theorem_on_unseen_data():
    row = theorem_row(Draw(5, 7, 10, 3, 0.3), 5, unseen(), stages=(1000,))
    print({name: value for name, value in row.items() if name != "rest"})
    assert row["feasible"] == row["grown"] == row["direction_right"] == row["finite_part_right"] == 5
    assert row["rest"] == []


def test_runs_that_are_too_short_are_counted_and_listed():
    row = theorem_row(Draw(6, 7, 16, 4, 0.0), 3, unseen(), stages=(5, 10))
    assert row["grown"] == row["both_right"] == 0
    assert [[stage["steps"] for stage in one["stages"]] for one in row["rest"]] == [[5, 10]] * 3


@pytest.mark.parametrize("d", [3, 4])
def test_infeasible_means_that_a_linear_program_has_no_solution(d):
    found = []
    for seed in range(unseen(), unseen() + 6):
        limit = predict_limit(Draw(8, d, 14, 4, 0.3).data(seed))
        graph, table = limit.graph, limit.data.embeddings.numpy()
        rows = (table[graph.winner] - table[graph.loser])[:, :, None] * table[graph.last][:, None]
        strict, equal = (rows[which].reshape(-1, d * d) for which in (graph.strict, ~graph.strict))
        program = linprog(
            np.zeros(d * d), -strict, -np.ones(len(strict)), equal if len(equal) else None,
            np.zeros(len(equal)) if len(equal) else None, (None, None),
        )  # fmt: skip
        assert bool(limit.solution.infeasible) == (program.status == 2)
        assert bool(limit.solution.separable) == (program.status == 0)
        found.append(program.status)
    print(f"{found.count(2)} of {len(found)} infeasible at d = {d}")
    assert d > 3 or 2 in found


def test_draws_are_what_they_say():
    draw = Draw(6, 7, 16, 4, 0.0)
    assert predict_limit(draw.data(3)).graph.acyclic
    gram = draw.data(3).embeddings @ draw.data(3).embeddings.mT
    assert np.allclose(gram, np.eye(6))  # odd seeds are orthonormal
    assert not np.allclose(dataclasses.replace(draw, noise=1.0).data(3).labels, draw.data(3).labels)


def test_a_part_must_be_named(capsys):
    with pytest.raises(SystemExit):
        main(["--part", "nothing"])
    assert "--part" in capsys.readouterr().err
