"""[MMTS, losses] One token scores C times the other: paths bend with C and with the loss, and all turn back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from attsvm.attention import Exponential, Linear, Logistic, Loss
from attsvm.data import TokenDataset, example
from attsvm.descent import NormalizedGradientDescent, fit
from attsvm.experiments.base import Check, Experiment, Verdict
from attsvm.experiments.common import long_column, path_steps, stacked
from attsvm.experiments.naive import naive_descent
from attsvm.norms import direction_cosine
from attsvm.svm import AttentionSVM, solve
from attsvm.sweep import Configuration, Piece, SweepResult, Task

_LOSSES: dict[str, Loss] = {"linear": Linear(), "logistic": Logistic(), "exponential": Exponential()}
_FIGURE = 1000  # the paper's runs end after so many steps, and so do the naive ones here
_DELAYED, _LONG = 300, 20_000
"""With C = 100 the second input alone pulls for so many steps; so many bring p near to (1, 0)."""
_LOG_SLOPES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "linear": np.zeros_like,
    "logistic": lambda margin: -np.logaddexp(0.0, margin),
    "exponential": lambda margin: -margin,
}
"""log |l'| of each loss l."""


@dataclass(frozen=True, kw_only=True)
class LossComparison(Configuration):
    """From p(0) = 0; `scores` are the values of C, and the largest needs more `steps` than the paper's 1000."""

    scores: tuple[float, ...] = (*(float(score) for score in range(1, 11)), 100.0)
    steps: int = 20_000
    step_size: float = 0.1


def tasks(configuration: LossComparison) -> Sequence[Task]:
    """One task for each loss."""
    return [Task(loss, {"loss": loss}) for loss in _LOSSES]


def compute(configuration: LossComparison, task: Task, device: torch.device) -> Piece:
    """All values of C side by side, with the exact gradient and, for the paper's 1000 steps, in the naive loop."""
    name = task.values["loss"]
    data = _data(configuration.scores)
    batch = data.batch_shape[0]
    optimizer = NormalizedGradientDescent(configuration.step_size)
    steps, figure = path_steps(configuration.steps), min(_FIGURE, configuration.steps)
    loss, last = _LOSSES[name], configuration.steps
    run = fit(
        data.to(device), optimizer=optimizer, loss=loss, initial="zeros", steps=last, record=steps, keep=("weights",)
    )
    short, zero = [step for step in steps if step <= figure], torch.zeros(batch, 2, dtype=torch.float64)
    naive = naive_descent(data, zero, steps=figure, record=short, loss=loss, step_size=configuration.step_size)
    solution = solve(AttentionSVM(data, torch.ones(batch, 2, dtype=torch.int64))).require_solved()
    assert run.history.weights is not None
    paths = {"exact": (steps, run.history.weights.cpu()), "naive": (short, naive.prompts.unsqueeze(-1))}
    tables = [
        {
            "loss": name,
            "gradient": gradient,
            "C": long_column(configuration.scores, (len(taken), batch), axis=1),
            "step": long_column(taken, (len(taken), batch), axis=0),
            "norm": long_column(torch.linalg.matrix_norm(path), (len(taken), batch)),
            "cosine": long_column(direction_cosine(path, solution.weights), (len(taken), batch)),
        }
        for gradient, (taken, path) in paths.items()
    ]
    arrays = {f"{name}_paths": paths["exact"][1].squeeze(-1)}
    if name == next(iter(_LOSSES)):  # the tokens and the solution are the same for all losses
        arrays |= {"tokens": data.tokens[0], "rays": solution.weights.squeeze(-1)}
    return Piece(tables={"history": stacked(tables)}, arrays=arrays)


def _data(scores: Sequence[float]) -> TokenDataset:
    parts = [example("loss-comparison", C=score) for score in scores]
    return TokenDataset(
        torch.stack([part.tokens for part in parts]),
        torch.stack([part.queries for part in parts]),
        torch.stack([part.labels for part in parts]),
        values=torch.stack([part.values for part in parts]),
        head=torch.stack([part.head for part in parts if part.head is not None]),
    )


def checks(result: SweepResult) -> Sequence[Check]:
    """All runs turn to (1, 0) at a distance that is derived; how C = 100 delays it; where the naive loop stops."""
    last, scores = result.configuration["steps"], np.array(result.configuration["scores"])
    figure, soon = min(_FIGURE, last), min(_DELAYED, last)
    delayed = 100.0 in scores

    def cosines(step: int, gradient: str = "exact", **where: object) -> np.ndarray:
        return result.column("history", "cosine", step=step, gradient=gradient, **where)

    moderate = cosines(figure)[result.column("history", "C", step=figure, gradient="exact") <= 10]
    end = cosines(last)
    early = np.concatenate([cosines(soon, C=100.0, loss=loss) for loss in ("logistic", "exponential")])
    stuck = cosines(figure, "naive", C=100.0, loss="logistic")
    beside = {loss: result.arrays[f"{loss}_paths"][-1, :, 1] for loss in _LOSSES}
    away = max(float(np.abs(found - _finite(loss, scores)).max()) for loss, found in beside.items())
    return [
        Check("C <= 10, all losses: p to (1, 0)", f">= .999 at {figure}", f"least cosine {moderate.min():.5f}",
              Verdict.of(moderate.min() >= 0.999, enough=figure == _FIGURE), "a cosine is below .999"),
        Check("every C and loss: p to (1, 0)", f"> .999 at {last:,}", f"least cosine {end.min():.5f}",
              Verdict.of(end.min() > 0.999, enough=last >= _LONG), "a cosine is at most .999 in the end"),
        Check("every C and loss: second coordinate of p", "where the pulls of both inputs balance (derived)",
              f"off by at most {away:.1e}; C = 100, logistic: {_finite('logistic', np.array([100.0]))[0]:.2f}",
              Verdict.of(away < 1e-6, enough=last >= _LONG),
              "it is off by 1e-6 from log(C l'(C) / l'(1)) / 2, with l' the slope of the loss, in the end"),
        Check("C = 100, logistic and exponential: p first along (1, -1)", f"cosine .707 at {soon}",
              ", ".join(f"{each:.5f}" for each in early),
              Verdict.of(bool((np.abs(early - np.sqrt(0.5)) < 1e-3).all()), enough=delayed),
              "a cosine is off by .001 from the root of 1/2"),
        Check("C = 100, logistic: the naive float32 loop", f"public code: frozen at .707 to {figure}",
              ", ".join(f"{each:.4f}" for each in stuck),
              Verdict.of(bool((np.abs(stuck - np.sqrt(0.5)) < 1e-3).all()), enough=delayed and figure == _FIGURE),
              "its cosine is off by .001 from the root of 1/2 in the end"),
    ]  # fmt: skip


def _finite(loss: str, scores: np.ndarray) -> np.ndarray:
    """The second coordinate of p in the limit: C |l'(C)| exp(-p_1 - p_2) = |l'(1)| exp(-p_1 + p_2) holds p there."""
    log_slope = _LOG_SLOPES[loss]
    found: np.ndarray = (np.log(scores) + log_slope(scores) - log_slope(np.ones_like(scores))) / 2
    return found


LOSS_COMPARISON = Experiment(
    id="loss-comparison",
    source="MMTS",
    title="Losses and unequal scores",
    shows="unequal scores bend the way, more so for losses that saturate, yet every run turns to the same SVM",
    seconds=4,
    default=LossComparison(),
    columns={
        "history": {
            "loss": "linear: -x, logistic: log(1 + exp(-x)), exponential: exp(-x)",
            "gradient": "exact: saturation-proof, in float64; naive: float32 and automatic differentiation",
            "C": "score of the first input's good token; the second's is 1",
            "step": "steps taken",
            "norm": "Euclidean norm of the prompt p",
            "cosine": "direction cosine to the max-margin prompt (1, 0)",
        }
    },
    tasks=tasks,
    compute=compute,
    checks=checks,
)
