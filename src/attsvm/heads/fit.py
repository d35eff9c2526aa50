"""A head beside the max-margin solution of its own selections."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from attsvm.heads.choices import Choices
from attsvm.heads.held_out import agreement
from attsvm.heads.limited import LimitedDescent, UnfinishedError
from attsvm.heads.selection_problem import SelectionProblem, selection_problem
from attsvm.heads.settings import Settings
from attsvm.heads.spectrum import Spectrum, projected, spectrum
from attsvm.heads.views import SentenceView
from attsvm.norms import Frobenius, Norm, Nuclear, direction_cosine
from attsvm.svm import NuclearInteriorPoint, Solver, Status, SVMSolution, margin_efficiency, solve

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
        return LimitedDescent(accuracy=settings.accuracy, rounds=settings.rounds)
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
    try:
        solution = solve(made.problem, norm, solver=solver_for(norm, settings))
    except UnfinishedError as stopped:
        return Solved(_unknown(common, str(Status.NOT_CONVERGED), stopped.gap, time.perf_counter() - began), made, None)
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
