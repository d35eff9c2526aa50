"""A head beside the max-margin solution of its own selections."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from attsvm.heads.analysis.problem import SelectionProblem, selection_problem
from attsvm.heads.analysis.selections import Choices
from attsvm.heads.analysis.settings import Settings
from attsvm.heads.analysis.views import SentenceView, delimiters
from attsvm.norms import Frobenius, Norm, Nuclear, direction_cosine
from attsvm.svm import (
    BlockDescent,
    NuclearInteriorPoint,
    Solver,
    Status,
    SVMSolution,
    margin_efficiency,
    solve,
)

_CONTRADICTION = "infeasible: equal queries ask for opposite choices between equal tokens, so no weights separate them"


@dataclass(frozen=True)
class Efficiency:
    """Normalized margins of W over the max margin.

    Arguments:
        smallest: of the worst query; at most 1, and 1 means max-margin. Negative where W does not separate.
        quantile: of the queries; may exceed 1, since the max margin is that of the worst query.
        median: the same for half of the queries.
    """

    smallest: float
    quantile: float
    median: float


@dataclass(frozen=True)
class Fit:
    """How weights W stand to W_mm, the max-margin solution of some selections in one norm.

    Numbers that do not exist (nothing solved, nothing held out) are NaN.

    Arguments:
        norm: its name.
        queries: selections in the problem.
        rows: constraints.
        status: how the solve ended, in a sentence.
        solved: whether the solution is certified to `accuracy`.
        gap: certified relative gap.
        seconds: of the solve.
        memory: bytes of the problem.
        max_margin: 1 / N(W_mm).
        efficiency: of W as it is.
        efficiency_projected: of W projected on the spans of the data.
        cosine: direction cosine of W and W_mm.
        cosine_projected: of the projected W and W_mm.
        in_span: norm of the projected W over that of W.
        spectrum: of W_mm.
        support_rows: constraints with a positive multiplier.
        support_queries: queries that have one.
        agreement: share of held-out queries on which W_mm selects what the head selects.
        margins: smallest margin of every query under the projected W, over the max margin.
    """

    norm: str
    queries: int
    rows: int
    status: str
    solved: bool
    gap: float
    seconds: float
    memory: int
    max_margin: float
    efficiency: Efficiency
    efficiency_projected: Efficiency
    cosine: float
    cosine_projected: float
    in_span: float
    spectrum: Spectrum
    support_rows: int
    support_queries: int
    agreement: float
    margins: tuple[float, ...]


def solver_for(norm: Norm, settings: Settings) -> Solver | None:
    """A solver that stops at the accuracy asked for; None leaves the choice to `solve`."""
    if isinstance(norm, Frobenius):
        return BlockDescent(accuracy=settings.accuracy, rounds=settings.rounds)
    if isinstance(norm, Nuclear):
        return NuclearInteriorPoint(accuracy=settings.accuracy)
    return None


@dataclass(frozen=True, eq=False)
class Solved:
    """The numbers, the problem they are about, and its solution (None where the limits ran out)."""

    fit: Fit
    problem: SelectionProblem
    solution: SVMSolution | None


def fit(
    weights: Float[Tensor, "D D"],
    views: Sequence[SentenceView],
    drawn: Choices,
    held_out: Choices,
    norm: Norm,
    settings: Settings,
) -> Solved:
    """Solve the problem of the selections `drawn` and hold `weights` against it."""
    made = selection_problem(views, drawn)
    began = time.perf_counter()
    seen = projected(weights, views, drawn)
    nothing = math.nan
    common: dict[str, Any] = {
        "norm": norm.name,
        "queries": len(drawn),
        "rows": made.rows,
        "memory": made.memory,
        "in_span": float(norm.value(seen) / norm.value(weights)) if bool(weights.any()) else nothing,
    }
    if made.contradiction() is not None:
        return Solved(_unknown(common, _CONTRADICTION, nothing, time.perf_counter() - began), made, None)
    solution = solve(made.problem, norm, solver=solver_for(norm, settings))
    if isinstance(norm, Frobenius) and solution.status is Status.NOT_CONVERGED:  # the rounds ran out
        gap = float(solution.certificate.relative_gap)
        return Solved(_unknown(common, str(solution.status), gap, solution.seconds), made, None)
    if not _usable(solution):
        return Solved(_unknown(common, str(solution.status), nothing, solution.seconds), made, solution)
    best, value = solution.weights, float(norm.value(solution.weights))
    support = solution.duals[made.sample] > 0
    numbers = Fit(
        **common,
        status=str(solution.status),
        solved=bool(solution.solved),
        gap=float(solution.certificate.relative_gap),
        seconds=round(solution.seconds, 3),
        max_margin=1 / value if value > 0 else nothing,
        efficiency=_efficiency(made, weights, norm, solution, settings.quantile),
        efficiency_projected=_efficiency(made, seen, norm, solution, settings.quantile),
        cosine=float(direction_cosine(weights, best)),
        cosine_projected=float(direction_cosine(seen, best)),
        spectrum=spectrum(best),
        support_rows=int(support.sum()),
        support_queries=int(support.any(-1).sum()),
        agreement=agreement(best, views, held_out),
        margins=tuple(round(margin, 6) for margin in _relative_margins(made, seen, norm, value).tolist()),
    )
    return Solved(numbers, made, solution)


def _unknown(common: dict[str, Any], status: str, gap: float, seconds: float) -> Fit:
    """A fit without a solution."""
    none = Efficiency(math.nan, math.nan, math.nan)
    return Fit(
        **common, status=status, solved=False, gap=gap, seconds=round(seconds, 3), max_margin=math.nan, efficiency=none,
        efficiency_projected=none, cosine=math.nan, cosine_projected=math.nan, spectrum=Spectrum((), 0, math.nan),
        support_rows=0, support_queries=0, agreement=math.nan, margins=(),
    )  # fmt: skip


def _usable(solution: SVMSolution) -> bool:
    """Whether the weights separate the selection, to whatever gap."""
    return bool(solution.certificate.relative_gap.isfinite()) and not bool(solution.infeasible)


def _relative_margins(made: SelectionProblem, weights: Tensor, norm: Norm, value: float) -> Tensor:
    """Smallest margin of each query under W / N(W), over the max margin 1 / N(W_mm)."""
    size = float(norm.value(weights))
    return made.query_margins(weights) / size * value if size > 0 else torch.zeros(len(made.drawn))


def _efficiency(
    made: SelectionProblem, weights: Tensor, norm: Norm, solution: SVMSolution, quantile: float
) -> Efficiency:
    if not bool(weights.any()):
        return Efficiency(math.nan, math.nan, math.nan)
    margins = _relative_margins(made, weights, norm, float(norm.value(solution.weights)))
    return Efficiency(
        smallest=float(margin_efficiency(weights, made.problem, norm, solution=solution)),
        quantile=float(margins.quantile(quantile)),
        median=float(margins.quantile(0.5)),
    )


Rule = Callable[[SentenceView, int], int]


def agreement(weights: Float[Tensor, "D D"], views: Sequence[SentenceView], drawn: Choices) -> float:
    """Share of queries where the largest logit of `weights` is on the selected token; NaN without queries."""
    if len(drawn) == 0:
        return float("nan")
    hits = 0
    for index in torch.unique(drawn.sentence).tolist():
        view, here = views[index], drawn.sentence == index
        positions = drawn.position[here]
        logits = (view.queries[positions] @ weights.T) @ view.keys.T
        best = logits.masked_fill(~view.candidates[positions], -torch.inf).argmax(-1)
        hits += int((best == drawn.selected[here]).sum())
    return hits / len(drawn)


def _last_delimiter(view: SentenceView, query: int) -> int:
    marks = torch.nonzero(delimiters(view.sentence) & view.candidates[query])
    return int(marks[-1]) if marks.numel() else -1


def _same(view: SentenceView, query: int) -> int:
    ids = view.sentence.ids
    others = torch.nonzero((ids == ids[query]) & view.candidates[query] & (torch.arange(len(ids)) != query))
    return int(others[0]) if others.numel() else -1


RULES: dict[str, Rule] = {
    "always the first token": lambda view, query: 0,
    "always itself": lambda view, query: query,
    "always the token before": lambda view, query: query - 1,
    "always the token after": lambda view, query: query + 1,
    "always the last delimiter": _last_delimiter,
    "another token of the same name": _same,
}
"""What a head could do without weights; -1 or a position outside the sentence never agrees."""


def best_rule(views: Sequence[SentenceView], drawn: Choices, held_out: Choices) -> tuple[str, float]:
    """The rule that agrees most often on `drawn`, and how often it agrees on `held_out` (NaN without queries)."""
    name = max(RULES, key=lambda name: _rule_agreement(RULES[name], views, drawn))
    return name, _rule_agreement(RULES[name], views, held_out)


def _rule_agreement(rule: Rule, views: Sequence[SentenceView], drawn: Choices) -> float:
    if len(drawn) == 0:
        return float("nan")
    triples = zip(drawn.sentence.tolist(), drawn.position.tolist(), drawn.selected.tolist(), strict=True)
    return sum(rule(views[index], position) == selected for index, position, selected in triples) / len(drawn)


# Directions whose share of the data is below this, as a singular value relative to the largest, are float32 rounding.
_SPAN = 1e-6
# A gap of g leaves singular values below about sqrt(g) of the largest undetermined; they do not count in a rank.
_RANK = 1e-2


@dataclass(frozen=True)
class Spectrum:
    """Singular values, largest first and relative to it.

    Arguments:
        values: relative singular values above 1e-6.
        rank: how many exceed 1e-2.
        effective_rank: exp of the entropy of the singular values over their sum (Roy and Vetterli, 2007).
    """

    values: tuple[float, ...]
    rank: int
    effective_rank: float


def spectrum(weights: Float[Tensor, "d dq"]) -> Spectrum:
    """The spectrum of a matrix.

    >>> spectrum(torch.diag(torch.tensor([3.0, 3.0, 0.0])).double())
    Spectrum(values=(1.0, 1.0), rank=2, effective_rank=2.0)
    """
    values = torch.linalg.svdvals(weights)
    total = float(values.sum())
    if total == 0:
        return Spectrum((), 0, 0.0)
    share = values / total
    entropy = -float(torch.special.xlogy(share, share).sum())
    relative = values / values[0]
    return Spectrum(
        values=tuple(round(value, 9) for value in relative[relative > _SPAN].tolist()),
        rank=int((relative > _RANK).sum()),
        effective_rank=round(float(torch.tensor(entropy, dtype=torch.float64).exp()), 9),
    )


def projected(weights: Float[Tensor, "D D"], views: Sequence[SentenceView], drawn: Choices) -> Float[Tensor, "D D"]:
    """The part of `weights` that the data can see: P_x W P_z.

    P_x projects on the span of the differences of candidates, P_z on that of the queries; margins do not change. The
    rest of W adds to its norm what no sample of this size could have taught.
    """
    width = weights.shape[0]
    left = torch.zeros(width, width, dtype=torch.float64)
    for index in torch.unique(drawn.sentence).tolist():
        view = views[index]
        positions = drawn.position[drawn.sentence == index]
        for candidates in torch.unique(view.candidates[positions], dim=0):
            tokens = view.keys[candidates]
            centred = tokens - tokens.mean(0)
            left += centred.T @ centred
    queries = torch.stack(
        [views[i].queries[k] for i, k in zip(drawn.sentence.tolist(), drawn.position.tolist(), strict=True)]
    )
    return _onto(left) @ weights @ _onto(queries.T @ queries)


def _onto(gram: Tensor) -> Tensor:
    """Projection on the span of the rows that have this Gram matrix."""
    values, vectors = torch.linalg.eigh(gram)
    kept = vectors[:, values > _SPAN**2 * values[-1].clamp(min=0.0)]
    return kept @ kept.T
