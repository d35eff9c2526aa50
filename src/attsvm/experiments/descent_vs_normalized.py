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

_FIGURE = 200  # the paper's figure ends after so many steps
_QUOTED, _ROUNDED = 0.97, 0.005  # the paper's probability after gradient descent, and half a unit of its last digit


@dataclass(frozen=True, kw_only=True)
class DescentVsNormalized(DataSets):
    """The data and the six starts of `multi-input`; the paper's curves start at p(0) = 0 on the first data set."""

    steps: int = 1000
    descent_step_size: float = 1.0
    normalized_step_size: float = 0.1


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
        initial = starts.unsqueeze(1).expand(-1, len(seeds), -1, -1)
        history = fit(data, optimizer=optimizer, initial=initial, steps=configuration.steps, record=steps).history
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
    """The paper's two numbers, from p(0) = 0 on all data sets."""
    step = min(_FIGURE, result.configuration["steps"])

    def at(column: str, rule: str) -> np.ndarray:
        return result.column("history", column, rule=rule, step=step, start=0.0)

    gradient, normalized = (at("probability", rule) for rule in _RULES)
    missing = at("missing", "normalized")
    lengths = [at("norm", rule) for rule in _RULES]
    picture = int(np.flatnonzero(at("dataset", "gradient") == 0)[0])
    return [
        Check("gradient descent: softmax probability at the paper's last step", f"paper: about .97 at {step}",
              f"picture {gradient[picture]:.4f}; least {gradient.min():.3f}, largest {gradient.max():.3f}",
              Verdict.of(bool(gradient.min() - _ROUNDED <= _QUOTED <= gradient.max() + _ROUNDED)),
              "the paper's number, which has two digits, lies outside the range of our data sets"),
        Check("normalized descent: softmax probability at the paper's last step", f"paper: > .999 at {step}",
              f"picture 1 - {missing[picture]:.1e}, worst 1 - {missing.max():.1e}", Verdict.of(missing.max() < 1e-3),
              "it is at most .999 on a data set"),
        Check("data sets on which normalized descent is ahead", "all",
              f"{np.sum(normalized > gradient)} of {len(gradient)}", Verdict.of(bool((normalized > gradient).all())),
              "gradient descent has the larger probability on a data set"),
        Check("data sets on which normalized descent has the longer prompt", "all",
              f"{np.sum(lengths[1] > lengths[0])} of {len(gradient)}; picture {lengths[0][picture]:.2f},"
              f" {lengths[1][picture]:.2f}", Verdict.of(bool((lengths[1] > lengths[0]).all())),
              "gradient descent has the longer prompt on a data set"),
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
    tasks=DescentVsNormalized.chunks,
    compute=compute,
    checks=checks,
)
