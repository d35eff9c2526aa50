"""New: what normalized steps on K and Q do to the size of weights: the law of growth, the radius that decay picks.

Both laws are derived (attsvm.theory.growth, docs/optimizers.md), and known for one matrix; here they are measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch

from attsvm.attention import KeyQuery, gradient
from attsvm.data import random_sphere
from attsvm.descent import JointSteepestDescent, Optimizer, SteepestDescent, fit
from attsvm.descent.schedules import Constant, Geometric, InverseSqrt, Schedule
from attsvm.experiments.base import Check, DataSets, claim, reported
from attsvm.experiments.common import long_table, spread_steps, stacked
from attsvm.norms import Frobenius, Gamma2, LargestRow, MaxEntry, Norm, Nuclear, Projective, Spectral, direction_cosine
from attsvm.sweep import Piece, SweepResult, Task
from attsvm.theory import growth, regularization_path, verify_growth

FOLLOWING = ("gradient each", "gradient joint", "Muon", "rows")
"""Steps whose gap should follow the law; that of sign has bad attractors."""
RULES = (*FOLLOWING, "sign")
BALLS: Mapping[str, Norm] = dict(zip(RULES, (Nuclear(), Nuclear(), Spectral(), Gamma2(), Projective()), strict=True))


@dataclass(frozen=True, kw_only=True)
class Laws(DataSets):
    """Random data on the sphere, K and Q with d columns, PyTorch's default start."""

    n: int = 3
    T: int = 4
    d: int = 5
    steps: int = 3000
    datasets: int = 20
    chunk_size: int = 20
    imports = ("numba", "clarabel")

    def tasks(self) -> Sequence[Task]:
        return [task for rule in RULES for task in self.chunks(rule.lower().replace(" ", "-"), rule=rule)]


def optimizer(rule: str, schedule: Schedule, decay: float = 0.0) -> Optimizer:
    """The optimizer of a rule."""
    if rule == "gradient joint":
        return JointSteepestDescent(Frobenius(), schedule, weight_decay=decay)
    norms = {"gradient each": Frobenius(), "Muon": Spectral(), "rows": LargestRow(), "sign": MaxEntry()}
    return SteepestDescent(norms[rule], schedule, weight_decay=decay)


@dataclass(frozen=True, kw_only=True)
class LogitGrowth(Laws, identity="logit-growth"):
    """Steps of `step_size` / sqrt(t + 1); beside them constant ones, decay, and a threshold as of QK-clip."""

    step_size: float = 0.3
    constant_step: float = 0.1
    decay: float = 0.1
    threshold: float = 100.0
    records: int = 240
    smaller: ClassVar = {"datasets": 6, "steps": 1000}

    def compute(self, task: Task, device: torch.device) -> Piece:
        """Train with falling steps, constant steps and decay; hold gap and logits against the law and its bounds."""
        seeds, rule = self.seeds(task), task.values["rule"]
        data = random_sphere(n=self.n, T=self.T, d=self.d, batch=len(seeds), seed=seeds)
        marks = spread_steps(10, self.steps, self.records)
        falling, constant, parts = InverseSqrt(self.step_size), Constant(self.constant_step), []
        kinds = {"falling": (falling, 0.0), "constant": (constant, 0.0), "decayed": (falling, self.decay)}
        for kind, (sizes, decay) in kinds.items():
            settings: dict[str, Any] = {
                "parameterization": KeyQuery(), "optimizer": optimizer(rule, sizes, decay), "seed": seeds
            }  # fmt: skip
            run = fit(data, steps=self.steps, record=marks, keep=("weights",), **settings)
            check = verify_growth(data, run)
            law, passed = check.predicted, check.logit > self.threshold
            found = growth(data, selected=run.selected, threshold=self.threshold, steps=[1], **settings)
            parts.append(long_table(
                {"step": law.step, "dataset": [number for _, number in seeds]}, rule=rule, steps=kind, gap=check.gap,
                law=law.gap, bound=law.gap_bound, logit=check.logit, logit_bound=law.logit_bound, plateau=law.plateau,
                passing=found.passes,
                passed=torch.where(passed.any(0), law.step[passed.int().argmax(0)].double(), torch.nan),
            ))  # fmt: skip
        return Piece({"history": stacked(parts)})

    def checks(self, result: SweepResult) -> Sequence[Check]:
        """Bounds hold, gaps tend to the law, plateaus bound, thresholds are passed when they should be."""
        found = []

        def ratio(rule: str, of: str = "law", part: str = "gap", **where: Any) -> np.ndarray:
            """Where the SVM of the selection was solved; elsewhere there is no law."""
            law = result.column("history", of, rule=rule, **where)
            return (result.column("history", part, rule=rule, **where) / law)[~np.isnan(law)]

        marks = np.unique(result.column("history", "step"))
        tenth = int(marks[marks <= max(self.steps / 10, marks[0])].max())
        for rule in RULES:
            worst = np.max([ratio(rule, "bound").max(), ratio(rule, "logit_bound", "logit").max()])
            early, late = (ratio(rule, steps="falling", step=step) for step in (tenth, self.steps))
            plateau = ratio(rule, "plateau", steps="decayed", step=self.steps)
            ends = {"rule": rule, "steps": "falling", "step": self.steps}
            predicted, real = (result.column("history", name, **ends) for name in ("passing", "passed"))
            left = len(predicted) - len(late)
            left_out = f"; {left} left out, whose SVM is not certified" if left else ""
            due = predicted <= self.steps / 2
            # A threshold that is not passed at all is as far off as can be.
            off = np.nan_to_num(np.abs(predicted / real - 1), nan=np.inf)[due]
            nearer = (np.abs(late - 1) <= 0.05) | (np.abs(late - 1) < np.abs(early - 1))
            follows = rule in FOLLOWING
            found += [
                claim(f"{rule}: gap and logits over their bounds", "at most 1 (triangle inequality)", f"{worst:.3f}",
                      worst <= 1 + 1e-6, "one is above its bound at some step"),
                claim(f"{rule}: gap over its law in the end", f"{'tends to' if follows else 'at most'} 1 (derived)",
                      f"median {np.median(late):.3f}, least {late.min():.3f}; {np.median(early):.3f} at a"
                      f" tenth{left_out}", nearer.all(), predicted=follows,
                      fails_if="it is off by more than .05 on a data set, and no nearer than at a tenth of the steps"),
                claim(f"{rule}: gap over its plateau, under decay", "at most 1 (derived), near it for weak decay",
                      f"median {np.median(plateau):.3f}, largest {plateau.max():.3f}", plateau.max() <= 1 + 1e-6,
                      "a gap ends above it"),
                claim(f"{rule}: step at which the largest logit passes the threshold", "as predicted from the solution",
                      f"off by {np.median(off):.3f} in the median, {off.max():.3f} at most, of {due.sum()}"
                      if due.any() else "not yet", (off <= 0.1).all(), "it is off by more than a tenth on a data set",
                      enough=due.any(), why="none is due in so few steps", predicted=follows),
                reported(f"{rule}: gap over its law with constant steps", "none: steps change logits ever more",
                         f"median {np.median(ratio(rule, steps='constant', step=self.steps)):.3f}"),
            ]  # fmt: skip
        return found


@dataclass(frozen=True, kw_only=True)
class WeightDecay(Laws, identity="weight-decay"):
    """Steps that fall from .3 by `shrink` each; the decay is chosen for each radius."""

    radii: tuple[float, ...] = (1.0, 4.0, 16.0)
    shrink: float = 0.998
    steps: int = 4000
    smaller: ClassVar = {"datasets": 6, "radii": (1.0, 4.0), "steps": 2000, "shrink": 0.997}

    def compute(self, task: Task, device: torch.device) -> Piece:
        """Train under each decay; compare with the ball and, where it can be followed, with the path in it."""
        seeds, rule = self.seeds(task), task.values["rule"]
        data = random_sphere(n=self.n, T=self.T, d=self.d, batch=len(seeds), seed=seeds)
        norm = BALLS[rule]
        followed = isinstance(norm, (Nuclear, Spectral))
        path = regularization_path(data, radii=self.radii, norm=norm, seed=seeds) if followed else None
        factor = {"gradient joint": 0.5, "sign": float(self.d)}.get(rule, 1.0)
        parts = []
        for place, radius in enumerate(self.radii):
            own = optimizer(rule, Geometric(0.3, self.shrink), (factor / radius) ** 0.5)
            run = fit(
                data, parameterization=KeyQuery(), optimizer=own, steps=self.steps, keep=(), record=[self.steps],
                seed=seeds,
            )  # fmt: skip
            slope = gradient(data, run.weights)["weights"].mantissa
            most = radius * norm.dual_value(slope)
            missing = torch.full_like(run.risk, torch.nan)
            parts.append({
                "rule": rule, "radius": radius, "dataset": [number for _, number in seeds],
                "norm": norm.value(run.weights) / radius, "gap": (slope * run.weights).sum((-1, -2)) / most + 1,
                "risk": run.risk, "path_risk": missing if path is None else path.risk[place],
                "cosine": missing if path is None else direction_cosine(run.weights, path.weights[place]),
            })  # fmt: skip
        return Piece({"points": stacked(parts)})

    def checks(self, result: SweepResult) -> Sequence[Check]:
        """Where decay ends: on the ball, stationary, and no lower than the path."""
        found = []
        for rule in RULES:
            norm, gap, risk, path, cosine = (
                result.column("points", name, rule=rule) for name in ("norm", "gap", "risk", "path_risk", "cosine")
            )
            convex = rule in FOLLOWING
            found += [
                claim(f"{rule}: norm of W over the radius", "1 (derived)" if convex else "at most 1 (derived)",
                      f"from {norm.min():.7g} to {norm.max():.7g}",
                      (np.abs(norm - 1) <= 1e-3).all() if convex else (norm <= 1 + 1e-6).all(),
                      "it is off by more than .001 at a radius on a data set" if convex else "it is above 1"),
                claim(f"{rule}: Frank-Wolfe gap over the ball",
                      "0 where stationary (derived)" if convex else "nobody says",
                      f"median {np.median(gap):.1e}, largest {gap.max():.1e}", (gap <= 0.05).all(),
                      "it is above .05 of the largest possible decrease on a data set", predicted=convex),
            ]  # fmt: skip
            if not np.isnan(path).all():
                excess = risk - path
                found += [
                    claim(f"{rule}: risk above that of the path", "not negative: the path is the lowest of its ball",
                          f"from {excess.min():.1e} to {excess.max():.1e}; within .0001 at {(excess <= 1e-4).sum()} of"
                          f" {len(excess)} points", (excess >= -1e-6).all(), "it is below -.000001 at a point"),
                    reported(f"{rule}: cosine to the point of the path", "1 where the minimum is the same",
                             f"median {np.median(cosine):.6f}, least {cosine.min():.4f}"),
                ]  # fmt: skip
        return found
