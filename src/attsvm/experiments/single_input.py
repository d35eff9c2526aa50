"""[MMTS, single input] One input in the plane, six starts: where every run finds the optimum, and where not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from attsvm.attention import optimal_token_set, token_scores
from attsvm.data import example, starting_points
from attsvm.experiments.base import Check, Experiment, Verdict
from attsvm.experiments.common import long_column, path_steps, separating_offsets, stacked
from attsvm.experiments.naive import both_gradients
from attsvm.norms import direction_cosine
from attsvm.svm import AttentionSVM, solve
from attsvm.sweep import Configuration, Piece, SweepResult, Task

_LATE = 200  # after so many steps the public float32 run leaves the ray of token 1


@dataclass(frozen=True, kw_only=True)
class SingleInput(Configuration):
    """Six starts p(0) = (0, c), normalized descent."""

    steps: int = 1000
    step_size: float = 0.1


def tasks(configuration: SingleInput) -> Sequence[Task]:
    """The variant where token 1 ties with its neighbour, and the one where it is locally optimal."""
    return [Task(variant, {"variant": variant}) for variant in ("global", "local")]


def compute(configuration: SingleInput, task: Task, device: torch.device) -> Piece:
    """Six runs with the exact gradient and six of the naive loop, against the rays of tokens 0 and 1."""
    variant = task.values["variant"]
    name, steps = f"single-input-{variant}", path_steps(configuration.steps)
    data, starts = example(name), starting_points(name).weights
    paths = both_gradients(
        data, starts, device, steps=configuration.steps, record=steps, step_size=configuration.step_size
    )
    problems = [AttentionSVM(data, [token]) for token in (0, 1)]
    rays = [solve(problem).require_solved().weights for problem in problems]
    shape = (len(steps), len(starts))
    tables = [
        {
            "variant": variant,
            "gradient": gradient,
            "start": long_column(starts[:, 1, 0], shape, axis=1),
            "step": long_column(steps, shape, axis=0),
            "norm": long_column(torch.linalg.matrix_norm(path), shape),
            "cosine_first": long_column(direction_cosine(path, rays[0]), shape),
            "cosine_second": long_column(direction_cosine(path, rays[1]), shape),
        }
        for gradient, path in paths.items()
    ]
    return Piece(
        tables={"history": stacked(tables)},
        arrays={
            f"{variant}_tokens": data.tokens,
            f"{variant}_scores": token_scores(data),
            f"{variant}_optimal": optimal_token_set(data),
            f"{variant}_rays": torch.cat([ray.mT for ray in rays]),
            f"{variant}_offsets": torch.cat([separating_offsets(*pair) for pair in zip(problems, rays, strict=True)]),
            f"{variant}_paths": paths["exact"].squeeze(-1),
        },
    )


def checks(result: SweepResult) -> Sequence[Check]:
    """Where each start ends, whether it stays there, and whether the naive loop does."""
    last = result.configuration["steps"]

    def cosines(column: str, variant: str, step: int = last, gradient: str = "exact") -> np.ndarray:
        return result.column("history", column, variant=variant, gradient=gradient, step=step)

    late = min(_LATE, last)
    before, far = (cosines("cosine_second", "local", step)[4:] for step in (late, last))
    naive = [cosines("cosine_second", "local", step, "naive")[4:] for step in (late, last)]
    ends = {
        "third score .9: all six starts on the optimal ray": cosines("cosine_first", "global"),
        "third score 0: the first four starts on the optimal ray": cosines("cosine_first", "local")[:4],
        "third score 0: the last two starts on the ray of token 1": far,
    }
    return [
        *(Check(what, f"cosine > .999 at {last}", f"least {found.min():.5f}", Verdict.of(found.min() > 0.999),
                "a cosine is at most .999 in the end")
          for what, found in ends.items()),
        Check("third score 0: the last two starts stay on that ray", f"cosine does not fall after {late}",
              f"{before.min():.5f} at {late}, {far.min():.5f} at {last}", Verdict.of(bool((far >= before).all())),
              f"a cosine is lower in the end than at {late}"),
        Check("third score 0: the naive float32 loop leaves that ray", f"public code: it drifts away after {late}",
              f"{naive[0].min():.3f} at {late}, {naive[1].min():.3f} at {last}", Verdict.of(naive[1].max() < 0.999),
              "a cosine of the loop is at least .999 in the end"),
    ]  # fmt: skip


SINGLE_INPUT = Experiment(
    id="single-input",
    source="MMTS",
    title="One input, six starts",
    shows="all starts turn to the optimal token, or two of them to a locally optimal one, and stay there",
    seconds=3,
    default=SingleInput(),
    columns={
        "history": {
            "variant": "global: the third token scores .9, local: it scores 0",
            "gradient": "exact: saturation-proof, in float64; naive: float32 and automatic differentiation",
            "start": "c of the start p(0) = (0, c)",
            "step": "steps taken",
            "norm": "Euclidean norm of the prompt p",
            "cosine_first": "direction cosine to the max-margin prompt of token 0, the optimal one",
            "cosine_second": "direction cosine to the max-margin prompt of token 1",
        }
    },
    tasks=tasks,
    compute=compute,
    checks=checks,
)
