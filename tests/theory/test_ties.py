"""One rule for ties: every function that compares scores gives the same answer on inputs that ask for it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from attsvm.attention import LinearHead, QuadraticHead, optimal_token_set, optimal_tokens
from attsvm.data import TokenDataset
from attsvm.theory import diagnose, is_locally_optimal, locally_optimal_selections, one_winner, unique_optimum

UNIT = 2.0**-52

# Name, tokens of one input, v, and the tokens that share the best score.
NASTY: list[tuple[str, list[list[float]], list[float], set[int]]] = [
    ("equal", [[1.0, 0.0], [1.0, 1.0], [0.0, 0.0]], [1.0, 0.0], {0, 1}),
    ("two units apart", [[1.0, 0.0], [1.0 + 2 * UNIT, 1.0], [0.0, 0.0]], [1.0, 0.0], {0, 1}),
    ("a sum in another order", [[0.1, 0.2, 0.3], [0.3, 0.2, 0.1], [0.0, 0.1, 0.0]], [1.0, 1.0, 1.0], {0, 1}),
    ("products that cancel", [[1e8, 1e8], [1.0, 1.0], [1e8, 1e8 - 1e-8]], [1.0, -1.0], {0, 1, 2}),
    ("a head of zero", [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], [0.0, 0.0], {0, 1, 2}),
    ("tiny and apart", [[1e-200, 0.0], [2e-200, 1.0], [0.0, 0.0]], [1.0, 0.0], {1}),
    ("a millionth apart", [[1.0, 0.0], [1.0 - 1e-6, 1.0], [0.0, 0.0]], [1.0, 0.0], {0}),
    ("all below zero", [[-1.0, 0.0], [-1.0 - 2 * UNIT, 1.0], [-3.0, 0.0]], [1.0, 0.0], {0, 1}),
]
every_input = pytest.mark.parametrize("nasty", NASTY, ids=[name for name, *_ in NASTY])


@every_input
def test_everyone_agrees(nasty) -> None:
    _, tokens, vector, best = nasty
    data = TokenDataset(np.array([tokens]), np.ones((1, 1)), [1], head=np.array(vector))
    unique = len(best) == 1
    assert set(torch.nonzero(optimal_token_set(data)[0]).flatten().tolist()) == best
    assert bool(unique_optimum(data)) == unique
    assert bool(one_winner(data)) == unique
    if unique:
        assert optimal_tokens(data).item() in best
    else:
        with pytest.raises(ValueError, match=r"is not unique: tokens .* tie"):
            optimal_tokens(data)
    found = diagnose(data)
    assert bool(found.conditions[0].holds) == unique
    assert found.conditions[0].name == "unique optimum"
    local = {tuple(row) for row in locally_optimal_selections(data).selections.tolist()}
    for token in range(3):
        verdict = is_locally_optimal(data, selected=[token])
        assert bool(verdict.holds) == ((token,) in local)
        if bool(verdict.solution.solved) and token in best:  # a tied rival among the support is a violation
            rivals = {t for _, t in verdict.offenders}
            assert rivals == {t for t in best - {token} if bool(verdict.solution.support[0, t])}


def test_float32_has_its_own_round_off() -> None:
    tokens = torch.tensor([[[1.0, 0.0], [1.0 + 2.0**-20, 1.0], [0.0, 0.0]]])
    data = TokenDataset(tokens, torch.ones(1, 1), [1], head=torch.tensor([1.0, 0.0]))
    assert not bool(unique_optimum(data))
    assert not bool(unique_optimum(data, LinearHead(torch.tensor([2.0, 0.0]))))
    with pytest.raises(ValueError, match="is not unique"):
        optimal_tokens(data)
    assert bool(unique_optimum(data.to(dtype=torch.float64)))
    assert optimal_tokens(data.to(dtype=torch.float64)).item() == 1


def test_a_tolerance_is_taken_as_given() -> None:
    tokens = np.array([[[1.0, 0.0], [1.0 - 1e-6, 1.0], [0.0, 0.0]]])
    data = TokenDataset(tokens, np.ones((1, 1)), [1], head=np.array([1.0, 0.0]))
    assert optimal_token_set(data, tolerance=1e-5).tolist() == [[True, True, False]]
    assert optimal_token_set(data, tolerance=0.0).tolist() == [[True, False, False]]


def test_a_nonlinear_head_of_zero_proves_nothing() -> None:
    data = TokenDataset(np.array([[[1.0, 0.0], [0.0, 1.0]]]), np.ones((1, 1)), [1])
    head = QuadraticHead(torch.zeros(2).double(), 0.0)
    assert not bool(unique_optimum(data, head))
    assert not bool(one_winner(data, head))
    found = diagnose(data, head)
    assert not any(bool(result.applies) for result in found.results)
    assert not any(bool(r.applies) for r in diagnose(data, LinearHead(torch.zeros(2).double())).results)
