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

    The answer is refined with the rows themselves; a problem that resists runs again on an orthonormal basis of them.

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
        from attsvm.svm.solvers.active_set import solver as compiled  # Numba starts only where it is used

        rows, queries = problem.inequalities, problem.data.queries
        tensors = (problem.differences(), rows, queries, problem.right_hand_side, problem.equalities)
        arrays = [tensor.cpu().numpy() for tensor in tensors]
        warm = None if initial is None else initial.cpu().numpy()
        count = problem.batch_shape[0]
        workers = max(1, min(self.threads or torch.get_num_threads(), count // 16))
        parts = np.array_split(np.arange(count), workers)

        def share(part: np.ndarray) -> compiled.CompiledSolution:
            span = slice(part[0], part[-1] + 1)
            start = None if warm is None else warm[span]
            return compiled.solve(*(array[span] for array in arrays), duals=start, accuracy=self.accuracy)

        if workers == 1:
            answers = [share(parts[0])]
        else:
            with ThreadPoolExecutor(workers) as pool:
                answers = list(pool.map(share, parts))

        def joined(name: str) -> Tensor:
            return torch.from_numpy(np.concatenate([getattr(answer, name) for answer in answers])).to(
                problem.data.device
            )

        return RawSolution(joined("weights"), joined("duals"), joined("steps"))


@dataclass(frozen=True)
class BatchedActiveSet(Solver):
    """The same problems as PyTorch tensors, for GPUs: a warp a problem guesses the active rows, a polish checks.

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
        from attsvm.svm.solvers.batched import solver as batched

        rows, queries = problem.inequalities, problem.data.queries
        return batched.solve(
            problem.differences(), rows, queries, problem.right_hand_side, problem.equalities, self.accuracy
        )
