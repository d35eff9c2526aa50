"""[TaSVM, global convergence] how often the first gradient is favourable, and what descent makes of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from attsvm.attention import gradient, optimal_tokens
from attsvm.data import TokenDataset, random_sphere
from attsvm.descent import fit
from attsvm.experiments.base import Check, Experiment, Verdict
from attsvm.experiments.common import DataSets, seeds_of
from attsvm.svm import AttentionSVM
from attsvm.sweep import Piece, SweepResult, Task
from attsvm.theory import favourable_first_gradient, in_margin_cone
from attsvm.theory.paths.charts import reduced_spans


@dataclass(frozen=True, kw_only=True)
class FirstGradient(DataSets):
    """Random data on the sphere; normalized descent with step 0.1.

    Arguments:
        large_step: norm of W(1) where the first step is a large one.
        record: number of steps after which it is asked, again and again, whether the run is inside the cone of all W
            that rank the optimal tokens first.
    """

    n: int = 4
    T: int = 6
    dimensions: tuple[int, ...] = (5, 10, 20, 40, 80, 160, 320)
    datasets: int = 400
    steps: int = 2000
    record: int = 5
    large_step: float = 100.0
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
    shares = [float(result.column("datasets", "favourable", d=d).mean()) for d in dimensions]
    stayed = result.column("datasets", "large_stayed", favourable=True)
    reached = result.column("datasets", "large_optimal", favourable=True)
    small_reached = result.column("datasets", "small_optimal", favourable=True)
    left = ~result.column("datasets", "small_stayed", favourable=True)
    other = result.column("datasets", "small_optimal", favourable=False)
    return [
        Check("share of favourable first gradients, over all d", "rises with d",
              " ".join(f"{each:.2f}" for each in shares),
              Verdict.of(shares[-1] > shares[0] and shares[-1] > 0.5)),
        Check("favourable, one large step: stay in the margin cone", "all (theorem)",
              f"{stayed.sum()} of {len(stayed)}",
              Verdict.of(bool(stayed.all()))),
        Check("favourable, one large step: reach the optimal selection", "all (theorem)",
              f"{reached.sum()} of {len(reached)}", Verdict.of(bool(reached.all()))),
        Check("favourable, small steps: leave the cone for a while", "some (spec: 5 of 130)",
              f"{left.sum()} of {len(left)}", Verdict.of(0 <= left.mean() < 0.2)),
        Check("optimal selection reached from zero: favourable, not favourable", "more often where favourable",
              f"{small_reached.mean():.1%}, {other.mean():.1%}",
              Verdict.of(small_reached.mean() >= other.mean()) if len(other) else Verdict.OPEN),
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
