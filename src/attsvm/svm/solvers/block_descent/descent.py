"""The descent: block dual coordinate descent on working rows, then acceleration on the identified ones.

    scan all rows -> choose working rows -> a few passes of block descent -> accelerate -> scan ...

Acceleration is conjugate gradients on the face (`polish_face`) while the support is smaller than the space, and
proximal Newton when the support fills it (small margins, many inputs). A dual that outgrows every bound is tested as a
ray of infeasibility (`refine_ray`).
"""

from __future__ import annotations

import time

import numpy as np
import torch

from attsvm.svm.problem import AttentionSVM
from attsvm.svm.solvers.base import ProgressReport, row_kinds
from attsvm.svm.solvers.block_descent import kernels
from attsvm.svm.solvers.block_descent.proximal import ProximalNewton
from attsvm.svm.solvers.block_descent.working_set import WorkingSet, polish_face, refine_ray

_PASSES = 5  # of block descent between two scans
_SWEEPS = 3  # over the rows of one block
_CAP = 8  # most new rows an input may add at one scan
_SLACK = 0.2  # working rows without a multiplier leave beyond this slack, in units of max |b|
_PATIENCE = 10  # rounds of descent before proximal Newton may take over
_RAY_TOLERANCE = 1e-10  # accepted ||A*(lam)|| / sum lam_k ||A_k|| of a ray
_DIRECT_LIMIT = 8000  # most rows of a dense factor
_SEED = 0  # of the order in which blocks are visited


class Descent:
    """One problem without a batch axis, on the CPU, on its way to a solution, or to a ray; `run` it once.

    `tolerance` is the relative gap, and the violation of rows that scaling cannot mend, at which it is solved.
    `weights` ``[d, dq]`` and `duals` ``[n, T]``, a ray where one was found, are the answer.
    """

    def __init__(self, problem: AttentionSVM, tolerance: float, progress: ProgressReport) -> None:
        self.problem, self.tolerance, self.progress = problem, tolerance, progress
        self.began = time.perf_counter()
        data, sides = problem.data, problem.right_hand_side
        self.sides, self.kinds = sides.numpy(), row_kinds(problem).numpy()
        self.generator = np.random.default_rng(_SEED)
        self.duals = np.zeros((data.n, data.T))
        self.margins = np.zeros((data.n, data.T))
        self.chosen = np.zeros((data.n, data.T), bool)
        self.weights = np.zeros((data.d, data.dq))
        self.scale = float(np.abs(self.sides).max(initial=0.0))
        self.room = data.d * min(data.dq, data.n)
        self.scalable = bool(problem.scalable)
        # Rows that scaling W up does not mend, and what their violation is relative to.
        self.others = problem.rows & ~(problem.inequalities & (sides > 0) & problem.scalable)
        self.units = (1 + sides.abs())[self.others].clamp(max=max(self.scale, 1e-300))
        self.newton: ProximalNewton | None = None
        self.accelerate, self.stalled, self.ray_bound = False, 0, 0.0

    def warm(self, start: np.ndarray) -> None:
        """Start from the best multiple of the given duals ``[n, T]``."""
        free, bound = self.problem.equalities.numpy(), self.problem.inequalities.numpy()
        self.duals[:] = np.where(free, start, np.where(bound, np.maximum(start, 0.0), 0.0))
        image = self.problem.combine(self.duals).numpy()
        square, value = np.vdot(image, image), np.vdot(self.duals, self.sides)
        if square > 0 and value > 0:
            self.duals *= value / square
            self.weights = image * (value / square)

    def run(self, rounds: int, time_limit: float) -> int:
        """Descend until the gap closes, the duals are a ray, or a limit is reached; returns the number of rounds."""
        asking, lone = self.problem.asking, self.problem.asking & self.problem.vanishing
        if lone.any() or not asking.any():  # a row of zeros that asks for something, a ray; or nothing to do
            self.duals[:] = (lone * self.problem.right_hand_side.sign()).numpy()
            return 0
        if self.duals.any():
            self.scan(self.weights)
            self.choose(0.0)
        else:  # from the rows that the mean difference direction (uniform multipliers) separates worst
            present = self.problem.rows
            uniform = present / present.sum(-1, keepdim=True).clamp(min=1).double()
            self.scan(self.problem.combine(uniform).numpy())
            self.choose(np.inf)
        gap = np.inf
        for count in range(1, rounds + 1):
            rows = WorkingSet.gather(self.problem, self.chosen, self.duals)
            before = int((self.duals != 0).sum())
            self.improve(rows, gap)
            rows.scatter(self.duals)
            self.weights = rows.adjoint(rows.lam)
            self.scan(self.weights)
            now, other, dual = self.measure()
            support = int((self.duals != 0).sum())
            if self.progress is not None:
                missing = self.sides - self.margins
                missing = np.where(self.problem.equalities.numpy(), np.abs(missing), missing)
                short = missing > self.tolerance * self.scale
                said = f"{now:.1e}" if now < np.inf else "no positive margin yet"
                self.progress(f"round {count}: {short.sum()} rows violated, {support} support rows, gap {said}")
            solved = now <= self.tolerance and other <= self.tolerance
            if solved or self.try_ray(rows, count, now, dual) or time.perf_counter() - self.began > time_limit:
                return count
            self.steer(count, before, support, gap, now)
            gap = now
            self.choose(0.0)
        return rounds

    def scan(self, weights: np.ndarray) -> None:
        """Margins of all rows, compiled: several times faster than `AttentionSVM.margins` on one core."""
        data, reference = self.problem.data, self.problem.reference.numpy()
        projected = data.queries.numpy() @ weights.T
        tokens = data.tokens.numpy()
        kernels.scan_margins(tokens, data.queries_per_sequence, reference, self.kinds, projected, self.margins)

    def measure(self) -> tuple[float, float, float]:
        """What the last scan says: relative gap, largest violation of rows that scaling cannot mend, dual bound."""
        margins = torch.from_numpy(self.margins)
        other = 0.0
        if len(self.units):
            missing = (self.problem.right_hand_side - margins)[self.others]
            missing = torch.where(self.problem.equalities[self.others], missing.abs(), missing)
            other = max(0.0, float((missing / self.units).max()))
        size = float(np.linalg.norm(self.weights))
        dual = float(np.vdot(self.sides, self.duals)) / size if size > 0 else 0.0
        if not dual > 0:
            return np.inf, other, dual
        if not self.scalable:
            return abs(size - dual) / max(dual, 1e-300), other, dual
        smallest = float(self.problem.smallest_ratio(margins))
        primal = size / smallest if smallest > 0 else np.inf
        return (primal - dual) / dual, other, dual

    def choose(self, add_slack: float) -> None:
        """Mark the working rows of the next round."""
        rows = self.margins, self.sides, self.kinds, self.duals
        kernels.choose_rows(*rows, _SLACK * self.scale, add_slack, _CAP, self.chosen)

    def improve(self, rows: WorkingSet, gap: float) -> None:
        """Better multipliers on the working rows, by what `steer` chose."""
        if self.newton is None:
            for _ in range(_PASSES):
                rows.descend(self.weights, self.generator, _SWEEPS)
            if self.accelerate:
                polish_face(rows, self.weights, 0.03, 300)
            return
        sharp = max(1.0, float(np.linalg.norm(self.weights)) * float(np.sqrt(rows.squares.max()))) ** 0.5
        self.newton.minimise(rows, self.weights, max(min(1e-3, 0.03 * gap / sharp), 1e-13))
        if gap < 1e-2:
            self.newton.polish(rows, self.weights)

    def steer(self, count: int, before: int, support: int, old: float, gap: float) -> None:
        """Choose what the next round does, from how this one went."""
        progress = gap / old if np.isfinite(old) and old > 0 else (1.0 if not np.isfinite(gap) else 0.0)
        if self.newton is not None:
            steps, sigma = self.newton.steps, self.newton.sigma
            if not self.newton.converged:
                self.newton.set_sigma(sigma / 5)
            elif steps > 12:
                self.newton.set_sigma(sigma / 2)
            elif progress > 0.9 and gap < 1e-4:  # round-off times sigma holds the multipliers back
                self.newton.set_sigma(sigma / 10)
            elif progress > 0.3 and steps <= 8:
                self.newton.set_sigma(sigma * (4 if steps <= 5 else 2))
            elif _DIRECT_LIMIT < support < 0.9 * self.room and gap < 0.5:  # the face is regular again
                self.newton, self.stalled, self.accelerate = None, 0, True
            return
        self.accelerate = abs(support - before) <= 0.04 * support and support <= 0.95 * self.room
        self.stalled = self.stalled + 1 if progress > 0.5 else 0
        full = support > 0.95 * self.room and not np.isfinite(gap)
        if count >= _PATIENCE and (full or self.stalled >= 6):
            violation = np.maximum(self.sides - self.margins, 0.0)[self.problem.rows.numpy()]
            size = max(float(np.linalg.norm(violation)), 1e-300)
            self.newton = ProximalNewton(float(np.linalg.norm(self.duals)) / size, _DIRECT_LIMIT)

    def try_ray(self, rows: WorkingSet, count: int, gap: float, dual: float) -> bool:
        """Whether the duals, which have doubled since the last test, refine to a ray."""
        if (np.isfinite(gap) and self.scalable) or count < 3 or dual < 2 * self.ray_bound:
            return False
        self.ray_bound = dual
        found = refine_ray(rows)
        if found is None or found[1] > _RAY_TOLERANCE:
            return False
        rows.lam[:] = found[0] / np.abs(found[0]).sum()
        self.duals[:] = 0.0
        rows.scatter(self.duals)
        return True
