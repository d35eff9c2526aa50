"""New: which max-margin solution does each optimizer turn to? Measurements; for attention most of it is not proved.

Steepest descent in a norm (sign: the largest entry; spectral, as in Muon: the spectral norm) and mirror descent with an
entrywise power are known, for linear models, to tend to the max-margin solution in that norm (arXiv 2502.04664); for
attention the mirror part is proved locally (arXiv 2410.14581). On K and Q the norm is that of `factor_norm`, which is
derived, not proved. Every run is compared with the solution in every norm for the selection that the run itself
reached. Three experiments share this: optimizers of W, optimizers of W and of (K, Q), and the settings of Adam.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, ClassVar

import numpy as np
import torch

from attsvm import descent
from attsvm.attention import KeyQuery, Parameterization, Weights, optimal_tokens
from attsvm.data import random_sphere
from attsvm.descent import InverseSqrt, NormalizedGradientDescent, SteepestDescent, fit
from attsvm.experiments.base import STUDIES, Check, DataSets, Experiment, claim, reported
from attsvm.experiments.common import stacked
from attsvm.norms import Entrywise, Frobenius, LargestColumn, LargestRow, MaxEntry, Norm, Spectral, SpectralOfRank
from attsvm.svm import AttentionSVM
from attsvm.sweep import Piece, SweepResult, Task
from attsvm.theory.identify import NORMS, in_every_norm

_GAP = 1e-6  # largest relative gap of a solution, as the checks ask


@dataclass(frozen=True)
class Row:
    """One optimizer of a table."""

    optimizer: descent.Optimizer  # the rule and its step sizes
    match: str | None = None  # the norm whose solution it should find, framed in the picture, if one is known
    share: float | None = None  # of the data sets that this norm must win, where that is asked for
    kind: Parameterization = field(default_factory=Weights)  # what is trained


@dataclass(frozen=True, kw_only=True)
class Geometry(DataSets):
    """Random data on the sphere; steps of a first size over sqrt(t + 1) from PyTorch's default start."""

    n: int = 3
    T: int = 4
    d: int = 5
    datasets: int = 1000
    steps: int = 2000
    chunk_size: int = 125
    smaller: ClassVar = {"datasets": 10, "steps": 500, "chunk_size": 10}
    imports = ("numba", "clarabel")

    @abstractmethod
    def rows(self) -> dict[str, Row]:
        """The optimizers by name."""

    @abstractmethod
    def norms(self) -> Mapping[str, Norm]:
        """The norms by name."""

    def tasks(self) -> Sequence[Task]:
        plain = str.maketrans(dict.fromkeys("(),=", "") | {" ": "-"})
        names = {name: name.lower().translate(plain) for name in self.rows()}
        return [task for name, short in names.items() for task in self.chunks(short, optimizer=name)]

    def compute(self, task: Task, device: torch.device) -> Piece:
        """Train, solve for the reached selection in every norm, measure cosine and margin efficiency."""
        name, seeds = task.values["optimizer"], self.seeds(task)
        data = random_sphere(n=self.n, T=self.T, d=self.d, batch=len(seeds), seed=seeds).to(device)
        row = self.rows()[name]
        run = fit(
            data, optimizer=row.optimizer, parameterization=row.kind, steps=self.steps, record=[self.steps], keep=(),
            seed=seeds,
        )  # fmt: skip
        problem = AttentionSVM(data, run.selected)
        best = (run.selected == optimal_tokens(data)).all(-1)
        tables: list[dict[str, object]] = []
        counts: dict[str, int] = {}
        for label, solution, cosine, efficiency in in_every_norm(run.weights, problem, self.norms()):
            counts[f"{label} SVM of the reached selection infeasible"] = int(solution.infeasible.sum())
            counts[f"{label} SVM not decided"] = int((~solution.solved & ~solution.infeasible).sum())
            tables.append({
                "optimizer": name, "dataset": self.numbers(task), "norm": label, "cosine": cosine,
                "efficiency": efficiency, "unique": solution.unique,
                "relative_gap": solution.certificate.relative_gap,
                "least_attention": run.attention.amax(-1).amin(-1), "optimal": best,
            })  # fmt: skip
        return Piece({"pairs": stacked(tables)}, counts=counts)

    def means(self, result: SweepResult, column: str) -> np.ndarray:
        """Means over the data sets, ``[optimizers, norms]``."""
        return np.array([
            [np.nanmean(result.column("pairs", column, optimizer=name, norm=norm)) for norm in self.norms()]
            for name in self.rows()
        ])  # fmt: skip

    def _solved(self, result: SweepResult, column: str, name: str) -> dict[str, np.ndarray]:
        """By norm, the numbers of the data sets that have solutions in all of them."""
        values = {norm: result.column("pairs", column, optimizer=name, norm=norm) for norm in self.norms()}
        solved = ~np.isnan(np.stack(list(values.values()))).any(0)
        return {norm: each[solved] for norm, each in values.items()}

    def checks(self, result: SweepResult) -> Sequence[Check]:
        """In how many data sets the efficiency in the matching norm is the largest; for other rows, which norm's is.

        A data set without a certified solution in some norm is won by none, and counts.
        """
        found = []
        for name, row in self.rows().items():
            values = self._solved(result, "efficiency", name)
            table, labels = np.stack(list(values.values())), list(values)
            count = len(np.unique(result.column("pairs", "dataset", optimizer=name)))
            best = table.argmax(0)
            if row.match:  # level with another norm: the two problems have a solution in common
                best[values[row.match] >= table.max(0) - _GAP] = labels.index(row.match)
            wins = dict(zip(labels, np.bincount(best, minlength=len(table)).tolist(), strict=True))
            order = sorted(values, key=wins.__getitem__, reverse=True)
            first = row.match or order[0]
            rival = next(norm for norm in order if norm != first)
            middle = f"{np.median(values[first]):.3f}" if table.size else "-"
            left = f"; {count - table.shape[1]} not solved in all norms" if table.shape[1] < count else ""
            measured = f"{first} on {wins[first]} of {count}, median {middle}; next {rival} on {wins[rival]}{left}"
            if row.share is None:
                what = f"{name}: the norm of the largest efficiency" + (f" ({row.match} framed)" if row.match else "")
                found.append(reported(what, "reported", measured))
            else:
                found.append(
                    claim(f"{name}: largest efficiency in the {row.match} norm", f"in {row.share:.0%} of the data sets",
                          measured, wins[first] >= row.share * count,
                          f"it is the largest in fewer than {row.share:.0%} of them", enough=count > 0)
                )  # fmt: skip
        gaps = result.column("pairs", "relative_gap")[~np.isnan(result.column("pairs", "efficiency"))]
        largest = float(gaps.max()) if len(gaps) else np.nan
        return [
            *found,
            claim("relative gap of the solutions, largest", f"at most {_GAP:g}", f"{largest:.1e}", largest <= _GAP,
                  f"a gap is above {_GAP:g}", enough=len(gaps) > 0),
        ]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class OptimizerGeometry(Geometry, identity="optimizer-geometry"):
    """Seven optimizers of W."""

    n: int = 6
    T: int = 8
    d: int = 10
    datasets: int = 100
    steps: int = 6000
    step_size: float = 0.3
    chunk_size: int = 25
    smaller: ClassVar = {"n": 4, "T": 5, "d": 6, "datasets": 6, "steps": 3000}

    def rows(self) -> dict[str, Row]:
        schedule = InverseSqrt(self.step_size)
        return {
            "gradient": Row(NormalizedGradientDescent(schedule), "Frobenius"),
            "sign": Row(SteepestDescent(MaxEntry(), schedule), "max entry"),
            "spectral": Row(SteepestDescent(Spectral(), schedule), "spectral"),
            "mirror 1.1": Row(descent.NormalizedMirrorDescent(1.1, schedule), "l_1.1"),
            "mirror 1.75": Row(descent.NormalizedMirrorDescent(1.75, schedule), "l_1.75"),
            "mirror 3": Row(descent.NormalizedMirrorDescent(3.0, schedule), "l_3"),
            "Adam": Row(descent.Adam(schedule), "max entry"),
        }

    def norms(self) -> Mapping[str, Norm]:
        powers = {f"l_{p:g}": Entrywise(p) for p in (1.1, 1.75, 3.0)}
        return {"Frobenius": Frobenius(), "max entry": MaxEntry(), "spectral": Spectral(), **powers}

    def checks(self, result: SweepResult) -> Sequence[Check]:
        """The matching entry of every row should win, in cosine and in margin efficiency."""
        found = []
        for column, (name, row) in product(("cosine", "efficiency"), self.rows().items()):
            assert row.match is not None
            others = self._solved(result, column, name)
            own = others.pop(row.match)
            sums = {norm: float(each.sum()) for norm, each in others.items()}
            rival = max(sums, key=sums.__getitem__)
            won = int((own > np.stack(list(others.values())).max(0)).sum())
            mean, next_mean = own.sum() / max(len(own), 1), sums[rival] / max(len(own), 1)
            found.append(
                claim(f"{name}: {column} to the {row.match} solution", "largest of its row",
                      f"{mean:.3f}, next {rival} {next_mean:.3f}; largest on {won} of {len(own)} data sets",
                      mean > next_mean, "the mean over the data sets is as large for another norm",
                      enough=len(own) > 0, why="no data set has solutions in all norms")
            )  # fmt: skip
        return found


@dataclass(frozen=True, kw_only=True)
class FactorGeometry(Geometry, identity="factor-geometry"):
    """The optimizers of transformers on W and on (K, Q).

    Rules that move every entry alike have a tenth of the step: larger ones leave K and Q in bad attractors. On W, whose
    logits grow with the sum of steps and not with its square, steps are ten times as large.
    """

    step_size: float = 0.3
    decay: float = 0.1  # of AdamW

    def rows(self) -> dict[str, Row]:
        made: dict[str, Row] = {}
        for kind, name, times in ((Weights(), "W", 10.0), (KeyQuery(), "(K, Q)", 1.0)):
            steps, short = InverseSqrt(times * self.step_size), InverseSqrt(times * self.step_size / 10)
            factors = kind == KeyQuery()
            muon = SteepestDescent(Spectral(), steps)
            each = {
                "gradient": Row(NormalizedGradientDescent(steps), "nuclear" if factors else "Frobenius", 0.95, kind),
                "Muon": Row(muon, "spectral", 0.95, kind),
                "Muon, Newton-Schulz": Row(descent.NewtonSchulzDescent(steps, 0.0), kind=kind),
                "sign": Row(SteepestDescent(MaxEntry(), short), "projective" if factors else "max entry", kind=kind),
                "Adam": Row(descent.Adam(short), kind=kind),
                "AdamW": Row(descent.Adam(short, weight_decay=self.decay), kind=kind),
                "Lion": Row(descent.Lion(short), kind=kind),
                "rows": Row(SteepestDescent(LargestRow(), steps), "gamma_2" if factors else None, None, kind),
            }
            if factors:
                each |= {
                    "columns": Row(SteepestDescent(LargestColumn(), steps), "nuclear", None, kind),
                    "gradient, joint": Row(descent.JointSteepestDescent(Frobenius(), steps), "nuclear", 0.95, kind),
                    "Muon, m = 2": Row(muon, "spectral, m = 2", 0.95, KeyQuery(2)),
                }
            made |= {f"{name} {label}": row for label, row in each.items()}
        return made

    def norms(self) -> Mapping[str, Norm]:
        return {**{name: norm for name, norm in NORMS.items() if name != "l_3"}, "spectral, m = 2": SpectralOfRank(2)}


@dataclass(frozen=True, kw_only=True)
class AdamGeometry(Geometry, identity="adam"):
    """Adam on W and on (K, Q) for some beta_1, beta_2 and epsilon; without memory it is sign descent."""

    step_size: float = 0.03
    datasets: int = 200

    def rows(self) -> dict[str, Row]:
        made: dict[str, Row] = {}
        settings = ((0.0, 0.0, 0.0), (0.0, 0.9, 0.0), (0.0, 0.999, 0.0), (0.9, 0.9, 0.0), (0.9, 0.999, 0.0),
                    (0.9, 0.999, 1e-8))  # fmt: skip
        for (kind, name, times), (beta1, beta2, epsilon) in product(
            ((Weights(), "W", 10.0), (KeyQuery(), "(K, Q)", 1.0)), settings
        ):
            sign, factors = beta2 == 0, kind == KeyQuery()
            match = ("projective" if factors else "max entry") if sign else None
            rule = descent.Adam(InverseSqrt(times * self.step_size), beta1, beta2, epsilon)
            made[f"{name} {beta1:g}, {beta2:g}, {epsilon:g}"] = Row(rule, match, 0.5 if sign else None, kind)
        return made

    def norms(self) -> Mapping[str, Norm]:
        return {name: NORMS[name] for name in ("Frobenius", "nuclear", "spectral", "l_3", "max entry", "projective")}


GEOMETRIES: Mapping[str, Experiment[Any]] = {
    name: study().experiment(name) for name, study in STUDIES.items() if issubclass(study, Geometry)
}
