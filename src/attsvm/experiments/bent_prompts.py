"""[MMTS] Prompts whose way bends: trained together with a head, or on inputs with unequal scores, by three losses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attsvm.attention import Exponential, Linear, Logistic, Loss
from attsvm.data import TokenDataset, example, starting_points
from attsvm.data.dataset import together
from attsvm.descent import NormalizedGradientDescent, fit
from attsvm.experiments.base import Check, Study, claim
from attsvm.experiments.common import long_table, path_steps, recorded, stacked
from attsvm.experiments.naive import naive_descent
from attsvm.norms import direction_cosine
from attsvm.svm import AttentionSVM, solve
from attsvm.sweep import Piece, SweepResult, Task
from attsvm.theory import joint_prediction

_PROMPT_ADDITIVE = 1e-19
"""What the public code of joint training adds to the norm of the prompt's gradient; 1e-9 to the head's."""
_LATE = 200  # after so many steps the public float32 run leaves the relaxed solution

_LOSSES: dict[str, Loss] = {"linear": Linear(), "logistic": Logistic(), "exponential": Exponential()}
_FIGURE = 1000  # the paper's runs with different losses end after so many steps, and so do the naive ones here
_DELAYED, _LONG = 300, 20_000
"""With C = 100 the second input alone pulls for so many steps; so many bring p near to (1, 0)."""


@dataclass(frozen=True, kw_only=True)
class JointTraining(Study, identity="joint-training"):
    """Prompt and head from p(0) = (0, -1) and v(0) = (-1, 0), each normalized by its own gradient.

    Every input supports the label margin (tight), or the third does not (relaxed).
    """

    steps: int = 1000
    step_size: float = 0.1
    imports = ()

    def tasks(self) -> Sequence[Task]:
        return [Task(variant, {"variant": variant}) for variant in ("tight", "relaxed")]

    def compute(self, task: Task, device: torch.device) -> Piece:
        """Train prompt and head with the exact gradient and in the naive loop; compare with both SVMs of the theory."""
        variant, steps = task.values["variant"], path_steps(self.steps)
        name = f"joint-training-{variant}"
        data, starts = example(name), starting_points(name)
        assert starts.head is not None
        prompt, head = starts.weights[0], starts.head[0]
        told: dict[str, Any] = {"steps": self.steps, "record": steps}
        run = fit(
            data.to(device), head.to(device), optimizer=NormalizedGradientDescent(self.step_size), train_head=True,
            initial=prompt.to(device), keep=("weights", "parameters"), **told,
        )  # fmt: skip
        naive = naive_descent(
            data, prompt[:, 0], step_size=self.step_size, additive=_PROMPT_ADDITIVE, initial_head=head, **told
        )
        prediction = joint_prediction(data, run.selected.cpu())
        trained: Any = run.history.parameters
        paths = {"exact": (recorded(run).cpu().squeeze(-1), trained["head"].cpu()), "naive": naive}
        tables = []
        for gradient, (prompts, heads) in paths.items():
            softmax, logistic = _probabilities(data, prompts, heads, run.selected.cpu())
            tables.append(long_table(
                {"step": steps}, variant=variant, gradient=gradient,
                cosine_prompt=direction_cosine(prompts.unsqueeze(-1), prediction.weights),
                cosine_head=direction_cosine(heads.unsqueeze(-1), prediction.head.unsqueeze(-1)),
                softmax_probability=softmax, logistic_probability=logistic,
                norm_prompt=torch.linalg.vector_norm(prompts, dim=-1),
                norm_head=torch.linalg.vector_norm(heads, dim=-1),
            ))  # fmt: skip
        picture = {
            "tokens": data.tokens, "labels": data.labels, "prompt_ray": prediction.weights[:, 0],
            "head_ray": prediction.head, "prompts": paths["exact"][0], "heads": paths["exact"][1],
        }  # fmt: skip
        return Piece({"history": stacked(tables)}, {f"{variant}_{name}": value for name, value in picture.items()})

    def checks(self, result: SweepResult) -> Sequence[Check]:
        """Both limits of the prompt, the limit of the head, both probabilities, and the naive loop."""
        last, late = self.steps, min(_LATE, self.steps)
        ends = partial(result.column, "history", gradient="exact", step=last)  # a number for each variant
        prompts = dict(zip(("tight", "relaxed"), ends("cosine_prompt"), strict=True))
        heads = ends("cosine_head")
        settled = ends("cosine_prompt", variant="relaxed", step=late)[0]
        naive = [ends("cosine_prompt", variant="relaxed", gradient="naive", step=step)[0] for step in (late, last)]
        least = np.array([ends(f"{kind}_probability").min() for kind in ("softmax", "logistic")])
        limits = [result.arrays[f"{variant}_prompt_ray"] for variant in prompts]
        expected = np.array([[4 / 3, 1 / 3], [1.0, 0.0]])
        return [
            claim("the SVMs of the theory", "(4/3, 1/3) tight, (1, 0) relaxed",
                  "; ".join(f"({x:.6f}, {y + 0.0:.6f})" for x, y in limits),
                  np.abs(np.stack(limits) - expected).max() < 1e-9, "a coordinate is off by 1e-9"),
            *(claim(f"{variant}: p to {limit}", f"cosine > .999 at {last}", f"{prompts[variant]:.6f}",
                    prompts[variant] > 0.999, "the cosine is at most .999 in the end")
              for variant, limit in (("tight", "(4/3, 1/3)"), ("relaxed", "(1, 0)"))),
            claim("relaxed: p holds there", f"cosine does not fall after {late}",
                  f"{settled:.6f} at {late}, {prompts['relaxed']:.6f} at {last}", prompts["relaxed"] >= settled,
                  f"the cosine is lower in the end than at {late}"),
            claim("relaxed: the naive float32 loop leaves it", f"public code: it leaves after {late}",
                  f"{naive[0]:.4f} at {late}, {naive[1]:.4f} at {last}", naive[1] < min(0.999, naive[0]),
                  f"the cosine of the loop is at least .999 in the end, or not lower than at {late}"),
            claim("v to (0, 1), both", f"cosine > .999 at {last}", f"{heads[0]:.6f}, {heads[1]:.6f}",
                  heads.min() > 0.999, "a cosine is at most .999 in the end"),
            claim("softmax and logistic probabilities, both", "to 1", f"at least {least[0]:.6f}, {least[1]:.6f}",
                  least.min() > 0.999, "one of them is at most .999 in the end"),
        ]  # fmt: skip


def _probabilities(data: TokenDataset, prompts: Tensor, heads: Tensor, selected: Tensor) -> tuple[Tensor, Tensor]:
    """Attention on the selected tokens and the probability of the right label: means over the inputs, by record."""
    attention = torch.softmax(torch.einsum("itd,rd->rit", data.tokens, prompts), -1)
    outputs = torch.einsum("rit,itd,rd->ri", attention, data.values, heads)
    chosen = attention.gather(-1, selected.expand(len(prompts), -1).unsqueeze(-1)).squeeze(-1)
    return chosen.mean(-1), torch.sigmoid(data.labels * outputs).mean(-1)


@dataclass(frozen=True, kw_only=True)
class LossComparison(Study, identity="loss-comparison"):
    """From p(0) = 0; `scores` are the values of C, and the largest needs more `steps` than the paper's 1000."""

    scores: tuple[float, ...] = (*(float(score) for score in range(1, 11)), 100.0)
    steps: int = 20_000
    step_size: float = 0.1

    def tasks(self) -> Sequence[Task]:
        return [Task(loss, {"loss": loss}) for loss in _LOSSES]

    def compute(self, task: Task, device: torch.device) -> Piece:
        """All values of C side by side, with the exact gradient and, for the paper's 1000 steps, in the naive loop."""
        name, batch = task.values["loss"], len(self.scores)
        data = together([example("loss-comparison", C=score) for score in self.scores])
        steps, figure, loss = path_steps(self.steps), min(_FIGURE, self.steps), _LOSSES[name]
        run = fit(
            data.to(device), optimizer=NormalizedGradientDescent(self.step_size), loss=loss, initial="zeros",
            steps=self.steps, record=steps, keep=("weights",),
        )  # fmt: skip
        short, zero = [step for step in steps if step <= figure], torch.zeros(batch, 2, dtype=torch.float64)
        naive, _ = naive_descent(data, zero, steps=figure, record=short, loss=loss, step_size=self.step_size)
        solution = solve(AttentionSVM(data, torch.ones(batch, 2, dtype=torch.int64))).require_solved()
        paths = {"exact": (steps, recorded(run).cpu()), "naive": (short, naive.unsqueeze(-1))}
        tables = [
            long_table({"step": taken, "C": self.scores}, loss=name, gradient=gradient,
                       norm=torch.linalg.matrix_norm(path), cosine=direction_cosine(path, solution.weights))
            for gradient, (taken, path) in paths.items()
        ]  # fmt: skip
        arrays = {f"{name}_paths": paths["exact"][1].squeeze(-1)}
        if name == next(iter(_LOSSES)):  # the tokens and the solution are the same for all losses
            arrays |= {"tokens": data.tokens[0], "rays": solution.weights.squeeze(-1)}
        return Piece({"history": stacked(tables)}, arrays)

    def checks(self, result: SweepResult) -> Sequence[Check]:
        """All runs turn to (1, 0) at a distance that is derived; how C = 100 delays it; where the naive loop stops."""
        last, scores = self.steps, np.array(self.scores)
        figure, soon = min(_FIGURE, last), min(_DELAYED, last)
        delayed = 100.0 in scores
        exact = partial(result.column, "history", gradient="exact")
        moderate = exact("cosine", step=figure)[exact("C", step=figure) <= 10]
        end = exact("cosine", step=last)
        early = np.concatenate([exact("cosine", step=soon, C=100.0, loss=loss) for loss in ("logistic", "exponential")])
        stuck = exact("cosine", gradient="naive", step=figure, C=100.0, loss="logistic")
        beside = {loss: result.arrays[f"{loss}_paths"][-1, :, 1] for loss in _LOSSES}
        away = max(float(np.abs(found - finite_part(loss, scores)).max()) for loss, found in beside.items())
        return [
            claim("C <= 10, all losses: p to (1, 0)", f">= .999 at {figure}", f"least cosine {moderate.min():.5f}",
                  moderate.min() >= 0.999, "a cosine is below .999", enough=figure == _FIGURE),
            claim("every C and loss: p to (1, 0)", f"> .999 at {last:,}", f"least cosine {end.min():.5f}",
                  end.min() > 0.999, "a cosine is at most .999 in the end", enough=last >= _LONG),
            claim("every C and loss: second coordinate of p", "where the pulls of both inputs balance (derived)",
                  f"off by at most {away:.1e}; C = 100, logistic: {finite_part('logistic', np.array([100.0]))[0]:.2f}",
                  away < 1e-6, "it is off by 1e-6 from log(C l'(C) / l'(1)) / 2, with l' the slope of the loss, in the"
                  " end", enough=last >= _LONG),
            claim("C = 100, logistic and exponential: p first along (1, -1)", f"cosine .707 at {soon}",
                  ", ".join(f"{each:.5f}" for each in early), (np.abs(early - np.sqrt(0.5)) < 1e-3).all(),
                  "a cosine is off by .001 from the root of 1/2", enough=delayed),
            claim("C = 100, logistic: the naive float32 loop", f"public code: frozen at .707 to {figure}",
                  ", ".join(f"{each:.4f}" for each in stuck), (np.abs(stuck - np.sqrt(0.5)) < 1e-3).all(),
                  "its cosine is off by .001 from the root of 1/2 in the end", enough=delayed and figure == _FIGURE),
        ]  # fmt: skip


def finite_part(loss: str, scores: np.ndarray) -> np.ndarray:
    """The second coordinate of p in the limit: C |l'(C)| exp(-p_1 - p_2) = |l'(1)| exp(-p_1 + p_2) holds p there."""
    log_slopes = _LOSSES[loss].log_slope(torch.from_numpy(np.append(scores, 1.0))).numpy()
    return (np.log(scores) + log_slopes[:-1] - log_slopes[-1]) / 2
