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
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from attsvm.attention import Log, Parameterization, TwoScales, Weights
from attsvm.attention.gradient import RiskGradient
from attsvm.attention.scaled import ScaledTensor
from attsvm.data import TokenDataset, streams
from attsvm.data.random import unit
from attsvm.descent import GradientDescent, Optimizer, TwoPartDescent, fit
from attsvm.experiments.base import Check, Experiment, Verdict
from attsvm.experiments.common import FARTHER_APART, long_column, spread_steps, stacked, turning
from attsvm.next_token import (
    PriorityGraph,
    finite_part,
    from_ids,
    priority_graph,
)
from attsvm.norms import direction_cosine
from attsvm.svm import AttentionSVM, solve
from attsvm.sweep import Configuration, Piece, SweepResult, Task, chunked

GRADIENTS = ("split", "summed first", "plain")
GROWN = 100  # times the norm of W_svm that a run must have outside S_fin for its direction to be judged
COSINE, DISTANCE = 0.999, 1e-6
_LONGEST = 2.0  # of a row (x_t - x_u) z^T of unit vectors
_ENOUGH = 1000
_APART = 1_000_000  # between the numbers of data sets of two shapes


@dataclass(frozen=True, kw_only=True)
class RandomSamples(Configuration):
    """Embeddings on the sphere, windows drawn evenly, labels by levels of priority."""

    # Size of the vocabulary, dimension, number of windows, tokens of each.
    shapes: tuple[tuple[int, int, int, int], ...] = ((4, 4, 8, 4), (8, 8, 16, 4), (16, 24, 32, 6), (8, 5, 16, 4))
    datasets: int = 250  # of each shape
    alike: int = 1  # number of tokens of a level
    steps: int = 1000  # of every run
    chunk_size: int = 250

    runs_field: ClassVar[str | None] = "datasets"

    def quick(self) -> Self:
        return self.with_values(datasets=10)


class _SummedFirst(TwoScales):
    """The same two parts, taken from the gradient after it was summed."""

    def from_logits(
        self, data: TokenDataset, parameters: Mapping[str, Tensor], risk: RiskGradient
    ) -> dict[str, ScaledTensor]:
        exact = super().from_logits(data, parameters, risk)
        whole = self._adjoint(data, risk.logits.mantissa)
        rest = ScaledTensor(whole - self.space.project(whole), risk.logits.log_scale)
        length = (rest.log_norm() - exact["growing"].log_scale).exp().clamp(max=_LONGEST)
        return {
            **exact,
            "growing": ScaledTensor(rest.normalized() * length[..., None, None], exact["growing"].log_scale),
        }


def tasks(configuration: RandomSamples) -> Sequence[Task]:
    """Chunks of the data sets of each shape."""
    return [
        task
        for place, (K, d, n, T) in enumerate(configuration.shapes)
        for task in chunked(f"k{K:02d}-d{d:02d}-n{n:02d}-t{T:02d}", configuration.datasets, configuration.chunk_size,
                            K=K, d=d, n=n, T=T, place=place)
    ]  # fmt: skip


def _seeds(task: Task, seed: int) -> list[tuple[int, int]]:
    """A stream for each data set of a chunk, no two shapes with the same."""
    start = _APART * task.values["place"]
    return [(seed, start + number) for number in range(task.values["first"], task.values["last"])]


def _drawn(configuration: RandomSamples, task: Task) -> list[PriorityGraph]:
    """The data sets of a chunk, each with its graph, from streams of their own."""
    K, d, n, T = (task.values[name] for name in ("K", "d", "n", "T"))
    seeds, found = _seeds(task, configuration.seed), []
    for stream in streams(seeds, (len(seeds),)):
        table = unit(stream, K, d)
        while True:
            level = np.stack([stream.permutation(K) // configuration.alike for _ in range(K)])
            windows = stream.integers(0, K, (n, T))
            heights = np.take_along_axis(level[windows[:, -1]], windows, 1)
            labels = [stream.choice(row[own == own.min()]) for row, own in zip(windows, heights, strict=True)]
            graph = priority_graph(from_ids(windows, labels, table))
            if graph.acyclic == (configuration.alike == 1) and graph.strict.any():
                break
        found.append(graph)
    return found


def compute(configuration: RandomSamples, task: Task, device: torch.device) -> Piece:
    """Predict the limits, train three times, compare outside and inside of S_fin."""
    graphs = _drawn(configuration, task)
    each = [graph.data.dataset for graph in graphs]
    names = ("tokens", "queries", "labels", "values", "head")
    parts: dict[str, Any] = {name: torch.stack([getattr(one, name) for one in each]) for name in names}
    data = TokenDataset(**parts).to(device)
    kept = torch.stack([graph.kept for graph in graphs]).to(device)
    solution = solve(AttentionSVM(data, selected_set=kept, rows=data.real))
    solved = solution.solved.cpu().numpy()
    finite = [finite_part(graph) for graph in graphs]
    sizes = [torch.linalg.matrix_norm(one.weights) for one in finite]
    own = {
        **{name: task.values[name] for name in ("K", "d", "n", "T")},
        "dataset": np.arange(task.values["first"], task.values["last"]),
        "feasible": solved,
        "infeasible": solution.infeasible.cpu().numpy(),
        "relative_gap": solution.certificate.relative_gap.cpu().numpy(),
        "finite_dimension": np.array([int(one.space.dimension) for one in finite]),
        "finite_norm": np.array([float(size) for size in sizes]),
        "finite_certified": np.array([one.certified for one in finite]),
    }
    steps = spread_steps(10, configuration.steps, 12, configuration.steps // 2)
    shape = (len(steps), len(graphs))
    tables = []
    for gradient in GRADIENTS:
        measured = {name: np.full(shape, np.nan) for name in ("cosine", "growth", "finite_distance")}
        if solved.any():
            at = torch.from_numpy(np.flatnonzero(solved)).to(device)
            seeds = [_seeds(task, configuration.seed + FARTHER_APART)[place] for place in at.tolist()]
            weights = _trained(configuration, gradient, data[at], kept[at], steps, seeds)
            space = TwoScales(data[at], kept[at]).space
            inside = space.project(weights)
            outside, svm = weights - inside, solution.weights[at]
            limit = torch.stack([finite[place].weights for place in at.tolist()]).to(device)
            norm = torch.linalg.matrix_norm
            for name, values in (
                ("cosine", direction_cosine(outside, svm.expand_as(outside))),
                ("growth", norm(outside) / norm(svm)),
                ("finite_distance", norm(inside - limit) / (1 + norm(limit))),
            ):
                measured[name][:, solved] = values.cpu().numpy()
        tables.append({
            **{name: long_column(value, shape, 1 if np.ndim(value) else None) for name, value in own.items()},
            "gradient": gradient, "step": long_column(steps, shape, 0),
            **{name: values.reshape(-1) for name, values in measured.items()},
        })  # fmt: skip
    undecided = int((~solved & ~own["infeasible"]).sum())
    counts = {"clashes, proved": int(own["infeasible"].sum()), "neither solved nor proved to clash": undecided}
    return Piece(tables={"runs": stacked(tables)}, counts=counts)


def _trained(
    configuration: RandomSamples, gradient: str, data: TokenDataset, kept: Tensor, steps: Sequence[int],
    seeds: Sequence[tuple[int, int]],
) -> Tensor:  # fmt: skip
    """Recorded weights ``[records, data sets, d, d]`` of one kind of run; all three start alike."""
    kinds: dict[str, tuple[Parameterization, Optimizer]] = {
        "split": (TwoScales(data, kept), TwoPartDescent()),
        "summed first": (_SummedFirst(data, kept), TwoPartDescent()),
        "plain": (Weights(), GradientDescent(1.0)),
    }
    parameterization, optimizer = kinds[gradient]
    run = fit(
        data, loss=Log(), parameterization=parameterization, optimizer=optimizer, steps=max(steps),
        record=steps, keep=("weights",), seed=seeds,
    )  # fmt: skip
    assert run.history.weights is not None
    return run.history.weights


def ends(result: SweepResult, column: str, gradient: str = "split", **where: Any) -> np.ndarray:
    """A column at the last step, of the data sets whose Graph-SVM was solved."""
    last = result.configuration["steps"]
    return result.column("runs", column, gradient=gradient, step=last, feasible=True, **where)


def acyclic_checks(result: SweepResult) -> Sequence[Check]:
    """Both gradients turn to W_svm: with S_fin = {0} there is nothing to split."""
    split, summed = ends(result, "cosine"), ends(result, "cosine", "summed first")
    apart = np.abs(split - summed)
    return [
        *_common(result),
        Check("summed first: largest difference of the cosine", "none but round-off: S_fin = {0}",
              f"{apart.max():.1e}", Verdict.of(bool((apart <= 1e-9).all())), "a cosine differs by more than 1e-9"),
    ]  # fmt: skip


def cyclic_checks(result: SweepResult) -> Sequence[Check]:
    """The finite part comes to W_fin, and only the split gradient keeps the direction outside."""
    grown = ends(result, "growth") >= GROWN
    distance, certified = ends(result, "finite_distance")[grown], ends(result, "finite_certified")
    split, summed = ends(result, "cosine"), ends(result, "cosine", "summed first")
    medians = [float(np.median(1 - each)) for each in (split, summed)]
    below = [float(np.mean(~(each >= COSINE))) for each in (split, summed)]
    return [
        *_common(result),
        Check("W_fin with a certificate", "for all data sets", f"{certified.sum()} of {len(certified)}",
              Verdict.of(bool(certified.all())), "one has none"),
        Check(f"inside S_fin at {GROWN} ||W_svm||: ||Pi_fin W - W_fin|| / (1 + ||W_fin||)", "tends to 0 (theorem)",
              f"largest {distance.max(initial=0):.1e} of {len(distance)}",
              Verdict.of(bool((distance <= DISTANCE).all()), enough=len(distance) > 0),
              f"one is above {DISTANCE:g}", "" if len(distance) else "no run came that far"),
        Check("summed first: median of 1 - cosine, split and summed first", "the split gradient's is smaller",
              f"{medians[0]:.1e}, {medians[1]:.1e}; below .999: {below[0]:.1%}, {below[1]:.1%}",
              Verdict.of(medians[0] < medians[1]), "that of the summed gradient is not larger"),
        Check("plain descent: largest distance from W_fin over 1 + ||W_fin||", "(tends to 0 like 1/t)",
              f"{ends(result, 'finite_distance', 'plain').max():.1e}", Verdict.MEASURED),
    ]  # fmt: skip


def _common(result: SweepResult) -> list[Check]:
    steps = result.configuration["steps"]
    feasible, infeasible, K, d = (
        result.column("runs", name, gradient="split", step=steps) for name in ("feasible", "infeasible", "K", "d")
    )
    undecided, clashing = int((~feasible & ~infeasible).sum()), int((infeasible & (d >= K)).sum())
    cosine, growth = ends(result, "cosine"), ends(result, "growth")
    far = cosine[growth >= GROWN]
    plain = ends(result, "cosine", "plain")
    recorded = np.unique(result.column("runs", "step"))
    return [
        Check("neither solved nor proved infeasible", "none", f"{undecided} of {len(feasible):,}",
              Verdict.of(undecided == 0), "there is one"),
        Check("clashes with independent embeddings", "none: weights can order them in any way",
              f"{clashing} of {(d >= K).sum():,}; {(infeasible & (d < K)).sum()} of {(d < K).sum()} with others",
              Verdict.of(clashing == 0), "there is one"),
        Check(f"outside S_fin at {GROWN} ||W_svm||: cosine with W_svm", "tends to 1 (theorem)",
              f"{(far >= COSINE).sum():,} of {len(far):,} at .999 or more, least {far.min(initial=1):.5f};"
              f" {len(cosine) - len(far)} did not come that far",
              Verdict.of(bool(np.mean(~(far >= COSINE)) <= 0.01), enough=len(far) > 0),
              "more than 1 % are below .999", "" if len(far) else "no run came that far"),
        turning("all data sets turn to W_svm outside S_fin", "cosine to 1 (theorem)",
                lambda step: result.column("runs", "cosine", gradient="split", step=step, feasible=True),
                recorded, steps, enough=steps >= _ENOUGH),
        Check("plain descent: cosine with W_svm outside S_fin", "(tends to 1 like 1/log t)",
              f"median {np.median(plain):.3f}, least {plain.min():.3f}", Verdict.MEASURED),
    ]  # fmt: skip


_COLUMNS = {
    "runs": {
        "K": "tokens of the vocabulary",
        "d": "dimension of an embedding",
        "n": "windows",
        "T": "tokens of a window",
        "dataset": "number of the data set of this shape",
        "feasible": "whether the certificate proves a solution of the Graph-SVM",
        "infeasible": "whether the certificate proves that relations clash",
        "relative_gap": "certified relative duality gap of W_svm",
        "finite_dimension": "dimension of S_fin",
        "finite_norm": "||W_fin||",
        "finite_certified": "whether W_fin is proved to within 1e-6 (1 + ||W_fin||)",
        "gradient": "split, summed first or plain",
        "step": "step of training",
        "cosine": "of W and W_svm, both outside S_fin; NaN where relations clash",
        "growth": "norm of W outside S_fin over ||W_svm||",
        "finite_distance": "||Pi_fin W - W_fin|| / (1 + ||W_fin||)",
    }
}

NEXT_TOKEN_ACYCLIC = Experiment(
    id="next-token-acyclic",
    source="new",
    title="Next tokens in a strict order",
    shows="without cycles of priority attention ends on one token, and W turns to the Graph-SVM",
    seconds=150,
    default=RandomSamples(alike=1),
    columns=_COLUMNS,
    tasks=tasks,
    compute=compute,
    checks=acyclic_checks,
)

NEXT_TOKEN_CYCLIC = Experiment(
    id="next-token-cyclic",
    source="new",
    title="Next tokens that share",
    shows="tokens in a cycle of priorities share probability: W tends to W_fin + C W_svm, if the gradient is split",
    seconds=200,
    default=RandomSamples(alike=3),
    columns=_COLUMNS,
    tasks=tasks,
    compute=compute,
    checks=cyclic_checks,
)
