"""Large Frobenius problems on a GPU: an interior point whose systems have the size of W, whatever the number of rows.

With A_k = d_k z_k^T of length 1, W = A*(u) and S = diag(s / u), Newton's system (S + A A*) du = r has one unknown for
each row. It is solved through the d dq entries of W,

    (I + A* S^-1 A) dW = A* S^-1 r,        du = S^-1 (r - A dW),        A* S^-1 A = sum_i M_i (x) z_i z_i^T

where M_i = sum_t d_it d_it^T u_it / s_it. Both factors are symmetric, so that the sum over the inputs is one product
of a d (d + 1) / 2 x n with an n x dq (dq + 1) / 2 matrix: a GPU's favourite. Rows are never held: margins and
combinations are one attention forward and backward, differences are made for some inputs at a time.

Where no W separates, u grows along a ray while A*(u) stays bounded, so that u / sum(u) proves it; the largest
multipliers are then tried alone, since a ray of few rows is easier to prove. Where one does, the rows that look active
near the end are solved for directly, by `polish`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from attsvm.norms import Frobenius, Norm
from attsvm.svm.certificate import certify
from attsvm.svm.problem import AttentionSVM
from attsvm.svm.solvers.base import ProgressReport, RawSolution, Solver
from attsvm.svm.solvers.batched.guesses import predictor_corrector
from attsvm.svm.solvers.batched.rows import ScaledRows, polish
from attsvm.svm.solvers.block_descent.solver import BlockDescent

MOST_UNKNOWNS = 20_000  # entries of W: its system of equations takes their square, three times
_NUMBERS = 2**26  # of differences made at once
_START = 10.0  # multipliers and slacks to start from, in rows of length 1
_NEAR = 1e-6  # complementarity, over the dual value, from which the active rows are guessed
_RAY = 1e-11  # ||A*(u)|| / b^T u at which u is a ray
_RAY_ROWS = 2000  # most rows of one that is easier to prove


@dataclass(frozen=True)
class LargeInteriorPoint(Solver):
    """Mehrotra's method in the at most 20,000 entries of W, for one large problem after the other; made for GPUs.

    What it cannot settle goes to `BlockDescent`.

    Arguments:
        iterations: at most so many for each problem.
    """

    norms = (Frobenius,)
    accuracy: float = 1e-8
    iterations: int = 80

    def refusal(self, problem: AttentionSVM, norm: Norm) -> str | None:
        unknowns = problem.data.d * problem.data.dq
        many = f"W has {unknowns} entries, and it takes {MOST_UNKNOWNS}" if unknowns > MOST_UNKNOWNS else None
        return super().refusal(problem, norm) or many

    def solve(self, problem: AttentionSVM, norm: Norm, initial: Tensor | None, progress: ProgressReport) -> RawSolution:
        data = problem.data
        weights = data.tokens.new_zeros(*problem.batch_shape, data.d, data.dq)
        duals, steps = torch.zeros_like(problem.right_hand_side), torch.zeros(problem.batch_shape, dtype=torch.int64)
        for element in range(len(weights)):
            one = problem[element : element + 1]
            settled, steps[element] = _solve_one(one, self, weights[element], duals[element], progress)
            if not settled:
                found = BlockDescent(self.accuracy).solve(one, norm, duals[element : element + 1], progress)
                weights[element], duals[element] = found.weights[0], found.duals[0]
        return RawSolution(weights, duals, steps.to(data.device))


def _solve_one(
    problem: AttentionSVM, options: LargeInteriorPoint, weights: Tensor, duals: Tensor, progress: ProgressReport
) -> tuple[bool, int]:
    """Write weights and duals, or a ray, of a batch of one; whether they are one of the two, and the iterations."""
    sides, lengths = problem.right_hand_side.flatten(1), problem.row_norms.flatten(1)
    bound, present = problem.inequalities.flatten(1), problem.rows.flatten(1)
    asks, lone = problem.asking.flatten(1), (problem.asking & problem.vanishing).flatten(1)
    if not bool(asks.any()) or bool(lone.any()):  # nothing to do; or a row of zeros that asks for something, a ray
        duals[:] = (lone * sides.sign()).view_as(duals)
        return True, 0
    factors = torch.where(present & (lengths > 0), 1.0 / lengths, 0.0)
    unit = (sides * factors).abs().masked_fill(~asks, 0.0).max()
    b, bound, present = sides * factors / unit, bound & (factors > 0), factors > 0
    gram, start, before = _TokenGram(problem, factors), _START * bound.to(sides.dtype), torch.inf
    reach = factors / unit * sides.abs().masked_fill(~asks, 0.0).max()
    for count, (u, s, _) in enumerate(predictor_corrector(gram, b, bound, present, start, start)):
        W, value, left = gram.adjoint(u), float((b * u).sum()), float((u * s).sum())
        if progress is not None:
            progress(f"iteration {count}: complementarity {left / abs(value):.1e} of the dual value")
        if float(W.norm()) <= _RAY * value:
            duals[:] = (_fewer(gram, b, bound, present, u, options.iterations) * factors).view_as(duals)
            return True, count
        if left <= _NEAR * value:
            for pair in (_polished(gram, b, bound, reach, u, s, options.accuracy), (W, u)):
                multipliers = (pair[1] * factors).view_as(problem.right_hand_side) / pair[0].norm()
                proof = certify(problem, Frobenius(), pair[0] * unit, multipliers)
                if bool(proof.proves_optimal(0.5 * options.accuracy)):
                    weights[:], duals[:] = pair[0][0] * unit, multipliers[0]
                    return True, count
        if count == options.iterations or not left < torch.inf or left == before:
            break
        before = left
    duals[:] = (u * factors).view_as(duals)
    return False, count


def _polished(
    gram: _TokenGram, b: Tensor, bound: Tensor, reach: Tensor, u: Tensor, s: Tensor, accuracy: float
) -> tuple[Tensor, Tensor]:
    """W and multipliers on the rows that look active, to round-off, where these are the right ones or nearly so.

    The interior point comes close and no further: where its slacks vanish, S^-1 drowns the identity in its system.
    """
    likely = torch.where(bound, u / s, torch.where(gram.factors > 0, torch.inf, 0.0))
    active = int((likely > 1).sum())
    index = likely.topk(min(active + active // 4 + 200, MOST_UNKNOWNS, int((likely > 0).sum()))).indices
    differences, queries = gram.problem.listed(index)
    factors, sides, inequalities, reached = (x.gather(1, index) for x in (gram.factors, b, bound, reach))
    rows = ScaledRows(differences * factors[..., None], queries, sides, inequalities, ~inequalities, reached)
    found, multipliers, _ = polish(rows.gram(), rows, likely.gather(1, index) > 1, 0.1 * accuracy)
    return found, torch.zeros_like(u).scatter(1, index, multipliers)


def _fewer(gram: _TokenGram, b: Tensor, bound: Tensor, present: Tensor, ray: Tensor, iterations: int) -> Tensor:
    """A ray on the largest multipliers of `ray` alone, if they have one; otherwise `ray`."""
    weights = ray.abs().masked_fill(~present, 0.0)
    line = weights.topk(min(_RAY_ROWS, weights.shape[1])).values[:, -1:]
    kept = present & ((weights > line) | ~bound)
    some, start = _TokenGram(gram.problem, gram.factors * kept), _START * (bound & kept).to(ray.dtype)
    for count, (u, _, _) in enumerate(predictor_corrector(some, b * kept, bound & kept, kept, start, start)):
        value = float((b * u).sum())
        if float(some.adjoint(u).norm()) <= _RAY * value:
            return u
        if count == iterations or not value < torch.inf:
            break
    return ray


class _TokenGram:
    """A A* for the rows of a batch of one, each scaled by its factor ``[1, n T]``; rows of factor 0 are left out."""

    ridge = 1e-9

    def __init__(self, problem: AttentionSVM, factors: Tensor) -> None:
        self.problem, self.factors = problem, factors

    def adjoint(self, u: Tensor) -> Tensor:
        """A*(u), ``[1, d, dq]``."""
        return self.problem.combine((self.factors * u).view_as(self.problem.right_hand_side))

    def forward(self, weights: Tensor) -> Tensor:
        return self.factors * self.problem.margins(weights).flatten(1)

    def times(self, u: Tensor) -> Tensor:
        return self.forward(self.adjoint(u))

    def factored(self, diagonal: Tensor) -> Callable[[Tensor], Tensor]:
        inverse = 1.0 / diagonal
        system = self._normal((inverse * self.factors.square()).view_as(self.problem.right_hand_side)[0])
        system.diagonal().add_(1.0)
        factor = torch.linalg.cholesky_ex(system).L

        def once(right: Tensor) -> Tensor:
            image = self.adjoint(inverse * right)
            step = torch.cholesky_solve(image.view(-1, 1), factor).view_as(image)
            return inverse * (right - self.forward(step))

        def solve(right: Tensor) -> Tensor:
            first = once(right)
            return first + once(right - self.times(first) - diagonal * first)  # refined: S^-1 magnifies round-off

        return solve

    def _normal(self, weights: Tensor) -> Tensor:
        """sum_it weights_it A_it A_it^T of the rows as they are, ``[d dq, d dq]``."""
        data = self.problem.data
        first, keys = _pairs(data.d, data.device)
        second, places = _pairs(data.dq, data.device)
        total = weights.new_zeros(first.shape[1], second.shape[1])
        for inputs in torch.arange(data.n, device=data.device).split(max(1, _NUMBERS // (data.T * data.d))):
            tokens = data.tokens[0, inputs // data.queries_per_sequence]
            kept = self.problem.reference[0, inputs, None, None].expand(-1, 1, data.d)
            differences = tokens.gather(1, kept) - tokens
            squares = (differences * weights[inputs, :, None]).mT @ differences
            queries = data.queries[0, inputs]
            total.addmm_(squares[:, first[0], first[1]].T, queries[:, second[0]] * queries[:, second[1]])
        return total[keys[:, None, :, None], places[None, :, None, :]].view(data.d * data.dq, -1)


def _pairs(size: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """The pairs a <= c, ``[2, pairs]``, and the number of each, ``[size, size]``, symmetric."""
    pairs = torch.triu_indices(size, size, device=device)
    number = torch.empty(size, size, dtype=torch.int64, device=device)
    number[pairs[0], pairs[1]] = number[pairs[1], pairs[0]] = torch.arange(pairs.shape[1], device=device)
    return pairs, number
