"""[2403.08081] a text: which relations of its words clash in d dimensions, and the trained layer against the automaton.

Embeddings are drawn several times for each d. On the first draw whose relations do not clash a layer is trained, and
asked windows from the rest of the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from attsvm import next_token
from attsvm.experiments.base import Check, Study, claim, reported, rises
from attsvm.experiments.next_token import DISTANCE
from attsvm.next_token import LimitPrediction, NextTokenData
from attsvm.sweep import Piece, SweepResult, Task

_DRAWS = 6
_ASKED = (
    "cosine", "growth", "finite_distance", "largest_seen", "largest_by_graph", "largest_by_svm", "by_graph", "by_svm",
    "open",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class BundledText(Study):
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
        rows: list[dict[str, Any]] = []
        answers = np.empty((0, 4))
        for draw in range(self.draws):
            data = next_token.from_text(learned, window=self.window, d=d, seed=[(self.seed, 1000 * d + draw)])
            limit = next_token.predict_limit(data)
            graph, solution = limit.graph, limit.solution
            several = sum(len(each) > 1 for each in graph.members)
            rows.append({
                "d": d, "draw": draw, "K": data.K, "samples": data.n, "left_out": data.left_out,
                "relations": len(graph.last), "strict": int(graph.strict.sum()), "components": len(graph.level),
                "shared": several, "feasible": bool(solution.solved), "infeasible": bool(solution.infeasible),
                "clash": len(limit.clash), **dict.fromkeys(_ASKED, np.nan),
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


NEXT_TOKEN_TEXT = BundledText().experiment("next-token-text")
