"""Independent statements of the max-margin problem: rows one by one, norms by NumPy, CVXPY from the formula, checks."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from attsvm.data import TokenDataset
from attsvm.norms import Entrywise, Frobenius, MaxEntry, Norm, Nuclear, Spectral, SumEntry
from attsvm.svm import (
    ActiveSet,
    AttentionSVM,
    BatchedFrobenius,
    BlockDescent,
    Cvxpy,
    InteriorPoint,
    LargeInteriorPoint,
    Solver,
    SVMSolution,
    solve,
)

NORMS: tuple[Norm, ...] = (
    Frobenius(),
    Nuclear(),
    Spectral(),
    MaxEntry(),
    SumEntry(),
    Entrywise(1.5),
    Entrywise(3),
)
"""Every norm of the library; `test_checks` asks that none is missing and that each has a solver of its own."""
UNIQUE: tuple[Norm, ...] = tuple(norm for norm in NORMS if isinstance(norm, (Frobenius, Entrywise)))
INVARIANT: tuple[Norm, ...] = tuple(norm for norm in NORMS if norm.unitarily_invariant)

# Clarabel as tight as it goes; CVXPY's own accuracy claim is not what the tests rely on.
REFERENCE = Cvxpy(options={"tol_gap_abs": 1e-11, "tol_gap_rel": 1e-11, "tol_feas": 1e-11})

SOLVERS: tuple[tuple[Norm, Solver | None], ...] = (
    *((norm, None) for norm in NORMS),
    (Frobenius(), ActiveSet()),
    (Frobenius(), BatchedFrobenius()),
    (Frobenius(), BlockDescent()),
    (Frobenius(), LargeInteriorPoint()),
    *((norm, InteriorPoint()) for norm in NORMS[3:]),
    *((norm, REFERENCE) for norm in NORMS),
)
"""Every norm with every solver of it; None is the library's choice."""


def solver_id(pair: tuple[Norm, Solver | None]) -> str:
    norm, solver = pair
    return f"{norm!r}-{'chosen' if solver is None else type(solver).__name__}"


# ------------------------------------------------------------------- rows, one by one


@dataclass(frozen=True)
class Rows:
    """Rows A_k as matrices ``[k, d, dq]`` with right-hand sides, and their places (input, token)."""

    inequalities: np.ndarray
    right_hand_side: np.ndarray
    equalities: np.ndarray
    equality_values: np.ndarray
    places: list[tuple[int, int]]
    equal_places: list[tuple[int, int]]

    def combine(self, duals: np.ndarray) -> np.ndarray:
        """``sum lam_k A_k + sum nu_l C_l`` of duals ``[n, T]``."""
        total = np.zeros(self.inequalities.shape[1:])
        for row, place in zip(self.inequalities, self.places, strict=True):
            total = total + duals[place] * row
        for row, place in zip(self.equalities, self.equal_places, strict=True):
            total = total + duals[place] * row
        return total


def written_out(data: TokenDataset) -> TokenDataset:
    """The same data with the tokens of a sequence copied for each of its queries."""
    shared = data.queries_per_sequence
    copied = [part.repeat_interleave(shared, dim=-3) for part in (data.tokens, data.values)]
    return TokenDataset(copied[0], data.queries, data.labels, data.mask, copied[1], data.head)


def explicit_rows(
    data: TokenDataset,
    selected: Sequence[int] | Tensor | None = None,
    *,
    selected_set: np.ndarray | None = None,
    right_hand_side: float = 1.0,
    all_pairs: bool = False,
) -> Rows:
    """The rows of one data set as the definition reads, in loops; with `all_pairs` against every token of the set."""
    full = written_out(data)
    tokens, queries = full.tokens.double().numpy(), full.queries.double().numpy()
    real = np.ones((data.n, data.T), bool) if data.mask is None else data.mask.numpy()
    lower, equal, places, equal_places = [], [], [], []
    for i in range(data.n):
        kept = [int(selected[i])] if selected is not None else list(np.flatnonzero(selected_set[i]))  # type: ignore[index]
        speakers = kept if all_pairs else kept[:1]
        for r in speakers:
            for t in range(data.T):
                row = np.outer(tokens[i, r] - tokens[i, t], queries[i])
                if t in kept and t != r:
                    equal.append(row)
                    equal_places.append((i, t))
                elif real[i, t] and t not in kept:
                    lower.append(row)
                    places.append((i, t))
    shape = (-1, data.d, data.dq)
    lower_rows, equal_rows = np.array(lower).reshape(shape), np.array(equal).reshape(shape)
    return Rows(
        lower_rows,
        np.full(len(lower_rows), right_hand_side),
        equal_rows,
        np.zeros(len(equal_rows)),
        places,
        equal_places,
    )


# ------------------------------------------------------------------- norms by NumPy


def norm_value(norm: Norm, matrix: np.ndarray) -> float:
    """N(W) by NumPy."""
    if isinstance(norm, Frobenius):
        return float(np.sqrt((matrix**2).sum()))
    if isinstance(norm, (Nuclear, Spectral)):
        return float(np.linalg.norm(matrix, "nuc" if isinstance(norm, Nuclear) else 2))
    if isinstance(norm, MaxEntry):
        return float(np.abs(matrix).max())
    power = 1.0 if isinstance(norm, SumEntry) else norm.p  # type: ignore[attr-defined]
    return float((np.abs(matrix) ** power).sum() ** (1 / power))


def dual_norm_value(norm: Norm, matrix: np.ndarray) -> float:
    """N°(M) by NumPy."""
    pairs: dict[type, Norm] = {
        Frobenius: Frobenius(),
        Nuclear: Spectral(),
        Spectral: Nuclear(),
        MaxEntry: SumEntry(),
        SumEntry: MaxEntry(),
    }
    dual = Entrywise(norm.p / (norm.p - 1)) if isinstance(norm, Entrywise) else pairs[type(norm)]
    return norm_value(dual, matrix)


# ------------------------------------------------------------------- CVXPY from the formula


def reference(rows: Rows, norm: Norm, tolerance: float = 1e-12) -> np.ndarray | None:
    """argmin N(W) by CVXPY and Clarabel, rows as given; None where CVXPY finds no point.

    The Frobenius norm is squared: a quadratic program gives more digits of W than the cone of the norm.
    """
    import cvxpy as cp

    weights = cp.Variable(rows.inequalities.shape[1:])
    flat = cp.vec(weights, order="C")
    size = flat.size
    constraints = []
    if len(rows.right_hand_side):
        matrix, sides = _unit_rows(rows.inequalities.reshape(-1, size), rows.right_hand_side)
        constraints.append(matrix @ flat >= sides)
    if len(rows.equality_values):
        # An orthonormal basis of the equalities: Clarabel breaks down on redundant ones.
        u, s, vt = np.linalg.svd(rows.equalities.reshape(-1, size), full_matrices=False)
        kept = s > 1e-10 * s[0]
        constraints.append(vt[kept] @ flat == (u.T @ rows.equality_values)[kept] / s[kept])
    expressions = {
        Frobenius: lambda: cp.sum_squares(flat),
        Nuclear: lambda: cp.normNuc(weights),
        Spectral: lambda: cp.sigma_max(weights),
        MaxEntry: lambda: cp.norm(flat, "inf"),
        SumEntry: lambda: cp.norm(flat, 1),
        Entrywise: lambda: cp.pnorm(flat, norm.p),  # type: ignore[attr-defined]
    }
    problem = cp.Problem(cp.Minimize(expressions[type(norm)]()), constraints)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # CVXPY warns of inaccurate solutions; the caller compares them
        problem.solve(
            solver="CLARABEL", max_iter=300, **dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), tolerance)
        )
    return None if weights.value is None else np.asarray(weights.value)


def _unit_rows(matrix: np.ndarray, sides: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    lengths = np.linalg.norm(matrix, axis=1)
    lengths[lengths == 0] = 1.0
    return matrix / lengths[:, None], sides / lengths


# ------------------------------------------------------------------- checks


def check_optimal(rows: Rows, norm: Norm, weights: Tensor, duals: Tensor, tolerance: float) -> None:
    """Raise AssertionError naming the condition that fails: margins, signs, dual ball, gap, all by NumPy."""
    w, lam = weights.double().numpy(), duals.double().numpy()
    margins = np.einsum("kij,ij->k", rows.inequalities, w)
    misses = np.einsum("kij,ij->k", rows.equalities, w) - rows.equality_values
    _holds("every margin reaches its right-hand side", bool((margins >= rows.right_hand_side - tolerance).all()))
    _holds("every equality holds", bool((np.abs(misses) <= tolerance * (1 + np.abs(rows.equality_values))).all()))
    lower = np.array([lam[place] for place in rows.places])
    equal = np.array([lam[place] for place in rows.equal_places])
    _holds("duals are not negative", bool((lower >= -tolerance).all()))
    touched = {*rows.places, *rows.equal_places}
    others = [
        lam[i, t]
        for i in range(lam.shape[0])
        for t in range(lam.shape[1])
        if (i, t) not in touched and not any(j == i for j, _ in rows.equal_places)
    ]
    _holds("duals vanish where there is no row", not np.any(others))
    size = dual_norm_value(norm, rows.combine(lam))
    _holds("the dual point lies in the dual ball", size <= 1 + tolerance)
    primal, dual = norm_value(norm, w), float(lower @ rows.right_hand_side + equal @ rows.equality_values)
    _holds("primal and dual values agree", abs(primal - dual) <= 2 * tolerance * max(primal, 1e-300))


def check_ray(rows: Rows, duals: Tensor, tolerance: float = 1e-10) -> None:
    """Raise AssertionError unless the duals prove that no W exists: lam >= 0, A*(lam) = 0, b^T lam > 0."""
    lam = duals.double().numpy()
    lower = np.array([lam[place] for place in rows.places])
    equal = np.array([lam[place] for place in rows.equal_places])
    _holds("the ray is finite", bool(np.isfinite(lam).all()))
    _holds("the ray is not negative", bool((lower >= 0).all()))
    _holds("the ray earns something", float(lower @ rows.right_hand_side + equal @ rows.equality_values) > 0)
    lengths = np.concatenate([np.linalg.norm(part, axis=(1, 2)) for part in (rows.inequalities, rows.equalities)])
    weight = float(np.abs(np.concatenate([lower, equal])) @ lengths)
    left = float(np.linalg.norm(rows.combine(lam)))
    _holds("the ray cancels", left <= tolerance * weight or (weight == 0 and left == 0))


def check_same_weights(found: Tensor, expected: np.ndarray | Tensor, relative: float) -> None:
    """Raise AssertionError unless both are finite and agree in Frobenius norm, relative to the expected one."""
    one, two = found.double().numpy(), np.asarray(expected, dtype=float)
    _holds(f"one shape, {one.shape} and {two.shape}", one.shape == two.shape)
    _holds("finite weights", bool(np.isfinite(one).all() and np.isfinite(two).all()))
    error = np.linalg.norm(one - two) / max(float(np.linalg.norm(two)), 1e-300)
    _holds(f"the same weights (relative error {error:.2e}, allowed {relative:.0e})", bool(error <= relative))


def check_solution(solution: SVMSolution, data: TokenDataset, selected: Tensor) -> None:
    """One unbatched solution with its status, judged by `check_optimal` or `check_ray`."""
    rows = explicit_rows(data, selected)
    if bool(solution.infeasible):
        check_ray(rows, solution.duals)
        _holds("NaN weights where infeasible", bool(solution.weights.isnan().all()))
    else:
        _holds(f"solved, not {solution.status}", bool(solution.solved))
        check_optimal(rows, solution.norm, solution.weights, solution.duals, 2 * solution.tolerance)


def _holds(name: str, condition: bool) -> None:
    if not condition:
        raise AssertionError(f"does not hold: {name}")


# ------------------------------------------------------------------- data and solves


def quiet_solve(problem: AttentionSVM, norm: Norm, solver: Solver | None) -> SVMSolution:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Solution may be inaccurate")  # CVXPY's word; our certificate judges
        return solve(problem, norm, solver=solver)


def sphere_points(rng: np.random.Generator, *shape: int) -> np.ndarray:
    points = rng.standard_normal(shape)
    return points / np.linalg.norm(points, axis=-1, keepdims=True)


def dataset(tokens: np.ndarray, queries: np.ndarray, **options: object) -> TokenDataset:
    """Labels do not enter the SVM: all 1."""
    return TokenDataset(tokens, queries, np.ones(tokens.shape[:-2]), **options)  # type: ignore[arg-type]


def random_selection(data: TokenDataset, seed: int) -> Tensor:
    """A real token of every input, at random."""
    rng = np.random.default_rng(seed)
    scores = rng.random((*data.batch_shape, data.n, data.T))
    if data.mask is not None:
        scores = np.where(data.mask.numpy(), scores, -1.0)
    return torch.from_numpy(scores.argmax(-1))
