"""The results of the papers, each with all the conditions it rests on, and the conjectures, apart from them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from attsvm.attention import KeyQuery, LinearHead, optimal_token_set
from attsvm.descent import GradientDescent
from attsvm.svm import SVMSolution
from attsvm.theory import mixtures
from attsvm.theory.conditions import (
    Condition,
    all_tokens_support,
    all_tokens_support_everywhere,
    below_the_barrier,
    equal_scores_condition,
    favourable_first_gradient,
    nearly_equal_scores,
    unique_optimum,
)
from attsvm.theory.diagnosis import assumptions as assume
from attsvm.theory.diagnosis.assumptions import Training
from attsvm.theory.diagnosis.implicit_bias import Standing
from attsvm.theory.separability import separable_by_dimension
from attsvm.theory.several_optimal import several_optimal

_SMALL = 256  # selections of a whole batch that are cheap enough to solve without being asked


@dataclass(frozen=True, eq=False)
class Result:
    """A statement of the papers and all the conditions it rests on."""

    statement: str  #: what it concludes
    citation: str  #: key and subject
    #: every assumption, checked on this input; a statement on something else than this training (a path, another first
    #: step) says so
    conditions: tuple[Condition, ...]

    @property
    def applies(self) -> Bool[Tensor, "*batch"]:
        """Where every condition is proved to hold."""
        return torch.stack([one.proved for one in self.conditions]).all(0)

    @property
    def fails(self) -> Bool[Tensor, "*batch"]:
        """Where some condition is proved to fail, so that the statement says nothing; elsewhere it is not known."""
        return torch.stack([one.refuted for one in self.conditions]).any(0)

    @property
    def missing(self) -> tuple[str, ...]:
        """The names of the conditions that are not proved on every data set."""
        return tuple(one.name for one in self.conditions if not bool(one.proved.all()))


@dataclass(eq=False)
class Conditions:
    """The conditions of a training, each checked once, in the order in which they are listed."""

    training: Training
    optimal: Int[Tensor, "*batch n"]
    solution: SVMSolution
    enumerate_local: int = 0
    _known: dict[str, Condition] = field(default_factory=dict)

    def get(self, name: str) -> Condition:
        """The condition of this name, checked where it was not yet."""
        if name not in self._known:
            fact, told = assume.FACTS.get(name), self.training
            self._known[name] = fact.of(told.data, getattr(told, fact.part)) if fact else _CHECKS[name](self)
        return self._known[name]

    def all(self, *names: str) -> tuple[Condition, ...]:
        """Several of them."""
        return tuple(self.get(name) for name in names)

    def listed(self) -> tuple[Condition, ...]:
        """All that were checked."""
        return tuple(self._known.values())


def _several(checked: Conditions) -> Condition:
    training = checked.training
    best = optimal_token_set(training.data, training.head)
    found = several_optimal(training.data, best, limit=_SMALL)
    # Where all tokens tie the risk is constant, and nothing is selected.
    tied = ~checked.get("unique").holds & (training.data.real & ~best).any(-1).any(-1)
    solved = tied & found.solution.solved
    margin, name = torch.where(solved, 1 / found.value, -torch.inf), "several optima, separable"
    said = "some choice of one optimal token for each input must be separable from tokens outside the optimum"
    return Condition(name, solved, margin, said, "[TaSVM, several optima]", ~tied | found.exact)


def _everywhere(checked: Conditions) -> Condition:
    training, data = checked.training, checked.training.data
    counts = data.real.sum(-1).double().prod(-1)
    allowed = bool((counts <= checked.enumerate_local).all()) if checked.enumerate_local else False
    if allowed or float(counts.sum()) <= _SMALL:
        return all_tokens_support_everywhere(data, training.bias.norm)
    said = f"all constraints of every SVM must be tight; not checked on up to {float(counts.max()):.3g} selections"
    return assume.everywhere(data, "B1 for every selection", None, said, "[TaSVM, global convergence]")


def _one_input(checked: Conditions) -> Condition:
    data = checked.training.data
    said = "there must be one input"
    return assume.everywhere(data, "one input", data.n == 1, said, "[TaSVM, global convergence]", 1 - data.n)


def _barrier(checked: Conditions) -> Condition:
    training = checked.training
    if training.start_weights is None:
        said = "the start's risk must be too low for descent to leave the optimal tokens; no start was given"
        name = "start below the barrier"
        return assume.everywhere(training.data, name, None, said, "derived here (docs/proved.md)")
    return below_the_barrier(training.data, training.head, training.start_weights, training.loss, checked.solution)


_CHECKS: dict[str, Callable[[Conditions], Condition]] = {
    "unique": lambda c: unique_optimum(c.training.data, c.training.head),
    "by dimension": lambda c: separable_by_dimension(c.training.data),
    "separable": lambda c: assume.separable_optimum(c.solution),
    "step": lambda c: assume.bounded_steps(c.training),
    "one input": _one_input,
    "B1": lambda c: all_tokens_support(c.training.data, c.training.head, selected=c.optimal, solution=c.solution),
    "B2": lambda c: equal_scores_condition(c.training.data, c.training.head),
    "nearly B2": lambda c: nearly_equal_scores(c.training.data, c.training.head),
    "B1 everywhere": _everywhere,
    "first gradient": lambda c: favourable_first_gradient(c.training.data, c.training.head, c.training.loss),
    "barrier": _barrier,
    "rank": lambda c: assume.enough_rank(c.training.data, c.training.parameterization, c.solution),
    "aligned": lambda c: assume.alignment(c.training.data, c.training.start),
    "one winner": lambda c: mixtures.one_winner(c.training.data, c.training.head),
    "several": _several,
    "label margin": lambda c: mixtures.label_margin_assumption(c.training.data, c.optimal, samples=16),
}


def results_for_every_start(checked: Conditions) -> dict[str, Result]:
    """Results that name no start, or are decided by the start's risk, in the order in which they are listed."""
    training, get = checked.training, checked.all
    checked.all("unique", "by dimension", "separable", "linear", "fixed", "loss", "W")
    made: dict[str, Result] = {}
    if isinstance(training.head, LinearHead):
        landscape = get("linear", "fixed", "loss", "W", "unique", "separable")
        descent = get("plain", "step", "constant")
        flat = assume.either("B1 or B2", *checked.all("B1", "B2"))
        made["every start"] = Result(
            "from every start the direction tends to that of the optimal selection",
            "[TaSVM, global convergence, B2, one input]",
            (*landscape, *descent, *get("B2", "one input")),
        )
        made["this start"] = Result(
            "from this start attention tends to 1 on every optimal token",
            "derived here (docs/proved.md)",
            (*landscape, *get("plain", "step", "lasting", "barrier")),
        )
        made["stationary"] = Result(
            "no finite W is a stationary point of the risk", "[TaSVM, global convergence]", (*landscape, flat)
        )
        made["norm"] = Result(
            "the norm grows without bound from every start", "[TaSVM, global convergence]", (*landscape, *descent, flat)
        )
        made["first gradient"] = Result(
            "after one large first step from zero, these steps tend to the direction of the optimal selection",
            "[TaSVM, favourable first gradient]",
            (*landscape, *descent, *get("first gradient")),
        )
        made["only"] = Result(
            "no selection but the optimal one is locally optimal",
            "[TaSVM, global convergence]",
            get("linear", "unique", "B1 everywhere"),
        )
        made |= _paths(checked)
    else:
        made["one winner"] = Result(
            "the regularization path tends to the max-margin direction of the optimal selection",
            "[TaSVM, nonlinear heads, one winner]",
            get("fixed", "loss", "W", "unique", "separable", "one winner"),
        )
    if training.train_head and isinstance(training.head, LinearHead):
        made["joint"] = Result(
            "the joint path tends to the label SVM of the optimal selection and the tight or relaxed SVM of attention",
            "[MMTS, joint training]",
            get("linear", "logistic", "separable", "label margin"),
        )
    return made


def _paths(checked: Conditions) -> dict[str, Result]:
    get, made = checked.all, {}
    if isinstance(checked.training.parameterization, KeyQuery):
        made["path"] = Result(
            "the regularization path of (K, Q) tends to the set of nuclear-norm solutions of the optimal selection",
            "[TaSVM, regularization path]",
            get("linear", "fixed", "loss", "unique", "separable", "rank"),
        )
        return made
    made["path"] = Result(
        "the regularization path tends to the max-margin direction of the optimal selection",
        "[TaSVM, regularization path]",
        get("linear", "fixed", "loss", "W", "unique", "separable"),
    )
    if not bool(checked.get("unique").holds.all()):
        made["several"] = Result(
            "the path tends to the best of the SVMs that keep one optimal token of each input",
            "[TaSVM, several optima]",
            get("linear", "fixed", "loss", "W", "several"),
        )
    return made


def local_result(checked: Conditions, locally_optimal: Condition, cone: Condition) -> Result:
    """The local theorem, or conjecture, about the predicted selection: it needs a start in its cone."""
    training, bias = checked.training, checked.training.bias
    assumed = checked.all("linear", "fixed", "loss")
    steps: tuple[Condition, ...] = ()
    if bias.standing is not Standing.CONJECTURED:
        if isinstance(training.optimizer, GradientDescent):
            steps = checked.all("W", "step", "constant")
        else:
            said = "the steps must be small enough; how small is not known for this optimizer"
            small = assume.everywhere(training.data, "small steps", None, said, bias.citation)
            steps = (*checked.all("W", "lasting"), small)
    return Result(
        f"from a cone around it, far enough out, training tends to the {bias.norm.name} max-margin direction",
        bias.citation,
        (*assumed, *steps, locally_optimal, cone),
    )


def conjectures(checked: Conditions, local: Result) -> tuple[Result, ...]:
    """What is conjectured, or stated without a bound; nothing here is called proved."""
    training = checked.training
    made = [local] if training.bias.standing is Standing.CONJECTURED else []
    if isinstance(training.parameterization, KeyQuery):
        said = "gradient flow of (K, Q) is biased to the nuclear norm; proved under assumptions on alignment"
        assumed = checked.all("linear", "fixed", "loss", "separable", "aligned")
        made.append(Result(said, "[TaSVM, key-query bias]", assumed))
    if isinstance(training.head, LinearHead):
        said = "from a favourable first gradient the direction tends to that of the optimal selection"
        assumed = checked.all("linear", "fixed", "W", "unique", "separable", "first gradient", "nearly B2")
        made.append(Result(said, "[TaSVM, talk, nearly equal scores]", assumed))
    else:
        said = "several tokens may be kept: W is about W_fin + C W_svm of the generalized SVM"
        made.append(Result(said, "[TaSVM, generalized SVM]", checked.all("fixed", "loss")))
    return tuple(made)


def as_json(result: Result) -> dict[str, Any]:
    """A result for a file."""
    told = {name: getattr(result, name) for name in ("statement", "citation", "applies", "fails", "missing")}
    return {**told, "conditions": [one.name for one in result.conditions]}
