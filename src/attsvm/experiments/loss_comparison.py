"""[MMTS, losses] One token scores C times the other: paths bend with C and with the loss, and all turn back."""

from __future__ import annotations

from collections.abc import Sequence
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
_FIGURE = 1000
"""The paper's runs end after so many steps, and so do the naive ones here."""
_QUOTED = {300: 0.707, 1000: 0.87, 5000: 0.995, 20_000: 0.9997}
"""Cosines expected for C = 100 with the logistic or exponential loss."""


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
    run = fit(
        data.to(device),
        optimizer=optimizer,
        loss=_LOSSES[name],
        initial="zeros",
        steps=configuration.steps,
        record=steps,
        keep=("weights",),
    )
    short = [step for step in steps if step <= figure]
    naive = naive_descent(
        data,
        torch.zeros(batch, 2, dtype=torch.float64),
        steps=figure,
        record=short,
        loss=_LOSSES[name],
        step_size=configuration.step_size,
    )
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
    """C up to 10 by step 1000; C = 100 at the quoted steps; where the naive loop stops."""
    last = result.configuration["steps"]

    def cosines(step: int, gradient: str = "exact", **where: object) -> np.ndarray:
        return result.column("history", "cosine", step=step, gradient=gradient, **where)

    figure = min(_FIGURE, last)
    small = result.column("history", "C", step=figure, gradient="exact") <= 10
    moderate = cosines(figure)[small]
    found = [
        Check("C <= 10, all losses: p to (1, 0)", f">= .999 at {figure}", f"least cosine {moderate.min():.5f}",
              Verdict.of(moderate.min() >= 0.999)),
    ]  # fmt: skip
    for loss in ("logistic", "exponential"):
        for step, quoted in _QUOTED.items():
            if step > last or 100.0 not in result.configuration["scores"]:
                continue
            measured = float(cosines(step, C=100.0, loss=loss)[0])
            unit = 10.0 ** -(len(str(quoted)) - 2)  # of the last digit that is quoted
            found.append(
                Check(f"C = 100, {loss}: cosine at {step:,}", f"{quoted}", f"{measured:.5f}",
                      Verdict.of(abs(measured - quoted) <= unit))
            )  # fmt: skip
    for stuck in cosines(figure, "naive", C=100.0, loss="logistic"):
        found.append(
            Check("C = 100, logistic, naive float32 loop", f"public code: frozen at .707 to {figure}", f"{stuck:.4f}",
                  Verdict.of(abs(float(stuck) - 0.707) < 1e-3))
        )  # fmt: skip
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
