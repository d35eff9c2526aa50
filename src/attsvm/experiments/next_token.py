"""[2403.08081] next-token prediction: trained weights against W_fin + C W_svm, on random samples and on a text.

Random samples: every last token ranks the vocabulary in levels of `alike` tokens, and the label of a window is drawn
among its tokens of the highest level. With one token in a level priorities have no cycle; with several, those that beat
each other in different windows form components. Draws that are not of their kind are drawn again.

Three runs on each data set, all with the log loss:

- **split**: `TwoScales` and `TwoPartDescent`; the gradient is split into its finite and its growing part row by row.
- **summed first**: the same steps, but the growing part is what is left of the summed gradient outside S_fin. It cannot
  be longer than the longest row, and is cut to that: what is longer is round-off.
- **plain**: gradient descent with steps of 1/L, which the theorem is about. Its norm grows like the logarithm of the
  steps.

A text: which relations of its words clash in d dimensions, and the trained layer against the automaton. Embeddings are
drawn several times for each d. On the first draw whose relations do not clash a layer is trained, and asked windows
from the rest of the text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from attsvm import next_token
from attsvm.attention import Log, ScaledTensor, TwoScales
from attsvm.attention.gradient import RiskGradient
from attsvm.data import TokenDataset, streams
from attsvm.data.dataset import together
from attsvm.data.random import unit
from attsvm.descent import GradientDescent, Optimizer, TwoPartDescent, fit
from attsvm.experiments.base import CATALOGUE, Check, DataSets, Study, claim, reported, rises, turning
from attsvm.experiments.common import FARTHER_APART, long_table, recorded, spread_steps, stacked
from attsvm.next_token import LimitPrediction, NextTokenData, PriorityGraph, finite_part, from_ids, priority_graph
from attsvm.norms import direction_cosine
from attsvm.svm import AttentionSVM, solve
from attsvm.sweep import Piece, SweepResult, Task

GROWN = 100  # times the norm of W_svm that a run must have outside S_fin for its direction to be judged
COSINE, DISTANCE = 0.999, 1e-6
_LONGEST = 2.0  # of a row (x_t - x_u) z^T of unit vectors
_ENOUGH = 1000
_APART = 1_000_000  # between the numbers of data sets of two shapes
_SHAPE = ("K", "d", "n", "T")  # size of the vocabulary, dimension, number of windows, tokens of each
_DRAWS = 6  # of embeddings of a text, from which on their shares are judged


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
class RandomSamples(DataSets, identity="next-token-acyclic"):
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


@dataclass(frozen=True, kw_only=True)
class CyclicSamples(RandomSamples, identity="next-token-cyclic"):
    """Several tokens in a level."""

    alike: int = 3


@dataclass(frozen=True, kw_only=True)
class BundledText(Study, identity="next-token-text"):
    """The first words of the text that comes with the package; the words after them give fresh windows."""

    words: int = 1000  # how many of the text are learned
    window: int = 8  # tokens of a sample
    dimensions: tuple[int, ...] = (8, 16, 24, 32, 40, 48, 64, 96)  # the last exceeds the size of the vocabulary
    draws: int = 6  # of embeddings for each d, on the sphere, orthonormal where d allows; the first is trained on
    steps: int = 2000  # of training
    fresh: int = 200  # windows from the rest of the text, all of whose words are known

    runs_field = "draws"
    smaller: ClassVar = {"dimensions": (16, 48, 96), "fresh": 50}

    def tasks(self) -> Sequence[Task]:
        return [Task(f"d{d:03d}", {"d": d}) for d in self.dimensions]

    def compute(self, task: Task, device: torch.device) -> Piece:
        """Find the graph, solve or find the clash for each draw; train on the first draw and ask the layer."""
        tokens, d = next_token.words(next_token.village()), task.values["d"]
        learned, rest = " ".join(tokens[: self.words]), tokens[self.words :]
        unknown = dict.fromkeys(CATALOGUE["next-token-text"]["columns"]["texts"], np.nan)
        rows: list[dict[str, Any]] = []
        answers = np.empty((0, 4))
        for draw in range(self.draws):
            data = next_token.from_text(learned, window=self.window, d=d, seed=[(self.seed, 1000 * d + draw)])
            limit = next_token.predict_limit(data)
            graph, solution = limit.graph, limit.solution
            several = sum(len(each) > 1 for each in graph.members)
            rows.append({
                **unknown, "d": d, "draw": draw, "K": data.K, "samples": data.n, "left_out": data.left_out,
                "relations": len(graph.last), "strict": int(graph.strict.sum()), "components": len(graph.level),
                "shared": several, "feasible": bool(solution.solved), "infeasible": bool(solution.infeasible),
                "clash": len(limit.clash),
            })  # fmt: skip
            if draw == 0 and limit.finite is not None:
                fresh = self._windows(data, rest)
                measured, answers = _asked(limit, next_token.train(limit, self.steps).weights, fresh)
                rows[-1] |= measured
        table = {name: np.array([row[name] for row in rows]) for name in rows[0]}
        counts = {f"d={d}: relations clash": int(table["infeasible"].sum())}
        return Piece({"texts": table}, {"answers": answers}, counts)

    def _windows(self, data: NextTokenData, rest: Sequence[str]) -> list[list[str]]:
        """The first windows of the rest of the text that hold known words only and end in a last token of the data."""
        last = {data.words[token] for token in data.last.tolist()}
        every = (list(rest[start : start + self.window]) for start in range(len(rest) - self.window))
        known = (window for window in every if set(window) <= set(data.words) and window[-1] in last)
        return list(islice(known, self.fresh))

    def checks(self, result: SweepResult) -> Sequence[Check]:
        """What the graph holds, where relations clash, and whether the trained layer is the predicted automaton."""
        table = {name: result.column("texts", name) for name in result.tables["texts"].column_names}
        shares = [float(result.column("texts", "feasible", d=d).mean()) for d in self.dimensions]
        independent = table["d"] >= table["K"]
        undecided = int((~table["feasible"] & ~table["infeasible"]).sum())
        trained = ~np.isnan(table["growth"]) & (table["draw"] == 0)
        long, short = self.steps >= BundledText.steps, f"asked after {BundledText.steps:,} steps"
        first = {name: int(table[name][0]) for name in ("relations", "strict", "samples", "K", "shared", "components")}
        graph, svm, open_ = (int(table[name][trained].sum()) for name in ("by_graph", "by_svm", "open"))
        cosine = table["cosine"][trained]

        def met(what: str, name: str, bound: float, many: str = "") -> Check:
            largest = table[name][trained]
            return claim(what, "tends to 0 (theorem)", f"largest {largest.max():.1e} of {len(largest)} layers{many}",
                         (largest <= bound).all(), f"one is above {bound:g}", enough=long, why=short)  # fmt: skip

        return [
            reported("the graph", "(read off the text)",
                     "{relations:,} relations, {strict:,} strict, in {samples} samples of {K} words; {shared} of"
                     " {components:,} components hold several words".format(**first)),
            claim("neither solved nor proved to clash", "none", f"{undecided} of {len(table['d'])}", undecided == 0,
                  "there is one"),
            claim("clashes with independent embeddings, d >= K", "none: weights can order them in any way",
                  f"{table['infeasible'][independent].sum()} of {independent.sum()}",
                  not table["infeasible"][independent].any(), "there is one", enough=independent.any(),
                  why="no d is as large as the vocabulary"),
            claim("share of draws without a clash, over all d", "rises to 1",
                  ", ".join(f"{share:.2f} at {d}" for share, d in zip(shares, self.dimensions, strict=True)),
                  rises(shares, self.draws) and shares[-1] == 1,
                  "it falls, or does not rise, by more than chance, or does not come to 1", enough=self.draws >= _DRAWS,
                  why=f"asked of {_DRAWS} draws"),
            claim("trained layers: cosine with W_svm outside S_fin", "tends to 1 (theorem)",
                  f"least {cosine.min():.5f} of {len(cosine)} layers", (cosine >= 0.99).all(), "one is below .99",
                  enough=long, why=short),
            met("trained layers: distance from W_fin over 1 + ||W_fin||", "finite_distance", DISTANCE),
            met("windows of the text: trained attention against the automaton, total variation", "largest_seen", 1e-3),
            met("fresh windows that the graph decides: the same", "largest_by_graph", 1e-3, f", {graph} windows"),
            reported("fresh windows that W_svm decides: the same",
                     "(tends to 0, more slowly where its margin is small)",
                     f"largest {table['largest_by_svm'][trained].max():.1e}, {svm} windows; {open_} left open"),
        ]  # fmt: skip


def _asked(limit: LimitPrediction, weights: Tensor, fresh: list[list[str]]) -> tuple[dict[str, float], np.ndarray]:
    """How far the trained layer is from the limit, and its answers from the predicted ones (total variation).

    Numbers by name, and for every word of every fresh window: d, who decides (0: the graph, 1: W_svm, 2: the limit
    leaves open how words share), predicted and trained probability.
    """
    found, data = next_token.verify(limit, weights), limit.data

    def apart(window: Sequence[str] | Sequence[int]) -> tuple[float, int, list[tuple[int, int, float, float]]]:
        said, trained = limit.answer(window), next_token.respond(data, weights, window)
        predicted = dict(zip(said.words, said.probabilities, strict=True))
        kind = 0 if said.by_graph else 1 if said.decided else 2
        rows = [(data.d, kind, predicted.get(word, 0.0), share) for word, share in trained.items()]
        return sum(abs(one - other) for *_, one, other in rows) / 2, kind, rows

    seen = [apart(ids[ids >= 0].tolist())[0] for ids in torch.unique(data.ids, dim=0)]
    asked = [apart(window) for window in fresh]
    distance, kind = (np.array([each[place] for each in asked]) for place in (0, 1))
    return {
        "cosine": found.cosine,
        "growth": found.growth,
        "finite_distance": found.finite_distance / (1 + found.finite_norm),
        "largest_seen": max(seen),
        "largest_by_graph": float(distance[kind == 0].max(initial=0.0)),
        "largest_by_svm": float(distance[kind == 1].max(initial=0.0)),
        **{name: float((kind == place).sum()) for place, name in enumerate(("by_graph", "by_svm", "open"))},
    }, np.array([row for *_, rows in asked for row in rows])
