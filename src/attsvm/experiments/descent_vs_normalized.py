"""[MMTS, gradient against normalized gradient descent] The same data, two step rules, very different speeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from attsvm.attention import optimal_tokens
from attsvm.data import example, starting_points
from attsvm.descent import GradientDescent, NormalizedGradientDescent, Optimizer, fit
from attsvm.experiments.base import Check, Experiment, Verdict
from attsvm.experiments.common import DataSets, long_column, seeds_of, stacked
from attsvm.norms import direction_cosine
from attsvm.svm import AttentionSVM, solve
from attsvm.sweep import Piece, SweepResult, Task

_FIGURE = 200
"""The paper's figure ends after so many steps."""


@dataclass(frozen=True, kw_only=True)
class DescentVsNormalized(DataSets):
    """The data and the six starts of `multi-input`; the paper's curves start at p(0) = 0 on the first data set."""

    steps: int = 1000
    descent_step_size: float = 1.0
    normalized_step_size: float = 0.1


def tasks(configuration: DescentVsNormalized) -> Sequence[Task]:
    """Chunks of data sets."""
    return configuration.chunks()


def compute(configuration: DescentVsNormalized, task: Task, device: torch.device) -> Piece:
    """Both step rules from all six starts on every data set of the chunk."""
    seeds, steps = seeds_of(configuration, task), _recorded(configuration.steps)
    data = example("multi-input", batch=len(seeds), seed=seeds).to(device)
    starts = starting_points("multi-input").weights.to(device)
    solution = solve(AttentionSVM(data, optimal_tokens(data)))
    shape = (len(steps), len(starts), len(seeds))
    rules: dict[str, Optimizer] = {
        "gradient": GradientDescent(configuration.descent_step_size),
        "normalized": NormalizedGradientDescent(configuration.normalized_step_size),
    }
    tables = []
    for rule, optimizer in rules.items():
        run = fit(
            data,
            optimizer=optimizer,
            initial=starts.unsqueeze(1).expand(-1, len(seeds), -1, -1),
            steps=configuration.steps,
            record=steps,
        )
        history = run.history
        assert history.weights is not None
        assert history.attention is not None
        tables.append(
            {
                "dataset": long_column([number for _, number in seeds], shape, axis=2),
                "rule": rule,
                "start": long_column(starts[:, 0, 0], shape, axis=1),
                "step": long_column(steps, shape, axis=0),
                "probability": long_column(history.attention[..., 0].mean(-1), shape),
                "missing": long_column(history.attention[..., 1:].sum(-1).mean(-1), shape),
                "norm": long_column(torch.linalg.matrix_norm(history.weights), shape),
                "cosine": long_column(direction_cosine(history.weights, solution.weights), shape),
            }
        )
    counts = {"SVM of the optimal tokens not solved": int((~solution.solved).sum())}
    return Piece(tables={"history": stacked(tables)}, counts=counts)


def _recorded(steps: int) -> list[int]:
    return sorted({*range(0, min(_FIGURE, steps) + 1, 2), *range(_FIGURE, steps + 1, 20), steps})


def checks(result: SweepResult) -> Sequence[Check]:
    """The paper's two numbers, and the same over all data sets."""
    step = min(_FIGURE, result.configuration["steps"])

    def at(column: str, rule: str, **where: object) -> np.ndarray:
        return result.column("history", column, rule=rule, step=step, **where)

    gradient, normalized = (float(at("probability", rule, dataset=0, start=0.0)[0]) for rule in _RULES)
    missing = float(at("missing", "normalized", dataset=0, start=0.0)[0])
    every = [at("probability", rule, start=0.0) for rule in _RULES]
    lengths = [float(at("norm", rule, dataset=0, start=0.0)[0]) for rule in _RULES]
    return [
        Check(f"gradient descent: softmax probability at {step}", "about .97", f"{gradient:.4f}",
              Verdict.of(0.96 <= gradient <= 0.98)),
        Check(f"normalized descent: softmax probability at {step}", "> .999", f"1 - {missing:.1e}",
              Verdict.of(normalized > 0.999)),
        Check(f"||p|| at {step}, gradient and normalized descent", "normalized grows faster",
              f"{lengths[0]:.2f}, {lengths[1]:.2f}", Verdict.of(lengths[1] > lengths[0])),
        Check("data sets on which normalized descent is ahead", "all",
              f"{np.mean(every[1] > every[0]):.1%} of {len(every[0])}; least 1 - {1 - every[1].min():.0e}, gradient"
              f" {every[0].mean():.3f} +- {every[0].std():.3f}", Verdict.of(bool((every[1] > every[0]).all()))),
    ]  # fmt: skip


_RULES = ("gradient", "normalized")

DESCENT_VS_NORMALIZED = Experiment(
    id="descent-vs-normalized",
    source="MMTS",
    title="Gradient against normalized gradient descent",
    shows="normalized steps saturate attention long before plain gradient descent does",
    seconds=6,
    default=DescentVsNormalized(),
    columns={
        "history": {
            "dataset": "number of the data set; 0 is the picture's",
            "rule": "gradient: W -= step gradient; normalized: the gradient divided by its norm",
            "start": "c of the start p(0) = (c, 0)",
            "step": "steps taken",
            "probability": "attention on the optimal token, mean over the inputs",
            "missing": "1 - probability, summed over the other tokens, so that it is right far below round-off",
            "norm": "Euclidean norm of the prompt p",
            "cosine": "direction cosine to the max-margin prompt of the optimal tokens",
        }
    },
    tasks=tasks,
    compute=compute,
    checks=checks,
)
