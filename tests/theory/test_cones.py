"""Cones by their definitions, and the search for the cone that attracts."""

from __future__ import annotations

import math

import pytest
import torch

from attsvm import AttentionSVM, TokenDataset, optimal_tokens, solve
from attsvm.data import example, random_sphere
from attsvm.theory.cones import in_angle_cone, in_margin_cone, margin_of_direction, search_cone
from attsvm.theory.optimality import is_locally_optimal


def test_angle_cone_by_its_definition() -> None:
    generator = torch.Generator().manual_seed(0)
    axis = torch.randn(7, 3, 4, generator=generator, dtype=torch.float64)
    weights = axis + torch.randn(5, 7, 3, 4, generator=generator, dtype=torch.float64)
    cosine = (weights * axis).sum((-1, -2)) / (weights.norm(dim=(-1, -2)) * axis.norm(dim=(-1, -2)))
    for opening in (0.05, 0.3, 1.0, 2.0):
        assert in_angle_cone(weights, axis, opening).equal(cosine >= 1 - opening)
    size = weights.norm(dim=(-1, -2))
    assert in_angle_cone(weights, axis, 2.0, 3.5).equal(size >= 3.5)


def test_angle_cone_at_its_edges() -> None:
    axis = torch.tensor([[1.0], [0.0]]).double()
    assert in_angle_cone(3 * axis, axis, 0.0)
    assert not in_angle_cone(0 * axis, axis, 1.0)
    assert not in_angle_cone(math.nan * axis, axis, 2.0)
    near = torch.tensor([[1.0], [1e-9]]).double()  # 1 - cosine is 5e-19, far below the spacing of numbers near 1
    assert in_angle_cone(near, axis, 6e-19)
    assert not in_angle_cone(near, axis, 4e-19)


def test_margin_cone_by_its_definition() -> None:
    data = random_sphere(n=3, T=4, d=5, batch=6, seed=1)
    problem = AttentionSVM(data, optimal_tokens(data))
    solution = solve(problem)
    best = 1 / torch.linalg.matrix_norm(solution.weights)
    torch.testing.assert_close(margin_of_direction(7 * solution.weights, problem), best)
    widest = float(best.min())
    assert in_margin_cone(solution.weights, problem, widest * 0.999).all()
    assert not in_margin_cone(solution.weights, problem, float(best.max()) * 1.001).any()
    generator = torch.Generator().manual_seed(2)
    weights = torch.randn(50, 6, 5, 5, generator=generator, dtype=torch.float64)
    assert bool((margin_of_direction(weights, problem) <= best * (1 + 1e-9)).all())
    for b in range(6):
        rows = problem[b].differences()[problem[b].rows]
        queries = data.queries[b].repeat_interleave(3, 0)
        unit = weights[:, b] / weights[:, b].norm(dim=(-1, -2), keepdim=True)
        smallest = torch.einsum("kd,sdq,kq->sk", rows, unit, queries).amin(-1)
        assert in_margin_cone(weights, problem, -0.5)[:, b].equal(smallest >= -0.5)


def test_margin_cone_without_rows_and_without_weights() -> None:
    data = TokenDataset(torch.ones(2, 1, 3).double(), torch.ones(2, 3).double(), [1, -1])
    problem = AttentionSVM(data, [0, 0])
    assert in_margin_cone(torch.ones(3, 3).double(), problem, 10.0)
    assert not in_margin_cone(torch.zeros(3, 3).double(), problem, -10.0)


def test_descent_returns_to_locally_optimal_selections_and_leaves_the_others() -> None:
    """10 data sets, the optimal selection and a feasible one that is not locally optimal; 8 directions per cell."""
    data = random_sphere(n=3, T=4, d=6, batch=10, seed=3)
    optimal = optimal_tokens(data)
    worst = (data.values @ data.head[:, None, :, None]).squeeze(-1).mul(data.labels.unsqueeze(-1)).argmin(-1)
    assert not is_locally_optimal(data, None, worst).holds.any()
    grid = {"openings": (0.001, 0.1, 1.0), "radii": (10.0, 100.0), "directions": 8, "steps": 1500}
    home, lost = search_cone(data, None, optimal, **grid), search_cone(data, None, worst, **grid)
    print(f"returned to the optimum:\n{home}\nto a selection that is not locally optimal:\n{lost}")
    assert home.returned.shape == (10, 3, 2)
    assert bool((home.returned[:, 0] == 1).all())
    assert bool((home.cosine[:, 0] > 0.99).all())
    assert bool((home.largest_opening >= 0.001).all())
    assert bool((lost.returned == 0).all())
    assert bool((lost.largest_opening == 0).all())


def test_starts_lie_where_they_should_and_seeds_repeat() -> None:
    data = random_sphere(n=2, T=3, d=4, batch=3, seed=4)
    optimal = optimal_tokens(data)
    # without a step the runs end where they began
    still = search_cone(data, None, optimal, openings=(0.0, 0.25, 1.5), radii=(3.0,), directions=5, steps=0)
    expected = torch.tensor([1.0, 0.75, -0.5]).double()[:, None].expand(3, 3, 1)
    torch.testing.assert_close(still.cosine, expected, atol=1e-12, rtol=0)
    once, alone = (
        search_cone(part, None, chosen, openings=(0.5,), radii=(1.0,), directions=6, steps=20, seed=seed)
        for part, chosen, seed in ((data, optimal, 9), (data[1], optimal[1], [(9, 1)]))
    )
    torch.testing.assert_close(once.cosine[1], alone.cosine)


def test_an_inseparable_selection_has_no_cone() -> None:
    tokens = torch.tensor([[[-1.0, 0.0], [0.0, 0.0], [1.0, 0.0]]]).double()
    line = TokenDataset(tokens, torch.ones(1, 1).double(), [1])
    found = search_cone(line, torch.ones(2).double(), [1], openings=(0.1,), radii=(1.0,), directions=2, steps=10)
    assert bool(found.returned.isnan().all())
    assert bool(found.largest_opening.isnan().all())


def test_bad_input_is_answered_in_a_sentence() -> None:
    data = example("two-inputs")
    with pytest.raises(ValueError, match=r"opening must lie in \[0, 2\]; got 3"):
        in_angle_cone(torch.ones(2, 2).double(), torch.ones(2, 2).double(), 3)
    with pytest.raises(ValueError, match="radius must be at least 0"):
        in_angle_cone(torch.ones(2, 2).double(), torch.ones(2, 2).double(), 0.1, -1.0)
    with pytest.raises(ValueError, match="opening must be a finite number"):
        in_margin_cone(torch.ones(2, 2).double(), AttentionSVM(data, [0, 0]), math.nan)
    with pytest.raises(ValueError, match="selected must hold one token index"):
        search_cone(data)
    with pytest.raises(ValueError, match="radii must be positive and finite"):
        search_cone(data, None, [0, 0], radii=(0.0,))
    with pytest.raises(ValueError, match="directions must be a positive integer"):
        search_cone(data, None, [0, 0], directions=0)
