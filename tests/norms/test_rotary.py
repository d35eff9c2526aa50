"""The norms of rotary heads: laws, the real formula, factors, and the solver against CVXPY."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import attsvm
from attsvm.norms import Nuclear, NuclearByFrequency, SpectralByFrequency

from .checks import check_laws, random_matrices

CASES = [(3, False), (2, True), (0, True)]


@pytest.mark.parametrize("kind", ["dense", "low rank", "sparse", "ties"])
@pytest.mark.parametrize(("frequencies", "unturned"), CASES)
def test_the_laws_of_norms(frequencies, unturned, kind):
    norm = NuclearByFrequency(frequencies, unturned)
    assert norm.dual.dual == norm
    first, second = (random_matrices(seed, (4,), (3 * norm.blocks, 5), kind) for seed in (0, 1))
    for one in (norm, norm.dual):
        check_laws(one, first, second)


def real_form(weights, frequencies):
    """sum_f of half the nuclear norm of [[A, B], [-B, A]], and the nuclear norm of what is left."""
    height = weights.shape[0] // (2 * frequencies + 1)
    total = np.linalg.norm(weights[2 * frequencies * height :], "nuc")
    for f in range(frequencies):
        a, b = weights[2 * f * height :][:height], weights[(2 * f + 1) * height :][:height]
        total += np.linalg.norm(np.block([[a, b], [-b, a]]), "nuc") / 2
    return total


def test_the_real_formula():
    for weights in random_matrices(2, (5,), (15, 4), "dense"):
        assert float(NuclearByFrequency(2, True).value(weights)) == pytest.approx(real_form(weights.numpy(), 2))
    alone = random_matrices(3, (5,), (3, 4), "dense")
    assert torch.allclose(NuclearByFrequency(0, True).value(alone), Nuclear().value(alone))


def test_rank_one_frequencies_cost_what_their_factors_do():
    """N(W) = min ||K|| ||Q|| over columns rescaled by frequency; other factors of the same W cost more."""
    generator = torch.Generator().manual_seed(0)
    key, query = (torch.randn(3, 4, 2, generator=generator).double() for _ in range(2))  # [f, D, pair]
    blocks = []
    for k, q in zip(key, query, strict=True):
        blocks += [k @ q.T, torch.outer(k[:, 0], q[:, 1]) - torch.outer(k[:, 1], q[:, 0])]
    value = float(NuclearByFrequency(3).value(torch.cat(blocks)))
    sizes = key.flatten(1).norm(dim=1), query.flatten(1).norm(dim=1)
    balance = (sizes[1] / sizes[0]).sqrt()[:, None, None]
    assert value == pytest.approx(float((key * balance).norm() * (query / balance).norm()))
    assert value < float(key.norm() * query.norm())


def lifted_problem(seed, frequencies=2, unturned=True, n=5, T=4, D=3):
    generator = torch.Generator().manual_seed(seed)
    rows = D * (2 * frequencies + unturned)
    tokens, queries = (torch.randn(*shape, generator=generator).double() for shape in ((n, T, rows), (n, D)))
    data = attsvm.TokenDataset(tokens, queries, torch.ones(n).double())
    return attsvm.AttentionSVM(data, torch.zeros(n, dtype=torch.int64))


@pytest.mark.filterwarnings("ignore:Solution may be inaccurate")  # CVXPY's word; the comparison judges
@pytest.mark.parametrize("seed", range(4))
def test_the_solver_is_certified_and_agrees_with_cvxpy(seed):
    cp = pytest.importorskip("cvxpy")
    problem, norm = lifted_problem(seed), NuclearByFrequency(2, True)
    solution = attsvm.solve(problem, norm)
    assert bool(solution.solved)
    assert float(solution.certificate.relative_gap) < 1e-6
    weights = cp.Variable((15, 3))
    blocks = [weights[3 * k : 3 * k + 3] for k in range(5)]
    value = cp.normNuc(blocks[4])
    for a, b in (blocks[0:2], blocks[2:4]):
        value += cp.normNuc(cp.bmat([[a, b], [-b, a]])) / 2
    tokens, queries = problem.data.tokens.numpy(), problem.data.queries.numpy()
    rows = [(tokens[i, 0] - tokens[i, t])[None] @ weights @ queries[i] >= 1 for i in range(5) for t in range(1, 4)]
    expected = cp.Problem(cp.Minimize(value), rows).solve(solver="CLARABEL")
    assert float(norm.value(solution.weights)) == pytest.approx(expected, rel=1e-5)


def test_bad_input():
    with pytest.raises(ValueError, match="frequencies must be at least 1 where nothing is unturned; got 0"):
        NuclearByFrequency(0)
    with pytest.raises(ValueError, match="frequencies must be a non-negative integer; got -1"):
        SpectralByFrequency(-1, True)
    with pytest.raises(ValueError, match="W must stack 4 blocks of as many rows each; got 15 rows"):
        NuclearByFrequency(2).value(torch.zeros(15, 3))
    with pytest.raises(ValueError, match="W must stack 4 blocks"):
        attsvm.solve(lifted_problem(0), NuclearByFrequency(2))
