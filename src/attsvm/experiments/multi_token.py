"""[TaSVM, generalized SVM] a ReLU head keeps several tokens: trained weights against W_fin + C W_svm.

Four protocols on the same draws:

- **paper**: normalized steps of 0.1; O_i = tokens of probability at least 1e-3; a draw is rejected if a probability
  lies in (1e-6, 1e-3], if none is at most 1e-6, or if the SVM is infeasible. Draws go on until enough are accepted.
- **public constant**: the same with ``grad / (||grad|| + 1e-9)``, as the public code has it; a fixed number of draws.
- **decaying**: steps of `decaying_step` / sqrt(t + 1). A head with kinks holds a run at a kink, where the gradient does
  not vanish; normalized steps then bounce there, and the probability of a token that is to be dropped falls only like
  the inverse of the distance walked, so that it would practically never reach 1e-6. Here the trend decides instead:
  with s ~ (distance)^k from a sixteenth of the run to its end, a token is dropped if k < `falling`, kept if k >
  `steady`, and the draw is ambiguous if k lies between.
- **split**: the runs that the paper's protocol accepts, among a fixed number of draws, go on with the gradient split
  into its finite and its growing part (`TwoScales`), exact at any norm. They are rejected if a kept token falls below
  1e-3 or a dropped one rises above 1e-6. An input is *silent* where every ReLU is 0 at a recorded step, so that it has
  no gradient: nothing then separates the tokens that it drops.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from attsvm.attention import ReluHead, TwoScales
from attsvm.data import TokenDataset, random_sphere
from attsvm.descent import InverseSqrt, NormalizedGradientDescent, Optimizer, Run, TwoPartDescent, fit
from attsvm.descent.optimizers.base import State, Step
from attsvm.experiments.base import Check, Study, allowance, claim, reported
from attsvm.experiments.common import FARTHER_APART, recorded, so_far, streams_apart
from attsvm.norms import direction_cosine
from attsvm.sweep import Done, Piece, SweepResult, Task, cut
from attsvm.theory import generalized_components

PROTOCOLS = ("paper", "public constant", "decaying", "split")
ACCEPTED = "accepted"
AMBIGUOUS = "a probability between the thresholds, or a trend between"
NOTHING_DROPPED = "no token dropped"
CHANGED = "other tokens kept when followed on"
INFEASIBLE = "SVM or finite component without a solution"
ALL_POSITIVE = "labels all positive (skipped)"
OUTCOMES = (ACCEPTED, ALL_POSITIVE, AMBIGUOUS, NOTHING_DROPPED, CHANGED, INFEASIBLE)
_PUBLIC = {
    "distance_generalized": (0.035, 0.017, 0.011, 0.006),
    "distance_svm": (0.07, 0.043, 0.015, 0.009),
    "distance_one_token": (0.15, 0.145, 0.135, 0.12),
}
_PUBLIC_SHARES = (0.15, 0.11, 0.04, 0.014)
_MEASURED = (*_PUBLIC, "distance_outside", "silent", "largest_masked", "kept")
_CONSTANT = 1e-9
_NEAR = 1e-3
_JUDGED = 5  # draws of a kind


@dataclass(frozen=True, kw_only=True)
class MultiToken(Study, identity="multi-token"):
    """Random data on the sphere, head 1^T relu(V^T x) with V Gaussian of Frobenius norm 1, W from PyTorch's start."""

    n: int = 3
    T: int = 4
    dimensions: tuple[int, ...] = (4, 6, 8, 10)
    accepted: int = 500  # instances wanted for each d by the paper's protocol, from at most `cap` draws
    steps: int = 2001
    chunk_size: int = 2000
    cap: int = 200_000
    draws: int = 2000  # for each d, by the other protocols
    decaying_steps: int = 32_000
    decaying_step: float = 2.0
    split_steps: int = 1000  # of the protocol with the split gradient, after those of the paper
    falling: float = -0.3
    steady: float = -0.1
    threshold: float = 1e-3
    ambiguous: float = 1e-6

    runs_field = "accepted"
    smaller: ClassVar = {"accepted": 20, "draws": 100, "chunk_size": 500, "decaying_steps": 8000}

    def with_runs(self, runs: int) -> Self:
        """As many accepted draws for each d, and four times as many draws of the other protocols."""
        return super().with_runs(runs).with_values(draws=4 * runs)

    def tasks(self) -> Sequence[Task]:
        paper = [_task("paper", d, 0, self.chunk_size) for d in self.dimensions]
        others, chunks = product(PROTOCOLS[1:], self.dimensions), cut(self.draws, self.chunk_size)
        return [*paper, *(_task(protocol, d, *chunk) for protocol, d in others for chunk in chunks)]

    def more(self, done: Sequence[Done]) -> Sequence[Task]:
        """As many further chunks as the share accepted so far calls for, up to the cap."""
        further = []
        for d in self.dimensions:
            drawn, accepted = so_far(done, _named("paper", d, ACCEPTED), protocol="paper", d=d)
            if accepted < self.accepted and drawn < self.cap:
                rate = max(accepted, 1) / drawn
                wanted = min(int(np.ceil((self.accepted - accepted) / rate)), self.cap - drawn)
                further += [_task("paper", d, drawn + a, drawn + b) for a, b in cut(wanted, self.chunk_size)]
        return further

    def compute(self, task: Task, device: torch.device) -> Piece:
        """Draw, train, decide what each run keeps, compare the accepted ones with the three predictions."""
        protocol, d, numbers = task.values["protocol"], task.values["d"], np.array(self.numbers(task))
        data, head, places = self._drawn(task, device)
        run = self._trained(protocol, data, head, numbers[places])
        attention, weights = run.attention, run.weights
        if protocol == "decaying":
            kept, ambiguous = self._by_trend(run)
            dropped = ~kept
        else:
            kept, dropped = attention >= self.threshold, attention <= self.ambiguous
            ambiguous = (attention > self.ambiguous) & (attention <= self.threshold)
        outcome = np.full(len(numbers), ALL_POSITIVE, dtype=object)
        unclear, fewer = (mask.any(-1).any(-1).cpu() for mask in (ambiguous, dropped))
        outcome[places] = np.where(unclear, AMBIGUOUS, np.where(fewer, ACCEPTED, NOTHING_DROPPED))
        candidates = torch.from_numpy(np.flatnonzero(outcome[places] == ACCEPTED)).to(device)
        values: dict[str, np.ndarray] = {name: np.full(len(numbers), np.nan) for name in _MEASURED}
        silent = torch.full((len(candidates),), torch.nan)
        if protocol == "split" and len(candidates):
            weights, attention = weights.clone(), attention.clone()
            own = ReluHead(head.matrix[candidates])
            further = self._followed(data[candidates], own, weights[candidates], kept[candidates])
            weights[candidates], attention[candidates] = further.weights, further.attention
            lost = (attention < self.threshold) & kept | (attention > self.ambiguous) & ~kept
            changed = lost.any(-1).any(-1)[candidates]
            outcome[places[candidates[changed].cpu().numpy()]] = CHANGED
            silent = _silent(data[candidates], own, further, kept[candidates])[~changed].double()
            candidates = candidates[~changed]
        if len(candidates):
            mine, own_kept = weights[candidates], kept[candidates]
            parts = generalized_components(data[candidates], attention[candidates], mine, selected_set=own_kept)
            solved = (parts.finite_solution.solved & parts.svm_solution.solved).cpu().numpy()
            rows = places[candidates.cpu().numpy()]
            outcome[rows[~solved]] = INFEASIBLE
            measured = {
                "distance_generalized": 1 - parts.cosine,
                "distance_svm": 1 - parts.svm_cosine,
                "distance_one_token": 1 - parts.one_token_cosine,
                "distance_outside": 1 - direction_cosine(mine - parts.finite_component, parts.svm_component),
                "silent": silent,
                "largest_masked": attention[candidates].masked_fill(own_kept, 0.0).amax((-1, -2)),
                "kept": own_kept.sum((-1, -2)).double(),
            }
            for name, found in measured.items():
                values[name][rows[solved]] = found.cpu().numpy()[solved]
        counts = {_named(protocol, d, reason): int((outcome == reason).sum()) for reason in OUTCOMES}
        told = {"protocol": protocol, "d": d, "draw": numbers, "outcome": outcome.astype(str)}
        return Piece({"draws": {**told, **values}}, counts=counts)

    def _drawn(self, task: Task, device: torch.device) -> tuple[TokenDataset, ReluHead, np.ndarray]:
        """The draws whose labels are not all positive, their heads, and their places among all."""
        seeds, d = self.seeds(task), task.values["d"]
        data = random_sphere(n=self.n, T=self.T, d=d, batch=len(seeds), seed=seeds)
        matrices = np.stack([stream.standard_normal((d, d)) for stream in streams_apart(seeds)])
        matrices /= np.linalg.norm(matrices, axis=(1, 2), keepdims=True)
        places = np.flatnonzero((data.labels < 0).any(-1).numpy())
        return data[places].with_head(None).to(device), ReluHead(torch.from_numpy(matrices[places]).to(device)), places

    def _trained(self, protocol: str, data: TokenDataset, head: ReluHead, elements: np.ndarray) -> Run:
        decaying = protocol == "decaying"
        steps, sizes = (self.decaying_steps, InverseSqrt(self.decaying_step)) if decaying else (self.steps, 0.1)
        public = protocol == "public constant"
        return fit(
            data, head, optimizer=_PublicDescent(0.1) if public else NormalizedGradientDescent(sizes), steps=steps,
            record=[steps // 16, steps] if decaying else [steps], keep=("attention",) if decaying else (),
            seed=[(self.seed + FARTHER_APART, int(element)) for element in elements],
        )  # fmt: skip

    def _followed(self, data: TokenDataset, head: ReluHead, weights: Tensor, kept: Tensor) -> Run:
        """Runs of the paper's protocol go on with the split gradient."""
        steps = self.split_steps
        return fit(
            data, head, parameterization=TwoScales(data, kept), optimizer=TwoPartDescent(0.25, 0.1), steps=steps,
            record=[0, steps // 4, steps // 2, steps], keep=("attention",),
            initial={"finite": weights, "growing": torch.zeros_like(weights)},
        )  # fmt: skip

    def _by_trend(self, run: Run) -> tuple[Tensor, Tensor]:
        """Masks of kept and of ambiguous tokens, from k in s ~ (distance walked)^k; the distance grows like sqrt(t)."""
        history, steps = recorded(run, "attention"), run.history.step
        before, after = (history[place].clamp(min=1e-300).log() for place in (0, -1))
        slope = (after - before) / (0.5 * float(np.log(int(steps[-1]) / int(steps[0]))))
        # A token that was gone before the trend was measured is dropped, whatever its trend.
        gone = history[-1] <= self.ambiguous
        return (slope > self.steady) & ~gone, (slope <= self.steady) & (slope >= self.falling) & ~gone

    def checks(self, result: SweepResult) -> Sequence[Check]:
        """Means beside the public ones, medians, the order of the three predictions, and what each protocol loses."""
        dimensions = self.dimensions
        full = dimensions == MultiToken.dimensions and self.accepted >= MultiToken.accepted
        few = f"asked of {MultiToken.accepted} accepted draws for each d of the paper"
        words = dict(zip(_PUBLIC, ("W_fin + C W_svm", "W_svm", "one-token SVM"), strict=True))

        def medians(protocol: str) -> list[list[float]]:
            return [[float(np.median(used(result, column, d, protocol))) for d in dimensions] for column in words]

        def against_public(what: str, column: str, protocol: str) -> Check:
            values = [used(result, column, d, protocol) for d in dimensions]
            met = full and all(
                each.mean() <= public + allowance(each.std(), len(each), MultiToken.accepted)
                for each, public in zip(values, _PUBLIC[column], strict=True)
            )
            return claim(f"1 - cosine to {words[column]}{what}, means", "public about " + _listed(_PUBLIC[column]),
                         _listed([float(each.mean()) for each in values]), met,
                         "a mean exceeds the public one by more than three standard errors", enough=full,
                         why=few)  # fmt: skip

        def exact(what: str, kind: float) -> Check:
            far = followed(result, kind)
            found = f"; median {np.median(far):.1e}, largest {far.max():.1e}" if len(far) else ""
            return claim(f"split gradient, {what}: 1 - cosine to W_svm outside S_fin", "tends to 0 (conjecture)",
                         f"{(far <= _NEAR).sum()} of {len(far)} at .001 or less{found}", (far <= _NEAR).all(),
                         "one is above .001", enough=len(far) >= _JUDGED or (far > _NEAR).any(),
                         why=f"asked of {_JUDGED} draws")  # fmt: skip

        middle, alone = medians("paper"), medians("decaying")
        nearest = min(
            np.mean(used(result, "distance_generalized", d) < used(result, "distance_svm", d)) for d in dimensions
        )
        paper, decaying = ([share_accepted(result, d, name) for d in dimensions] for name in ("paper", "decaying"))
        accepted = [len(used(result, "draw", d)) for d in dimensions]
        return [
            *(against_public("", column, "paper") for column in words),
            against_public(" with the public 1e-9", "distance_generalized", "public constant"),
            claim("medians: generalized, SVM alone, one token", "in this order for every d (conjecture)",
                  "; ".join(map(_listed, middle)) + f"; generalized nearer than SVM alone on {nearest:.0%} or more",
                  all(a < b < c for a, b, c in zip(*middle, strict=True)),
                  "two of them are in another order for a d", enough=full, why=few),
            claim("decaying steps: medians, generalized and SVM alone", "in this order for every d (conjecture)",
                  f"{_listed(alone[0])}; {_listed(alone[1])}",
                  all(a < b for a, b in zip(alone[0], alone[1], strict=True)),
                  "the generalized one is not smaller for a d", enough=full, why=few),
            exact("every input that drops a token has a gradient", 0.0),
            exact("an input that drops a token is silent", 1.0),
            reported("share accepted, paper's protocol",
                     f"(public {_listed(_PUBLIC_SHARES)}: runs stand still at 1e-9)", _listed(paper)),
            claim("share accepted, decaying steps", "more than by the paper's protocol for every d", _listed(decaying),
                  all(a > b for a, b in zip(decaying, paper, strict=True)),
                  "it is not larger than that of the paper's protocol for a d"),
            claim("accepted instances, paper's protocol", f"{self.accepted} for each d", " ".join(map(str, accepted)),
                  min(accepted) >= self.accepted, "the draws came to their cap before for a d"),
        ]  # fmt: skip


@dataclass(frozen=True)
class _PublicDescent(Optimizer):
    """``W <- W - step_size * grad / (||grad||_F + 1e-9)``: once the gradient is that small, the run stands still."""

    step_size: float = 0.1

    def step(self, now: Step, state: State) -> tuple[dict[str, Tensor], State]:
        moved = {}
        for name, value in now.parameters.items():
            gradient = now.gradients[name]
            share = 1 / (1 + (np.log(_CONSTANT) - gradient.log_norm()).exp())
            moved[name] = value - now.spread(now.size * share, name) * gradient.normalized()
        return moved, state


def _silent(data: TokenDataset, head: ReluHead, run: Run, kept: Tensor) -> Tensor:
    """Whether an input that drops a token has no gradient at a recorded step: every ReLU is 0."""
    mixed = torch.einsum("rbnt,bntd->rbnd", recorded(run, "attention"), data.tokens)
    dead = (mixed @ head.matrix <= 0).all(-1)
    return (dead & (~kept).any(-1)).any(-1).any(0)


def _task(protocol: str, d: int, first: int, last: int) -> Task:
    name = f"{protocol.replace(' ', '-')}-d{d:02d}-{first:06d}"
    return Task(name, {"protocol": protocol, "d": d, "first": first, "last": last})


def _named(protocol: str, d: int, outcome: str) -> str:
    return f"{protocol}, d={d}: {outcome}"


def used(result: SweepResult, column: str, d: int, protocol: str = "paper") -> np.ndarray:
    """A column of the accepted draws; for the paper's protocol only as many as were asked for."""
    values = result.column("draws", column, protocol=protocol, d=d, outcome=ACCEPTED)
    return values[: result.configuration["accepted"]] if protocol == "paper" else values


def share_accepted(result: SweepResult, d: int, protocol: str) -> float:
    """Accepted among the draws that were not skipped for their labels."""
    outcomes = result.column("draws", "outcome", protocol=protocol, d=d)
    return float((outcomes == ACCEPTED).sum() / (outcomes != ALL_POSITIVE).sum())


def followed(result: SweepResult, silent: float, column: str = "distance_outside") -> np.ndarray:
    """A column of the runs that went on with the split gradient; none where an earlier version computed the result."""
    if "silent" not in result.tables["draws"].column_names:
        return np.empty(0)
    return result.column("draws", column, protocol="split", outcome=ACCEPTED, silent=silent)


def _listed(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.3g}" for value in values)
