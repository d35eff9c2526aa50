"""Infeasible only where it is proved for the data as given; separable wherever weights are in hand.

The truth comes from exact arithmetic of its own: a ray exists exactly when some minimal set of rows has one, so that
small problems are decided by trying every set of at most D + 1 rows in D dimensions with fractions.
"""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
import torch

from attsvm.data import TokenDataset, random_sphere
from attsvm.norms import Entrywise, Frobenius, MaxEntry, Norm, Nuclear, Spectral, SumEntry
from attsvm.svm import AttentionSVM, Status, SVMSolution, solve
from attsvm.svm.infeasibility import proves_infeasible

from .checks import dataset, quiet_solve, sphere_points

EVERY_NORM = [Frobenius(), Nuclear(), Spectral(), MaxEntry(), SumEntry(), Entrywise(3)]
every_norm = pytest.mark.parametrize("norm", EVERY_NORM, ids=repr)


def fractions(data: TokenDataset, selected: np.ndarray) -> list[list[Fraction]]:
    """The rows (x_r - x_t) z^T, exactly."""
    rows = []
    for i in range(data.n):
        query = [Fraction(x) for x in data.queries[i].tolist()]
        tokens = [[Fraction(x) for x in token] for token in data.tokens[i].tolist()]
        kept = tokens[int(selected[i])]
        for t in range(data.T):
            if t != int(selected[i]):
                rows.append([(a - b) * z for a, b in zip(kept, tokens[t], strict=True) for z in query])
    return rows


def null_vector(rows: list[list[Fraction]]) -> list[Fraction] | None:
    """The combination of the rows that gives 0, where there is one up to scale; None otherwise."""
    m = len(rows)
    left = [row + [Fraction(int(k == j)) for j in range(m)] for k, row in enumerate(rows)]
    rank, width = 0, len(rows[0])
    for column in range(width):
        pivot = next((k for k in range(rank, m) if left[k][column] != 0), None)
        if pivot is None:
            continue
        left[rank], left[pivot] = left[pivot], left[rank]
        for k in range(rank + 1, m):
            factor = left[k][column] / left[rank][column]
            left[k] = [x - factor * y for x, y in zip(left[k], left[rank], strict=True)]
        rank += 1
    return left[-1][width:] if rank == m - 1 else None


def separable_exactly(rows: list[list[Fraction]]) -> bool:
    """No minimal set of rows has a positive combination that gives 0 (Farkas, Caratheodory)."""
    for count in range(1, len(rows[0]) + 2):
        for chosen in itertools.combinations(rows, count):
            found = null_vector(list(chosen))
            if found is not None and (all(x > 0 for x in found) or all(x < 0 for x in found)):
                return False
    return True


def agrees(solution: SVMSolution, separable: bool) -> None:
    if separable:
        assert solution.status is not Status.INFEASIBLE
    else:
        assert not bool(solution.separable)


@every_norm
@pytest.mark.parametrize("e", [2.0**-20, 2.0**-40, 2.0**-60, 2.0**-200])
def test_nearly_opposite_rows_are_never_called_infeasible(norm: Norm, e: float) -> None:
    data = dataset(np.array([[[0.0, 0.0], [-1.0, -e], [1.0, -e]]]), np.ones((1, 1)))
    assert separable_exactly(fractions(data, np.array([0])))
    solution = quiet_solve(AttentionSVM(data, [0]), norm, None)
    agrees(solution, True)
    if solution.status is Status.NUMERICALLY_INFEASIBLE:  # W = (0, 1 / e): the bound must lie below it
        assert 1e9 < solution.certificate.dual_value.item() <= 1 / e
        printed = float(solution.sentences.split("norm above ")[1].split(";")[0])
        assert 0.98 < printed / solution.certificate.dual_value.item() <= 1
        assert "whether there are any is not known" in solution.sentences
    elif isinstance(norm, Frobenius):
        assert solution.weights[1, 0].item() == pytest.approx(1 / e)


@every_norm
def test_opposite_rows_are_proved(norm: Norm) -> None:
    data = dataset(np.array([[[0.0, 0.0], [-1.0, 0.0], [1.0, 0.0]]]), np.ones((1, 1)))
    assert solve(AttentionSVM(data, [0]), norm).status is Status.INFEASIBLE


@pytest.mark.parametrize("seed", [11, 12, 13])
def test_every_verdict_against_fractions(seed: int) -> None:
    """Small integers, where exact coincidences abound, and the same moved by one unit of round-off."""
    rng = np.random.default_rng(seed)
    counts = dict.fromkeys(Status, 0)
    for _ in range(40):
        d, dq, n, T = rng.integers(1, 3), rng.integers(1, 3), rng.integers(1, 3), rng.integers(2, 4)
        tokens, queries = rng.integers(-2, 3, (n, T, d)).astype(float), rng.integers(-1, 2, (n, dq)).astype(float)
        if rng.random() < 0.5:  # feasible problems become infeasible by as little as float64 can, and the other way
            tokens = tokens + rng.integers(-1, 2, tokens.shape) * rng.choice([2.0**-52, 2.0**-60, 1e-200])
        data, selected = dataset(tokens, queries), rng.integers(0, T, n)
        solution = quiet_solve(AttentionSVM(data, selected), Frobenius(), None)
        agrees(solution, separable_exactly(fractions(data, selected)))
        counts[solution.status] += 1
    assert counts[Status.SOLVED] > 0
    assert counts[Status.INFEASIBLE] > 0


@pytest.mark.parametrize("shape", [(1, 12, 3), (6, 8, 3), (12, 6, 2)], ids=str)
def test_generic_infeasible_problems_are_proved(shape: tuple[int, int, int]) -> None:
    """Random tokens and queries: rows of a ray span their space, and the proof finds it in every draw."""
    n, T, d = shape
    rng = np.random.default_rng(987)
    tokens = sphere_points(rng, 200, n, T, d) * rng.uniform(0.1, 1.0, (200, n, T, 1))
    data = dataset(tokens, sphere_points(rng, 200, n, d))
    selected = np.random.default_rng(988).integers(0, T, (200, n))
    solution = solve(AttentionSVM(data, selected))
    assert int(solution.barred.sum()) > 30
    assert int((solution.barred & ~solution.infeasible).sum()) == 0


def test_shared_and_parallel_queries() -> None:
    """Cycles among tokens that several inputs share: exact, though the rows span little."""
    rng = np.random.default_rng(5)
    points, query = sphere_points(rng, 3, 6), sphere_points(rng, 6)
    tokens = np.stack([points[[0, 1]], points[[1, 2]], points[[2, 0]]])
    for queries in (np.stack([query] * 3), np.stack([query, 2 * query, 4 * query])):
        assert solve(AttentionSVM(dataset(tokens, queries), [0, 0, 0])).status is Status.INFEASIBLE
    assert solve(AttentionSVM(dataset(tokens, np.stack([query] * 3)), [0, 0, 1])).status is Status.SOLVED


def test_a_rounded_mixture_is_not_proved() -> None:
    """The selected token is a mixture of the others up to round-off, in more dimensions than they span."""
    rng = np.random.default_rng(6)
    for _ in range(10):
        tokens = sphere_points(rng, 1, 4, 6)
        tokens[0, 3] = rng.dirichlet(np.ones(3)) @ tokens[0, :3]
        data = dataset(tokens, np.ones((1, 1)))
        separable = separable_exactly(fractions(data, np.array([3])))
        for norm in (Frobenius(), MaxEntry()):
            solution = solve(AttentionSVM(data, [3]), norm)
            agrees(solution, separable)
            assert not separable or solution.certificate.dual_value.item() > 1e9 or bool(solution.separable)


@pytest.mark.parametrize("twist", [0.0, 2.0**-60])
def test_an_integer_example_and_its_twist(twist: float) -> None:
    tokens = np.array([[[0.0, 0.0, 0.0], [3.0, 1.0, twist], [-1.0, 2.0, twist], [-2.0, -3.0, twist]]])
    data = dataset(tokens, np.ones((1, 1)))
    assert separable_exactly(fractions(data, np.array([0]))) == (twist != 0)
    for norm in EVERY_NORM:
        solution = solve(AttentionSVM(data, [0]), norm)
        assert (solution.status is Status.INFEASIBLE) == (twist == 0)


def test_wrong_rays_prove_nothing() -> None:
    """Multipliers that are no ray, or the ray of another problem, are not accepted."""
    data = random_sphere(n=8, T=6, d=3, batch=50, seed=31)
    selected = np.random.default_rng(32).integers(0, 6, (50, 8))
    problem = AttentionSVM(data, selected)
    solution = solve(problem)
    separable = solution.separable
    assert 5 < int(separable.sum()) < 45
    random = torch.rand(problem.rows.shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    shifted = solution.duals.roll(1, 0)
    for guess in (random, shifted, torch.zeros_like(random), solution.duals):
        assert not bool(proves_infeasible(problem, guess)[separable].any())
    assert bool(proves_infeasible(problem, solution.duals)[~separable].all())


# ------------------------------------------------------------------------------------------------- separable


def near_twins(seed: int, apart: float, batch: int = 40) -> AttentionSVM:
    """Tokens on the sphere, one rival of each input as close as `apart` to the selected token."""
    data = random_sphere(n=3, T=5, d=6, batch=batch, seed=seed)
    tokens = data.tokens.clone()
    step = torch.from_numpy(sphere_points(np.random.default_rng(seed), batch, 6))
    tokens[:, 0, 1] = tokens[:, 0, 0] + apart * step
    return AttentionSVM(TokenDataset(tokens, data.queries, data.labels), torch.zeros(batch, 3, dtype=torch.int64))


@pytest.mark.parametrize("norm", [Frobenius(), Nuclear(), MaxEntry()], ids=repr)
def test_tokens_a_millionth_apart_are_separable(norm: Norm) -> None:
    solution = solve(near_twins(71, 1e-6), norm)
    assert bool(solution.separable.all())
    assert bool((solution.certificate.min_margin > 0).all())


def test_weights_within_their_round_off_separate_nothing() -> None:
    """Margins of one unit in 2^52 of the products that make them up are noise."""
    from attsvm.svm.solve import _separates

    def separates(problem: AttentionSVM, weights: torch.Tensor) -> bool:
        return bool(_separates(problem, weights, problem.margins(weights)))

    data = dataset(np.array([[[1.0, 1.0], [1.0 - 2.0**-52, 1.0]]]), np.ones((1, 1)))
    problem = AttentionSVM(data, [0]).flatten()
    assert not separates(problem, torch.tensor([[[1.0], [1e3]]]).double())
    assert not separates(problem, torch.tensor([[[-1.0], [0.0]]]).double())
    wide = AttentionSVM(dataset(np.array([[[1.0, 1.0], [0.5, 1.0]]]), np.ones((1, 1))), [0]).flatten()
    assert separates(wide, torch.tensor([[[1.0], [1e3]]]).double())


def test_old_files_still_open(tmp_path) -> None:
    """Files with four statuses: what they call infeasible had a ray of floating point, which proves a bound."""
    from attsvm.data.files import read_arrays, write_arrays

    problem = AttentionSVM(random_sphere(n=2, T=8, d=2, batch=20, seed=4), torch.zeros(20, 2, dtype=torch.int64))
    solution = solve(problem)
    arrays, metadata = read_arrays(solution.save(tmp_path / "new.safetensors"))
    assert (SVMSolution.load(tmp_path / "new.safetensors").status == solution.status).all()
    metadata.pop("statuses")
    old = SVMSolution.load(write_arrays(tmp_path / "old.safetensors", arrays, metadata))
    assert bool((old.barred == solution.infeasible).all())
    assert not bool(old.infeasible.any())
    assert bool((old.solved == solution.solved).all())
