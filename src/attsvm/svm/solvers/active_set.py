"""Exact Frobenius solutions of many small problems."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from attsvm.norms import Frobenius, Norm
from attsvm.svm.problem import AttentionSVM
from attsvm.svm.solvers.base import ProgressReport, RawSolution, Solver


@dataclass(frozen=True)
class ActiveSet(Solver):
    """Dual active set (Goldfarb-Idnani) on Gram rows, compiled, one problem after the other on every thread.

    The answer is refined with the rows themselves; a problem that resists runs again on an orthonormal basis of its rows.

    Arguments:
        accuracy: relative gap and violation to which the certificate must hold.
        threads: None means `torch.get_num_threads()`.
    """

    accuracy: float = 1e-10
    threads: int | None = None

    def refusal(self, problem: AttentionSVM, norm: Norm) -> str | None:
        return None if isinstance(norm, Frobenius) else "it solves the Frobenius norm"

    def solve(
        self, problem: AttentionSVM, norm: Norm, initial: Tensor | None, progress: ProgressReport | None
    ) -> RawSolution:
        from attsvm.svm.solvers.frobenius import compiled  # Numba starts only where it is used

        arrays = [
            tensor.cpu().numpy()
            for tensor in (
                problem.differences(), problem.inequalities, problem.data.queries, problem.values, problem.equalities
            )
        ]
        warm = None if initial is None else initial.cpu().numpy()
        count = problem.batch_shape[0]
        workers = max(1, min(self.threads or torch.get_num_threads(), count // 16))
        parts = np.array_split(np.arange(count), workers)

        def share(part: np.ndarray) -> compiled.BatchSolution:
            differences, rows, queries, values, equal = (array[part[0] : part[-1] + 1] for array in arrays)
            start = None if warm is None else warm[part[0] : part[-1] + 1]
            return compiled.solve(differences, rows, queries, values, equal, start, self.accuracy)

        if workers == 1:
            answers = [share(parts[0])]
        else:
            with ThreadPoolExecutor(workers) as pool:
                answers = list(pool.map(share, parts))

        def joined(name: str) -> Tensor:
            return torch.from_numpy(np.concatenate([getattr(answer, name) for answer in answers])).to(problem.data.device)

        return RawSolution(joined("weights"), joined("duals"), joined("status") == 1, joined("steps"))


@dataclass(frozen=True)
class BatchedActiveSet(Solver):
    """The same problems as PyTorch tensors, for GPUs: a warp a problem guesses the active rows, a batched polish checks.

    Where the kernel cannot run, a batched interior point makes the guess; what fails every check goes to `ActiveSet`.

    Arguments:
        accuracy: relative gap and violation to which the certificate must hold.
    """

    accuracy: float = 1e-10

    def refusal(self, problem: AttentionSVM, norm: Norm) -> str | None:
        return None if isinstance(norm, Frobenius) else "it solves the Frobenius norm"

    def solve(
        self, problem: AttentionSVM, norm: Norm, initial: Tensor | None, progress: ProgressReport | None
    ) -> RawSolution:
        from attsvm.svm.solvers.frobenius import batched

        answer = batched.solve(
            problem.differences(), problem.inequalities, problem.data.queries, problem.values, problem.equalities,
            self.accuracy,
        )
        return RawSolution(answer.weights, answer.duals, answer.status == 1, answer.steps)
