"""[TaSVM, nonlinear heads] h = v^T x - lambda ||x||^2 on orthonormal tokens: what is kept as lambda grows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, Self

import numpy as np
import torch

from attsvm.attention import QuadraticHead
from attsvm.data import TokenDataset, random_sphere
from attsvm.descent import CompiledEngine, Geometric, SteepestDescent, fit
from attsvm.experiments.base import Check, Experiment, Verdict
from attsvm.experiments.common import long_column, streams_apart
from attsvm.norms import MaxEntry
from attsvm.sweep import Configuration, Piece, SweepResult, Task
from attsvm.theory import quadratic_attention


@dataclass(frozen=True, kw_only=True)
class QuadraticSweep(Configuration):
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

    runs_field: ClassVar[str | None] = "datasets"

    def quick(self) -> Self:
        return self.with_values(datasets=10)


def tasks(configuration: QuadraticSweep) -> Sequence[Task]:
    """One task for each penalty."""
    return [Task(f"penalty-{place:03d}", {"penalty": penalty}) for place, penalty in enumerate(configuration.penalties)]


def compute(configuration: QuadraticSweep, task: Task, device: torch.device) -> Piece:
    """Train W and compare its attention with the projection onto the simplex."""
    n, T, count = configuration.n, configuration.T, configuration.datasets
    seeds = [(configuration.seed, element) for element in range(count)]
    order = np.stack([[stream.permutation(T) for _ in range(n)] for stream in streams_apart(seeds)])
    tokens = torch.eye(T, dtype=torch.float64)[torch.from_numpy(order)]
    queries = torch.eye(n, dtype=torch.float64).expand(count, n, n)
    vectors = random_sphere(n=1, T=1, d=T, batch=count, seed=seeds).head
    assert vectors is not None
    data = TokenDataset(tokens, queries, torch.ones(count, n, dtype=torch.float64)).to(device)
    head = QuadraticHead(vectors.to(device), task.values["penalty"])
    rule = SteepestDescent(MaxEntry(), Geometric(configuration.step_size, configuration.ratio))
    engine = CompiledEngine() if device.type == "cpu" else None  # it must be asked for; here the closed form judges
    run = fit(
        data, head, optimizer=rule, steps=configuration.steps, initial="zeros", record=[0], keep=(), engine=engine
    )
    predicted = quadratic_attention(data, head)
    rank = predicted.attention.argsort(-1, descending=True)
    trained, expected = run.attention.gather(-1, rank), predicted.attention.gather(-1, rank)
    shape = (count, n, T)
    table = {
        "penalty": task.values["penalty"],
        "dataset": long_column(range(count), shape, axis=0),
        "input": long_column(range(n), shape, axis=1),
        "place": long_column(range(T), shape, axis=2),
        "attention": trained.reshape(-1),
        "predicted": expected.reshape(-1),
        "kept": (trained > configuration.dropped).reshape(-1),
        "predicted_kept": (expected > 0).reshape(-1),
    }
    return Piece(tables={"tokens": table}, counts={"degenerate tokens": int(predicted.degenerate.sum())})


def checks(result: SweepResult) -> Sequence[Check]:
    """Trained attention is the projection of gamma / (2 lambda) onto the simplex."""
    error = np.abs(result.column("tokens", "attention") - result.column("tokens", "predicted"))
    same = result.column("tokens", "kept") == result.column("tokens", "predicted_kept")
    dropped, inputs = result.configuration["dropped"], result.configuration["n"] * result.configuration["datasets"]
    counts = [
        result.column("tokens", "kept", penalty=each).sum() / inputs for each in result.configuration["penalties"]
    ]
    rising = all(after >= before for before, after in pairwise(counts))
    return [
        Check("largest error of a probability", "0 (derived)", f"{error.max():.1e}", Verdict.of(error.max() < dropped),
              f"it is {dropped:g}, where a token counts as dropped, or more"),
        Check("tokens kept or dropped as predicted", "all", f"{same.sum():,} of {len(same):,}",
              Verdict.of(bool(same.all())), "one is not"),
        Check("tokens kept per input, as lambda grows", "grows (derived)", " ".join(f"{count:.2f}" for count in counts),
              Verdict.of(rising and counts[-1] > counts[0]),
              "it falls from one lambda to the next, or is no larger in the end"),
    ]  # fmt: skip


QUADRATIC_HEAD = Experiment(
    id="quadratic-head",
    source="TaSVM",
    title="Quadratic head",
    shows="the number of tokens kept grows with lambda, exactly as a projection onto the simplex says",
    seconds=2,
    default=QuadraticSweep(),
    columns={
        "tokens": {
            "penalty": "lambda",
            "dataset": "number of the data set",
            "input": "number of the input",
            "place": "of the token, by falling predicted probability",
            "attention": "probability after training",
            "predicted": "probability predicted: the projection of gamma / (2 lambda) onto the simplex",
            "kept": "whether training kept the token",
            "predicted_kept": "whether it was predicted to be kept",
        }
    },
    tasks=tasks,
    compute=compute,
    checks=checks,
)
