"""Which norm does an optimizer follow? Trained weights against the max-margin solutions in every norm of a list."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attsvm.attention import KeyQuery, Parameterization, Weights
from attsvm.data import Seed, random_sphere
from attsvm.data.checks import check_count, check_kind
from attsvm.descent import Optimizer, fit
from attsvm.norms import Entrywise, Frobenius, Gamma2, MaxEntry, Norm, Nuclear, Projective, Spectral, direction_cosine
from attsvm.norms.singular import SpectralOfRank
from attsvm.svm import AttentionSVM, SVMSolution, margin_efficiency, solve
from attsvm.sweep.manifest import to_plain
from attsvm.theory.diagnosis.tables import median, printed, table

_TRIED = (Frobenius(), Nuclear(), Spectral(), MaxEntry(), Entrywise(3.0), Projective(), Gamma2())
NORMS: Mapping[str, Norm] = {norm.name.removesuffix(" entrywise"): norm for norm in _TRIED}
"""The norms that are tried unless others are given; any norm that `solve` knows may be added."""

# What a norm must reach to be called the optimizer's own: a median efficiency, a share of the data sets, and a
# shortfall that falls with the steps or is down to round-off.
_EFFICIENCY, _SHARE, _DONE = 0.9, 0.5, 1e-6


def in_every_norm(
    weights: Tensor, problem: AttentionSVM, norms: Mapping[str, Norm]
) -> Iterator[tuple[str, SVMSolution, Tensor, Tensor]]:
    """The solution of `problem` in each norm, with cosine and efficiency of weights ``[*records, *batch, d, dq]``.

    The efficiency is the margin over the best one; NaN where the problem is infeasible or undecided.
    """
    for name, norm in norms.items():
        solution = solve(problem, norm)
        efficiency = margin_efficiency(weights, problem, norm, solution=solution)
        efficiency = torch.where(solution.solved, efficiency, torch.nan)
        yield name, solution, direction_cosine(weights, solution.weights), efficiency


@dataclass(frozen=True, eq=False)
class NormReport:
    """Efficiency and cosine of an optimizer's weights in every norm, and the norm that it follows, if one fits."""

    #: what was trained, in words
    optimizer: str
    parameterization: str
    norms: tuple[str, ...]  #: the names of the norms
    steps: tuple[int, ...]  #: the steps that were looked at
    #: ``[steps, norms, data sets]``; NaN where the SVM of what a run selected has no solution
    efficiency: Float[Tensor, "steps norms datasets"]
    cosine: Float[Tensor, "steps norms datasets"]
    largest_gap: float  #: relative duality gap of the solutions, the largest

    @cached_property
    def judged(self) -> Bool[Tensor, "datasets"]:
        """Data sets with a certified solution in every norm."""
        return ~self.efficiency[-1].isnan().any(0)

    @cached_property
    def wins(self) -> Int[Tensor, "steps norms"]:
        """In how many of them the efficiency in each norm is the largest; the last one wins of those level to 1e-6.

        Spectral norms of some rank come last: where they are level with the spectral norm, both have one solution.
        """
        kept = self.efficiency[:, :, self.judged]
        level = kept >= kept.amax(1, keepdim=True) - _DONE
        best = len(self.norms) - 1 - level.flip(1).to(torch.int64).argmax(1)
        return torch.stack([(best == place).sum(-1) for place in range(len(self.norms))], -1)

    @cached_property
    def medians(self) -> Float[Tensor, "steps norms"]:
        """Median efficiency over the data sets that are judged."""
        kept = self.efficiency[:, :, self.judged]
        return kept.median(-1).values if kept.shape[-1] else kept.sum(-1) * torch.nan

    @property
    def leader(self) -> str:
        """The norm that wins most data sets after the last step."""
        return self.norms[int(self.wins[-1].argmax())]

    @property
    def share(self) -> float:
        """The share of the judged data sets that it wins."""
        return float(self.wins[-1].max()) / max(int(self.judged.sum()), 1)

    @property
    def winner(self) -> str | None:
        """The norm that the optimizer follows; None if none of the list fits.

        It must win at least half of the data sets, with a median efficiency of at least .9 that rises with the steps.
        """
        first, *_, last = (1 - self.medians[:, self.norms.index(self.leader)]).tolist()
        fits = last <= 1 - _EFFICIENCY and (last < first or last < _DONE)
        return self.leader if fits and self.share >= _SHARE else None

    @property
    def sentence(self) -> str:
        """What was found, in a sentence or two."""
        place, count = self.norms.index(self.leader), int(self.judged.sum())
        trend = ", ".join(f"{value:.3f}" for value in self.medians[:, place].tolist())
        found = f"{self.leader} wins {int(self.wins[-1, place])} of {count} data sets; median efficiency {trend}"
        found += f" after {', '.join(f'{step:,}' for step in self.steps)} steps."
        left = self.judged.numel() - count
        rest = f" Data sets left out, as what was selected there has no certified solution: {left}." if left else ""
        if count == 0:
            return f"Nothing can be said.{rest}"
        if self.winner is not None:
            return f"It follows the {self.winner} norm: {found}{rest}"
        rises = bool(self.medians[-1, place] > self.medians[0, place])
        now = "wins fewer" if self.share < _SHARE else "still rises: it has not settled" if rises else "does not rise"
        needed = f"A norm fits that wins half of them with an efficiency that rises to {_EFFICIENCY:g}; this {now}."
        return f"After these steps no norm of the list fits: {found} {needed}{rest}"

    def to_json(self) -> str:
        """Medians, wins and the verdict."""
        cosine = self.cosine[:, :, self.judged].nanmedian(-1).values if bool(self.judged.any()) else self.medians
        plain = {
            "optimizer": self.optimizer, "parameterization": self.parameterization, "steps": self.steps,
            "norms": self.norms, "data_sets": self.judged.numel(), "judged": int(self.judged.sum()),
            "winner": self.winner, "leader": self.leader, "share": self.share, "wins": self.wins,
            "median_efficiency": self.medians, "median_cosine": cosine, "largest_gap": self.largest_gap,
            "sentence": self.sentence,
        }  # fmt: skip
        return json.dumps(to_plain(plain), indent=1)

    def __str__(self) -> str:
        columns = ("norm", "wins", *(f"efficiency after {step:,}" for step in self.steps), "least", "cosine")
        made = table(f"{self.optimizer} on {self.parameterization}", columns, right=columns[1:])
        for place, name in enumerate(self.norms):
            own = self.efficiency[-1, place, self.judged]
            made.add_row(
                name, str(int(self.wins[-1, place])), *(f"{value:.3f}" for value in self.medians[:, place].tolist()),
                f"{own.min():.3f}" if own.numel() else "-", median(self.cosine[-1, place, self.judged], 3),
            )  # fmt: skip
        return f"{printed(made)}\n{self.sentence}"


def identify_norm(
    optimizer: Optimizer,
    parameterization: Parameterization | None = None,
    *,
    norms: Mapping[str, Norm] | None = None,
    datasets: int = 24,
    n: int = 3,
    T: int = 4,
    d: int = 5,
    steps: int = 8000,
    seed: Seed = 0,
    progress: Callable[[int, int], None] | None = None,
) -> NormReport:
    """Which max-margin problem does an optimizer solve? A measurement on a panel of random data sets.

    Every data set is trained from PyTorch's default start; the SVM of what its run selects is solved, with a
    certificate, in every norm, and the margin of the trained weights is held against the best one. In the norm that an
    optimizer follows this margin efficiency tends to 1.

    Arguments:
        optimizer: any; `TorchOptimizer` for those of PyTorch. Steps should fall, as those of `InverseSqrt` do: too
            large ones never settle, too small ones do not saturate attention.
        parameterization: `Weights()` (default) or `KeyQuery(rank)`.
        norms: by name; `theory.identify.NORMS` by default, and on K and Q of a rank below min(n, d) the spectral norm
            of that rank.
        datasets, n, T, d, seed: of the panel.
        steps: of training; a quarter, half and all of them are looked at.
        progress: called with (steps done, steps).
    """
    kind = parameterization or Weights()
    check_kind(optimizer, Optimizer, "optimizer", "an optimizer such as Adam(0.1)")
    steps, marks = check_count(steps, "steps", 4), (steps // 4, steps // 2, steps)
    data = random_sphere(n=n, T=T, d=d, batch=check_count(datasets, "datasets"), seed=seed)
    if norms is None:
        norms = dict(NORMS)
        if isinstance(kind, KeyQuery) and 1 < (kind.rank or d) < min(n, d):
            norms[f"spectral of rank {kind.rank}"] = SpectralOfRank(kind.rank or d)
    if not isinstance(norms, Mapping) or not norms or not all(isinstance(norm, Norm) for norm in norms.values()):
        raise ValueError(f"norms must map names to norms, at least one; got {norms!r}")
    run = fit(
        data, parameterization=kind, optimizer=optimizer, steps=steps, record=marks, keep=("weights",), seed=seed,
        progress=progress,
    )  # fmt: skip
    assert run.history.weights is not None
    problem = AttentionSVM(data, run.selected)
    names, solutions, cosines, efficiencies = zip(*in_every_norm(run.history.weights, problem, norms), strict=True)
    gaps = [each.certificate.relative_gap.masked_fill(~each.solved, 0.0) for each in solutions]
    return NormReport(
        repr(optimizer), repr(kind), names, tuple(run.history.step.tolist()), torch.stack(efficiencies, 1),
        torch.stack(cosines, 1), float(torch.stack(gaps).amax()),
    )  # fmt: skip
