"""Large Frobenius problems, matrix-free: the options, and one descent for each problem of a batch."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from attsvm.norms import Frobenius, Norm
from attsvm.svm.problem import AttentionSVM
from attsvm.svm.solvers.base import ProgressReport, RawSolution, Solver


@dataclass(frozen=True)
class BlockDescent(Solver):
    """Block dual coordinate descent, a block for each input, then acceleration on the identified rows; on the CPU.

    Rows are never materialised. A dual that grows past every bound is refined to a ray of infeasibility.

    Both limits hold for `solve` as a whole: where one is reached it returns what it has with its certificate, SEPARABLE
    or NOT_CONVERGED, and looks no further for a ray.

    Arguments:
        rounds: most scans of all rows for each problem.
        time_limit: seconds for each problem.
    """

    norms = (Frobenius,)
    accuracy: float = 1e-8
    rounds: int = 400
    time_limit: float = float("inf")

    def solve(self, problem: AttentionSVM, norm: Norm, initial: Tensor | None, progress: ProgressReport) -> RawSolution:
        from attsvm.svm.solvers.block_descent.descent import Descent  # Numba starts only where it is used

        weights, duals, rounds = [], [], []
        for element in range(problem.batch_shape[0]):
            descent = Descent(problem[element].cpu(), self.accuracy / 2, progress)
            if initial is not None:
                descent.warm(initial[element].cpu().numpy())
            rounds.append(descent.run(self.rounds, self.time_limit))
            weights.append(torch.from_numpy(descent.weights))
            duals.append(torch.from_numpy(descent.duals))
        answer = torch.stack(weights), torch.stack(duals), torch.tensor(rounds)
        return RawSolution(*(part.to(problem.data.device) for part in answer))
