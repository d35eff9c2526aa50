"""[TaSVM, over-parameterization] where runs end as the dimension grows, and when all tokens support the SVM.

Definitions, after `steps` steps of normalized descent with step 0.1, alpha the token of largest attention per input:

- **not saturated**: in some input that token has less than `saturation` of the attention;
- **global**: saturated, and alpha is the optimal selection;
- **local**: saturated, another selection, which is locally optimal: each selected token out-scores the support tokens
  (margin at most 1 + 1e-6) of the Frobenius SVM of alpha;
- **not local**: saturated, another selection, not locally optimal, among them those that no weights separate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch

from attsvm.attention import optimal_tokens
from attsvm.data import TokenDataset, random_sphere
from attsvm.descent import fit
from attsvm.experiments.base import Check, Experiment, Verdict
from attsvm.experiments.common import DataSets, rises, seeds_of, stacked, streams_apart
from attsvm.sweep import Piece, SweepResult, Task
from attsvm.theory import all_tokens_support, all_tokens_support_everywhere, is_locally_optimal
from attsvm.theory.paths.landscapes import reduced_spans

_NOT_RISING = (
    "the last share is not above the first, or one is below an earlier one, by more than three standard errors"
)
TYPES = ("global", "local", "not local", "not saturated")


@dataclass(frozen=True, kw_only=True)
class ConvergenceTypes(DataSets):
    """Random data on the sphere; W(0) = 0 and W(0) random."""

    n: int = 4
    T: int = 6
    dimensions: tuple[int, ...] = (2, 5, 10, 20, 40, 60, 84, 120, 160, 240, 320)
    datasets: int = 400  # for each dimension
    everywhere: int = 50  # of them: do all tokens support *every* SVM?
    steps: int = 20_000
    saturation: float = 0.999  # least attention on the selected token of every input that counts as saturated

    def quick(self) -> Self:
        return self.with_values(dimensions=(2, 10, 20, 84, 320), datasets=40, everywhere=8, steps=5000, chunk_size=40)


def tasks(configuration: ConvergenceTypes) -> Sequence[Task]:
    """Chunks of data sets of one dimension."""
    return [task for d in configuration.dimensions for task in configuration.chunks(f"d{d:04d}", d=d)]


def compute(configuration: ConvergenceTypes, task: Task, device: torch.device) -> Piece:
    """Train from zero and from a random start, and tell the types of the selections that were reached."""
    d, first, last = (task.values[name] for name in ("d", "first", "last"))
    seeds = seeds_of(configuration, task)
    data = random_sphere(n=configuration.n, T=configuration.T, d=d, batch=len(seeds), seed=seeds)
    small, left, right = reduced_spans(data)
    # Gradients lie in the spans of token differences and queries: there the run is the same, and far smaller.
    spanned = TokenDataset(small.tokens, small.queries, data.labels, values=data.tokens, head=data.head).to(device)
    bound = 1 / np.sqrt(d)
    drawn = [stream.uniform(-bound, bound, (d, d)) for stream in streams_apart(seeds)]
    starts = {
        "zero": torch.zeros(len(seeds), spanned.d, spanned.dq, dtype=torch.float64),
        "random": left.mT @ torch.from_numpy(np.stack(drawn)) @ right,
    }
    best = optimal_tokens(data)
    supported = all_tokens_support(data).holds
    asked = max(0, min(last, configuration.everywhere) - first)
    everywhere = torch.full((len(seeds),), float("nan"), dtype=torch.float64)
    if asked:
        everywhere[:asked] = all_tokens_support_everywhere(small[:asked]).holds.double()
    tables: list[dict[str, object]] = []
    undecided = 0
    for name, start in starts.items():
        run = fit(spanned, steps=configuration.steps, record=[0], keep=(), initial=start.to(device), seed=seeds)
        selected, attention = run.selected.cpu(), run.attention.cpu()
        saturated = (attention.amax(-1) >= configuration.saturation).all(-1)
        is_optimal = (selected == best).all(-1)
        local = is_locally_optimal(data, None, selected)
        undecided += int(local.undecided.sum())
        kind = np.where(is_optimal, TYPES[0], np.where(local.holds.numpy(), TYPES[1], TYPES[2]))
        tables.append(
            {
                "d": d,
                "dataset": np.arange(first, last),
                "start": name,
                "type": np.where(saturated.numpy(), kind, TYPES[3]),
                "least_attention": attention.amax(-1).amin(-1),
                "separable": local.feasible,
                "all_support": supported,
                "all_support_everywhere": everywhere,
            }
        )
    return Piece(tables={"runs": stacked(tables)}, counts={"local optimality not decided": undecided})


def checks(result: SweepResult) -> Sequence[Check]:
    """Shares of global runs and of B1 rise to one; nearly every saturated run is locally optimal."""
    dimensions = result.configuration["dimensions"]
    count = result.configuration["datasets"]
    most = max(dimensions)
    types = {d: result.column("runs", "type", d=d) for d in dimensions}
    shares = [float((types[d] == TYPES[0]).mean()) for d in dimensions]
    supported = [float(result.column("runs", "all_support", d=d, start="zero").mean()) for d in dimensions]
    stray = [int((types[d] == TYPES[2]).sum()) for d in dimensions]
    saturated = [int((types[d] != TYPES[3]).sum()) for d in dimensions]
    worst = max(each / max(whole, 1) for each, whole in zip(stray, saturated, strict=True))
    enough = min(saturated) >= 100
    elsewhere = result.column("runs", "type", all_support_everywhere=1.0)
    return [
        Check("global, at the largest d", "tends to 1 (paper)", f"{shares[-1]:.1%} at d = {most}",
              Verdict.of(shares[-1] > 0.99), "99 % of the runs or fewer are global"),
        Check("share of global, over all d", "rises with d (paper)", _listed(shares),
              Verdict.of(rises(shares, count)), _NOT_RISING),
        Check("saturated runs that are not locally optimal", "nearly none (paper)",
              f"{sum(stray)} of {sum(saturated):,}; worst d {worst:.1%}", Verdict.of(worst <= 0.05, enough=enough),
              "they are more than 5 % of the saturated runs of a d",
              "" if enough else "asked of 100 saturated runs for each d"),
        Check("B1, all tokens support the optimal SVM, at the largest d", "tends to 1 (paper)",
              f"{supported[-1]:.1%} at d = {most}", Verdict.of(supported[-1] > 0.95, enough=most >= 320),
              "it holds of 95 % of the data sets or fewer", "" if most >= 320 else "asked at d = 320"),
        Check("share of B1, over all d", "rises with d (paper)", _listed(supported),
              Verdict.of(rises(supported, count)), _NOT_RISING),
        Check("all tokens support every SVM: runs that end at another local optimum", "none (theorem)",
              f"{np.sum(elsewhere == TYPES[1])} of {len(elsewhere)}",
              Verdict.of(not (elsewhere == TYPES[1]).any(), enough=len(elsewhere) > 0), "there is such a run",
              "" if len(elsewhere) else "there is no such data set"),
    ]  # fmt: skip


def _listed(shares: Sequence[float]) -> str:
    return " ".join(f"{share:.2f}" for share in shares)


CONVERGENCE_TYPES = Experiment(
    id="convergence-types",
    source="TaSVM",
    title="Types of convergence",
    shows="as d grows runs end at the global optimum, and all tokens become support tokens",
    seconds=130,
    default=ConvergenceTypes(),
    columns={
        "runs": {
            "d": "dimension of tokens and queries",
            "dataset": "number of the data set",
            "start": "W(0): zero or random (PyTorch's default)",
            "type": "how the run ended: global, local, not local or not saturated",
            "least_attention": "attention on the selected token, least over the inputs",
            "separable": "whether some weights separate the selection that was reached",
            "all_support": "B1: all tokens support the SVM of the optimal selection",
            "all_support_everywhere": "the same for every separable selection: 1, 0, or NaN where not asked",
        }
    },
    tasks=tasks,
    compute=compute,
    checks=checks,
)
