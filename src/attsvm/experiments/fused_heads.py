"""New: heads whose keys are stored in one matrix, and Muon on that matrix or on each head's part of it.

Inputs are shared out among the heads; a query of head h stands in block h, so that W = (W_1 | ... | W_H). Per head Muon
lives in max_h ||W_h||, and every head grows at its own rate; fused, in `SpectralOfHeads`, and at one rate for all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from attsvm.attention import Parameterization, ScaledTensor
from attsvm.data import TokenDataset, random_sphere
from attsvm.descent import InverseSqrt, SteepestDescent, fit
from attsvm.experiments.base import Check, DataSets, claim
from attsvm.experiments.common import long_table, recorded, spread_steps, stacked
from attsvm.norms import Spectral, SpectralOfHeads
from attsvm.svm import AttentionSVM, solve
from attsvm.sweep import Piece, SweepResult, Task

STORED = ("fused", "per head")


@dataclass(frozen=True)
class FusedHeads(Parameterization):
    """W = (K_1 Q_1^T | ... | K_H Q_H^T), the keys of all heads in one matrix ``[d, H rank]``, and their queries."""

    heads: int
    rank: int

    def shapes(self, data: TokenDataset) -> dict[str, tuple[int, int]]:
        return {"key": (data.d, self.heads * self.rank), "query": (data.dq // self.heads, self.heads * self.rank)}

    def factors(self, parameters: Mapping[str, Tensor], name: str) -> Tensor:
        """K_h or Q_h of all heads ``[starts, batch, H, d, rank]``."""
        return torch.stack(parameters[name].chunk(self.heads, -1), -3)

    def named(self, name: str, factors: Tensor) -> dict[str, Tensor]:
        """The parameters that hold these factors."""
        return {name: torch.cat(factors.unbind(-3), -1)}

    def weights(self, parameters: Mapping[str, Tensor]) -> Tensor:
        return torch.cat((self.factors(parameters, "key") @ self.factors(parameters, "query").mT).unbind(-3), -1)

    def gradients(self, parameters: Mapping[str, Tensor], gradient: ScaledTensor) -> dict[str, ScaledTensor]:
        own = torch.stack(gradient.mantissa.chunk(self.heads, -1), -3)
        keys, queries = (self.factors(parameters, name) for name in ("key", "query"))
        found = self.named("key", own @ queries) | self.named("query", own.mT @ keys)
        return {name: gradient.map(value) for name, value in found.items()}


@dataclass(frozen=True)
class SeparateHeads(FusedHeads):
    """The same W, each K_h and Q_h a matrix of its own."""

    def shapes(self, data: TokenDataset) -> dict[str, tuple[int, int]]:
        sizes = {"key": data.d, "query": data.dq // self.heads}
        return {f"{name}{head}": (size, self.rank) for name, size in sizes.items() for head in range(self.heads)}

    def factors(self, parameters: Mapping[str, Tensor], name: str) -> Tensor:
        return torch.stack([parameters[f"{name}{head}"] for head in range(self.heads)], -3)

    def named(self, name: str, factors: Tensor) -> dict[str, Tensor]:
        return {f"{name}{head}": value for head, value in enumerate(factors.unbind(-3))}


@dataclass(frozen=True, kw_only=True)
class FusedConfiguration(DataSets, identity="fused-heads"):
    """Random data on the sphere, `n` inputs for each head, K_h and Q_h with d columns."""

    heads: int = 2
    n: int = 2
    T: int = 4
    d: int = 4
    steps: int = 2000
    step_size: float = 0.3
    datasets: int = 20
    chunk_size: int = 20
    smaller: ClassVar = {"datasets": 6, "steps": 1000}
    imports = ("numba", "clarabel")

    def compute(self, task: Task, device: torch.device) -> Piece:
        """Train both ways; solve in the norm of fused heads and in that of each head alone; compare."""
        seeds, schedule, norm = self.seeds(task), InverseSqrt(self.step_size), SpectralOfHeads(self.heads)
        plain = random_sphere(n=self.heads * self.n, T=self.T, d=self.d, batch=len(seeds), seed=seeds)
        parts = torch.arange(self.heads * self.n).split(self.n)  # the inputs of each head
        blocks = torch.eye(self.heads, dtype=torch.float64).repeat_interleave(self.n, 0)
        queries = (blocks[..., None] * plain.queries[..., None, :]).flatten(-2)
        data = TokenDataset(plain.tokens, queries, plain.labels, head=plain.head)
        marks = spread_steps(10, self.steps, 60)
        sums = np.concatenate([[0.0], np.cumsum(schedule.sizes(0, self.steps))])[marks[1:]]
        axes = {"step": marks[1:], "dataset": self.numbers(task), "head": range(self.heads)}
        history, counts = [], {}
        for stored, way in zip(STORED, (FusedHeads, SeparateHeads), strict=True):
            run = fit(
                data, parameterization=way(self.heads, self.d), optimizer=SteepestDescent(Spectral(), schedule),
                seed=seeds, steps=self.steps, record=marks, keep=("weights",),
            )  # fmt: skip
            problem = AttentionSVM(data, run.selected)
            solution = solve(problem, norm)
            proof = solution.certificate
            counts[f"{stored}: SVM of fused heads not solved"] = int((~solution.solved).sum())
            alone = torch.stack([
                solve(AttentionSVM(plain.take_inputs(own.expand(len(seeds), -1)), run.selected[:, own]), Spectral())
                .certificate.primal_value for own in parts
            ])  # fmt: skip
            margins = torch.stack([problem.margins(weights) for weights in recorded(run)[1:]])
            margins = margins.masked_fill(~problem.rows, torch.inf).amin(-1)
            margins = margins.unflatten(-1, (self.heads, self.n)).amin(-1)  # times, data sets, heads
            best = proof.primal_value[:, None].expand(-1, self.heads) if stored == "fused" else alone.T
            weights, gap = run.weights, margins[-1].amin(-1)
            brackets, value = np.array([norm.bracket(each) for each in weights]), norm.value(weights)
            largest = Spectral().value(torch.stack(weights.chunk(self.heads, -1))).amax(0)
            ends = {
                "norm": value, "low": brackets[:, 0], "high": brackets[:, 1],
                "efficiency_fused": gap / value * proof.primal_value,
                "efficiency_per_head": gap / largest * alone.amax(0),
                "relative_gap": proof.relative_gap, "price": proof.primal_value / alone.amax(0),
            }  # fmt: skip
            history.append(long_table(
                axes, stored=stored, gap=margins, law=torch.from_numpy(sums**2)[:, None, None] / best,
                **{name: each[:, None] for name, each in ends.items()},
            ))  # fmt: skip
        return Piece({"history": stacked(history)}, counts=counts)

    def checks(self, result: SweepResult) -> Sequence[Check]:
        """Each way wins in its own norm, the bracket holds, and gaps follow their laws."""
        column, found = partial(result.column, "history", step=self.steps), []
        ends = partial(column, head=0)
        for stored, own, other in (("fused", "fused", "per_head"), ("per head", "per_head", "fused")):
            mine, theirs = (ends(f"efficiency_{name}", stored=stored) for name in (own, other))
            won = f"larger on {(mine > theirs).sum()} of {len(mine)}"
            gap, law = (column(name, stored=stored).reshape(-1, self.heads) for name in ("gap", "law"))
            # Fused, there is one rate for all heads: the law is that of the slowest.
            ratio = gap.min(1) / law[:, 0] if stored == "fused" else gap / law
            found += [
                claim(f"{stored}: margin efficiency in its own norm", "larger than in the other norm (derived)",
                      f"mean {mine.mean():.3f} against {theirs.mean():.3f}; {won}", mine.mean() > theirs.mean(),
                      "its mean over the data sets is not larger"),
                claim(f"{stored}: gap over its law in the end", "tends to 1 (derived)",
                      f"median {np.median(ratio):.3f}, least {ratio.min():.3f}", abs(np.median(ratio) - 1) <= 0.1,
                      "its median is off by more than a tenth"),
            ]  # fmt: skip
        below, above = ends("norm") / ends("low"), ends("norm") / ends("high")
        price = ends("price", stored="fused")
        return [
            *found,
            claim("norm of fused heads between its bounds", "always (derived)",
                  f"from {below.min():.6f} of the lower, to {above.max():.6f} of the upper",
                  below.min() >= 1 - 1e-6 and above.max() <= 1 + 1e-6, "it lies outside once"),
            claim("smallest fused norm over the largest of the heads alone", "from 1 to the number of heads (derived)",
                  f"median {np.median(price):.3f}, from {price.min():.3f} to {price.max():.3f}",
                  price.min() >= 1 - 1e-6 and price.max() <= self.heads + 1e-6, "it lies outside on a data set"),
        ]  # fmt: skip
