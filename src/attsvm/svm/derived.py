"""What follows from a solution: margin efficiency, the label SVM, the finite component."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attsvm._checks import ArrayLike, as_floating
from attsvm.data import TokenDataset
from attsvm.norms import Frobenius, Norm
from attsvm.svm.problem import AttentionSVM, finite_component_problem
from attsvm.svm.solution import SVMSolution
from attsvm.svm.solve import solve
from attsvm.svm.solvers.base import Solver


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
        One number an element; NaN where the problem is infeasible, -inf for zero weights where there are rows.
    """
    norm = norm or Frobenius()
    matrix = as_floating(weights, "weights").to(torch.float64)
    best = solution if solution is not None else solve(problem, norm)
    asks = problem.inequalities & (problem.values > 0)
    relative = torch.where(asks, problem.margins(matrix) / torch.where(asks, problem.values, 1.0), torch.inf)
    size = norm.value(matrix)
    smallest = relative.amin((-1, -2))
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
    values = (
        data.values if data.queries_per_sequence == 1 else data.values.repeat_interleave(data.queries_per_sequence, -3)
    )
    kept = values.gather(-2, chosen[..., None, None].expand(*chosen.shape, 1, data.dv))
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
    """
    return solve(finite_component_problem(data, attention, selected_set), norm or Frobenius())
