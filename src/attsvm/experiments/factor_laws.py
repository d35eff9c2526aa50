"""New: what normalized steps on K and Q do to the size of weights: the law of growth, the radius that decay picks.

Both laws are derived (attsvm.theory.growth, docs/optimizers.md), and known for one matrix; here they are measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch

from attsvm.attention import KeyQuery, gradient
from attsvm.data import random_sphere
from attsvm.descent import (
    Constant,
    Geometric,
    InverseSqrt,
    JointSteepestDescent,
    Optimizer,
    Schedule,
    SteepestDescent,
    fit,
)
from attsvm.experiments.base import Check, Experiment, Verdict
from attsvm.experiments.common import DataSets, long_column, seeds_of, spread_steps, stacked
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


@dataclass(frozen=True, kw_only=True)
class LogitGrowth(Laws):
    """Steps of `step_size` / sqrt(t + 1); beside them constant ones, decay, and a threshold as of QK-clip."""

    step_size: float = 0.3
    constant_step: float = 0.1
    decay: float = 0.1
    threshold: float = 100.0
    records: int = 240

    def quick(self) -> Self:
        return self.with_values(datasets=6, steps=1000)


@dataclass(frozen=True, kw_only=True)
class WeightDecay(Laws):
    """Steps that fall from .3 by `shrink` each; the decay is chosen for each radius."""

    radii: tuple[float, ...] = (1.0, 4.0, 16.0)
    shrink: float = 0.998
    steps: int = 4000

    def quick(self) -> Self:
        return self.with_values(datasets=6, radii=(1.0, 4.0), steps=2000, shrink=0.997)


def optimizer(rule: str, schedule: Schedule, decay: float = 0.0) -> Optimizer:
    """The optimizer of a rule."""
    if rule == "gradient joint":
        return JointSteepestDescent(Frobenius(), schedule, weight_decay=decay)
    norms = {"gradient each": Frobenius(), "Muon": Spectral(), "rows": LargestRow(), "sign": MaxEntry()}
    return SteepestDescent(norms[rule], schedule, weight_decay=decay)


def tasks(configuration: Laws) -> Sequence[Task]:
    """Chunks of data sets for every rule."""
    return [task for rule in RULES for task in configuration.chunks(rule.lower().replace(" ", "-"), rule=rule)]


def compute_growth(configuration: LogitGrowth, task: Task, device: torch.device) -> Piece:
    """Train with falling steps, constant steps and decay; hold gap and logits against the law and its bounds."""
    c, seeds, rule = configuration, seeds_of(configuration, task), task.values["rule"]
    data = random_sphere(n=c.n, T=c.T, d=c.d, batch=len(seeds), seed=seeds)
    marks = spread_steps(10, c.steps, c.records)
    schedule, parts = InverseSqrt(c.step_size), []
    kinds = {"falling": (schedule, 0.0), "constant": (Constant(c.constant_step), 0.0), "decayed": (schedule, c.decay)}
    for kind, (sizes, decay) in kinds.items():
        own = optimizer(rule, sizes, decay)
        settings: dict[str, Any] = {"parameterization": KeyQuery(), "optimizer": own}
        run = fit(data, steps=c.steps, record=marks, keep=("weights",), seed=seeds, **settings)
        check = verify_growth(data, run)
        law, shape = check.predicted, tuple(check.gap.shape)
        passed = check.logit > c.threshold
        found = growth(data, selected=run.selected, threshold=c.threshold, seed=seeds, steps=[1], **settings)
        parts.append({
            "rule": rule, "steps": kind, "dataset": long_column([number for _, number in seeds], shape, axis=1),
            "step": long_column(law.step, shape, axis=0), "gap": check.gap, "law": law.gap, "bound": law.gap_bound,
            "logit": check.logit, "logit_bound": law.logit_bound, "plateau": long_column(law.plateau, shape),
            "passing": long_column(found.passes, shape), "passed": long_column(
                torch.where(passed.any(0), law.step[passed.int().argmax(0)].double(), torch.nan), shape),
        })  # fmt: skip
    return Piece(tables={"history": stacked(parts)})


def compute_decay(configuration: WeightDecay, task: Task, device: torch.device) -> Piece:
    """Train under each decay; compare with the ball and, where it can be followed, with the path in it."""
    c, seeds, rule = configuration, seeds_of(configuration, task), task.values["rule"]
    data = random_sphere(n=c.n, T=c.T, d=c.d, batch=len(seeds), seed=seeds)
    norm = BALLS[rule]
    followed = isinstance(norm, (Nuclear, Spectral))
    path = regularization_path(data, radii=c.radii, norm=norm, seed=seeds) if followed else None
    factor = {"gradient joint": 0.5, "sign": float(c.d)}.get(rule, 1.0)
    parts = []
    for place, radius in enumerate(c.radii):
        own = optimizer(rule, Geometric(0.3, c.shrink), (factor / radius) ** 0.5)
        settings: dict[str, Any] = {"parameterization": KeyQuery(), "optimizer": own, "steps": c.steps, "keep": ()}
        run = fit(data, record=[c.steps], seed=seeds, **settings)
        slope = gradient(data, run.weights)["weights"].mantissa
        most = radius * norm.dual_value(slope)
        missing = torch.full_like(run.risk, torch.nan)
        parts.append({
            "rule": rule, "radius": radius, "dataset": [number for _, number in seeds],
            "norm": norm.value(run.weights) / radius, "gap": (slope * run.weights).sum((-1, -2)) / most + 1,
            "risk": run.risk, "path_risk": missing if path is None else path.risk[place],
            "cosine": missing if path is None else direction_cosine(run.weights, path.weights[place]),
        })  # fmt: skip
    return Piece(tables={"points": stacked(parts)})


def checks_of_growth(result: SweepResult) -> Sequence[Check]:
    """Bounds hold, gaps tend to the law, plateaus bound, thresholds are passed when they should be."""
    c, found = result.configuration, []

    def ratio(rule: str, of: str = "law", part: str = "gap", **where: Any) -> np.ndarray:
        """Where the SVM of the selection was solved; elsewhere there is no law."""
        law = result.column("history", of, rule=rule, **where)
        return (result.column("history", part, rule=rule, **where) / law)[~np.isnan(law)]

    recorded = np.unique(result.column("history", "step"))
    tenth = int(recorded[recorded <= max(c["steps"] / 10, recorded[0])].max())
    for rule in RULES:
        worst = np.max([ratio(rule, "bound").max(), ratio(rule, "logit_bound", "logit").max()])
        early, late = (ratio(rule, steps="falling", step=step) for step in (tenth, c["steps"]))
        plateau = ratio(rule, "plateau", steps="decayed", step=c["steps"])
        every = len(result.column("history", "gap", rule=rule, steps="falling", step=c["steps"]))
        left_out = "" if len(late) == every else f"; {every - len(late)} left out, whose SVM is not certified"
        ends = {"rule": rule, "steps": "falling", "step": c["steps"]}
        predicted, real = (result.column("history", name, **ends) for name in ("passing", "passed"))
        due = predicted <= c["steps"] / 2
        off = np.nan_to_num(np.abs(predicted / real - 1), nan=np.inf)[due]  # not passed at all: as far off as can be
        follows = rule in FOLLOWING
        nearer = (np.abs(late - 1) <= 0.05) | (np.abs(late - 1) < np.abs(early - 1))
        found += [
            Check(f"{rule}: gap and logits over their bounds", "at most 1 (triangle inequality)", f"{worst:.3f}",
                  Verdict.of(bool(worst <= 1 + 1e-6)), "one is above its bound at some step"),
            Check(f"{rule}: gap over its law in the end", "tends to 1 (derived)" if follows else "at most 1 (derived)",
                  f"median {np.median(late):.3f}, least {late.min():.3f}; {np.median(early):.3f} at a tenth{left_out}",
                  Verdict.of(bool(nearer.all())) if follows else Verdict.MEASURED,
                  "it is off by more than .05 on a data set, and no nearer than at a tenth of the steps"
                  if follows else ""),
            Check(f"{rule}: gap over its plateau, under decay", "at most 1 (derived), near it for weak decay",
                  f"median {np.median(plateau):.3f}, largest {plateau.max():.3f}",
                  Verdict.of(bool(plateau.max() <= 1 + 1e-6)), "a gap ends above it"),
            Check(f"{rule}: step at which the largest logit passes the threshold", "as predicted from the solution",
                  f"off by {np.median(off):.3f} in the median, {off.max():.3f} at most, of {due.sum()}"
                  if due.any() else "not yet",
                  Verdict.of(bool((off <= 0.1).all()), enough=bool(due.any())) if follows else Verdict.MEASURED,
                  "it is off by more than a tenth on a data set" if follows else "",
                  "" if due.any() else "none is due in so few steps"),
            Check(f"{rule}: gap over its law with constant steps", "none: steps change logits ever more",
                  f"median {np.median(ratio(rule, steps='constant', step=c['steps'])):.3f}", Verdict.MEASURED),
        ]  # fmt: skip
    return found


def checks_of_decay(result: SweepResult) -> Sequence[Check]:
    """Where decay ends: on the ball, stationary, and no lower than the path."""
    found = []
    for rule in RULES:
        norm, gap, risk, path, cosine = (
            result.column("points", name, rule=rule) for name in ("norm", "gap", "risk", "path_risk", "cosine")
        )
        convex = rule in FOLLOWING
        found += [
            Check(f"{rule}: norm of W over the radius", "1 (derived)" if convex else "at most 1 (derived)",
                  f"from {norm.min():.7g} to {norm.max():.7g}",
                  Verdict.of(bool((np.abs(norm - 1) <= 1e-3).all() if convex else (norm <= 1 + 1e-6).all())),
                  "it is off by more than .001 at a radius on a data set" if convex else "it is above 1"),
            Check(f"{rule}: Frank-Wolfe gap over the ball", "0 where stationary (derived)" if convex else "nobody says",
                  f"median {np.median(gap):.1e}, largest {gap.max():.1e}",
                  Verdict.of(bool((gap <= 0.05).all())) if convex else Verdict.MEASURED,
                  "it is above .05 of the largest possible decrease on a data set" if convex else ""),
        ]  # fmt: skip
        if not np.isnan(path).all():
            excess = risk - path
            found += [
                Check(f"{rule}: risk above that of the path", "not negative: the path is the lowest of its ball",
                      f"from {excess.min():.1e} to {excess.max():.1e}; within .0001 at {(excess <= 1e-4).sum()} of"
                      f" {len(excess)} points",
                      Verdict.of(bool((excess >= -1e-6).all())), "it is below -.000001 at a point"),
                Check(f"{rule}: cosine to the point of the path", "1 where the minimum is the same",
                      f"median {np.median(cosine):.6f}, least {cosine.min():.4f}", Verdict.MEASURED),
            ]  # fmt: skip
    return found


_RULE = "steps on K and on Q: gradient (normalized each, or jointly), Muon, rows, sign"
LOGIT_GROWTH = Experiment(
    id="logit-growth",
    source="new",
    title="The law of logit growth",
    shows="gaps grow like gamma r^2, never faster; weight decay ends it, and long steps stay below",
    seconds=60,
    default=LogitGrowth(),
    columns={
        "history": {
            "rule": _RULE,
            "steps": "falling like 1/sqrt t, constant, or falling with weight decay",
            "dataset": "number of the data set",
            "step": "number of steps taken",
            "gap": "least margin of the selected tokens",
            "law": "c gamma r^2",
            "bound": "no run from this start has a larger gap",
            "logit": "largest |logit|",
            "logit_bound": "no run from this start has a larger one",
            "plateau": "the law at r = 1/decay; inf without decay",
            "passing": "step at which the largest |logit| should pass the threshold, from the solution alone",
            "passed": "first recorded step at which it does",
        },
    },
    tasks=tasks,
    compute=compute_growth,
    checks=checks_of_growth,
    imports=("numba", "clarabel"),
)
WEIGHT_DECAY = Experiment(
    id="weight-decay",
    source="new",
    title="Weight decay picks the radius",
    shows="training with decoupled weight decay ends on the regularization path, at a radius that the decay names",
    seconds=60,
    default=WeightDecay(),
    columns={
        "points": {
            "rule": _RULE,
            "radius": "R, which chooses the decay",
            "dataset": "number of the data set",
            "norm": "norm of W that belongs to the steps, over R",
            "gap": "Frank-Wolfe gap over the ball of radius R, relative to the largest possible decrease",
            "risk": "where training ends",
            "path_risk": "lowest risk found in the ball; missing where the norm has no projection",
            "cosine": "direction cosine of W and the point of the path",
        }
    },
    tasks=tasks,
    compute=compute_decay,
    checks=checks_of_decay,
    imports=("numba", "clarabel"),
)
