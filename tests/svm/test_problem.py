"""Bad input, each with its message; what a problem shows of itself."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from attsvm.data import random_sphere
from attsvm.norms import Entrywise, Frobenius, MaxEntry, Norm, Nuclear, Spectral, SumEntry, direction_cosine
from attsvm.svm import (
    ActiveSet,
    AttentionSVM,
    BatchedFrobenius,
    BlockDescent,
    Conic,
    Cvxpy,
    LinearProgram,
    finite_component,
    solve,
)

from .checks import NORMS, dataset

DATA = random_sphere(n=2, T=3, d=4, seed=0)
BATCH = random_sphere(n=2, T=3, d=4, batch=2, seed=0)
RAGGED = dataset(DATA.tokens.numpy(), DATA.queries.numpy(), mask=np.array([[True, True, True], [True, True, False]]))
SET = np.array([[True, True, False], [False, True, False]])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "give either selected (one token per input) or selected_set (a mask), and not both"),
        ({"selected": [0, 0], "selected_set": SET}, "give either selected (one token per input) or selected_set"),
        ({"selected": [0, 3]}, "selected must lie in 0..2; got 3 at input 1"),
        ({"selected": [-1, 0]}, "selected must lie in 0..2; got -1 at input 0"),
        ({"selected": [0.0, 1.0]}, "selected must hold token indices; got float"),
        ({"selected": [True, False]}, "selected must hold token indices; got bool"),
        ({"selected": [0, 1, 2]}, "selected must have shape [2] (batch, n); got [3]"),
        ({"selected": [[0, 1]]}, "selected must have shape [2] (batch, n); got [1, 2]"),
        ({"selected_set": SET.astype(int)}, "selected_set must be a boolean mask; got int"),
        ({"selected_set": SET[:1]}, "selected_set must have shape [2, 3] (batch, n, T); got [1, 3]"),
        ({"selected_set": np.zeros((2, 3), bool)}, "selected_set must keep a token of every input; input 0 has none"),
        ({"selected_set": np.ones((2, 3), bool)}, "selected_set keeps every token, so there is nothing to separate"),
        (
            {"selected": [0, 0], "right_hand_side": np.ones(3)},
            "right_hand_side must be one number, [2] (batch, n) or [2, 3]",
        ),
        ({"selected": [0, 0], "right_hand_side": np.ones((3, 2))}, "got [3, 2]"),
        ({"selected": [0, 0], "right_hand_side": np.nan}, "right_hand_side must be finite; got nan"),
        ({"selected": [0, 0], "right_hand_side": [1.0, np.inf]}, "right_hand_side must be finite; got inf at input 1"),
        (
            {"selected": [0, 0], "right_hand_side": [[1, 1, 1], [1, -np.inf, 1]]},
            "right_hand_side must be finite; got -inf at input 1, token 1",
        ),
        ({"selected": [0, 0], "equality_values": np.zeros((2, 3))}, "equality_values belong to a selected_set"),
        (
            {"selected_set": SET, "equality_values": np.zeros((2, 2))},
            "equality_values must have shape [2, 3] (batch, n, T); got [2, 2]",
        ),
        (
            {"selected_set": SET, "equality_values": np.array([[0, np.nan, 0], [0, 0, 0]])},
            "equality_values must be finite; got nan at input 0, token 1",
        ),
    ],
)
def test_bad_input(arguments, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        AttentionSVM(DATA, **arguments)


def test_bad_representative_value() -> None:
    with pytest.raises(ValueError, match="equality_values must be finite"):
        AttentionSVM(DATA, selected_set=SET, equality_values=np.array([[np.nan, 0.0, 0.0], [0.0, 0.0, 0.0]]))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"selected": [[0, 0], [0, 5]]}, "selected must lie in 0..2; got 5 at element 1, input 1"),
        ({"selected": [0, 0]}, "selected must have shape [2, 2] (batch, n); got [2]"),
        (
            {"selected_set": np.stack([SET, np.ones((2, 3), bool)])},
            "selected_set keeps every token of element 1, so there",
        ),
        (
            {"selected_set": np.stack([SET, np.zeros((2, 3), bool)])},
            "selected_set must keep a token of every input; element 1, input 0 has none",
        ),
    ],
)
def test_bad_input_says_which_element(arguments, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        AttentionSVM(BATCH, **arguments)


def test_masked_tokens_cannot_be_selected() -> None:
    with pytest.raises(ValueError, match="selected must be a real token; token 2 of input 1 is masked"):
        AttentionSVM(RAGGED, [0, 2])
    with pytest.raises(ValueError, match="selected_set must hold real tokens; input 1, token 2 is masked"):
        AttentionSVM(RAGGED, selected_set=np.array([[True, False, False], [False, True, True]]))
    with pytest.raises(ValueError, match="selected_set keeps every token, so there is nothing"):
        AttentionSVM(RAGGED, selected_set=RAGGED.mask)


def twins() -> tuple[np.ndarray, np.ndarray]:
    tokens = DATA.tokens.numpy().copy()
    tokens[1, 2] = tokens[1, 1]
    return tokens, np.array([[True, False, False], [False, True, True]])


def test_equal_tokens_of_different_values() -> None:
    tokens, kept = twins()
    data = dataset(tokens, DATA.queries.numpy())
    values = np.array([[0.0, 0.0, 0.0], [0.0, 0.5, 0.25]])
    message = "tokens 1 and 2 of input 1 are equal but are asked for different values; no weights can tell them apart"
    with pytest.raises(ValueError, match=message):
        AttentionSVM(data, selected_set=kept, equality_values=values)
    with pytest.raises(ValueError, match=message):
        finite_component(data, np.array([[0.2, 0.3, 0.5]] * 2), kept)
    same = np.array([[0.0, 0.0, 0.0], [0.0, 0.5, 0.5]])
    assert bool(solve(AttentionSVM(data, selected_set=kept, equality_values=same)).solved)


def test_equal_tokens_beside_the_representative() -> None:
    """The representative differs from both twins, which are asked for different values."""
    tokens, _ = twins()
    data = dataset(np.concatenate([tokens, tokens[:, :1] + 1.0], axis=1), DATA.queries.numpy())
    kept = np.array([[True, False, False, False], [True, True, True, False]])
    values = np.array([[0.0, 0.0, 0.0, 0.0], [0.0, 0.5, 0.25, 0.0]])
    with pytest.raises(ValueError, match="tokens 1 and 2 of input 1 are equal but are asked for different values"):
        AttentionSVM(data, selected_set=kept, equality_values=values)


@pytest.mark.parametrize(
    ("attention", "message"),
    [
        (
            np.array([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]]),
            "attention must be positive on selected_set; got 0 at input 1, token 1",
        ),
        (
            np.array([[0.5, -0.5, 0.0], [0.0, 1.0, 0.0]]),
            "attention must be positive on selected_set; got -0.5 at input 0, token 1",
        ),
        (
            np.array([[np.nan, 0.5, 0.0], [0.0, 1.0, 0.0]]),
            "attention must be positive on selected_set; got nan at input 0, token 0",
        ),
        (np.ones((2, 2)), "attention must have shape [2, 3] (batch, n, T); got [2, 2]"),
    ],
)
def test_bad_attention(attention: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        finite_component(DATA, attention, SET)


# ------------------------------------------------------------------- solve


@pytest.mark.parametrize(
    ("solver", "norm", "clause"),
    [
        (ActiveSet(), MaxEntry(), "it solves Frobenius"),
        (BatchedFrobenius(), Spectral(), "it solves Frobenius"),
        (BlockDescent(), Nuclear(), "it solves Frobenius"),
        (LinearProgram(), Frobenius(), "it solves MaxEntry, SumEntry"),
        (Conic(), SumEntry(), "it solves Entrywise, Spectral, SpectralOfRank, Gamma2"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_solver_that_cannot(solver, norm: Norm, clause: str) -> None:
    with pytest.raises(ValueError, match=f"{type(solver).__name__} cannot solve this problem: {clause}"):
        solve(AttentionSVM(DATA, [0, 0]), norm, solver=solver)


@dataclass(frozen=True)
class Taxicab(Norm):
    """A norm that nobody knows."""

    @property
    def name(self) -> str:
        return "taxicab"

    @property
    def dual(self) -> Norm:
        return self

    def _value(self, matrix):
        return matrix.abs().sum((-1, -2))

    def _steepest(self, gradient):
        return gradient

    def _project(self, matrix, radius):
        return matrix


def test_unknown_norms() -> None:
    problem = AttentionSVM(DATA, [0, 0])
    with pytest.raises(ValueError, match=r"no solver knows the norm Taxicab\(\) for W of 4 x 4; pass solver="):
        solve(problem, Taxicab())
    with pytest.raises(ValueError, match=r"CVXPY has no expression for Taxicab\(\)"):
        solve(problem, Taxicab(), solver=Cvxpy())
    for wrong in ("nuclear", Frobenius, 2):
        with pytest.raises(ValueError, match=re.escape("norm must be a norm such as Frobenius() or Nuclear(); got")):
            solve(problem, wrong)


def test_initial_of_the_wrong_shape() -> None:
    problem = AttentionSVM(DATA, [0, 0])
    with pytest.raises(
        ValueError, match=re.escape("initial must hold duals of shape [2, 3] (batch, n, T); got [3, 2]")
    ):
        solve(problem, initial=torch.zeros(3, 2))
    with pytest.raises(
        ValueError, match=re.escape("initial must hold duals of shape [2, 3] (batch, n, T); got [2, 2, 3]")
    ):
        solve(problem, initial=solve(AttentionSVM(BATCH, [[0, 0], [1, 1]])))


def test_initial_that_is_not_finite() -> None:
    with pytest.raises(ValueError, match="initial must be finite"):
        solve(AttentionSVM(DATA, [0, 0]), initial=torch.full((2, 3), torch.nan))


@pytest.mark.parametrize("norm", NORMS, ids=repr)
def test_the_default_norm_is_frobenius(norm: Norm) -> None:
    problem = AttentionSVM(DATA, [0, 1])
    assert solve(problem).norm == Frobenius()
    assert solve(problem, norm).norm == norm
    assert solve(problem).certificate.primal_value <= Frobenius().value(solve(problem, norm).weights) * (1 + 1e-7)


def test_a_problem_shows_itself() -> None:
    assert repr(AttentionSVM(DATA, [0, 1])).startswith("AttentionSVM(4 inequalities, TokenDataset(n=2, T=3, d=4")
    assert repr(AttentionSVM(DATA, selected_set=SET)).startswith("AttentionSVM(3 inequalities, 1 equalities, ")
    assert "frobenius" in repr(solve(AttentionSVM(DATA, [0, 1]))).lower()


def test_arrays_lists_and_tensors_are_one() -> None:
    ways = [[0, 1], np.array([0, 1]), torch.tensor([0, 1]), np.array([0, 1], dtype=np.int32)]
    problems = [AttentionSVM(DATA, way) for way in ways]
    assert all(one.reference.equal(problems[0].reference) for one in problems)
    assert Entrywise(3) == Entrywise(3.0)


def test_arguments_of_another_kind() -> None:
    data = random_sphere(n=2, T=3, d=3, seed=0)
    with pytest.raises(ValueError, match="data must be a TokenDataset; got Tensor"):
        AttentionSVM(data.tokens, [0, 0])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="right_hand_side must be a tensor or an array of numbers; got str"):
        AttentionSVM(data, [0, 0], right_hand_side="one")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"problem must be an AttentionSVM\(data, selected\); got TokenDataset"):
        solve(data)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"solver must be a solver such as Cvxpy\(\) or None; got 'cvxpy'"):
        solve(AttentionSVM(data, [0, 0]), solver="cvxpy")  # type: ignore[arg-type]


def test_offsets_are_taken_off_the_right_hand_sides() -> None:
    offsets = torch.tensor([[0.0, 0.3, -2.0], [1.0, 0.0, 0.5]]).double()
    problem = AttentionSVM(DATA, [0, 1], right_hand_side=2.0, offsets=offsets)
    assert torch.allclose(problem.right_hand_side, torch.tensor([[0.0, 2.3, 0.0], [3.0, 0.0, 2.5]]).double())
    solution = solve(problem).require_solved()
    logits = torch.einsum("ntd,de,ne->nt", DATA.tokens.double(), solution.weights, DATA.queries.double()) + offsets
    gaps = logits.gather(1, torch.tensor([[0], [1]])) - logits
    assert gaps[problem.rows].min() == pytest.approx(2.0, abs=1e-7)
    # The larger the gap asked for, the less the direction knows of the offsets.
    plain = solve(AttentionSVM(DATA, [0, 1])).weights
    large = solve(AttentionSVM(DATA, [0, 1], right_hand_side=1e4, offsets=offsets)).weights
    assert direction_cosine(plain, large) > 0.9999 > direction_cosine(plain, solution.weights)
    with pytest.raises(ValueError, match=r"offsets must have shape \[2, 3\]"):
        AttentionSVM(DATA, [0, 1], offsets=offsets[:, :2])


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda: BlockDescent(rounds=0), "rounds must be a positive integer; got 0"),
        (lambda: BlockDescent(time_limit=-1), "time_limit must be positive; got -1"),
        (lambda: BlockDescent(accuracy=-1.0), "accuracy must be a positive finite number"),
        (lambda: ActiveSet(accuracy=float("nan")), "accuracy must be a positive finite number"),
        (lambda: Conic(tolerance=0), "tolerance must be a positive finite number"),
        (lambda: Conic(workers=0), "workers must be a positive integer"),
    ],
)
def test_options_of_solvers(made, words):
    with pytest.raises(ValueError, match=words):
        made()
