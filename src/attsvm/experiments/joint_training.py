"""[MMTS, joint training] Prompt and head together: every input supports the label margin, or one of them does not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attsvm.data import TokenDataset, example, starting_points
from attsvm.descent import NormalizedGradientDescent, fit
from attsvm.experiments.base import Check, Experiment, Verdict
from attsvm.experiments.common import path_steps, stacked
from attsvm.experiments.naive import naive_descent
from attsvm.norms import direction_cosine
from attsvm.sweep import Configuration, Piece, SweepResult, Task
from attsvm.theory import joint_prediction

_PROMPT_ADDITIVE = 1e-19
"""What the public code of this figure adds to the norm of the prompt's gradient; 1e-9 to the head's."""
_LATE = 200  # after so many steps the public float32 run leaves the relaxed solution


@dataclass(frozen=True, kw_only=True)
class JointTraining(Configuration):
    """From p(0) = (0, -1) and v(0) = (-1, 0), each normalized by its own gradient."""

    steps: int = 1000
    step_size: float = 0.1


def tasks(configuration: JointTraining) -> Sequence[Task]:
    """The data where all inputs support the label margin, and those where the third does not."""
    return [Task(variant, {"variant": variant}) for variant in ("tight", "relaxed")]


def compute(configuration: JointTraining, task: Task, device: torch.device) -> Piece:
    """Train prompt and head with the exact gradient and in the naive loop; compare with both SVMs of the theory."""
    variant = task.values["variant"]
    name, steps = f"joint-training-{variant}", path_steps(configuration.steps)
    data, starts = example(name), starting_points(name)
    assert starts.head is not None
    prompt, head = starts.weights[0], starts.head[0]
    told: dict[str, Any] = {"steps": configuration.steps, "record": steps}
    rule, kept = NormalizedGradientDescent(configuration.step_size), ("weights", "parameters")
    run = fit(
        data.to(device), head.to(device), optimizer=rule, initial=prompt.to(device), keep=kept, train_head=True, **told
    )
    naive = naive_descent(
        data, prompt[:, 0], step_size=configuration.step_size, additive=_PROMPT_ADDITIVE, initial_head=head, **told
    )
    prediction = joint_prediction(data, run.selected.cpu())
    assert run.history.weights is not None
    assert run.history.parameters is not None
    assert naive.heads is not None
    paths = {
        "exact": (run.history.weights.cpu().squeeze(-1), run.history.parameters["head"].cpu()),
        "naive": (naive.prompts, naive.heads),
    }
    tables = []
    for gradient, (prompts, heads) in paths.items():
        softmax, logistic = _probabilities(data, prompts, heads, run.selected.cpu())
        tables.append(
            {
                "variant": variant,
                "gradient": gradient,
                "step": steps,
                "cosine_prompt": direction_cosine(prompts.unsqueeze(-1), prediction.weights),
                "cosine_head": direction_cosine(heads.unsqueeze(-1), prediction.head.unsqueeze(-1)),
                "softmax_probability": softmax,
                "logistic_probability": logistic,
                "norm_prompt": torch.linalg.vector_norm(prompts, dim=-1),
                "norm_head": torch.linalg.vector_norm(heads, dim=-1),
            }
        )
    return Piece(
        tables={"history": stacked(tables)},
        arrays={
            f"{variant}_tokens": data.tokens,
            f"{variant}_labels": data.labels,
            f"{variant}_prompt_ray": prediction.weights[:, 0],
            f"{variant}_head_ray": prediction.head,
            f"{variant}_prompts": paths["exact"][0],
            f"{variant}_heads": paths["exact"][1],
        },
    )


def _probabilities(data: TokenDataset, prompts: Tensor, heads: Tensor, selected: Tensor) -> tuple[Tensor, Tensor]:
    """Attention on the selected tokens and the probability of the right label: means over the inputs, by record."""
    attention = torch.softmax(torch.einsum("itd,rd->rit", data.tokens, prompts), -1)
    outputs = torch.einsum("rit,itd,rd->ri", attention, data.values, heads)
    chosen = attention.gather(-1, selected.expand(len(prompts), -1).unsqueeze(-1)).squeeze(-1)
    return chosen.mean(-1), torch.sigmoid(data.labels * outputs).mean(-1)


def checks(result: SweepResult) -> Sequence[Check]:
    """Both limits of the prompt, the limit of the head, both probabilities, and the naive loop."""
    last = result.configuration["steps"]
    late = min(_LATE, last)

    def value(column: str, variant: str, step: int = last, gradient: str = "exact") -> float:
        return float(result.column("history", column, variant=variant, gradient=gradient, step=step)[0])

    prompts = {variant: value("cosine_prompt", variant) for variant in ("tight", "relaxed")}
    heads = np.array([value("cosine_head", variant) for variant in prompts])
    settled = value("cosine_prompt", "relaxed", late)
    naive = [value("cosine_prompt", "relaxed", step, "naive") for step in (late, last)]
    least = np.array([
        [value(f"{kind}_probability", variant) for variant in prompts] for kind in ("softmax", "logistic")
    ]).min(1)  # fmt: skip
    limits = [result.arrays[f"{variant}_prompt_ray"] for variant in prompts]
    expected = np.array([[4 / 3, 1 / 3], [1.0, 0.0]])
    return [
        Check("the SVMs of the theory", "(4/3, 1/3) tight, (1, 0) relaxed", "; ".join(map(_pair, limits)),
              Verdict.of(bool(np.abs(np.stack(limits) - expected).max() < 1e-9)), "a coordinate is off by 1e-9"),
        *(Check(f"{variant}: p to {limit}", f"cosine > .999 at {last}", f"{prompts[variant]:.6f}",
                Verdict.of(prompts[variant] > 0.999), "the cosine is at most .999 in the end")
          for variant, limit in (("tight", "(4/3, 1/3)"), ("relaxed", "(1, 0)"))),
        Check("relaxed: p holds there", f"cosine does not fall after {late}",
              f"{settled:.6f} at {late}, {prompts['relaxed']:.6f} at {last}",
              Verdict.of(prompts["relaxed"] >= settled), f"the cosine is lower in the end than at {late}"),
        Check("relaxed: the naive float32 loop leaves it", f"public code: it leaves after {late}",
              f"{naive[0]:.4f} at {late}, {naive[1]:.4f} at {last}", Verdict.of(naive[1] < min(0.999, naive[0])),
              f"the cosine of the loop is at least .999 in the end, or not lower than at {late}"),
        Check("v to (0, 1), both", f"cosine > .999 at {last}", f"{heads[0]:.6f}, {heads[1]:.6f}",
              Verdict.of(heads.min() > 0.999), "a cosine is at most .999 in the end"),
        Check("softmax and logistic probabilities, both", "to 1", f"at least {least[0]:.6f}, {least[1]:.6f}",
              Verdict.of(least.min() > 0.999), "one of them is at most .999 in the end"),
    ]  # fmt: skip


def _pair(vector: np.ndarray) -> str:
    return f"({vector[0]:.6f}, {vector[1] + 0.0:.6f})"


JOINT_TRAINING = Experiment(
    id="joint-training",
    source="MMTS",
    title="Prompt and head together",
    shows="p turns to the SVM of the selected tokens, or to the relaxed one where an input supports no label margin",
    seconds=3,
    default=JointTraining(),
    columns={
        "history": {
            "variant": "tight: all inputs support the label margin; relaxed: the third does not",
            "gradient": "exact: saturation-proof, in float64; naive: float32 and automatic differentiation",
            "step": "steps taken",
            "cosine_prompt": "direction cosine of p to the solution that the theory predicts",
            "cosine_head": "direction cosine of v to the label SVM",
            "softmax_probability": "attention on the token selected in the end, mean over the inputs",
            "logistic_probability": "probability of the right label, mean over the inputs",
            "norm_prompt": "Euclidean norm of p",
            "norm_head": "Euclidean norm of v",
        }
    },
    tasks=tasks,
    compute=compute,
    checks=checks,
    imports=(),
)
