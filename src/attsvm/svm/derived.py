"""What follows from solutions: margin efficiency, label SVM, finite component, distance to a set of solutions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attsvm.data import TokenDataset
from attsvm.data.checks import ArrayLike, as_floating, as_mask, as_tensor, check_kind, check_shape, place
from attsvm.norms import Entrywise, Frobenius, Norm, Nuclear
from attsvm.norms.semidefinite import ConicProgram, triangle
from attsvm.svm.problem import AttentionSVM
from attsvm.svm.solution import SVMSolution
from attsvm.svm.solve import solve
from attsvm.svm.solvers.base import Solver
from attsvm.svm.solvers.nuclear.rows import FACE


def margin_efficiency(
    weights: ArrayLike, problem: AttentionSVM, norm: Norm | None = None, *, solution: SVMSolution | None = None
) -> Float[Tensor, "*lead"]:
    """Margin of this direction over the best one, ``min_k <A_k, W> / N(W)`` times N(W_mm), in (-inf, 1].

    It needs no unique solution: 1 means max-margin in the norm, whatever the direction.

    Arguments:
        weights: ``[*starts, *batch, d, dq]``.
        problem: with right-hand sides 1 (or any positive value) and equalities 0.
        norm: `Frobenius()` by default.
        solution: of `problem` in `norm`, if at hand; otherwise it is solved here.

    Returns:
        A number for each element; NaN where the problem is infeasible, -inf for zero weights where there are rows.
    """
    norm = norm or Frobenius()
    check_kind(solution, SVMSolution | None, "solution", "an SVMSolution or None")
    matrix = as_floating(weights, "weights").to(torch.float64)
    best = solution if solution is not None else solve(problem, norm)
    size, smallest = norm.value(matrix), problem.smallest_ratio(problem.margins(matrix))
    margin = torch.where(size > 0, smallest / size, torch.where(torch.isinf(smallest), torch.inf, -torch.inf))
    value = torch.where(best.infeasible, torch.nan, norm.value(torch.nan_to_num(best.weights)))
    return torch.where(torch.isinf(smallest), torch.ones_like(margin), margin * value)


@dataclass(frozen=True, eq=False)
class LabelSVM:
    """The max-margin head of a selection: v_mm and the inputs that support it."""

    vector: Float[Tensor, "*batch dv"]
    support: Bool[Tensor, "*batch n"]
    solution: SVMSolution


def label_svm(data: TokenDataset, selected: ArrayLike, *, solver: Solver | None = None) -> LabelSVM:
    """``v_mm = argmin ||v||  s.t.  Y_i v^T x_i,selected >= 1``: the head that joint training tends to [MMTS].

    Arguments:
        data: ``[*batch]`` data sets; the head reads `values`.
        selected: ``[*batch, n]``.

    Returns:
        v_mm (NaN where the labels cannot be separated), its support inputs S, and the solution with its certificate.
    """
    chosen = AttentionSVM(data, selected).reference  # says what is wrong with the selection
    kept = data.input_values.gather(-2, chosen[..., None, None].expand(*chosen.shape, 1, data.dv))
    signed = kept * data.labels[..., None, None]
    pairs = torch.cat([signed, torch.zeros_like(signed)], dim=-2)
    ones = torch.ones(*data.batch_shape, data.n, 1, dtype=data.dtype, device=data.device)
    separate = TokenDataset(pairs, ones, torch.ones_like(data.labels))
    solution = solve(AttentionSVM(separate, torch.zeros_like(chosen)), Frobenius(), solver=solver)
    return LabelSVM(solution.weights.squeeze(-1), solution.support[..., 1], solution)


def finite_component(
    data: TokenDataset, attention: ArrayLike, selected_set: ArrayLike, norm: Norm | None = None
) -> SVMSolution:
    """W_fin: the smallest W whose logits reproduce the attention's ratios within each selected set [TaSVM].

        min N(W)  s.t.  (x_it - x_iu)^T W z_i = log(s_it / s_iu)   for t, u in O_i

    Arguments:
        attention: probabilities s, ``[*batch, n, T]``, positive on `selected_set`.
        selected_set: O, a mask ``[*batch, n, T]``.
        norm: N, `Frobenius()` by default.
    """
    shape = (*data.batch_shape, data.n, data.T)
    probabilities = as_tensor(attention, "attention").to(torch.float64)
    check_shape(probabilities, "attention", shape, "batch, n, T")
    kept = as_mask(selected_set, "selected_set").to(probabilities.device)
    check_shape(kept, "selected_set", shape, "batch, n, T")
    bad = kept & ~(probabilities > 0)
    if bool(bad.any()):
        where = torch.nonzero(bad)[0].tolist()
        got = f"{probabilities[tuple(where)].item():g} at {place(where, ('input', 'token'))}"
        raise ValueError(f"attention must be positive on selected_set; got {got}")
    logs = probabilities.clamp(min=torch.finfo(torch.float64).tiny).log()
    problem = AttentionSVM(data, selected_set=kept, equality_values=logs, rows=torch.zeros_like(kept))
    return solve(problem, norm or Frobenius())


def distance_to_solution_set(
    weights: ArrayLike, problem: AttentionSVM, norm: Norm | None = None, *, solution: SVMSolution | None = None
) -> Float[Tensor, "*batch"]:
    """``min ||W / N(W) - S / N(S)||_F`` over all solutions S of the problem: the distance the theory speaks of.

    Nuclear-norm solutions need not be unique. With M = A*(lam) of norm 1, U and V its singular vectors of singular
    value 1, every solution is ``U H V^T`` with H positive semidefinite, trace H = N(S), and feasible margins; the
    distance is a small conic program over H.

    Arguments:
        weights: ``[*batch, d, dq]``, not zero.
        problem: ``[*batch]`` problems.
        norm: `Nuclear()` by default; Frobenius and entrywise l_p solutions are unique, others are refused.
        solution: of `problem` in `norm`, if at hand.

    Returns:
        A number for each element; NaN where the problem is not solved.
    """
    norm = norm or Nuclear()
    if not isinstance(norm, (Nuclear, Frobenius, Entrywise)):
        raise ValueError(f"distance_to_solution_set knows Nuclear, Frobenius and Entrywise norms; got {norm!r}")
    matrix = as_floating(weights, "weights").to(torch.float64)
    data = problem.data
    check_shape(matrix, "weights", (*problem.batch_shape, data.d, data.dq), "batch, d, dq")
    best = solution if solution is not None else solve(problem, norm)
    flat, count = problem.flatten(), int(np.prod(problem.batch_shape, dtype=int))
    given = (matrix / norm.value(matrix)[..., None, None]).reshape(count, data.d, data.dq)
    own = best.weights.reshape(count, data.d, data.dq)
    direct = torch.linalg.matrix_norm(given - own / norm.value(own)[:, None, None])
    known, solved = best.unique.reshape(count), best.solved.reshape(count)
    duals = best.duals.reshape(count, data.n, data.T)
    for element in torch.nonzero(solved & ~known).flatten().tolist():
        value = float(norm.value(own[element]))
        direct[element] = min(float(direct[element]), _projected(flat[element], given[element], duals[element], value))
    return direct.masked_fill(~solved, torch.nan).reshape(problem.batch_shape)


def _projected(problem: AttentionSVM, target: Tensor, duals: Tensor, value: float) -> float:
    """Distance from `target` to {U H V^T : H >= 0, trace H = 1, margins >= b / value}."""
    import clarabel

    left, singular, right = torch.linalg.svd(problem.combine(duals), full_matrices=False)
    face = singular >= (1 - FACE) * singular[0]
    u, v = left[:, face].cpu().numpy(), right[face].T.cpu().numpy()
    i, j = triangle(u.shape[1])
    size, both = len(i), np.einsum("ak,bk->kab", u[:, i], v[:, j]) + np.einsum("ak,bk->kab", u[:, j], v[:, i])
    basis = both / np.where(i == j, 2.0, np.sqrt(2.0))[:, None, None]

    def rows(mask: Tensor) -> tuple[np.ndarray, np.ndarray]:
        """Margins of every matrix of the basis on the rows of `mask` ``[rows, size]``, and what they must be."""
        margins = torch.stack([problem.margins(one)[mask] for one in torch.from_numpy(basis)]).numpy().T
        return margins.reshape(-1, size), problem.right_hand_side[mask].numpy() / value

    # x = (h, t): minimise t with ||U H V^T - target|| <= t, h the scaled triangle of H.
    def without_t(matrix: np.ndarray) -> np.ndarray:
        return np.hstack([matrix, np.zeros((len(matrix), 1))])

    program = ConicProgram(np.append(np.zeros(size), 1.0))
    (lower, asks), (equal, values) = rows(problem.inequalities), rows(problem.equalities)
    fixed = without_t(np.vstack([i == j, equal]))  # the trace, and the equalities
    program.add(fixed, np.append(1.0, values), clarabel.ZeroConeT(len(fixed)))
    slack = 1e-9  # margins of the certified solution hold only to round-off
    program.add(without_t(-lower), -asks + slack, clarabel.NonnegativeConeT(len(lower)))
    program.add(without_t(-np.eye(size)), np.zeros(size), clarabel.PSDTriangleConeT(u.shape[1]))
    away = np.vstack([np.append(np.zeros(size), -1.0), without_t(-basis.reshape(size, -1).T)])
    program.add(away, np.append(0.0, -target.cpu().numpy().ravel()), clarabel.SecondOrderConeT(len(away)))
    return float(max(program.solve().x[-1], 0.0))
