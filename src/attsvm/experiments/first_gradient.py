"""[TaSVM, global convergence] how often the first gradient is favourable, and what descent makes of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor

from attsvm.attention import gradient, optimal_tokens
from attsvm.data import TokenDataset, random_sphere
from attsvm.descent import fit
from attsvm.experiments.base import Check, Experiment, Verdict
from attsvm.experiments.common import DataSets, rises, seeds_of
from attsvm.svm import AttentionSVM
from attsvm.sweep import Piece, SweepResult, Task
from attsvm.theory import favourable_first_gradient, in_margin_cone
from attsvm.theory.paths.landscapes import reduced_spans

_MANY = 500  # favourable data sets among which a run that leaves the cone should be found


@dataclass(frozen=True, kw_only=True)
class FirstGradient(DataSets):
    """Random data on the sphere; normalized descent with step 0.1."""

    n: int = 4
    T: int = 6
    dimensions: tuple[int, ...] = (5, 10, 20, 40, 80, 160, 320)
    datasets: int = 400
    steps: int = 2000
    record: int = 5  # steps from one look to the next: is the run where the optimal tokens are ranked first?
    large_step: float = 100.0  # norm of W(1) where the first step is a large one
    chunk_size: int = 100

    def quick(self) -> Self:
        return self.with_values(dimensions=(5, 20, 80, 320), datasets=60, chunk_size=60)


def tasks(configuration: FirstGradient) -> Sequence[Task]:
    """Chunks of data sets of one dimension."""
    return [task for d in configuration.dimensions for task in configuration.chunks(f"d{d:04d}", d=d)]


def compute(configuration: FirstGradient, task: Task, device: torch.device) -> Piece:
    """Judge the first gradient, then run from zero in small steps and after one large step along it."""
    d, seeds = task.values["d"], seeds_of(configuration, task)
    data = random_sphere(n=configuration.n, T=configuration.T, d=d, batch=len(seeds), seed=seeds)
    small, _, _ = reduced_spans(data)  # gradients lie in these spans: the run is the same, and smaller
    spanned = TokenDataset(small.tokens, small.queries, data.labels, values=data.tokens, head=data.head).to(device)
    condition = favourable_first_gradient(spanned)
    best = optimal_tokens(spanned)
    zero = torch.zeros(len(seeds), spanned.d, spanned.dq, dtype=torch.float64, device=device)
    ahead = -configuration.large_step * gradient(spanned, zero)["weights"].normalized().double()
    table: dict[str, Tensor | list[int] | int] = {
        "d": d,
        "dataset": [number for _, number in seeds],
        "favourable": condition.holds,
        "margin": condition.margin,
    }
    problem = AttentionSVM(spanned, best)
    for name, start in (("small", zero), ("large", ahead)):
        run = fit(spanned, steps=configuration.steps, initial=start, record=configuration.record, keep=("weights",))
        assert run.history.weights is not None
        inside = in_margin_cone(run.history.weights[1:], problem, 0.0)
        table[f"{name}_optimal"] = (run.selected == best).all(-1)
        table[f"{name}_stayed"] = inside.all(0)
    return Piece(tables={"datasets": table})


def checks(result: SweepResult) -> Sequence[Check]:
    """Favourable gradients become likely with d; after a large first step such runs stay in the cone."""
    dimensions = result.configuration["dimensions"]
    favourable = [result.column("datasets", "favourable", d=d) for d in dimensions]
    shares = [float(each.mean()) for each in favourable]
    reached_from_zero = [result.column("datasets", "small_optimal", d=d) for d in dimensions]
    stayed = result.column("datasets", "large_stayed", favourable=True)
    reached = result.column("datasets", "large_optimal", favourable=True)
    left = ~result.column("datasets", "small_stayed", favourable=True)
    both = [
        (reach[good].mean(), reach[~good].mean())
        for good, reach in zip(favourable, reached_from_zero, strict=True)
        if 0 < good.sum() < len(good)
    ]
    good, reach = np.concatenate(favourable), np.concatenate(reached_from_zero)
    there = len(stayed) > 0
    enough = len(left) >= _MANY or bool(left.any())
    return [
        Check("share of favourable first gradients, over all d", "rises with d",
              " ".join(f"{each:.2f}" for each in shares),
              Verdict.of(rises(shares, result.configuration["datasets"])),
              "the last share is not above the first, or one is below an earlier one, by more than three standard"
              " errors"),
        Check("favourable, one large step: stay in the margin cone", "all (theorem)",
              f"{stayed.sum()} of {len(stayed)}", Verdict.of(bool(stayed.all()), enough=there), "a run leaves it"),
        Check("favourable, one large step: reach the optimal selection", "all (theorem)",
              f"{reached.sum()} of {len(reached)}", Verdict.of(bool(reached.all()), enough=there),
              "a run selects other tokens"),
        Check("favourable, small steps: leave the cone for a while", "some: the theorem asks for a large first step",
              f"{left.sum()} of {len(left)}", Verdict.of(bool(left.any()), enough=enough), "no run does",
              "" if enough else f"asked of {_MANY} favourable data sets"),
        Check("optimal selection reached from zero: favourable, not favourable", "at least as often where favourable",
              f"{reach[good].mean():.1%}, {reach[~good].mean():.1%}" if both else "all favourable, or none",
              Verdict.of(all(yes >= no for yes, no in both), enough=bool(both)), "it is rarer at a d"),
    ]  # fmt: skip


FIRST_GRADIENT = Experiment(
    id="first-gradient",
    source="TaSVM",
    title="The first gradient",
    shows="the first gradient ranks the optimal tokens first more and more often as d grows",
    seconds=14,
    default=FirstGradient(),
    columns={
        "datasets": {
            "d": "dimension of tokens and queries",
            "dataset": "number of the data set",
            "favourable": "whether minus the gradient at zero ranks the optimal token of every input first",
            "margin": "smallest margin of that direction, normalized",
            "small_optimal": "whether descent from zero in small steps ends at the optimal selection",
            "small_stayed": "whether it ranked the optimal tokens first at every recorded step after zero",
            "large_optimal": "the same after a first step of large norm along the gradient",
            "large_stayed": "the same after a first step of large norm along the gradient",
        }
    },
    tasks=tasks,
    compute=compute,
    checks=checks,
)
