"""Local optimality: definition, exact examples, and the two sides of local convergence."""

from __future__ import annotations

import math

import pytest
import torch

import attsvm
from attsvm import (
    AttentionSVM,
    Frobenius,
    LinearHead,
    ModuleHead,
    Nuclear,
    QuadraticHead,
    ReluHead,
    TokenDataset,
    direction_cosine,
    fit,
    optimal_tokens,
    solve,
    token_scores,
)
from attsvm.attention import evaluate
from attsvm.data import example, random_sphere
from attsvm.theory.optimality import effective_scores, is_locally_optimal
from cases import CASES, Case

every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


@pytest.mark.parametrize(("name", "token", "expected"), [
    ("single-input-global", 0, True), ("single-input-local", 0, True),
    ("single-input-global", 1, False), ("single-input-local", 1, True),
    ("single-input-global", 2, False), ("single-input-local", 2, False),
])  # fmt: skip
def test_single_input(name: str, token: int, expected: bool) -> None:
    verdict = is_locally_optimal(example(name), None, [token])
    assert bool(verdict) is expected
    if token < 2:
        assert verdict.solution.support.nonzero().tolist() == [[0, 2]]
        assert verdict.offenders == ([] if expected else [(0, 2)])
    else:
        assert not verdict.feasible or verdict.offenders


def test_the_verdict_knows_why() -> None:
    data = random_sphere(n=4, T=6, d=10, batch=(3, 2), seed=0)
    verdict = is_locally_optimal(data, data.head, torch.zeros(3, 2, 4, dtype=torch.int64))
    assert verdict.holds.shape == (3, 2)
    assert verdict.holds.dtype == torch.bool
    assert type(verdict.holds) is torch.Tensor
    with pytest.raises(ValueError, match=r"use \.holds"):
        bool(verdict)
    assert verdict.holds.equal(~verdict.violations.flatten(2).any(-1) & verdict.feasible)
    assert verdict.violations.shape == (3, 2, 4, 6)
    assert (verdict.gap > 0).equal(~verdict.violations.flatten(2).any(-1))
    lines = str(verdict).splitlines()
    assert len(lines) == int((~verdict.holds).sum())
    assert lines[0].startswith("element (0, 0): support tokens score at least as high")
    assert str(is_locally_optimal(data[0, 0], None, optimal_tokens(data[0, 0]))) == "locally optimal"


@every_case
def test_the_definition_on_every_case(case: Case) -> None:
    """Support and scores compared one by one, in plain Python."""
    data = case.data.flatten()
    selected = case.selected.reshape(-1, data.n)
    verdict = is_locally_optimal(data, None, selected)
    scores, solution = token_scores(data), solve(AttentionSVM(data, selected))
    assert verdict.feasible.all().item() is case.feasible
    for b in range(len(data)):
        good = bool(solution.solved[b])
        for i in range(data.n):
            own = float(scores[b, i, selected[b, i]])
            for t in range(data.T):
                wrong = bool(solution.support[b, i, t]) and float(scores[b, i, t]) >= own
                assert bool(verdict.violations[b, i, t]) is (wrong and bool(solution.solved[b]))
                good = good and not wrong
        assert bool(verdict.holds[b]) is good
    one = is_locally_optimal(data[0], None, selected[0])
    assert bool(one) is bool(verdict.holds[0])


def test_a_selection_that_no_weights_separate() -> None:
    line = TokenDataset(torch.tensor([[[-1.0], [0.0], [1.0]]]).double(), torch.ones(1, 1).double(), [1])
    verdict = is_locally_optimal(line, torch.ones(1).double(), [1])
    assert not verdict
    assert not verdict.feasible
    assert not verdict.undecided
    assert math.isnan(verdict.gap)
    assert verdict.offenders == []
    assert str(verdict) == "no weights separate this selection"


def test_ties_are_violations_in_float32_and_float64() -> None:
    data = example("single-input-global")
    for dtype in (torch.float32, torch.float64):
        assert not is_locally_optimal(data.to(dtype=dtype), None, [1])
        assert is_locally_optimal(data.to(dtype=dtype), None, [0])


def test_one_token_inputs_are_trivially_optimal() -> None:
    data = TokenDataset(torch.ones(2, 1, 3).double(), torch.ones(2, 3).double(), [1, -1])
    assert is_locally_optimal(data, torch.ones(3).double(), [0, 0])


def test_effective_scores_of_a_linear_head_are_its_scores() -> None:
    data = random_sphere(n=3, T=5, d=4, batch=4, seed=1)
    selected = torch.randint(5, (4, 3), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(effective_scores(data, None, selected), token_scores(data))
    wrapped = ModuleHead(torch.nn.Linear(4, 1, bias=False).double())
    linear = LinearHead(wrapped.module.weight.detach()[0])
    torch.testing.assert_close(effective_scores(data, wrapped, selected), token_scores(data, linear))


@pytest.mark.parametrize("kind", ["quadratic", "relu", "module"])
def test_effective_scores_are_the_slopes_of_the_output(kind: str) -> None:
    """Moving a little attention from the selected token to token t changes Y f by u_t - u_selected."""
    data = random_sphere(n=3, T=5, d=4, seed=2)
    generator = torch.Generator().manual_seed(3)
    head = {
        "quadratic": QuadraticHead(data.head, 0.7),
        "relu": ReluHead(torch.randn(4, 6, generator=generator, dtype=torch.float64)),
        "module": ModuleHead(
            torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1)).double()
        ),
    }[kind]
    selected = torch.tensor([1, 4, 0])
    scores = effective_scores(data, head, selected)
    pure = torch.nn.functional.one_hot(selected, 5).double()
    step = 1e-6
    for t in range(5):
        mixed = (1 - step) * pure + step * torch.nn.functional.one_hot(torch.full((3,), t), 5).double()
        before, after = ((s.unsqueeze(-2) @ data.values).squeeze(-2) for s in (pure, mixed))
        change = data.labels * (head.output(after) - head.output(before)) / step
        torch.testing.assert_close(change, scores[:, t] - scores.gather(-1, selected[:, None])[:, 0], atol=1e-5, rtol=0)


def test_the_unique_optimum_is_locally_optimal_in_every_norm() -> None:
    data = random_sphere(n=3, T=4, d=5, batch=20, seed=5)
    for norm in (Frobenius(), Nuclear()):
        assert is_locally_optimal(data, None, optimal_tokens(data), norm).holds.all()


def follow(data: TokenDataset, selected: torch.Tensor, radius: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Which runs from R W_mm / ||W_mm|| stay at their selection, and their final cosine."""
    solution = solve(AttentionSVM(data, selected))
    start = radius * solution.weights / torch.linalg.matrix_norm(solution.weights)[..., None, None]
    run = fit(data, initial=start, steps=2000, keep=())
    assert bool((evaluate(data, start).selected == selected).all())
    return (run.selected == selected).all(-1), direction_cosine(run.weights, solution.weights)


def test_local_convergence_and_its_failure() -> None:
    """From 100 W_mm/||W_mm||: locally optimal selections attract; where a support token out-scores, descent leaves."""
    data = random_sphere(n=4, T=6, d=10, batch=400, seed=6)
    selected = torch.randint(6, (400, 4), generator=torch.Generator().manual_seed(1))
    half = torch.arange(400) < 200
    # half of them near the optimum, so that both kinds are frequent
    selected = torch.where(half[:, None], optimal_tokens(data), selected)
    one_off = torch.arange(400) < 100
    selected[one_off, 0] = selected[100:200, 0]
    verdict = is_locally_optimal(data, None, selected)
    stays, cosine = follow(data, selected, 100.0)
    good, bad = verdict.holds, ~verdict.holds & verdict.feasible
    print(f"locally optimal {int(good.sum())}: stayed {int(stays[good].sum())}, cosine >= {cosine[good].min():.5f};")
    print(f"not {int(bad.sum())}: stayed {int(stays[bad].sum())}")
    assert int(good.sum()) > 100
    assert int(bad.sum()) > 100
    assert bool(stays[good].all())
    assert bool((cosine[good] > 0.999).all())
    assert not bool(stays[bad].any())


def test_bad_input_is_answered_in_a_sentence() -> None:
    data = random_sphere(n=3, T=4, d=5, seed=0)
    with pytest.raises(ValueError, match="selected must hold one token index per input"):
        is_locally_optimal(data)
    with pytest.raises(ValueError, match=r"selected must lie in 0..3; got 4 at input 1"):
        is_locally_optimal(data, None, [0, 4, 0])
    with pytest.raises(ValueError, match="a prediction head is needed"):
        is_locally_optimal(data.with_head(None), None, [0, 0, 0])
    other = solve(AttentionSVM(random_sphere(n=2, T=4, d=5, seed=0), [0, 0]))
    with pytest.raises(ValueError, match=r"solution.support must have shape \[3, 4\]"):
        is_locally_optimal(data, None, [0, 0, 0], solution=other)


def test_a_solution_of_another_selection_or_norm_is_refused():
    data = attsvm.data.random_sphere(n=4, T=5, d=5, batch=20, seed=3)
    best = attsvm.optimal_tokens(data)
    solution = attsvm.solve(attsvm.AttentionSVM(data, best))
    own = attsvm.is_locally_optimal(data, None, best, solution=solution)
    assert own.holds.equal(attsvm.is_locally_optimal(data, None, best).holds)
    with pytest.raises(ValueError, match="solution must be that of"):
        attsvm.is_locally_optimal(data, None, (best + 1) % 5, solution=solution)
    with pytest.raises(ValueError, match="solution is in the Frobenius norm"):
        attsvm.is_locally_optimal(data, None, best, attsvm.Nuclear(), solution)
