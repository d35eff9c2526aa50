"""What the theory says about data, prediction head and training before anything is trained."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from rich.markup import escape
from rich.table import Table
from torch import Tensor

from attsvm.attention import Head, Loss, Parameterization, Weights, evaluate, token_scores
from attsvm.attention.losses import as_loss
from attsvm.attention.prediction_heads import as_head, doubled_head
from attsvm.data import TokenDataset
from attsvm.data.checks import check_count
from attsvm.descent import NormalizedGradientDescent, Optimizer
from attsvm.descent.fingerprint import start_digest
from attsvm.descent.initial import Initial, doubled_start
from attsvm.descent.task import check_data
from attsvm.norms import Norm, direction_cosine
from attsvm.svm import AttentionSVM, SVMSolution, solve
from attsvm.sweep.manifest import to_plain
from attsvm.theory.conditions import Condition
from attsvm.theory.cones import margin_of_direction
from attsvm.theory.diagnosis import theorems
from attsvm.theory.diagnosis.implicit_bias import ImplicitBias, Standing, implicit_bias
from attsvm.theory.diagnosis.tables import answer, conditions_table, median, printed, table
from attsvm.theory.diagnosis.theorems import Result, Training
from attsvm.theory.enumeration import LocalOptima, locally_optimal_selections_of_each
from attsvm.theory.optimality import is_locally_optimal
from attsvm.theory.prediction import one_start, predict_selection

_SHOWN = 20  # locally optimal selections of a data set


@dataclass(frozen=True, eq=False)
class Limit:
    """A selection that training may tend to, with its max-margin direction."""

    name: str  #: why it is a candidate: "optimal" or "predicted"
    selected: Int[Tensor, "*batch n"]
    solution: SVMSolution  #: of its SVM in the norm that belongs to the training
    locally_optimal: Bool[Tensor, "*batch"]  #: only such selections attract
    lead: Float[Tensor, "*batch"]  #: smallest score lead of a selected token over its support tokens

    @property
    def direction(self) -> Float[Tensor, "*batch d dq"]:
        """W_mm, of Frobenius norm 1; NaN where there is none."""
        weights = self.solution.weights
        return weights / torch.linalg.matrix_norm(weights, keepdim=True)


@dataclass(frozen=True, eq=False)
class Start:
    """Where a start lies, seen from the predicted selection."""

    cosine: Float[Tensor, "*batch"]  #: with the max-margin direction; NaN where there is none
    norm: Float[Tensor, "*batch"]  #: Frobenius norm of W(0)
    margin: Float[Tensor, "*batch"]  #: smallest one over the norm: the widest margin cone that holds the start
    attention: Float[Tensor, "*batch"]  #: smallest probability of a predicted token
    inside: Bool[Tensor, "*batch"]  #: where a theorem covers it (`below_the_barrier`, for plain gradient descent)
    outside: Bool[Tensor, "*batch"]  #: where it is certain that the start lies in no cone around the direction

    @property
    def places(self) -> tuple[str, ...]:
        """ "inside", "outside" or "not known" for each data set in row-major order."""
        pairs = zip(self.inside.flatten().tolist(), self.outside.flatten().tolist(), strict=True)
        return tuple("inside" if inside else "outside" if outside else "not known" for inside, outside in pairs)

    def __str__(self) -> str:
        counted = ", ".join(f"{self.places.count(name)} {name}" for name in ("inside", "outside", "not known"))
        here = f"these starts: {counted}" if self.inside.ndim else f"this start: {self.places[0]}"
        said = f"Proved locally if the start is inside the cone of the theorem and its other conditions hold; {here}"
        said += f" (medians: cosine {median(self.cosine, 3)}, norm {median(self.norm, 3)}, smallest margin over norm"
        return f"{said} {median(self.margin, 3)}, smallest attention on a predicted token {median(self.attention, 3)})."


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """Conditions, applicable results and predicted limits of a batch of data sets; prints as a table."""

    #: what was diagnosed, in float64
    data: TokenDataset
    head: Head
    loss: Loss
    bias: ImplicitBias  #: the norm that belongs to parameterization and optimizer
    conditions: tuple[Condition, ...]  #: assumptions, each with the margin by which it holds or fails
    results: tuple[Result, ...]  #: what the papers prove, each with its conditions and where all were checked to hold
    conjectures: tuple[Result, ...]  #: what is conjectured, or stated without a bound, in the same form
    limits: tuple[Limit, ...]  #: candidate selections: the optimal one and, given a starting point, the predicted one
    #: the selection that training should reach: the optimal one where a theorem says so, else the one of `rule`
    predicted: Int[Tensor, "*batch n"]
    rule: str  #: what made the prediction where no theorem did
    standing: tuple[Standing, ...]  #: of the prediction, one `Standing` per data set in row-major order
    configuration: Mapping[str, object]  #: how the training was described, to be compared with that of a run
    start: Start | None = None  #: where the starting point lies, where one was given
    accuracy: str | None = None  #: how often the rule was right where it was measured, in words; None if not known
    local: tuple[LocalOptima, ...] | None = None  #: the locally optimal selections of each data set, if asked for

    @property
    def limit(self) -> Limit:
        """The predicted limit."""
        return self.limits[-1]

    def to_json(self) -> str:
        """Everything but the weights, as JSON; numbers that are not finite are null."""

        def taken(one: object, names: str) -> dict[str, Any]:
            return {name: getattr(one, name) for name in names.split()}

        def told(one: Result) -> dict[str, Any]:
            parts = taken(one, "statement citation applies fails missing")
            return {**parts, "conditions": [each.name for each in one.conditions]}

        content = {
            "data": repr(self.data),
            "head": type(self.head).__name__,
            "norm": self.bias.norm.name,
            "bias": taken(self.bias, "standing citation"),
            "conditions": [
                {**taken(one, "name holds margin"), "asks": one.sentence, **taken(one, "citation certain")}
                for one in self.conditions
            ],
            "results": [told(one) for one in self.results],
            "conjectures": [told(one) for one in self.conjectures],
            "limits": [
                {
                    **taken(one, "name selected locally_optimal"),
                    "norm_value": one.solution.certificate.primal_value,
                    "relative_gap": one.solution.certificate.relative_gap,
                    **taken(one.solution, "solved separable infeasible"),
                }
                for one in self.limits
            ],
            **taken(self, "predicted rule accuracy standing start"),
            "local": self.local and [taken(one, "selections norms exhaustive") for one in self.local],
        }
        return json.dumps(to_plain(content), indent=1, allow_nan=False)

    def __str__(self) -> str:
        tables = [conditions_table(self.conditions), _results("\nResults", self.results)]
        if self.conjectures:
            tables.append(_results("\nConjectures, none of them proved", self.conjectures))
        parts = [printed(*tables, self._limits())]
        if self.start is not None:
            parts.append(str(self.start))
        return "\n".join([*parts, *(_local(self.local) if self.local is not None else ())])

    def _limits(self) -> Table:
        conjectured = " (conjectured)" if self.bias.standing is Standing.CONJECTURED else ""
        title = f"\nPredicted limits, {self.bias.norm.name} norm{conjectured}"
        made = table(title, ("limit", "selection", "separable", "attracts", "margin"), right=("margin",))
        for one in self.limits:
            selection = " ".join(map(str, one.selected.tolist())) if one.selected.ndim == 1 else "one for each data set"
            solution = one.solution
            separable = answer(solution.separable, ~solution.undecided)
            attracts = answer(one.locally_optimal, solution.solved | solution.infeasible)
            margin = torch.where(solution.solved, 1 / solution.certificate.primal_value, torch.nan)
            made.add_row(one.name, selection, separable, attracts, median(margin, 3))
        standing = self.standing
        founded = f"the selection is {standing[0].value}"
        if len(standing) > 1:
            counted = (f"{kind.value} ({standing.count(kind)})" for kind in dict.fromkeys(standing))
            founded = f"the selections are {', '.join(counted)}"
        measured = self.accuracy or "no accuracy was measured for this kind of problem"
        made.caption, made.caption_justify = f"{founded}; predictions are made by: {self.rule}; {measured}", "left"
        return made


def _results(title: str, results: Sequence[Result]) -> Table:
    made = table(title, ("result", "applies", "not proved here", "source"))
    for one in results:
        missing = ", ".join(one.missing) or "-"
        made.add_row(one.statement, answer(one.applies, one.applies | one.fails), missing, escape(one.citation))
    return made


def _local(local: tuple[LocalOptima, ...]) -> Iterator[str]:
    yield from ("", "Locally optimal selections")
    for element, one in enumerate(local):
        label = f"data set {element}: " if len(local) > 1 else ""
        yield f"{label}{len(one)} ({'all of them' if one.exhaustive else 'a sample, those reached from many starts'})"
        for selection, size in zip(one.selections[:_SHOWN].tolist(), one.norms[:_SHOWN].tolist(), strict=True):
            yield f"  {' '.join(map(str, selection))}   margin {1 / size:.4g}" if size > 0 else f"  {selection}"


def diagnose(
    data: TokenDataset,
    head: object = None,
    parameterization: Parameterization | None = None,
    optimizer: Optimizer | None = None,
    initial: Initial = None,
    *,
    loss: Loss | Callable[[Tensor], Tensor] | None = None,
    train_head: bool = False,
    enumerate_local: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Diagnosis:
    """Which conditions of the papers hold, which results apply, and where training should go.

    A result applies where all its conditions were checked on this input and hold: head, loss, parameterization,
    optimizer, step sizes and start are among them. Training is taken to use all inputs at every step and no ridge.

    Arguments:
        parameterization: `Weights()` (default) or `KeyQuery()`.
        optimizer: `NormalizedGradientDescent(0.1)` by default.
        initial: the starting point, as in `fit`; with it the reached selection is predicted by `predict_selection`.
        loss, train_head: as in `fit`.
        enumerate_local: list all locally optimal selections too, trying at most this many candidates per data set; 0
            lists none. Whether all tokens support every SVM is checked under the same limit, and on small problems.
        progress: called with (done, in all) while they are listed.

    A `ValueError` if nothing is known about this way of training.
    """
    parameterization = parameterization or Weights()
    optimizer = optimizer or NormalizedGradientDescent(0.1)
    check_data(data)
    check_count(enumerate_local, "enumerate_local", 0)
    given, data = data, data.to(dtype=torch.float64)
    own, own_loss = as_head(doubled_head(head), data), as_loss(loss)
    bias = implicit_bias(parameterization, optimizer)
    begin, weights = None, None
    if initial is not None:
        begin = {name: value[0] for name, value in one_start(data, parameterization, doubled_start(initial)).items()}
        weights = parameterization.weights(begin).reshape(*data.batch_shape, data.d, data.dq)
    optimal = token_scores(data, own).argmax(-1)
    limits = [_limit("optimal", data, own, optimal, bias.norm)]
    training = Training(
        data, own, own_loss, parameterization, optimizer, train_head, bias, begin, weights, optimal,
        limits[0].solution, enumerate_local,
    )  # fmt: skip
    results = theorems.results_for_every_start(training)
    none = torch.zeros(data.batch_shape, dtype=torch.bool, device=data.device)
    always, here = (results[name].applies if name in results else none for name in ("every start", "this start"))
    predicted, rule, accuracy, start = optimal, "the optimal tokens, a guess: no start was given", None, None
    if weights is not None:
        guess = predict_selection(
            data, own, doubled_start(initial), parameterization=parameterization, loss=own_loss, optimizer=optimizer
        )
        predicted = torch.where((always | here).unsqueeze(-1), optimal, guess.selected)
        rule, accuracy = guess.rule, None if guess.accuracy is None else str(guess.accuracy)
        limits.append(_limit("predicted", data, own, predicted, bias.norm))
        start = _position(training, weights, limits[-1], here)
    last, said = limits[-1], "every predicted token must out-score its support tokens"
    decided, name = last.solution.solved | last.solution.infeasible, "locally optimal prediction"
    attracts = Condition(name, last.locally_optimal, last.lead, said, "[TaSVM, local convergence]", decided)
    cone = _in_cone(data, start)
    local_theorem = theorems.local_result(training, attracts, cone)
    conjectured = theorems.conjectures(training, local_theorem)
    if local_theorem not in conjectured:
        results["local"] = local_theorem
    standing = [
        Standing.PROVED if everywhere else Standing.PROVED_LOCALLY if inside else Standing.PREDICTED
        for everywhere, inside in zip(always.flatten().tolist(), here.flatten().tolist(), strict=True)
    ]
    # A run in float32 begins at the rounded start.
    digest = None if begin is None else start_digest({k: v.to(given.dtype)[None] for k, v in begin.items()})
    configuration = {
        "parameterization": repr(parameterization), "optimizer": repr(optimizer), "loss": repr(own_loss),
        "train_head": train_head, "ridge": 0.0, "batch_size": None, "start": digest,
    }  # fmt: skip
    local = None
    if enumerate_local > 0:
        local = tuple(locally_optimal_selections_of_each(data, own, bias.norm, enumerate_local, progress))
    return Diagnosis(
        data, own, own_loss, bias, (*training.checked.values(), attracts, cone), tuple(results.values()), conjectured,
        tuple(limits), predicted, rule, tuple(standing), configuration, start, accuracy, local,
    )  # fmt: skip


def _limit(name: str, data: TokenDataset, head: Head, selected: Tensor, norm: Norm) -> Limit:
    solution = solve(AttentionSVM(data, selected), norm)
    judged = is_locally_optimal(data, head, selected, solution=solution)
    return Limit(name, selected, solution, judged.holds, judged.gap)


def _position(training: Training, weights: Tensor, limit: Limit, inside: Tensor) -> Start:
    data = training.data
    attention = evaluate(data, weights, training.head, training.loss).attention
    size = torch.linalg.matrix_norm(weights)
    known = limit.solution.solved & (size > 0)
    cosine = direction_cosine(weights, torch.nan_to_num(limit.solution.weights))
    margin = margin_of_direction(weights, AttentionSVM(data, limit.selected))
    least = attention.gather(-1, limit.selected.unsqueeze(-1)).squeeze(-1).amin(-1)
    outside = ~inside & ((size == 0) | (known & (cosine <= 0)))
    return Start(cosine.masked_fill(~known, torch.nan), size, margin, least, inside, outside)


def _in_cone(data: TokenDataset, start: Start | None) -> Condition:
    """Whether the start lies in the cone of the local theorem, which asserts some opening and norm without naming them.

    Outside for certain where the start is zero or makes no acute angle with the direction: every opening mu < 1 asks
    for a positive cosine. Elsewhere it is not known. Margin: the cosine.
    """
    name, citation = "start in the cone", "[TaSVM, local convergence]"
    said = "the start must lie in a cone around the direction, far enough out; its opening and norm are not known"
    if start is None:
        return theorems.everywhere(data, name, None, f"{said}, and no start was given", citation)
    outside = (start.norm == 0) | (start.cosine <= 0)
    return Condition(name, torch.zeros_like(outside), start.cosine, said, citation, certain=outside)
