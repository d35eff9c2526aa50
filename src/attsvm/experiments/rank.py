"""[TaSVM, rank] ranks of certified Frobenius and nuclear solutions; what cannot be separated is counted, not ranked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from attsvm.attention import token_scores
from attsvm.data import random_sphere
from attsvm.experiments.base import Check, Experiment, Verdict
from attsvm.experiments.common import NORMS, allowance, seeds_of, stacked
from attsvm.svm import AttentionSVM, solve
from attsvm.sweep import Configuration, Done, Piece, SweepResult, Task

TOLERANCES = (1e-3, 1e-4, 1e-6, 1e-8)  # thresholds relative to the largest singular value at which ranks are counted
TOLERANCE = 1e-6
"""The one that is drawn: hardly any relative singular value of a certified solution lies between it and rounding."""
FEASIBLE = "feasible"
_PUBLIC_INFEASIBLE, _PUBLIC_DRAWS = 1253, 4000  # of the paper's draws, as the public code solves them


@dataclass(frozen=True, kw_only=True)
class Rank(Configuration):
    """Random data on the sphere with the optimal selection; first n varies, then T."""

    dimensions: tuple[int, ...] = (1, 2, 3, 4, 5, 10, 15, 20)  # values of d
    shapes: tuple[tuple[int, int], ...] = ((5, 5), (10, 5), (15, 5), (5, 10), (5, 15))  # pairs (n, T)
    draws: int = 100  # data sets of each cell; where fewer are separable, more are drawn up to `cap` (not for d = 1)
    cap: int = 2000
    batch: int = 100  # how many more are drawn at a time

    runs_field: ClassVar[str | None] = "draws"

    def quick(self) -> Self:
        return self.with_values(draws=20, cap=100, batch=20)


def tasks(configuration: Rank) -> Sequence[Task]:
    """One task for the paper's draws of each cell."""
    return [
        _task("paper", n, T, d, 0, configuration.draws)
        for n, T in configuration.shapes
        for d in configuration.dimensions
    ]


def more(configuration: Rank, done: Sequence[Done]) -> Sequence[Task]:
    """Draw on in the cells that lack separable data sets, up to the cap."""
    cells: dict[tuple[int, int, int], list[Done]] = {}
    for each in done:
        values = each.task.values
        cells.setdefault((values["n"], values["T"], values["d"]), []).append(each)
    further = []
    for (n, T, d), found in cells.items():
        drawn = max(each.task.values["last"] for each in found)
        feasible = sum(each.counts[_named(n, T, d, FEASIBLE)] for each in found)
        if d > 1 and feasible < configuration.draws and drawn < configuration.cap:
            further.append(_task("more", n, T, d, drawn, min(drawn + configuration.batch, configuration.cap)))
    return further


def compute(configuration: Rank, task: Task, device: torch.device) -> Piece:
    """Solve both SVMs of the optimal selection; the spectra lie in the order of the rows, zeros beyond d."""
    n, T, d = (task.values[name] for name in ("n", "T", "d"))
    seeds = seeds_of(configuration, task)
    data = random_sphere(n=n, T=T, d=d, batch=len(seeds), seed=seeds).to(device)
    # In one dimension all tokens are +1 or -1 and best tokens tie; the first of them is taken.
    problem = AttentionSVM(data, token_scores(data).argmax(-1))
    size = max(configuration.dimensions)
    tables: list[dict[str, object]] = []
    spectra: list[Tensor] = []
    solutions = {name: solve(problem, norm) for name, norm in NORMS.items()}
    counts = {_named(n, T, d, FEASIBLE): int(solutions["frobenius"].solved.sum())}
    for name, solution in solutions.items():
        spectrum = torch.zeros(len(seeds), size, dtype=torch.float64, device=device)
        spectrum[:, :d] = torch.linalg.svdvals(solution.weights.nan_to_num())
        spectra.append(spectrum.cpu())
        tables.append(
            {
                "n": n,
                "T": T,
                "d": d,
                "stage": task.values["stage"],
                "norm": name,
                "draw": [number for _, number in seeds],
                "feasible": solution.solved,
                "infeasible": solution.infeasible,
                "relative_gap": solution.certificate.relative_gap,
                **{f"rank_{tolerance:g}": solution.rank(tolerance) for tolerance in TOLERANCES},
            }
        )
        undecided = ~solution.solved & ~solution.infeasible
        counts[_named(n, T, d, f"{name} not solved, not proved infeasible")] = int(undecided.sum())
    return Piece(tables={"solutions": stacked(tables)}, arrays={"spectra": torch.cat(spectra)}, counts=counts)


def _task(stage: str, n: int, T: int, d: int, first: int, last: int) -> Task:
    values = {"stage": stage, "n": n, "T": T, "d": d, "first": first, "last": last}
    return Task(f"{stage}-n{n:02d}-t{T:02d}-d{d:02d}-{first:05d}", values)


def _named(n: int, T: int, d: int, reason: str) -> str:
    return f"n={n} T={T} d={d}: {reason}"


def checks(result: SweepResult) -> Sequence[Check]:
    """What holds of the ranks of solutions that exist, and how much they depend on the tolerance."""
    configuration = result.configuration
    largest, shapes = max(configuration["dimensions"]), [tuple(shape) for shape in configuration["shapes"]]
    paper_cells = tuple(configuration["dimensions"]) == Rank.dimensions and tuple(shapes) == Rank.shapes

    def ranks(norm: str, n: int, T: int, d: int, tolerance: float = TOLERANCE) -> np.ndarray:
        return result.column("solutions", f"rank_{tolerance:g}", norm=norm, n=n, T=T, d=d, feasible=True)

    dimensions = [d for d in configuration["dimensions"] if d >= 2]
    cells = [(n, T, d) for n, T in shapes for d in dimensions if len(ranks("frobenius", n, T, d))]
    short = max(min(n, d) - float(ranks("frobenius", n, T, d).mean()) for n, T, d in cells)
    lower = [float(ranks("frobenius", n, T, d).mean()) - float(ranks("nuclear", n, T, d).mean()) for n, T, d in cells]
    over = sum(int((ranks(norm, n, T, d) > min(n, d)).sum()) for norm in NORMS for n, T, d in cells)
    shares = [float(ranks("frobenius", n, T, d).mean()) / min(n, d) for n, T, d in cells if d == largest]
    by_tolerance = [result.column("solutions", f"rank_{tolerance:g}", feasible=True) for tolerance in TOLERANCES]
    changed = {tolerance: int((found != by_tolerance[-1]).sum())
               for tolerance, found in zip(TOLERANCES[:-1], by_tolerance, strict=False)}  # fmt: skip
    gaps = result.column("solutions", "relative_gap", feasible=True)
    undecided = int((~result.column("solutions", "feasible") & ~result.column("solutions", "infeasible")).sum())
    paper = result.column("solutions", "infeasible", stage="paper", norm="frobenius")
    one = result.column("solutions", "feasible", d=1, norm="frobenius")
    public = _PUBLIC_INFEASIBLE / _PUBLIC_DRAWS
    allowed = allowance(np.sqrt(public * (1 - public)), len(paper), _PUBLIC_DRAWS)
    return [
        Check("infeasible among the paper's draws", f"public: {_PUBLIC_INFEASIBLE:,} of {_PUBLIC_DRAWS:,}, ranked 1",
              f"{paper.sum():,} of {len(paper):,}, not ranked",
              Verdict.of(abs(paper.mean() - public) <= allowed, enough=paper_cells),
              "the share differs from the public one by more than three standard errors",
              "" if paper_cells else "asked of the paper's n, T and d"),
        Check("separable draws at d = 1", "none", f"{one.sum()} of {len(one)}",
              Verdict.of(not one.any(), enough=len(one) > 0), "there is one"),
        Check("neither solved nor proved infeasible", "none", f"{undecided}", Verdict.of(undecided == 0),
              "there is one"),
        Check("largest certified relative gap", "(a gap of 1e-8 counts as solved)", f"{gaps.max():.1e}",
              Verdict.MEASURED),
        Check("rank above min(n, d)", "never (theorem)", f"{over}", Verdict.of(over == 0), "there is such a solution"),
        Check("mean Frobenius rank over min(n, d), at the largest d", "tends to 1 (paper)",
              f"least {min(shares):.3f} at d = {largest}", Verdict.of(min(shares) > 0.98, enough=largest >= 20),
              "it is at most .98 for a pair of n and T", "" if largest >= 20 else "asked at d = 20"),
        Check("largest shortfall of the mean Frobenius rank", "(the paper names no size)", f"{short:.2f}",
              Verdict.MEASURED),
        Check("Frobenius minus nuclear mean rank, over the cells", "public curve: positive",
              f"least {min(lower):.2f}, largest {max(lower):.2f}", Verdict.of(min(lower) >= 0),
              "the nuclear mean is the larger one in a cell"),
        Check("solutions whose rank depends on the tolerance", f"none between {TOLERANCE:g} and {TOLERANCES[-1]:g}",
              ", ".join(f"{count} at {tolerance:g}" for tolerance, count in changed.items()),
              Verdict.of(changed[TOLERANCE] == 0),
              f"one has another rank at {TOLERANCE:g} than at {TOLERANCES[-1]:g}"),
    ]  # fmt: skip


RANK = Experiment(
    id="rank",
    source="TaSVM",
    title="Rank of the solutions",
    shows="Frobenius solutions have rank min(n, d), nuclear ones less; inseparable draws are counted",
    seconds=20,
    default=Rank(),
    columns={
        "solutions": {
            "n": "inputs",
            "T": "tokens per input",
            "d": "dimension of tokens and queries",
            "stage": "paper: among the paper's draws; more: drawn on because too few were separable",
            "norm": "norm of the SVM",
            "draw": "number of the draw in its cell",
            "feasible": "whether the certificate proves a solution",
            "infeasible": "whether the certificate proves that there is none",
            "relative_gap": "certified relative duality gap",
            **{f"rank_{t:g}": f"singular values above {t:g} times the largest; 0 where infeasible" for t in TOLERANCES},
        }
    },
    tasks=tasks,
    compute=compute,
    checks=checks,
    more=more,
    public_seconds=317.0,
    public_tasks="paper",
    public_factor=30.0,
)
