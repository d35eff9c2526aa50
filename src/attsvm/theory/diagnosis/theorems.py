"""The results of the papers, each with all the conditions it rests on, and the conjectures, apart from them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool
from torch import Tensor

from attsvm.attention import KeyQuery, LinearHead
from attsvm.descent import GradientDescent
from attsvm.theory.conditions import Condition
from attsvm.theory.diagnosis.assumptions import Training, either, everywhere
from attsvm.theory.diagnosis.implicit_bias import Standing


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


_FIXED = ("linear", "fixed", "loss")
_LANDSCAPE = (*_FIXED, "W", "unique", "separable")
_DESCENT = ("plain", "step", "constant")
_GLOBAL, _PATH = "[TaSVM, global convergence]", "[TaSVM, regularization path]"


def results_for_every_start(training: Training) -> dict[str, Result]:
    """Results that name no start, or are decided by the start's risk, in the order in which they are listed."""
    get = training.get
    (unique, *_) = get("unique", "by dimension", "separable", "linear", "fixed", "loss", "W")
    made: dict[str, Result] = {}

    def add(name: str, citation: str, statement: str, *asked: str | Condition) -> None:
        made[name] = Result(statement, citation, get(*asked))

    if not isinstance(training.head, LinearHead):
        said = "the regularization path tends to the max-margin direction of the optimal selection"
        add("one winner", "[TaSVM, nonlinear heads, one winner]", said, *_LANDSCAPE[1:], "one winner")
        return made
    get(*_DESCENT)
    flat = either("B1 or B2", *get("B1", "B2"))
    said = "from every start the direction tends to that of the optimal selection"
    cited = "[TaSVM, global convergence, B2, one input]"
    add("every start", cited, said, *_LANDSCAPE, *_DESCENT, "B2", "one input")
    said = "from this start attention tends to 1 on every optimal token"
    add("this start", "derived here (docs/proved.md)", said, *_LANDSCAPE, "plain", "step", "lasting", "barrier")
    add("stationary", _GLOBAL, "no finite W is a stationary point of the risk", *_LANDSCAPE, flat)
    add("norm", _GLOBAL, "the norm grows without bound from every start", *_LANDSCAPE, *_DESCENT, flat)
    said = "after one large first step from zero, these steps tend to the direction of the optimal selection"
    add("first gradient", "[TaSVM, favourable first gradient]", said, *_LANDSCAPE, *_DESCENT, "first gradient")
    said = "no selection but the optimal one is locally optimal"
    add("only", _GLOBAL, said, "linear", "unique", "B1 everywhere")
    if isinstance(training.parameterization, KeyQuery):
        said = "the regularization path of (K, Q) tends to the set of nuclear-norm solutions of the optimal selection"
        add("path", _PATH, said, *_FIXED, "unique", "separable", "rank")
    else:
        said = "the regularization path tends to the max-margin direction of the optimal selection"
        add("path", _PATH, said, *_LANDSCAPE)
        if not bool(unique.holds.all()):
            said = "the path tends to the best of the SVMs that keep one optimal token of each input"
            add("several", "[TaSVM, several optima]", said, *_FIXED, "W", "several")
    if training.train_head:
        said = "the joint path tends to the label SVM of the optimal selection and the tight or relaxed attention SVM"
        add("joint", "[MMTS, joint training]", said, "linear", "logistic", "separable", "label margin")
    return made


def local_result(training: Training, locally_optimal: Condition, cone: Condition) -> Result:
    """The local theorem, or conjecture, about the predicted selection: it needs a start in its cone."""
    bias = training.bias
    steps: tuple[str | Condition, ...] = ()
    if bias.standing is not Standing.CONJECTURED:
        said = "the steps must be small enough; how small is not known for this optimizer"
        small = everywhere(training.data, "small steps", None, said, bias.citation)
        plain = isinstance(training.optimizer, GradientDescent)
        steps = ("W", "step", "constant") if plain else ("W", "lasting", small)
    said = f"from a cone around it, far enough out, training tends to the {bias.norm.name} max-margin direction"
    return Result(said, bias.citation, training.get(*_FIXED, *steps, locally_optimal, cone))


def conjectures(training: Training, local: Result) -> tuple[Result, ...]:
    """What is conjectured, or stated without a bound; nothing here is called proved."""
    made = [local] if training.bias.standing is Standing.CONJECTURED else []
    if isinstance(training.parameterization, KeyQuery):
        said = "gradient flow of (K, Q) is biased to the nuclear norm; proved under assumptions on alignment"
        made.append(Result(said, "[TaSVM, key-query bias]", training.get(*_FIXED, "separable", "aligned")))
    if isinstance(training.head, LinearHead):
        said = "from a favourable first gradient the direction tends to that of the optimal selection"
        assumed = training.get("linear", "fixed", "W", "unique", "separable", "first gradient", "nearly B2")
        made.append(Result(said, "[TaSVM, talk, nearly equal scores]", assumed))
    else:
        said = "several tokens may be kept: W is about W_fin + C W_svm of the generalized SVM"
        made.append(Result(said, "[TaSVM, generalized SVM]", training.get("fixed", "loss")))
    return tuple(made)
