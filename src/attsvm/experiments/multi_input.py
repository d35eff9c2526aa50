"""[MMTS, several inputs] Three inputs of seven tokens in the plane: six starts, one separating direction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from attsvm.attention import optimal_token_set, optimal_tokens, token_scores
from attsvm.data import example, starting_points
from attsvm.experiments.base import Check, Experiment, Verdict
from attsvm.experiments.common import DataSets, long_column, path_steps, seeds_of, separating_offsets, stacked
from attsvm.experiments.naive import both_gradients
from attsvm.norms import direction_cosine
from attsvm.svm import AttentionSVM, solve
from attsvm.sweep import Piece, SweepResult, Task

_ADDITIVE = 1e-12  # what the public code of this figure adds to the norm of the gradient


@dataclass(frozen=True, kw_only=True)
class MultiInput(DataSets):
    """The first data set is the picture's; the others say whether it is typical."""

    steps: int = 1000
    step_size: float = 0.1


def compute(configuration: MultiInput, task: Task, device: torch.device) -> Piece:
    """Six starts on every data set of the chunk, with the exact gradient and with the naive loop."""
    seeds, steps = seeds_of(configuration, task), path_steps(configuration.steps)
    data = example("multi-input", batch=len(seeds), seed=seeds)
    starts = starting_points("multi-input").weights
    spread = starts.unsqueeze(1).expand(-1, len(seeds), -1, -1)
    paths = both_gradients(
        data, spread, device, steps=configuration.steps, record=steps, step_size=configuration.step_size,
        additive=_ADDITIVE,
    )  # fmt: skip
    problem = AttentionSVM(data, optimal_tokens(data))
    solution = solve(problem)
    # Every tenth step while paths are kept step by step; a hundred data sets need no finer table.
    kept = [place for place, step in enumerate(steps) if step > 200 or step % 10 == 0 or step == configuration.steps]
    shape = (len(kept), len(starts), len(seeds))
    tables = [
        {
            "dataset": long_column([number for _, number in seeds], shape, axis=2),
            "gradient": gradient,
            "start": long_column(starts[:, 0, 0], shape, axis=1),
            "step": long_column([steps[place] for place in kept], shape, axis=0),
            "norm": long_column(torch.linalg.matrix_norm(path[kept]), shape),
            "cosine": long_column(direction_cosine(path[kept], solution.weights), shape),
        }
        for gradient, path in paths.items()
    ]
    picture = {}
    if task.values["first"] == 0:
        picture = {
            "tokens": data.tokens[0],
            "scores": token_scores(data)[0],
            "optimal": optimal_token_set(data)[0],
            "ray": solution.weights[0, :, 0],
            "offsets": separating_offsets(problem, solution.weights)[0],
            "paths": paths["exact"][:, :, 0, :, 0],
        }
    counts = {"SVM of the optimal tokens not solved": int((~solution.solved).sum())}
    return Piece(tables={"history": stacked(tables)}, arrays=picture, counts=counts)


def checks(result: SweepResult) -> Sequence[Check]:
    """All starts of the picture on the ray; the same for all data sets; the naive loop."""
    last = result.configuration["steps"]

    def cosines(step: int = last, **where: object) -> np.ndarray:
        return result.column("history", "cosine", step=step, **{"gradient": "exact", **where})

    picture, every, naive = cosines(dataset=0), cosines(), cosines(gradient="naive")
    return [
        Check("the picture's data set: all six starts on the SVM ray", f"converge to it (> .999 at {last})",
              f"least cosine {picture.min():.5f}", Verdict.of(picture.min() > 0.999),
              "a cosine is at most .999 in the end"),
        Check("all data sets and starts: cosine above .99", "all",
              f"{np.sum(every > 0.99)} of {len(every)}, least {every.min():.4f}", Verdict.of(every.min() > 0.99),
              "a cosine is at most .99 in the end"),
        Check("all data sets and starts: the naive float32 loop", "farther from the ray",
              f"1 - cosine: median {np.median(1 - naive):.1e}, exact {np.median(1 - every):.1e}; worst"
              f" {1 - naive.min():.1e}, exact {1 - every.min():.1e}",
              Verdict.of(bool(np.median(naive) < np.median(every))),
              "the median cosine of the loop is not below that of the exact gradient"),
    ]  # fmt: skip


MULTI_INPUT = Experiment(
    id="multi-input",
    source="MMTS",
    title="Several inputs, one prompt",
    shows="every start turns to the one direction that separates the optimal tokens of all inputs",
    seconds=6,
    default=MultiInput(),
    columns={
        "history": {
            "dataset": "number of the data set; 0 is the picture's",
            "gradient": "exact: saturation-proof, in float64; naive: float32 and automatic differentiation",
            "start": "c of the start p(0) = (c, 0)",
            "step": "steps taken",
            "norm": "Euclidean norm of the prompt p",
            "cosine": "direction cosine to the max-margin prompt of the optimal tokens",
        }
    },
    tasks=MultiInput.chunks,
    compute=compute,
    checks=checks,
)
