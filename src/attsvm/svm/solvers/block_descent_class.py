"""Large Frobenius problems, matrix-free."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from attsvm.norms import Frobenius, Norm
from attsvm.svm.problem import AttentionSVM
from attsvm.svm.solvers.base import ProgressReport, RawSolution, Solver


@dataclass(frozen=True)
class BlockDescent(Solver):
    """Block dual coordinate descent, one block an input, then acceleration on the identified rows; on the CPU.

    Rows are never materialised: each round scans all margins (one attention forward), picks working rows, descends on
    them and polishes the face by conjugate gradients, or by proximal Newton where the support fills the space.

    Arguments:
        accuracy: relative gap and violation to which the certificate must hold.
        rounds: most scans of all rows.
        time_limit: seconds for each problem; the certificate then says how close it came.
    """

    accuracy: float = 1e-8
    rounds: int = 400
    time_limit: float = float("inf")

    def refusal(self, problem: AttentionSVM, norm: Norm) -> str | None:
        return None if isinstance(norm, Frobenius) else "it solves the Frobenius norm"

    def solve(
        self, problem: AttentionSVM, norm: Norm, initial: Tensor | None, progress: ProgressReport | None
    ) -> RawSolution:
        from attsvm.svm.solvers.block_descent.solver import LargeSolution, Progress, Settings, descend
        from attsvm.svm.solvers.block_descent.working_set import LargeProblem

        settings = Settings(tolerance=self.accuracy / 2, rounds=self.rounds, time_limit=self.time_limit)
        data = problem.data

        def report(now: Progress) -> None:
            if progress is not None:
                gap = f"{now.gap:.1e}" if now.gap < float("inf") else "no positive margin yet"
                progress(f"round {now.round}: {now.violated} rows violated, {now.support} support rows, gap {gap}")

        def one(element: int) -> LargeSolution:
            kind = problem.inequalities[element].to(torch.int8) + 2 * problem.equalities[element].to(torch.int8)
            small = LargeProblem(
                data.tokens[element].cpu().contiguous().numpy(),
                data.queries[element].cpu().contiguous().numpy(),
                problem.reference[element].cpu().contiguous().numpy(),
                kind.cpu().numpy(),
                problem.right_hand_side[element].cpu().contiguous().numpy(),
                torch.arange(data.n).div(data.queries_per_sequence, rounding_mode="floor").numpy(),
            )
            start = None if initial is None else initial[element].cpu().numpy()
            return descend(small, settings, start, report)

        answers = [one(element) for element in range(problem.batch_shape[0])]
        device = data.device
        return RawSolution(
            torch.stack([torch.from_numpy(answer.weights) for answer in answers]).to(device),
            torch.stack([torch.from_numpy(answer.duals) for answer in answers]).to(device),
            torch.tensor([answer.rounds for answer in answers], device=device),
        )
