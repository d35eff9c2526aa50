"""How close weights are to the max-margin solution of some selections: margins, direction, spectrum, agreement."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from attsvm.heads.analysis.kinds import RULES, Rule
from attsvm.heads.analysis.problem import SelectionProblem, selection_problem
from attsvm.heads.analysis.selections import Choices, SentenceView
from attsvm.heads.analysis.settings import Settings
from attsvm.heads.report.records import Closeness, Efficiency, Spectrum
from attsvm.norms import Frobenius, Norm, Nuclear, direction_cosine
from attsvm.svm import (
    BlockDescent,
    NuclearInteriorPoint,
    Solver,
    SVMSolution,
    margin_efficiency,
    solve,
)

_CONTRADICTION = "infeasible: equal queries ask for opposite choices between equal tokens, so no weights separate them"
# Directions whose share of the data is below this, as a singular value relative to the largest, are float32 rounding.
_SPAN = 1e-6
# A gap of g leaves singular values below about sqrt(g) of the largest undetermined; they do not count in a rank.
_RANK = 1e-2


@dataclass(frozen=True, eq=False)
class Compared:
    """How close the weights are, the problem this is about, and its solution (None where there is none to use)."""

    closeness: Closeness
    problem: SelectionProblem
    solution: SVMSolution | None


def compare_with_max_margin(
    weights: Float[Tensor, "D E"],
    views: Sequence[SentenceView],
    drawn: Choices,
    held_out: Choices,
    norm: Norm,
    settings: Settings,
) -> Compared:
    """Solve the max-margin problem of the selections `drawn`, and say how close `weights` are to its solution W_mm.

    The agreement of W_mm is counted on `held_out`, selections of other sentences.
    """
    began = time.perf_counter()
    made = selection_problem(views, drawn)
    seen = projected(weights, views, drawn)
    result = partial(
        Closeness,
        norm=norm.name,
        queries=len(drawn),
        rows=made.rows,
        memory=made.memory,
        in_span=float(norm.value(seen) / norm.value(weights)) if bool(weights.any()) else math.nan,
    )

    def unsolved(status: str, gap: float = math.nan) -> Closeness:
        return result(status=status, solved=False, gap=gap, seconds=round(time.perf_counter() - began, 3))

    if made.contradiction() is not None:
        return Compared(unsolved(_CONTRADICTION), made, None)
    solution = solve(made.problem, norm, solver=_solver(norm, settings))
    if isinstance(norm, Frobenius) and not bool(solution.solved | solution.barred):  # the rounds ran out
        return Compared(unsolved(solution.sentences, float(solution.certificate.relative_gap)), made, None)
    if bool(solution.barred) or not bool(solution.certificate.relative_gap.isfinite()):
        return Compared(unsolved(solution.sentences), made, solution)
    best, value = solution.weights, float(norm.value(solution.weights))
    support = solution.duals[made.inputs] > 0
    closeness = result(
        status=solution.sentences,
        solved=bool(solution.solved),
        gap=float(solution.certificate.relative_gap),
        seconds=round(solution.seconds, 3),
        max_margin=1 / value if value > 0 else math.nan,
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
    return Compared(closeness, made, solution)


def _solver(norm: Norm, settings: Settings) -> Solver | None:
    """A solver that stops at the accuracy asked for; None leaves the choice to `solve`."""
    if isinstance(norm, Frobenius):
        return BlockDescent(accuracy=settings.accuracy, rounds=settings.rounds)
    if isinstance(norm, Nuclear):
        return NuclearInteriorPoint(accuracy=settings.accuracy)
    return None


def _relative_margins(made: SelectionProblem, weights: Tensor, norm: Norm, value: float) -> Tensor:
    """Smallest margin of each query under W / N(W), over the max margin 1 / N(W_mm); `value` is N(W_mm)."""
    size = float(norm.value(weights))
    return made.query_margins(weights) / size * value if size > 0 else torch.zeros(len(made.drawn))


def _efficiency(
    made: SelectionProblem, weights: Tensor, norm: Norm, solution: SVMSolution, quantile: float
) -> Efficiency:
    if not bool(weights.any()):
        return Efficiency()
    margins = _relative_margins(made, weights, norm, float(norm.value(solution.weights)))
    return Efficiency(
        smallest=float(margin_efficiency(weights, made.problem, norm, solution=solution)),
        quantile=float(margins.quantile(quantile)),
        median=float(margins.quantile(0.5)),
    )


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


def projected(weights: Float[Tensor, "D E"], views: Sequence[SentenceView], drawn: Choices) -> Float[Tensor, "D E"]:
    """The part of `weights` that the data can see: P_x W P_z.

    P_x projects on the span of the differences of candidates, P_z on that of the queries; margins do not change. The
    rest of W only adds to its norm, and no margin on these queries depends on it.
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
    queries = torch.stack([views[index].queries[position] for index, position, _ in drawn.triples])
    return _onto(left) @ weights @ _onto(queries.T @ queries)


def _onto(gram: Tensor) -> Tensor:
    """Projection on the span of the rows that have this Gram matrix."""
    values, vectors = torch.linalg.eigh(gram)
    kept = vectors[:, values > _SPAN**2 * values[-1].clamp(min=0.0)]
    return kept @ kept.T


def agreement(weights: Float[Tensor, "D E"], views: Sequence[SentenceView], drawn: Choices) -> float:
    """Share of `drawn` on which the largest logit of `weights` is that of the selected token; NaN if there are none."""
    if len(drawn) == 0:
        return math.nan
    hits = 0
    for index in torch.unique(drawn.sentence).tolist():
        view, here = views[index], drawn.sentence == index
        positions = drawn.position[here]
        logits = (view.queries[positions] @ weights.T) @ view.keys.T
        best = logits.masked_fill(~view.candidates[positions], -torch.inf).argmax(-1)
        hits += int((best == drawn.selected[here]).sum())
    return hits / len(drawn)


def best_rule(views: Sequence[SentenceView], drawn: Choices, held_out: Choices) -> tuple[str, float]:
    """The rule that agrees most often with `drawn`, and how often it agrees with `held_out` (NaN if there are none)."""
    name = max(RULES, key=lambda name: _rule_agreement(RULES[name], views, drawn))
    return name, _rule_agreement(RULES[name], views, held_out)


def _rule_agreement(rule: Rule, views: Sequence[SentenceView], drawn: Choices) -> float:
    if len(drawn) == 0:
        return math.nan
    hits = sum(
        rule(views[index].sentence, position, views[index].candidates[position]) == selected
        for index, position, selected in drawn.triples
    )
    return hits / len(drawn)
