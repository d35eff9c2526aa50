"""Block descent that keeps to its limits."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from attsvm.norms import Norm
from attsvm.svm import AttentionSVM, BlockDescent, certify
from attsvm.svm.solvers.base import ProgressReport, RawSolution


class UnfinishedError(Exception):
    """The rounds ran out; `gap` is how close the solution came (inf where nothing is separated yet)."""

    def __init__(self, gap: float) -> None:
        super().__init__(f"not converged within the limits: relative gap {gap:.1e}")
        self.gap = gap


@dataclass(frozen=True)
class LimitedDescent(BlockDescent):
    """`BlockDescent` for one problem that raises `UnfinishedError` where nothing is proved within the limits.

    `attsvm.solve` meets an unfinished problem with a search for a ray of infeasibility that has no limit. One hopeless
    control would then hold up all heads after it.
    """

    def solve(
        self, problem: AttentionSVM, norm: Norm, initial: Tensor | None, progress: ProgressReport | None
    ) -> RawSolution:
        raw = super().solve(problem, norm, initial, progress)
        proof = certify(problem, norm, raw.weights, raw.duals)
        gap = float(proof.relative_gap)
        if not bool(raw.infeasible) and not abs(gap) <= self.accuracy and bool(problem.rows.any()):
            raise UnfinishedError(gap)
        return raw
