"""Large Frobenius attention SVMs: block dual coordinate descent, then acceleration on the identified rows.

    scan all rows -> choose working rows -> a few passes of block descent -> accelerate -> scan ...

Acceleration is conjugate gradients on the face (polish.py) while the support is smaller than the space, and proximal
Newton (proximal.py) when the support fills it (small margins, many inputs). A dual that outgrows every bound is
tested as a ray of infeasibility (ray.py).
"""

from __future__ import annotations

import enum
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from attsvm.svm.solvers.block_descent import kernels
from attsvm.svm.solvers.block_descent.polish import polish_face
from attsvm.svm.solvers.block_descent.proximal import ProximalNewton
from attsvm.svm.solvers.block_descent.ray import refine_ray
from attsvm.svm.solvers.block_descent.working_set import ABSENT, EQUALITY, INEQUALITY, LargeProblem, WorkingSet

_PASSES = 5  # of block descent between two scans
_SWEEPS = 3  # over the rows of one block
_CAP = 8  # most new rows an input may add at one scan
_SLACK = 0.2  # working rows without a multiplier leave beyond this slack, in units of max |b|
_PATIENCE = 10  # rounds of descent before proximal Newton may take over
_RAY_TOLERANCE = 1e-10  # accepted ||A*(lam)|| / sum lam_k ||A_k|| of a ray
_DIRECT_LIMIT = 8000  # most rows of a dense factor
_SEED = 0  # of the order in which blocks are visited


class Outcome(enum.Enum):
    """How the descent ended, in its own opinion; the certificate decides."""

    SOLVED = "the gap closed"
    INFEASIBLE = "the duals are a ray"
    UNFINISHED = "the rounds or the time ran out before the gap closed"


@dataclass(frozen=True)
class Progress:
    """What a callback sees after every scan: rows with a multiplier, rows violated, relative gap."""

    round: int
    support: int
    violated: int
    gap: float


@dataclass(frozen=True, eq=False)
class LargeSolution:
    """Weights ``[d, dq]`` and duals ``[n, T]`` (the ray if infeasible), after so many scans of all rows."""

    weights: np.ndarray
    duals: np.ndarray
    outcome: Outcome
    rounds: int


@dataclass(frozen=True)
class Settings:
    """When to stop.

    Arguments:
        tolerance: relative gap, and violation of b = 0 and equality rows relative to max |b|.
        rounds: most scans of all rows.
        time_limit: seconds.
    """

    tolerance: float
    rounds: int
    time_limit: float


@dataclass(frozen=True)
class _Measure:
    """One scan: relative gap, largest violation of rows that scaling cannot mend, rows violated, dual bound."""

    gap: float
    other: float
    violated: int
    dual: float


def descend(
    problem: LargeProblem,
    settings: Settings,
    start: np.ndarray | None = None,
    callback: Callable[[Progress], None] | None = None,
) -> LargeSolution:
    """Solve `problem`, from the duals `start` ``[n, T]`` if given; `callback` hears of every scan."""
    return _Run(problem, settings, start, callback).solve()


class _Run:
    """The state of one descent."""

    def __init__(
        self,
        problem: LargeProblem,
        settings: Settings,
        start: np.ndarray | None,
        callback: Callable[[Progress], None] | None,
    ) -> None:
        self.problem, self.settings, self.callback = problem, settings, callback
        self.began = time.perf_counter()
        n, length = problem.kind.shape
        self.generator = np.random.default_rng(_SEED)
        self.duals = np.zeros((n, length))
        self.margins = np.zeros((n, length))
        self.chosen = np.zeros((n, length), bool)
        self.scratch = np.empty(length)
        self.weights = np.zeros(problem.shape)
        self.scale = float(np.abs(problem.rhs[problem.kind != ABSENT]).max(initial=0.0))
        self.room = problem.shape[0] * min(problem.shape[1], n)
        inequality, moved = problem.kind == INEQUALITY, bool(problem.rhs[problem.kind == EQUALITY].any())
        # Scaling W up keeps it feasible where equalities ask for 0 and no row asks for a negative margin.
        self.scalable = not (inequality & (problem.rhs < 0)).any() and not moved
        self.trivial = not (inequality & (problem.rhs > 0)).any() and not moved
        self.newton: ProximalNewton | None = None
        self.accelerate, self.stalled, self.ray_bound = False, 0, 0.0
        if start is not None:
            self.warm(start)

    def warm(self, start: np.ndarray) -> None:
        """Start from the best multiple of the given duals."""
        kind = self.problem.kind
        self.duals[:] = np.where(kind == EQUALITY, start, np.where(kind == INEQUALITY, np.maximum(start, 0.0), 0.0))
        rows = WorkingSet.gather(self.problem, self.duals != 0, self.duals)
        image = rows.adjoint(rows.lam)
        square, value = np.vdot(image, image), rows.lam @ rows.rhs
        if square > 0 and value > 0:
            self.duals *= value / square
            self.weights = image * (value / square)

    def solve(self) -> LargeSolution:
        if self.trivial:
            return self.finish(Outcome.SOLVED, 0)
        if not self.duals.any():
            self.first_rows()
        else:
            self.scan()
            self.choose(0.0)
        gap = np.inf
        for count in range(1, self.settings.rounds + 1):
            rows = WorkingSet.gather(self.problem, self.chosen, self.duals)
            if self.zero_row(rows):
                return self.finish(Outcome.INFEASIBLE, count)
            before = int((self.duals != 0).sum())
            self.improve(rows, gap)
            rows.scatter(self.duals)
            self.weights = rows.adjoint(rows.lam)
            self.scan()
            now = self.measure()
            support = int((self.duals != 0).sum())
            if self.callback is not None:
                self.callback(Progress(count, support, now.violated, now.gap))
            if now.gap <= self.settings.tolerance and now.other <= self.settings.tolerance * self.scale:
                return self.finish(Outcome.SOLVED, count)
            if self.try_ray(rows, count, now):
                return self.finish(Outcome.INFEASIBLE, count)
            if time.perf_counter() - self.began > self.settings.time_limit:
                return self.finish(Outcome.UNFINISHED, count)
            self.steer(count, before, support, gap, now.gap)
            gap = now.gap
            self.choose(0.0)
        return self.finish(Outcome.UNFINISHED, self.settings.rounds)

    def scan(self) -> None:
        """Margins of all rows."""
        p = self.problem
        kernels.scan_margins(p.tokens, p.sequence, p.selected, p.kind, p.queries @ self.weights.T, self.margins)

    def measure(self) -> _Measure:
        """What the last scan says."""
        p, violation = self.problem, self.settings.tolerance * self.scale
        value, smallest, other, violated = kernels.measure_rows(
            self.margins, p.rhs, p.kind, self.duals, self.scalable, violation
        )
        size = float(np.linalg.norm(self.weights))
        dual = value / size if size > 0 else 0.0
        if not dual > 0:
            return _Measure(np.inf, other, violated, dual)
        if not self.scalable:
            return _Measure(abs(size - dual) / max(dual, 1e-300), other, violated, dual)
        primal = size / smallest if smallest > 0 else np.inf
        return _Measure((primal - dual) / dual, other, violated, dual)

    def first_rows(self) -> None:
        """Start from the rows that the mean difference direction (uniform multipliers) separates worst."""
        p = self.problem
        mean = np.empty((len(p.selected), p.shape[0]))
        kernels.mean_difference(p.tokens, p.sequence, p.selected, p.kind, mean)
        self.weights = mean.T @ p.queries
        self.scan()
        self.weights[:] = 0.0
        self.choose(np.inf)

    def choose(self, add_slack: float) -> None:
        """Mark the working rows of the next round."""
        p, keep_slack = self.problem, _SLACK * self.scale
        kernels.choose_rows(
            self.margins, p.rhs, p.kind, self.duals, keep_slack, add_slack, _CAP, self.scratch, self.chosen
        )

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
            violation = np.maximum(self.problem.rhs - self.margins, 0.0)[self.problem.kind != ABSENT]
            size = max(float(np.linalg.norm(violation)), 1e-300)
            self.newton = ProximalNewton(float(np.linalg.norm(self.duals)) / size, _DIRECT_LIMIT)

    def zero_row(self, rows: WorkingSet) -> bool:
        """A row with A_k = 0 and b_k > 0 (a duplicate of the selected token, a zero query) is its own ray."""
        bad = (rows.squares == 0) & np.where(rows.free, rows.rhs != 0, rows.rhs > 0)
        if not bad.any():
            return False
        self.keep_only(rows, np.where(bad, np.sign(rows.rhs), 0.0))
        return True

    def try_ray(self, rows: WorkingSet, count: int, now: _Measure) -> bool:
        """Whether the duals, which have doubled since the last test, refine to a ray."""
        if (np.isfinite(now.gap) and self.scalable) or count < 3 or now.dual < 2 * self.ray_bound:
            return False
        self.ray_bound = now.dual
        found = refine_ray(rows)
        if found is None or found[1] > _RAY_TOLERANCE:
            return False
        self.keep_only(rows, found[0] / np.abs(found[0]).sum())
        return True

    def keep_only(self, rows: WorkingSet, multipliers: np.ndarray) -> None:
        """The duals are these, and 0 on all other rows."""
        rows.lam[:] = multipliers
        self.duals[:] = 0.0
        rows.scatter(self.duals)

    def finish(self, outcome: Outcome, rounds: int) -> LargeSolution:
        return LargeSolution(self.weights, self.duals, outcome, rounds)
