"""What the theory says about data, prediction head and training before anything is trained."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attsvm.attention import Head, LinearHead, Logistic, Loss, Parameterization, Weights, token_scores
from attsvm.attention.losses import as_loss
from attsvm.attention.prediction_heads import as_head, doubled_head
from attsvm.data import TokenDataset
from attsvm.descent import NormalizedGradientDescent, Optimizer
from attsvm.descent.initial import Initial, doubled_start
from attsvm.descent.optimizers import GradientDescent
from attsvm.descent.schedules import Constant, as_schedule
from attsvm.norms import Frobenius, Norm
from attsvm.svm import AttentionSVM, SVMSolution, solve
from attsvm.sweep.manifest import to_plain
from attsvm.theory.conditions import (
    Condition,
    all_tokens_support,
    equal_scores_condition,
    favourable_first_gradient,
    step_size_bound,
    unique_optimum,
)
from attsvm.theory.diagnosis.implicit_bias import ImplicitBias, Standing, implicit_bias
from attsvm.theory.diagnosis.tables import tables_of
from attsvm.theory.enumeration import LocalOptima, locally_optimal_selections_of_each
from attsvm.theory.mixtures import one_winner
from attsvm.theory.optimality import is_locally_optimal
from attsvm.theory.prediction import predict_selection
from attsvm.theory.separability import separable_by_dimension


@dataclass(frozen=True, eq=False)
class Limit:
    """A selection that training may tend to, with its max-margin direction.

    Attributes:
        name: why it is a candidate: "optimal" or "predicted".
        selected: ``[*batch, n]``.
        solution: of its SVM in the norm that belongs to the training.
        locally_optimal: ``[*batch]``; only such selections attract.
    """

    name: str
    selected: Int[Tensor, "*batch n"]
    solution: SVMSolution
    locally_optimal: Bool[Tensor, "*batch"]

    @property
    def direction(self) -> Float[Tensor, "*batch d dq"]:
        """W_mm, of Frobenius norm 1; NaN where there is none."""
        weights = self.solution.weights
        return weights / torch.linalg.matrix_norm(weights, keepdim=True)


@dataclass(frozen=True, eq=False)
class Result:
    """A result of the papers, and where its assumptions were checked to hold."""

    statement: str
    citation: str
    applies: Bool[Tensor, "*batch"]


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """Conditions, applicable results and predicted limits of a batch of data sets; prints as a table.

    Attributes:
        data, head, loss: what was diagnosed, in float64.
        bias: the norm that belongs to parameterization and optimizer.
        conditions: assumptions, each with the margin by which it holds or fails.
        results: what the papers conclude, and where.
        limits: candidate selections: the optimal one and, given a starting point, the predicted one.
        predicted: the selection that training should reach ``[*batch, n]``: that of a global result where one applies,
            else the one predicted from the start where one was given, else the optimal one, which is a guess.
        rule: what made the prediction.
        standing: of the prediction, one `Standing` per data set in row-major order.
        local: the locally optimal selections of each data set in row-major order, where asked for.
    """

    data: TokenDataset
    head: Head
    loss: Loss
    bias: ImplicitBias
    conditions: tuple[Condition, ...]
    results: tuple[Result, ...]
    limits: tuple[Limit, ...]
    predicted: Int[Tensor, "*batch n"]
    rule: str
    standing: tuple[Standing, ...]
    local: tuple[LocalOptima, ...] | None = None

    @property
    def limit(self) -> Limit:
        """The predicted limit."""
        return self.limits[-1]

    def to_json(self) -> str:
        """Everything but the weights, as JSON; numbers that are not finite are null."""
        content = {
            "data": repr(self.data),
            "head": type(self.head).__name__,
            "norm": self.bias.norm.name,
            "bias": {"standing": self.bias.standing, "citation": self.bias.citation},
            "conditions": [
                {
                    "name": one.name,
                    "holds": one.holds,
                    "margin": one.margin,
                    "asks": one.sentence,
                    "citation": one.citation,
                    "certain": one.certain,
                }
                for one in self.conditions
            ],
            "results": self.results,
            "limits": [
                {
                    "name": one.name,
                    "selected": one.selected,
                    "locally_optimal": one.locally_optimal,
                    "norm_value": one.solution.certificate.primal_value,
                    "relative_gap": one.solution.certificate.relative_gap,
                    "solved": one.solution.solved,
                    "separable": one.solution.separable,
                    "infeasible": one.solution.infeasible,
                }
                for one in self.limits
            ],
            "predicted": self.predicted,
            "rule": self.rule,
            "standing": self.standing,
            "local": None
            if self.local is None
            else [
                {"selections": one.selections, "norms": one.norms, "exhaustive": one.exhaustive} for one in self.local
            ],
        }
        return json.dumps(to_plain(content), indent=1, allow_nan=False)

    def __str__(self) -> str:
        return tables_of(self)


def diagnose(
    data: TokenDataset,
    head: object = None,
    parameterization: Parameterization | None = None,
    optimizer: Optimizer | None = None,
    initial: Initial = None,
    *,
    loss: Loss | Callable[[Tensor], Tensor] | None = None,
    enumerate_local: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Diagnosis:
    """Which conditions of the papers hold, which results apply, and where training should go.

    Arguments:
        data: ``[*batch]`` data sets.
        head: a prediction head, a vector, a torch module, or None for the data's own.
        parameterization: `Weights()` (default) or `KeyQuery()`.
        optimizer: `NormalizedGradientDescent(0.1)` by default.
        initial: the starting point, as in `fit` (W, or a mapping with key and query, or "zeros"); with it the reached
            selection is predicted by `predict_selection`.
        loss: `Logistic()` by default.
        enumerate_local: list all locally optimal selections too, trying at most this many candidates per data set; 0
            lists none.
        progress: called with (done, in all) while they are listed.

    A global result (B2) is called proved for plain gradient descent only: normalized descent from a start of large norm
    was seen to leave it in 2 of 320 runs (`equal_scores_condition`).

    Raises:
        ValueError: if nothing is known about this way of training.
    """
    parameterization = parameterization or Weights()
    optimizer = optimizer or NormalizedGradientDescent(0.1)
    data = data.to(dtype=torch.float64)
    own, own_loss = as_head(doubled_head(head), data), as_loss(loss or Logistic())
    bias = implicit_bias(parameterization, optimizer)
    optimal = token_scores(data, own).argmax(-1)
    limits = [_limit("optimal", data, own, optimal, bias.norm)]
    checked = _check(data, own, optimizer, own_loss, limits[0])
    results, everywhere = _results(checked, limits[0], bias, parameterization, own)
    predicted, rule = optimal, "the optimal tokens"
    if initial is not None:
        guess = predict_selection(data, own, doubled_start(initial), parameterization=parameterization, loss=own_loss)
        predicted = torch.where(everywhere.unsqueeze(-1), optimal, guess.selected)
        rule = guess.rule
        limits.append(_limit("predicted", data, own, predicted, bias.norm))
    standing = [
        Standing.PROVED
        if bool(sure) and isinstance(optimizer, GradientDescent)
        else (bias.standing if bool(attracts) else Standing.CONJECTURED)
        for sure, attracts in zip(everywhere.flatten(), limits[-1].locally_optimal.flatten(), strict=True)
    ]
    local = None
    if enumerate_local > 0:
        local = tuple(locally_optimal_selections_of_each(data, own, bias.norm, enumerate_local, progress))
    return Diagnosis(
        data=data,
        head=own,
        loss=own_loss,
        bias=bias,
        conditions=checked.listed(),
        results=results,
        limits=tuple(limits),
        predicted=predicted,
        rule=rule,
        standing=tuple(standing),
        local=local,
    )


def _limit(name: str, data: TokenDataset, head: Head, selected: Tensor, norm: Norm) -> Limit:
    solution = solve(AttentionSVM(data, selected), norm)
    return Limit(name, selected, solution, is_locally_optimal(data, head, selected, solution=solution).holds)


@dataclass(frozen=True, eq=False)
class _Checked:
    """The conditions that were checked, in the order of the table; None where one has no meaning for this training."""

    unique: Condition
    by_dimension: Condition
    separable: Condition
    all_support: Condition
    one_winner: Condition | None = None
    equal_scores: Condition | None = None
    first_gradient: Condition | None = None
    step_size: Condition | None = None

    def listed(self) -> tuple[Condition, ...]:
        """Those that were checked."""
        return tuple(one for field in fields(self) if (one := getattr(self, field.name)) is not None)


def _check(data: TokenDataset, head: Head, optimizer: Optimizer, loss: Loss, optimal: Limit) -> _Checked:
    solution = optimal.solution
    always = _Checked(
        unique=unique_optimum(data, head),
        by_dimension=separable_by_dimension(data),
        separable=Condition(
            "separable optimum",
            solution.separable,
            torch.where(solution.separable, 1 / solution.certificate.primal_value, -torch.inf),
            "some weights give every optimal token a margin over the others; margin: the largest one found at norm 1.",
            "[TaSVM, separability]",
            ~solution.undecided,
        ),
        all_support=all_tokens_support(data, head, selected=optimal.selected, solution=solution),
    )
    if not isinstance(head, LinearHead):
        return replace(always, one_winner=one_winner(data, head))
    schedule, step_size = as_schedule(optimizer.step_size), None
    if isinstance(optimizer, GradientDescent) and isinstance(schedule, Constant):
        step_size = step_size_bound(data, head, schedule.size, loss)
    return replace(
        always,
        equal_scores=equal_scores_condition(data, head),
        # A gradient can favour the optimal tokens only where every input has exactly one.
        first_gradient=favourable_first_gradient(data, head, loss) if bool(always.unique.holds.all()) else None,
        step_size=step_size,
    )


def _results(
    checked: _Checked, optimal: Limit, bias: ImplicitBias, parameterization: Parameterization, head: Head
) -> tuple[tuple[Result, ...], Bool[Tensor, "*batch"]]:
    """What the papers conclude, and where a result says that every start leads to the optimal selection."""
    ready = checked.unique.holds & checked.separable.holds
    linear = isinstance(head, LinearHead)
    # The results on every start are about gradient descent on W with a linear head.
    covered = isinstance(parameterization, Weights) and isinstance(bias.norm, Frobenius) and linear

    def where(*conditions: Condition | None) -> Tensor:
        """Where one of the conditions holds besides a unique, separable optimum."""
        held = [one.holds for one in conditions if one is not None and covered]
        return ready & torch.stack(held).any(0) if held else torch.zeros_like(ready)

    everywhere = where(checked.equal_scores)
    results = (
        Result(
            "from every start the direction tends to that of the optimal selection",
            "[TaSVM, global convergence, B2]",
            everywhere,
        ),
        Result(
            "there is no finite stationary point: the norm grows without bound from every start",
            "[TaSVM, global convergence]",
            where(checked.all_support, checked.equal_scores),
        ),
        Result(
            "after one large first step, small steps tend to the direction of the optimal selection",
            "[TaSVM, favourable first gradient]",
            where(checked.first_gradient),
        ),
        Result(
            f"from a cone around it, far enough out, training tends to the {bias.norm.name} max-margin direction",
            bias.citation,
            optimal.locally_optimal,
        ),
        Result(
            "the regularization path tends to the max-margin direction of the optimal selection",
            "[TaSVM, regularization path]",
            ready if linear else torch.zeros_like(ready),
        ),
    )
    return results, everywhere
