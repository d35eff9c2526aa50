"""[TaSVM, nonlinear heads] h = v^T x - lambda ||x||^2 on orthonormal tokens: what is kept as lambda grows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np
import torch

from attsvm.attention import QuadraticHead
from attsvm.data import TokenDataset, random_sphere
from attsvm.descent import CompiledEngine, Geometric, SteepestDescent, fit
from attsvm.experiments.base import Check, Study, claim
from attsvm.experiments.common import long_table, streams_apart
from attsvm.norms import MaxEntry
from attsvm.sweep import Piece, SweepResult, Task
from attsvm.theory import quadratic_attention


@dataclass(frozen=True, kw_only=True)
class QuadraticSweep(Study, identity="quadratic-head"):
    """Tokens e_1..e_T in random order, queries e_1..e_n, labels +1, v uniform on the sphere.

    Every entry of W is then a logit of its own, so that the head alone decides what is kept. Signed steps that shrink
    geometrically: plain descent would need a million steps, since the pull of a dropped token falls with its
    probability.
    """

    n: int = 3
    T: int = 6
    datasets: int = 50
    penalties: tuple[float, ...] = (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0, 1.5, 2.0)  # values of lambda
    steps: int = 6000
    step_size: float = 0.3
    ratio: float = 0.997
    dropped: float = 1e-6  # probability at which a token counts as dropped

    runs_field = "datasets"
    smaller: ClassVar = {"datasets": 10}

    def tasks(self) -> Sequence[Task]:
        return [Task(f"penalty-{place:03d}", {"penalty": penalty}) for place, penalty in enumerate(self.penalties)]

    def compute(self, task: Task, device: torch.device) -> Piece:
        """Train W and compare its attention with the projection onto the simplex."""
        n, T, count = self.n, self.T, self.datasets
        seeds = [(self.seed, element) for element in range(count)]
        order = np.stack([[stream.permutation(T) for _ in range(n)] for stream in streams_apart(seeds)])
        tokens = torch.eye(T, dtype=torch.float64)[torch.from_numpy(order)]
        queries = torch.eye(n, dtype=torch.float64).expand(count, n, n)
        vectors = random_sphere(n=1, T=1, d=T, batch=count, seed=seeds).head
        assert vectors is not None
        data = TokenDataset(tokens, queries, torch.ones(count, n, dtype=torch.float64)).to(device)
        head = QuadraticHead(vectors.to(device), task.values["penalty"])
        rule = SteepestDescent(MaxEntry(), Geometric(self.step_size, self.ratio))
        engine = CompiledEngine() if device.type == "cpu" else None  # it must be asked for; here the closed form judges
        run = fit(data, head, optimizer=rule, steps=self.steps, initial="zeros", record=[0], keep=(), engine=engine)
        predicted = quadratic_attention(data, head)
        rank = predicted.attention.argsort(-1, descending=True)
        trained, expected = run.attention.gather(-1, rank), predicted.attention.gather(-1, rank)
        table = long_table(
            {"dataset": range(count), "input": range(n), "place": range(T)}, penalty=task.values["penalty"],
            attention=trained, predicted=expected, kept=trained > self.dropped, predicted_kept=expected > 0,
        )  # fmt: skip
        return Piece({"tokens": table}, counts={"degenerate tokens": int(predicted.degenerate.sum())})

    def checks(self, result: SweepResult) -> Sequence[Check]:
        """Trained attention is the projection of gamma / (2 lambda) onto the simplex."""
        error = np.abs(result.column("tokens", "attention") - result.column("tokens", "predicted"))
        same = result.column("tokens", "kept") == result.column("tokens", "predicted_kept")
        inputs = self.n * self.datasets
        counts = [result.column("tokens", "kept", penalty=each).sum() / inputs for each in self.penalties]
        return [
            claim("largest error of a probability", "0 (derived)", f"{error.max():.1e}", error.max() < self.dropped,
                  f"it is {self.dropped:g}, where a token counts as dropped, or more"),
            claim("tokens kept or dropped as predicted", "all", f"{same.sum():,} of {len(same):,}", same.all(),
                  "one is not"),
            claim("tokens kept per input, as lambda grows", "grows (derived)",
                  " ".join(f"{count:.2f}" for count in counts),
                  all(after >= before for before, after in pairwise(counts)) and counts[-1] > counts[0],
                  "it falls from one lambda to the next, or is no larger in the end"),
        ]  # fmt: skip
