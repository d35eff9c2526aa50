"""Interior point for the norms that have no solver of their own: the options, and the arrays of a batch."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from attsvm.norms import Entrywise, MaxEntry, Norm, Spectral, SpectralOfRank, SumEntry
from attsvm.svm.problem import AttentionSVM
from attsvm.svm.solvers.base import ProgressReport, RawSolution, Solver
from attsvm.svm.solvers.interior.interior import InteriorMethod
from attsvm.svm.solvers.nuclear.rows import normalise

_CHUNK = 6e5  # numbers at a time: they should stay in a cache


@dataclass(frozen=True)
class InteriorPoint(Solver):
    """Batched primal-dual interior point for `Spectral`, `MaxEntry`, `SumEntry` and `Entrywise`.

    `SpectralOfRank` too where the rank is no limit: solutions in the spans have rank at most min(n, d, dq).
    """

    norms = (Spectral, MaxEntry, SumEntry, Entrywise)
    accuracy: float = 1e-8

    def refusal(self, problem: AttentionSVM, norm: Norm) -> str | None:
        if isinstance(norm, SpectralOfRank):
            least = min(problem.data.n, problem.data.d, problem.data.dq)
            return None if norm.rank >= least else f"it solves SpectralOfRank from rank {least} on"
        return super().refusal(problem, norm)

    def solve(self, problem: AttentionSVM, norm: Norm, initial: Tensor | None, progress: ProgressReport) -> RawSolution:
        norm = Spectral() if isinstance(norm, SpectralOfRank) else norm
        count, size = problem.batch_shape[0], problem.data.d * problem.data.dq
        chunk = max(1, int(_CHUNK / (problem.data.n**2 * problem.data.T**2 + 10 * size)))
        parts = [_solve(problem[first : first + chunk], norm) for first in range(0, count, chunk)]
        return RawSolution(*(torch.cat(part) for part in zip(*parts, strict=True)))


def _solve(problem: AttentionSVM, norm: Norm) -> tuple[Tensor, Tensor, Tensor]:
    """Weights, duals and iterations; a zero row holds by itself, or is a ray by itself."""
    duals, where, reduced, way = normalise(problem, norm.unitarily_invariant)
    weights = duals.new_zeros(len(duals), problem.data.d, problem.data.dq)
    iterations = torch.zeros(len(duals), dtype=torch.long, device=duals.device)
    if reduced is not None and way is not None:
        turn = isinstance(norm, Spectral) and reduced.differences.shape[-1] < reduced.queries.shape[-1]
        if turn:  # W^T: its rows come one by one, since blocks share their queries
            reduced = replace(reduced, differences=reduced.queries, queries=reduced.differences, input_queries=None)
        found = InteriorMethod(reduced, norm).run(reduced)
        weights[where] = way.weights(found.best_weights.mT if turn else found.best_weights)
        duals[where] = way.duals(found.best_duals, *duals.shape[1:])
        iterations[where] = found.iterations
    return weights, duals, iterations
