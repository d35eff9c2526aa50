"""[2403.08081] next-token prediction: trained weights against W_fin + C W_svm, on random samples.

Random samples: every last token ranks the vocabulary in levels of `alike` tokens, and the label of a window is drawn
among its tokens of the highest level. With one token in a level priorities have no cycle; with several, those that beat
each other in different windows form components. Draws that are not of their kind are drawn again.

Three runs on each data set, all with the log loss:

- **split**: `TwoScales` and `TwoPartDescent`; the gradient is split into its finite and its growing part row by row.
- **summed first**: the same steps, but the growing part is what is left of the summed gradient outside S_fin. It cannot
  be longer than the longest row, and is cut to that: what is longer is round-off.
- **plain**: gradient descent with steps of 1/L, which the theorem is about. Its norm grows like the logarithm of the
  steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from attsvm.attention import Log, TwoScales
from attsvm.attention.gradient import RiskGradient
from attsvm.attention.scaled import ScaledTensor
from attsvm.data import TokenDataset, streams
from attsvm.data.random import unit
from attsvm.descent import GradientDescent, Optimizer, TwoPartDescent, fit
from attsvm.experiments.base import Check, DataSets, claim, reported, turning
from attsvm.experiments.common import FARTHER_APART, long_table, recorded, spread_steps, stacked, together
from attsvm.next_token import PriorityGraph, finite_part, from_ids, priority_graph
from attsvm.norms import direction_cosine
from attsvm.svm import AttentionSVM, solve
from attsvm.sweep import Piece, SweepResult, Task

GROWN = 100  # times the norm of W_svm that a run must have outside S_fin for its direction to be judged
COSINE, DISTANCE = 0.999, 1e-6
_LONGEST = 2.0  # of a row (x_t - x_u) z^T of unit vectors
_ENOUGH = 1000
_APART = 1_000_000  # between the numbers of data sets of two shapes
_SHAPE = ("K", "d", "n", "T")  # size of the vocabulary, dimension, number of windows, tokens of each


class _SummedFirst(TwoScales):
    """The same two parts, taken from the gradient after it was summed."""

    def from_logits(
        self, data: TokenDataset, parameters: Mapping[str, Tensor], risk: RiskGradient
    ) -> dict[str, ScaledTensor]:
        exact = super().from_logits(data, parameters, risk)
        whole = self._adjoint(data, risk.logits.mantissa)
        rest = ScaledTensor(whole - self.space.project(whole), risk.logits.log_scale)
        length = (rest.log_norm() - exact["growing"].log_scale).exp().clamp(max=_LONGEST)
        growing = ScaledTensor(rest.normalized() * length[..., None, None], exact["growing"].log_scale)
        return {**exact, "growing": growing}


_RULES: Mapping[str, tuple[type[TwoScales] | None, Optimizer]] = {
    "split": (TwoScales, TwoPartDescent()),
    "summed first": (_SummedFirst, TwoPartDescent()),
    "plain": (None, GradientDescent(1.0)),
}
GRADIENTS = tuple(_RULES)


@dataclass(frozen=True, kw_only=True)
class RandomSamples(DataSets):
    """Embeddings on the sphere, windows drawn evenly, labels by levels of priority."""

    shapes: tuple[tuple[int, int, int, int], ...] = ((4, 4, 8, 4), (8, 8, 16, 4), (16, 24, 32, 6), (8, 5, 16, 4))
    datasets: int = 250  # of each shape
    alike: int = 1  # number of tokens of a level
    steps: int = 1000  # of every run
    chunk_size: int = 250
    smaller: ClassVar = {"datasets": 10}

    def tasks(self) -> Sequence[Task]:
        return [
            task
            for place, shape in enumerate(self.shapes)
            for task in self.chunks(
                "k{:02d}-d{:02d}-n{:02d}-t{:02d}".format(*shape), place=place, **dict(zip(_SHAPE, shape, strict=True))
            )
        ]

    def seeds(self, task: Task) -> list[tuple[int, int]]:
        """No two shapes with the same."""
        return [(seed, _APART * task.values["place"] + number) for seed, number in super().seeds(task)]

    def draw(self, task: Task) -> list[PriorityGraph]:
        """The data sets of a chunk, each with its graph, from streams of their own."""
        K, d, n, T = (task.values[name] for name in _SHAPE)
        seeds, found = self.seeds(task), []
        for stream in streams(seeds, (len(seeds),)):
            table = unit(stream, K, d)
            while True:
                level = np.stack([stream.permutation(K) // self.alike for _ in range(K)])
                windows = stream.integers(0, K, (n, T))
                heights = np.take_along_axis(level[windows[:, -1]], windows, 1)
                labels = [stream.choice(row[own == own.min()]) for row, own in zip(windows, heights, strict=True)]
                graph = priority_graph(from_ids(windows, labels, table))
                if graph.acyclic == (self.alike == 1) and graph.strict.any():
                    break
            found.append(graph)
        return found

    def compute(self, task: Task, device: torch.device) -> Piece:
        """Predict the limits, train three times, compare outside and inside of S_fin."""
        graphs = self.draw(task)
        data = together([graph.data.dataset for graph in graphs]).to(device)
        kept = torch.stack([graph.kept for graph in graphs]).to(device)
        solution = solve(AttentionSVM(data, selected_set=kept, rows=data.real))
        solved, infeasible = solution.solved.cpu().numpy(), solution.infeasible.cpu().numpy()
        finite = [finite_part(graph) for graph in graphs]
        norm = torch.linalg.matrix_norm
        own = {
            **{name: task.values[name] for name in _SHAPE},
            "feasible": solved,
            "infeasible": infeasible,
            "relative_gap": solution.certificate.relative_gap,
            "finite_dimension": [int(one.space.dimension) for one in finite],
            "finite_norm": [float(norm(one.weights)) for one in finite],
            "finite_certified": [one.certified for one in finite],
        }
        steps = spread_steps(10, self.steps, 12, self.steps // 2)
        axes = {"step": steps, "dataset": self.numbers(task)}
        tables = []
        for gradient, (way, rule) in _RULES.items():
            measured = {
                name: np.full((len(steps), len(graphs)), np.nan) for name in ("cosine", "growth", "finite_distance")
            }
            if solved.any():
                at = torch.from_numpy(np.flatnonzero(solved)).to(device)
                streams_of = [self.seeds(task)[place] for place in at.tolist()]
                weights = recorded(fit(
                    data[at], loss=Log(), parameterization=None if way is None else way(data[at], kept[at]),
                    optimizer=rule, steps=self.steps, record=steps, keep=("weights",),
                    seed=[(seed + FARTHER_APART, number) for seed, number in streams_of],  # all three start alike
                ))  # fmt: skip
                inside = TwoScales(data[at], kept[at]).space.project(weights)
                outside, svm = weights - inside, solution.weights[at]
                limit = torch.stack([finite[place].weights for place in at.tolist()]).to(device)
                measured["cosine"][:, solved] = direction_cosine(outside, svm.expand_as(outside)).cpu()
                measured["growth"][:, solved] = (norm(outside) / norm(svm)).cpu()
                measured["finite_distance"][:, solved] = (norm(inside - limit) / (1 + norm(limit))).cpu()
            tables.append(long_table(axes, gradient=gradient, **own, **measured))
        undecided = int((~solved & ~infeasible).sum())
        counts = {"clashes, proved": int(infeasible.sum()), "neither solved nor proved to clash": undecided}
        return Piece({"runs": stacked(tables)}, counts=counts)

    def checks(self, result: SweepResult) -> Sequence[Check]:
        """All runs turn to W_svm outside S_fin, and inside to W_fin; without cycles S_fin = {0}: nothing to split."""
        steps = self.steps
        solved = partial(result.column, "runs", feasible=True)  # of the data sets whose Graph-SVM was
        ends = partial(solved, gradient="split", step=steps)
        feasible, infeasible, K, d = (
            result.column("runs", name, gradient="split", step=steps) for name in ("feasible", "infeasible", "K", "d")
        )
        undecided, clashing = int((~feasible & ~infeasible).sum()), int((infeasible & (d >= K)).sum())
        cosine, summed, plain = (ends("cosine", gradient=gradient) for gradient in GRADIENTS)
        grown = ends("growth") >= GROWN
        far = cosine[grown]
        common = [
            claim("neither solved nor proved infeasible", "none", f"{undecided} of {len(feasible):,}", undecided == 0,
                  "there is one"),
            claim("clashes with independent embeddings", "none: weights can order them in any way",
                  f"{clashing} of {(d >= K).sum():,}; {(infeasible & (d < K)).sum()} of {(d < K).sum()} with others",
                  clashing == 0, "there is one"),
            claim(f"outside S_fin at {GROWN} ||W_svm||: cosine with W_svm", "tends to 1 (theorem)",
                  f"{(far >= COSINE).sum():,} of {len(far):,} at .999 or more, least {far.min(initial=1):.5f};"
                  f" {len(cosine) - len(far)} did not come that far", np.mean(~(far >= COSINE)) <= 0.01,
                  "more than 1 % are below .999", enough=len(far) > 0, why="no run came that far"),
            turning("all data sets turn to W_svm outside S_fin", "cosine to 1 (theorem)",
                    partial(solved, "cosine", gradient="split"), np.unique(result.column("runs", "step")), steps,
                    enough=steps >= _ENOUGH),
            reported("plain descent: cosine with W_svm outside S_fin", "(tends to 1 like 1/log t)",
                     f"median {np.median(plain):.3f}, least {plain.min():.3f}"),
        ]  # fmt: skip
        if self.alike == 1:
            apart = np.abs(cosine - summed)
            return [
                *common,
                claim("summed first: largest difference of the cosine", "none but round-off: S_fin = {0}",
                      f"{apart.max():.1e}", (apart <= 1e-9).all(), "a cosine differs by more than 1e-9"),
            ]  # fmt: skip
        distance, certified = ends("finite_distance")[grown], ends("finite_certified")
        medians = [float(np.median(1 - each)) for each in (cosine, summed)]
        below = [float(np.mean(~(each >= COSINE))) for each in (cosine, summed)]
        return [
            *common,
            claim("W_fin with a certificate", "for all data sets", f"{certified.sum()} of {len(certified)}",
                  certified.all(), "one has none"),
            claim(f"inside S_fin at {GROWN} ||W_svm||: ||Pi_fin W - W_fin|| / (1 + ||W_fin||)", "tends to 0 (theorem)",
                  f"largest {distance.max(initial=0):.1e} of {len(distance)}", (distance <= DISTANCE).all(),
                  f"one is above {DISTANCE:g}", enough=len(distance) > 0, why="no run came that far"),
            claim("summed first: median of 1 - cosine, split and summed first", "the split gradient's is smaller",
                  f"{medians[0]:.1e}, {medians[1]:.1e}; below .999: {below[0]:.1%}, {below[1]:.1%}",
                  medians[0] < medians[1], "that of the summed gradient is not larger"),
            reported("plain descent: largest distance from W_fin over 1 + ||W_fin||", "(tends to 0 like 1/t)",
                     f"{ends('finite_distance', gradient='plain').max():.1e}"),
        ]  # fmt: skip


NEXT_TOKEN_ACYCLIC = RandomSamples(alike=1).experiment("next-token-acyclic")
NEXT_TOKEN_CYCLIC = RandomSamples(alike=3).experiment("next-token-cyclic")
