"""Large Frobenius attention SVM: block dual coordinate descent, then acceleration on the identified rows, with certificates.

    scan all rows -> choose working rows -> a few passes of block descent -> accelerate -> scan ...

Acceleration is conjugate gradients on the face (polish.py) while the support is smaller than the space, and proximal
Newton (proximal.py) when the support fills it (small margins, many inputs). A dual that outgrows every bound is
tested as a ray of infeasibility (ray.py).
"""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators, allow-incomplete-defs
from __future__ import annotations

import enum
import time
from dataclasses import dataclass

import numpy as np

from attsvm.svm.solvers.large import kernels
from attsvm.svm.solvers.large.polish import polish_face
from attsvm.svm.solvers.large.problem import LargeProblem
from attsvm.svm.solvers.large.proximal import ProximalNewton
from attsvm.svm.solvers.large.ray import refine_ray
from attsvm.svm.solvers.large.working_set import WorkingSet


class Outcome(enum.Enum):
    """How the descent ended, in its own opinion; the certificate decides."""

    SOLVED = "the gap closed"
    INFEASIBLE = "the duals are a ray"
    UNFINISHED = "the rounds or the time ran out before the gap closed"


@dataclass(frozen=True)
class Progress:
    """What a callback sees after every scan."""

    round: int
    passes: int
    phase: str
    working_rows: int
    support: int
    violated: int
    gap: float
    dual: float
    seconds: float


@dataclass(frozen=True)
class LargeSolution:
    """weights [d, dq] and duals [n, T] (the ray if infeasible)."""

    weights: np.ndarray
    duals: np.ndarray
    outcome: Outcome
    passes: int
    rounds: int


@dataclass(frozen=True)
class Settings:
    """``tolerance``: relative gap (and violation of b = 0 and equality rows). ``passes``: block passes between two scans.
    ``sweeps``: coordinate sweeps inside one block. ``cap``: most new rows an input may add at one scan. ``slack``: working
    rows without a multiplier are dropped beyond this slack (in units of max |b|). ``patience``: rounds of
    descent before proximal Newton may take over. ``ray_tolerance``: ||A*(lam)|| / sum lam_k ||A_k|| of a ray.
    """

    tolerance: float = 1e-8
    rounds: int = 400
    passes: int = 5
    sweeps: int = 3
    cap: int = 8
    slack: float = 0.2
    patience: int = 10
    ray_tolerance: float = 1e-10
    direct_limit: int = 8000
    time_limit: float = np.inf
    seed: int = 0


def descend(problem: LargeProblem, settings: Settings, start=None, callback=None) -> LargeSolution:
    """Solve `problem`, from the duals ``start`` [n, T] if given; ``callback(Progress)`` may return True to stop."""
    return _Run(settings, problem, start, callback).solve()


class _Run:
    def __init__(self, settings, problem, start, callback):
        self.settings, self.problem, self.callback = settings, problem, callback
        self.began = time.perf_counter()
        n, length = problem.kind.shape
        self.generator = np.random.default_rng(settings.seed)
        self.duals = np.zeros((n, length))
        self.margins = np.zeros((n, length))
        self.chosen = np.zeros((n, length), bool)
        self.scratch = np.empty(length)
        self.weights = np.zeros(problem.shape)
        inequality = problem.kind == 1
        self.scale = float(np.abs(problem.rhs[problem.kind > 0]).max(initial=0.0))
        self.scalable = not (inequality & (problem.rhs < 0)).any() and not problem.rhs[problem.kind == 2].any()
        self.trivial = not (inequality & (problem.rhs > 0)).any() and self.scalable_equalities()
        self.room = problem.shape[0] * min(problem.shape[1], n)
        self.passes = 0
        self.newton, self.stalled, self.accelerate = None, 0, False
        self.newton_steps, self.ray_bound = 0, 0.0
        if start is not None:
            self.warm(start)

    def scalable_equalities(self):
        return not self.problem.rhs[self.problem.kind == 2].any()

    def warm(self, start):
        kind = self.problem.kind
        self.duals[:] = np.where(kind == 2, start, np.where(kind == 1, np.maximum(start, 0.0), 0.0))
        rows = WorkingSet.gather(self.problem, self.duals != 0, self.duals)
        image = rows.adjoint(rows.lam)
        square, value = np.vdot(image, image), rows.lam @ rows.rhs
        if square > 0 and value > 0:  # the best multiple of the given duals
            self.duals *= value / square
            self.weights = image * (value / square)

    def scan(self):
        p = self.problem
        kernels.scan_margins(p.tokens, p.sequence, p.selected, p.kind, p.queries @ self.weights.T, self.margins)

    def measure(self):
        """(gap, largest violation of rows that scaling cannot mend, rows violated, dual bound), from the last scan."""
        value, smallest, other, violated = kernels.measure_rows(
            self.margins, self.problem.rhs, self.problem.kind, self.duals, self.scalable, self.settings.tolerance * self.scale)
        size = float(np.linalg.norm(self.weights))
        dual = value / size if size > 0 else 0.0
        if not self.scalable:
            return abs(size - dual) / max(dual, 1e-300) if dual > 0 else np.inf, other, violated, dual
        primal = size / smallest if smallest > 0 else np.inf
        return (primal - dual) / dual if dual > 0 else np.inf, other, violated, dual

    def solve(self):
        if self.trivial or not (self.problem.kind > 0).any():
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
            phase = self.improve(rows, gap)
            rows.scatter(self.duals)
            self.weights = rows.adjoint(rows.lam)
            self.scan()
            old, (gap, other, violated, dual) = gap, self.measure()
            support = int((self.duals != 0).sum())
            stop = self.report(count, phase, rows, support, violated, gap, dual)
            if gap <= self.settings.tolerance and other <= self.settings.tolerance * self.scale:
                return self.finish(Outcome.SOLVED, count)
            if self.try_ray(rows, count, gap, dual):
                return self.finish(Outcome.INFEASIBLE, count)
            if stop or time.perf_counter() - self.began > self.settings.time_limit:
                break
            self.steer(count, phase, before, support, old, gap)
            self.choose(0.0)
        return self.finish(Outcome.UNFINISHED, count)

    def first_rows(self):
        """Start from the rows that the mean difference direction (uniform multipliers) separates worst."""
        p = self.problem
        mean = np.empty((len(p.selected), p.shape[0]))
        kernels.mean_difference(p.tokens, p.sequence, p.selected, p.kind, mean)
        self.weights = mean.T @ p.queries
        self.scan()
        self.weights[:] = 0.0
        self.choose(np.inf)

    def choose(self, add_slack):
        kernels.choose_rows(self.margins, self.problem.rhs, self.problem.kind, self.duals, self.settings.slack * self.scale,
                            add_slack, self.settings.cap, self.scratch, self.chosen)

    def improve(self, rows, gap):
        if self.newton is None:
            for _ in range(self.settings.passes):
                rows.descend(self.weights, self.generator, self.settings.sweeps)
            self.passes += self.settings.passes
            if not self.accelerate:
                return "descent"
            polish_face(rows, self.weights, 0.03, 300)
            return "polish"
        sharp = max(1.0, float(np.linalg.norm(self.weights)) * float(np.sqrt(rows.gram[rows.diagonal].max()))) ** 0.5
        tolerance = max(min(1e-3, 0.03 * gap / sharp), 1e-13)
        steps, residual = self.newton.minimise(rows, self.weights, tolerance)
        self.newton_steps += steps
        self.newton_last = steps, residual <= max(10 * tolerance, 1e-10)
        if gap < 1e-2:
            self.newton.polish(rows, self.weights)
        return "newton"

    def steer(self, count, phase, before, support, old, gap):
        """Choose what the next round does, from how this one went."""
        progress = gap / old if np.isfinite(old) and old > 0 else (1.0 if not np.isfinite(gap) else 0.0)
        if phase == "newton":
            steps, converged = self.newton_last
            sigma = self.newton.sigma
            if not converged:
                self.newton.set_sigma(sigma / 5)
            elif steps > 12:
                self.newton.set_sigma(sigma / 2)
            elif progress > 0.9 and gap < 1e-4:  # round-off times sigma holds the multipliers back
                self.newton.set_sigma(sigma / 10)
            elif progress > 0.3 and steps <= 8:
                self.newton.set_sigma(sigma * (4 if steps <= 5 else 2))
            elif self.settings.direct_limit < support < 0.9 * self.room and gap < 0.5:  # the face is regular again
                self.newton, self.stalled, self.accelerate = None, 0, True
            return
        self.accelerate = abs(support - before) <= 0.04 * support and support <= 0.95 * self.room
        self.stalled = self.stalled + 1 if progress > 0.5 else 0
        if count >= self.settings.patience and (support > 0.95 * self.room and not np.isfinite(gap) or self.stalled >= 6):
            violation = np.maximum(self.problem.rhs - self.margins, 0.0)[self.problem.kind > 0]
            size = float(np.linalg.norm(violation))
            self.newton = ProximalNewton(float(np.linalg.norm(self.duals)) / max(size, 1e-300), self.settings.direct_limit)

    def zero_row(self, rows):
        """A row with A_k = 0 and b_k > 0 (a duplicate of the selected token, a zero query) is its own ray."""
        bad = (rows.gram[rows.diagonal] == 0) & np.where(rows.free, rows.rhs != 0, rows.rhs > 0)
        if bad.any():
            rows.lam[:] = np.where(bad, np.sign(rows.rhs), 0.0)
            self.duals[:] = 0.0
            rows.scatter(self.duals)
        return bool(bad.any())

    def try_ray(self, rows, count, gap, dual):
        if np.isfinite(gap) and self.scalable or count < 3 or dual < 2 * self.ray_bound:
            return False
        self.ray_bound = dual
        found = refine_ray(rows)
        if found is None or found[1] > self.settings.ray_tolerance:
            return False
        rows.lam[:] = found[0] / np.abs(found[0]).sum()
        self.duals[:] = 0.0
        rows.scatter(self.duals)
        return True

    def report(self, count, phase, rows, support, violated, gap, dual):
        seconds = time.perf_counter() - self.began
        now = Progress(count, self.passes, phase, len(rows.token), support, violated, gap, dual, seconds)
        return bool(self.callback(now)) if self.callback else False

    def finish(self, outcome, rounds):
        return LargeSolution(self.weights, self.duals, outcome, self.passes, rounds)
