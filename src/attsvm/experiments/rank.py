"""[TaSVM, rank] ranks of certified Frobenius and nuclear solutions; what cannot be separated is counted, not ranked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import ClassVar

import numpy as np
import torch

from attsvm.attention import token_scores
from attsvm.data import random_sphere
from attsvm.experiments.base import Check, Study, allowance, claim, reported
from attsvm.experiments.common import NORMS, so_far, stacked
from attsvm.svm import AttentionSVM, solve
from attsvm.sweep import Done, Piece, SweepResult, Task

TOLERANCES = (1e-3, 1e-4, 1e-6, 1e-8)  # thresholds relative to the largest singular value at which ranks are counted
TOLERANCE = 1e-6
"""The one that is drawn: hardly any relative singular value of a certified solution lies between it and rounding."""
FEASIBLE = "feasible"
_PUBLIC_INFEASIBLE, _PUBLIC_DRAWS = 1253, 4000  # of the paper's draws, as the public code solves them


@dataclass(frozen=True, kw_only=True)
class Rank(Study):
    """Random data on the sphere with the optimal selection; first n varies, then T."""

    dimensions: tuple[int, ...] = (1, 2, 3, 4, 5, 10, 15, 20)  # values of d
    shapes: tuple[tuple[int, int], ...] = ((5, 5), (10, 5), (15, 5), (5, 10), (5, 15))  # pairs (n, T)
    draws: int = 100  # data sets of each cell; where fewer are separable, more are drawn up to `cap` (not for d = 1)
    cap: int = 2000
    batch: int = 100  # how many more are drawn at a time

    runs_field = "draws"
    smaller: ClassVar = {"draws": 20, "cap": 100, "batch": 20}

    def tasks(self) -> Sequence[Task]:
        return [_task("paper", n, T, d, 0, self.draws) for n, T in self.shapes for d in self.dimensions]

    def more(self, done: Sequence[Done]) -> Sequence[Task]:
        """Draw on in the cells that lack separable data sets, up to the cap."""
        further = []
        for (n, T), d in product(self.shapes, self.dimensions):
            drawn, feasible = so_far(done, _named(n, T, d, FEASIBLE), n=n, T=T, d=d)
            if d > 1 and feasible < self.draws and drawn < self.cap:
                further.append(_task("more", n, T, d, drawn, min(drawn + self.batch, self.cap)))
        return further

    def compute(self, task: Task, device: torch.device) -> Piece:
        """Solve both SVMs of the optimal selection; the spectra lie in the order of the rows, zeros beyond d."""
        n, T, d = (task.values[name] for name in ("n", "T", "d"))
        seeds = self.seeds(task)
        data = random_sphere(n=n, T=T, d=d, batch=len(seeds), seed=seeds).to(device)
        # In one dimension all tokens are +1 or -1 and best tokens tie; the first of them is taken.
        problem = AttentionSVM(data, token_scores(data).argmax(-1))
        tables: list[dict[str, object]] = []
        spectra = []
        solutions = {name: solve(problem, norm) for name, norm in NORMS.items()}
        counts = {_named(n, T, d, FEASIBLE): int(solutions["frobenius"].solved.sum())}
        for name, solution in solutions.items():
            spectrum = torch.linalg.svdvals(solution.weights.nan_to_num())
            spectra.append(torch.nn.functional.pad(spectrum, (0, max(self.dimensions) - d)).cpu())
            tables.append({
                "n": n, "T": T, "d": d, "stage": task.values["stage"], "norm": name,
                "draw": self.numbers(task), "feasible": solution.solved,
                "infeasible": solution.infeasible, "relative_gap": solution.certificate.relative_gap,
                **{f"rank_{tolerance:g}": solution.rank(tolerance) for tolerance in TOLERANCES},
            })  # fmt: skip
            undecided = ~solution.solved & ~solution.infeasible
            counts[_named(n, T, d, f"{name} not solved, not proved infeasible")] = int(undecided.sum())
        return Piece({"solutions": stacked(tables)}, {"spectra": torch.cat(spectra)}, counts)

    def checks(self, result: SweepResult) -> Sequence[Check]:
        """What holds of the ranks of solutions that exist, and how much they depend on the tolerance."""
        largest = max(self.dimensions)
        paper_cells = self.dimensions == Rank.dimensions and self.shapes == Rank.shapes

        def ranks(norm: str, n: int, T: int, d: int) -> np.ndarray:
            return result.column("solutions", f"rank_{TOLERANCE:g}", norm=norm, n=n, T=T, d=d, feasible=True)

        every = [(n, T, d) for n, T in self.shapes for d in self.dimensions if d >= 2]
        cells = [cell for cell in every if len(ranks("frobenius", *cell))]
        bounds = np.array([min(n, d) for n, _, d in cells])
        frobenius, nuclear = (np.array([ranks(norm, *cell).mean() for cell in cells]) for norm in NORMS)
        over = sum(int((ranks(norm, n, T, d) > min(n, d)).sum()) for norm in NORMS for n, T, d in cells)
        least = (frobenius / bounds)[np.array([d == largest for *_, d in cells])].min()
        lower = frobenius - nuclear
        by_tolerance = {t: result.column("solutions", f"rank_{t:g}", feasible=True) for t in TOLERANCES}
        changed = {t: int((by_tolerance[t] != by_tolerance[TOLERANCES[-1]]).sum()) for t in TOLERANCES[:-1]}
        gaps = result.column("solutions", "relative_gap", feasible=True)
        undecided = int((~result.column("solutions", "feasible") & ~result.column("solutions", "infeasible")).sum())
        paper = result.column("solutions", "infeasible", stage="paper", norm="frobenius")
        one = result.column("solutions", "feasible", d=1, norm="frobenius")
        public = _PUBLIC_INFEASIBLE / _PUBLIC_DRAWS
        allowed = allowance(np.sqrt(public * (1 - public)), len(paper), _PUBLIC_DRAWS)
        return [
            claim("infeasible among the paper's draws",
                  f"public: {_PUBLIC_INFEASIBLE:,} of {_PUBLIC_DRAWS:,}, ranked 1",
                  f"{paper.sum():,} of {len(paper):,}, not ranked", abs(paper.mean() - public) <= allowed,
                  "the share differs from the public one by more than three standard errors", enough=paper_cells,
                  why="asked of the paper's n, T and d"),
            claim("separable draws at d = 1", "none", f"{one.sum()} of {len(one)}", not one.any(), "there is one",
                  enough=len(one) > 0),
            claim("neither solved nor proved infeasible", "none", f"{undecided}", undecided == 0, "there is one"),
            reported("largest certified relative gap", "(a gap of 1e-8 counts as solved)", f"{gaps.max():.1e}"),
            claim("rank above min(n, d)", "never (theorem)", f"{over}", over == 0, "there is such a solution"),
            claim("mean Frobenius rank over min(n, d), at the largest d", "tends to 1 (paper)",
                  f"least {least:.3f} at d = {largest}", least > 0.98, "it is at most .98 for a pair of n and T",
                  enough=largest >= 20, why="asked at d = 20"),
            reported("largest shortfall of the mean Frobenius rank", "(the paper names no size)",
                     f"{(bounds - frobenius).max():.2f}"),
            claim("Frobenius minus nuclear mean rank, over the cells", "public curve: positive",
                  f"least {lower.min():.2f}, largest {lower.max():.2f}", lower.min() >= 0,
                  "the nuclear mean is the larger one in a cell"),
            claim("solutions whose rank depends on the tolerance", f"none between {TOLERANCE:g} and {TOLERANCES[-1]:g}",
                  ", ".join(f"{count} at {tolerance:g}" for tolerance, count in changed.items()),
                  changed[TOLERANCE] == 0, f"one has another rank at {TOLERANCE:g} than at {TOLERANCES[-1]:g}"),
        ]  # fmt: skip


def _task(stage: str, n: int, T: int, d: int, first: int, last: int) -> Task:
    values = {"stage": stage, "n": n, "T": T, "d": d, "first": first, "last": last}
    return Task(f"{stage}-n{n:02d}-t{T:02d}-d{d:02d}-{first:05d}", values)


def _named(n: int, T: int, d: int, reason: str) -> str:
    return f"n={n} T={T} d={d}: {reason}"


RANK = Rank().experiment("rank")
