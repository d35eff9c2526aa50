"""[MMTS] Prompts in the plane: one input, several inputs, and gradient against normalized gradient descent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from attsvm.attention import optimal_tokens
from attsvm.data import example, starting_points
from attsvm.descent import GradientDescent, NormalizedGradientDescent, Optimizer, fit
from attsvm.experiments.base import Check, DataSets, Study, claim
from attsvm.experiments.common import long_table, offsets_of, path_steps, recorded, scored, stacked
from attsvm.experiments.naive import PUBLIC_ADDITIVE, both_gradients
from attsvm.norms import direction_cosine
from attsvm.svm import AttentionSVM, solve
from attsvm.sweep import Piece, SweepResult, Task

_LATE = 200  # after so many steps the public float32 run leaves the ray of token 1
_ADDITIVE = 1e-12  # what the public code of the figure of several inputs adds to the norm of the gradient
_FIGURE = 200  # the paper's figure of the two step rules ends after so many steps
_QUOTED, _ROUNDED = 0.97, 0.005  # the paper's probability after gradient descent, and half a unit of its last digit
_RULES = ("gradient", "normalized")


@dataclass(frozen=True, kw_only=True)
class SingleInput(Study, identity="single-input"):
    """One input, six starts p(0) = (0, c): token 1 ties with its neighbour (global), or is locally optimal (local)."""

    steps: int = 1000
    step_size: float = 0.1

    def tasks(self) -> Sequence[Task]:
        return [Task(variant, {"variant": variant}) for variant in ("global", "local")]

    def compute(self, task: Task, device: torch.device) -> Piece:
        """Six runs with the exact gradient and six of the naive loop, against the rays of tokens 0 and 1."""
        variant, steps = task.values["variant"], path_steps(self.steps)
        name = f"single-input-{variant}"
        data, starts = example(name), starting_points(name).weights
        paths = both_gradients(data, starts, device, self.step_size, PUBLIC_ADDITIVE, steps=self.steps, record=steps)
        problems = [AttentionSVM(data, [token]) for token in (0, 1)]
        rays = [solve(problem).require_solved().weights for problem in problems]
        tables = [
            long_table(
                {"step": steps, "start": starts[:, 1, 0]},
                variant=variant, gradient=gradient, norm=torch.linalg.matrix_norm(path),
                cosine_first=direction_cosine(path, rays[0]), cosine_second=direction_cosine(path, rays[1]),
            )
            for gradient, path in paths.items()
        ]  # fmt: skip
        picture = {
            **scored(data),
            "rays": torch.cat([ray.mT for ray in rays]),
            "offsets": torch.cat([offsets_of(*pair) for pair in zip(problems, rays, strict=True)]),
            "paths": paths["exact"].squeeze(-1),
        }
        return Piece({"history": stacked(tables)}, {f"{variant}_{name}": value for name, value in picture.items()})

    def checks(self, result: SweepResult) -> Sequence[Check]:
        """Where each start ends, whether it stays there, and whether the naive loop does."""
        last, late = self.steps, min(_LATE, self.steps)
        first, second = (partial(result.column, "history", f"cosine_{name}") for name in ("first", "second"))
        (before, far), naive = (
            [second(variant="local", gradient=name, step=step)[4:] for step in (late, last)]
            for name in ("exact", "naive")
        )
        end = {"gradient": "exact", "step": last}
        ends = {
            "third score .9: all six starts on the optimal ray": first(variant="global", **end),
            "third score 0: the first four starts on the optimal ray": first(variant="local", **end)[:4],
            "third score 0: the last two starts on the ray of token 1": far,
        }
        return [
            *(claim(what, f"cosine > .999 at {last}", f"least {found.min():.5f}", found.min() > 0.999,
                    "a cosine is at most .999 in the end")
              for what, found in ends.items()),
            claim("third score 0: the last two starts stay on that ray", f"cosine does not fall after {late}",
                  f"{before.min():.5f} at {late}, {far.min():.5f} at {last}", (far >= before).all(),
                  f"a cosine is lower in the end than at {late}"),
            claim("third score 0: the naive float32 loop leaves that ray", f"public code: it drifts away after {late}",
                  f"{naive[0].min():.3f} at {late}, {naive[1].min():.3f} at {last}", naive[1].max() < 0.999,
                  "a cosine of the loop is at least .999 in the end"),
        ]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class MultiInput(DataSets, identity="multi-input"):
    """Three inputs of seven tokens; the first data set is the picture's, the others say whether it is typical."""

    steps: int = 1000
    step_size: float = 0.1

    def compute(self, task: Task, device: torch.device) -> Piece:
        """Six starts on every data set of the chunk, with the exact gradient and with the naive loop."""
        seeds, steps = self.seeds(task), path_steps(self.steps)
        data = example("multi-input", batch=len(seeds), seed=seeds)
        starts = starting_points("multi-input").weights
        spread = starts.unsqueeze(1).expand(-1, len(seeds), -1, -1)
        paths = both_gradients(data, spread, device, self.step_size, _ADDITIVE, steps=self.steps, record=steps)
        problem = AttentionSVM(data, optimal_tokens(data))
        solution = solve(problem)
        # Every tenth step while paths are kept step by step; a hundred data sets need no finer table.
        kept = [place for place, step in enumerate(steps) if step > 200 or step % 10 == 0 or step == self.steps]
        axes = {"step": np.array(steps)[kept], "start": starts[:, 0, 0], "dataset": self.numbers(task)}
        tables = [
            long_table(axes, gradient=gradient, norm=torch.linalg.matrix_norm(path[kept]),
                       cosine=direction_cosine(path[kept], solution.weights))
            for gradient, path in paths.items()
        ]  # fmt: skip
        picture = {}
        if task.values["first"] == 0:
            picture = {
                **{name: value[0] for name, value in scored(data).items()},
                "ray": solution.weights[0, :, 0],
                "offsets": offsets_of(problem, solution.weights)[0],
                "paths": paths["exact"][:, :, 0, :, 0],
            }
        counts = {"SVM of the optimal tokens not solved": int((~solution.solved).sum())}
        return Piece({"history": stacked(tables)}, picture, counts)

    def checks(self, result: SweepResult) -> Sequence[Check]:
        """All starts of the picture on the ray; the same for all data sets; the naive loop."""
        cosines = partial(result.column, "history", "cosine", step=self.steps)
        every, naive = (cosines(gradient=name) for name in ("exact", "naive"))
        picture = cosines(gradient="exact", dataset=0)
        return [
            claim("the picture's data set: all six starts on the SVM ray", f"converge to it (> .999 at {self.steps})",
                  f"least cosine {picture.min():.5f}", picture.min() > 0.999, "a cosine is at most .999 in the end"),
            claim("all data sets and starts: cosine above .99", "all",
                  f"{np.sum(every > 0.99)} of {len(every)}, least {every.min():.4f}", every.min() > 0.99,
                  "a cosine is at most .99 in the end"),
            claim("all data sets and starts: the naive float32 loop", "farther from the ray",
                  f"1 - cosine: median {np.median(1 - naive):.1e}, exact {np.median(1 - every):.1e}; worst"
                  f" {1 - naive.min():.1e}, exact {1 - every.min():.1e}", np.median(naive) < np.median(every),
                  "the median cosine of the loop is not below that of the exact gradient"),
        ]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class DescentVsNormalized(DataSets, identity="descent-vs-normalized"):
    """The data and the six starts of `multi-input`; the paper's curves start at p(0) = 0 on the first data set."""

    steps: int = 1000
    descent_step_size: float = 1.0
    normalized_step_size: float = 0.1

    def compute(self, task: Task, device: torch.device) -> Piece:
        """Both step rules from all six starts on every data set of the chunk."""
        seeds = self.seeds(task)
        steps = sorted({*range(0, min(_FIGURE, self.steps) + 1, 2), *range(_FIGURE, self.steps + 1, 20), self.steps})
        data = example("multi-input", batch=len(seeds), seed=seeds).to(device)
        starts = starting_points("multi-input").weights.to(device)
        initial = starts.unsqueeze(1).expand(-1, len(seeds), -1, -1)
        solution = solve(AttentionSVM(data, optimal_tokens(data)))
        rules: dict[str, Optimizer] = {
            "gradient": GradientDescent(self.descent_step_size),
            "normalized": NormalizedGradientDescent(self.normalized_step_size),
        }
        tables = []
        for rule, optimizer in rules.items():
            run = fit(data, optimizer=optimizer, initial=initial, steps=self.steps, record=steps)
            attention, weights = recorded(run, "attention"), recorded(run)
            tables.append(long_table(
                {"step": steps, "start": starts[:, 0, 0], "dataset": self.numbers(task)},
                rule=rule, probability=attention[..., 0].mean(-1), missing=attention[..., 1:].sum(-1).mean(-1),
                norm=torch.linalg.matrix_norm(weights), cosine=direction_cosine(weights, solution.weights),
            ))  # fmt: skip
        counts = {"SVM of the optimal tokens not solved": int((~solution.solved).sum())}
        return Piece({"history": stacked(tables)}, counts=counts)

    def checks(self, result: SweepResult) -> Sequence[Check]:
        """The paper's two numbers, from p(0) = 0 on all data sets."""
        step = min(_FIGURE, self.steps)
        at = partial(result.column, "history", step=step, start=0.0)
        gradient, normalized = (at("probability", rule=rule) for rule in _RULES)
        missing = at("missing", rule="normalized")
        lengths = [at("norm", rule=rule) for rule in _RULES]
        picture = int(np.flatnonzero(at("dataset", rule="gradient") == 0)[0])
        return [
            claim("gradient descent: softmax probability at the paper's last step", f"paper: about .97 at {step}",
                  f"picture {gradient[picture]:.4f}; least {gradient.min():.3f}, largest {gradient.max():.3f}",
                  gradient.min() - _ROUNDED <= _QUOTED <= gradient.max() + _ROUNDED,
                  "the paper's number, which has two digits, lies outside the range of our data sets"),
            claim("normalized descent: softmax probability at the paper's last step", f"paper: > .999 at {step}",
                  f"picture 1 - {missing[picture]:.1e}, worst 1 - {missing.max():.1e}", missing.max() < 1e-3,
                  "it is at most .999 on a data set"),
            claim("data sets on which normalized descent is ahead", "all",
                  f"{np.sum(normalized > gradient)} of {len(gradient)}", (normalized > gradient).all(),
                  "gradient descent has the larger probability on a data set"),
            claim("data sets on which normalized descent has the longer prompt", "all",
                  f"{np.sum(lengths[1] > lengths[0])} of {len(gradient)}; picture {lengths[0][picture]:.2f},"
                  f" {lengths[1][picture]:.2f}", (lengths[1] > lengths[0]).all(),
                  "gradient descent has the longer prompt on a data set"),
        ]  # fmt: skip
