"""The results of the papers with all the conditions they rest on, and the conjectures, apart from them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attsvm import attention
from attsvm.attention import KeyQuery, LinearHead, Logistic, Loss, Weights
from attsvm.data import TokenDataset
from attsvm.descent import Constant, Geometric, GradientDescent, InverseSqrt, LipschitzStep, Optimizer
from attsvm.svm import SVMSolution
from attsvm.theory import conditions, mixtures
from attsvm.theory.conditions import Condition
from attsvm.theory.diagnosis.implicit_bias import ImplicitBias, Standing
from attsvm.theory.separability import separable_by_dimension
from attsvm.theory.several_optimal import several_optimal

_RANK, _UNCLEAR = 1e-6, 1e-9  # singular values over the largest: counted, and between the two: not known
_SMALL = 256  # selections of a whole batch that are cheap enough to solve without being asked
_LOSSES = (Logistic, attention.Exponential, attention.Linear)
PLAIN = "the optimizer must be gradient descent, not normalized and in no other norm"
CONSTANT = "all steps must have one size"
_GLOBAL, _DESCENT, _PATH = "[TaSVM, global convergence]", "[TaSVM, descent]", "[TaSVM, regularization path]"


@dataclass(eq=False)
class Training:
    """What is diagnosed, data in float64, and the conditions of theorems on data and training, each checked once."""

    data: TokenDataset
    head: attention.Head
    loss: Loss
    parameterization: attention.Parameterization
    optimizer: Optimizer
    train_head: bool
    bias: ImplicitBias
    start: Mapping[str, Tensor] | None  # parameters, batch axes flattened; None where no start was given
    start_weights: Float[Tensor, "*batch d dq"] | None
    optimal: Int[Tensor, "*batch n"]
    solution: SVMSolution  # of the optimal tokens
    enumerate_local: int = 0
    checked: dict[str, Condition] = field(default_factory=dict)  # in the order in which they are listed

    def get(self, *asked: str | Condition) -> tuple[Condition, ...]:
        """The conditions of these names, checked where they were not yet; conditions stay as they are."""
        for name in asked:
            if isinstance(name, str) and name not in self.checked:
                self.checked[name] = _CHECKS[name](self)
        return tuple(self.checked[each] if isinstance(each, str) else each for each in asked)


_Check = Callable[[Training], Condition]


def everywhere(
    data: TokenDataset, name: str, answer: bool | None, sentence: str, citation: str, margin: float = math.nan
) -> Condition:
    """A condition with the same answer on every data set; None means that it is not known."""
    margins = torch.full(data.batch_shape, margin, dtype=torch.float64, device=data.device)
    holds, certain = (torch.full_like(margins, each, dtype=torch.bool) for each in (bool(answer), answer is not None))
    return Condition(name, holds, margins, sentence, citation, certain)


def either(name: str, first: Condition, second: Condition) -> Condition:
    """Whether one of two conditions holds."""
    holds, margin = first.holds | second.holds, torch.maximum(first.margin, second.margin)
    certain = first.proved | second.proved | (first.refuted & second.refuted)
    return Condition(name, holds, margin, f"{first.sentence}; or {second.sentence}", first.citation, certain)


def step_growth(optimizer: Optimizer) -> float:
    """The factor by which step sizes grow at each step; NaN for a schedule of the user's own."""
    schedule = optimizer.schedule
    if isinstance(schedule, InverseSqrt):  # it shrinks, but its sum is infinite
        return math.inf
    if isinstance(schedule, Geometric):
        return schedule.growth
    return 1.0 if isinstance(schedule, (Constant, LipschitzStep)) else math.nan


def constant_steps(optimizer: Optimizer) -> bool | None:
    """Whether all steps have one size; None if that is not known."""
    growth = step_growth(optimizer)
    return None if math.isnan(growth) else growth == 1


def _lasting_steps(training: Training) -> bool | None:
    growth = step_growth(training.optimizer)
    return None if math.isnan(growth) else growth >= 1


def _fact(name: str, sentence: str, answer: Callable[[Training], bool | None], citation: str = "[TaSVM]") -> _Check:
    """A check with one answer for all data sets, which the training decides."""
    return lambda it: everywhere(it.data, name, answer(it), sentence, citation)


def _bounded_steps(training: Training) -> Condition:
    """Whether no step of plain gradient descent on W is longer than 1 / L times the gradient.

    Not known for another optimizer, a nonlinear head, a custom loss or a schedule of the user's own, for which we have
    no bound. Margin: ``1 / L`` minus the largest step size.
    """
    name, said, schedule = "steps at most 1/L", "no step size may exceed 1 / L", training.optimizer.schedule
    largest = None
    if isinstance(schedule, Geometric):
        largest = schedule.largest if schedule.growth > 1 else min(schedule.size, schedule.largest)
    elif isinstance(schedule, (Constant, InverseSqrt, LipschitzStep)):
        largest = float(schedule.fraction if isinstance(schedule, LipschitzStep) else schedule.size)
    usable = isinstance(training.head, LinearHead) and isinstance(training.loss, _LOSSES)
    if largest is None or not usable or not isinstance(training.optimizer, GradientDescent):
        return everywhere(training.data, name, None, said, _DESCENT)
    bound = attention.lipschitz_bound(training.data, training.head, training.loss).double()
    limit = torch.where(bound > 0, 1 / bound, math.inf)
    spare = (1 - largest) * limit if isinstance(schedule, LipschitzStep) else limit - largest
    margin = torch.where(bound > 0, spare, math.inf)
    return Condition(name, margin >= 0, margin, said, _DESCENT)


def _separable(training: Training) -> Condition:
    """Whether some weights separate the optimal tokens: yes with weights in hand, no with a proof, else not known.

    Margin: the largest margin found at norm 1; where not known, minus 1 over the norm below which no weights separate.
    """
    solution = training.solution
    bound = solution.certificate.dual_value.clamp(min=1e-300)
    missing = torch.where(solution.infeasible, -torch.inf, -1 / bound)
    margin = torch.where(solution.separable, 1 / solution.certificate.primal_value, missing)
    said = "some weights give every optimal token a margin over the others; margin: the largest found at norm 1"
    name, citation = "separable optimum", "[TaSVM, separability]"
    return Condition(name, solution.separable, margin, said, citation, ~solution.undecided)


def _rank(training: Training) -> Condition:
    """Whether K and Q have columns enough for a nuclear-norm solution [TaSVM, regularization path].

    It holds from min(n, d, dq) columns on, and from the rank of the certified solution on: the ball cut at that rank
    then has the same optimum. Below, another solution might have a smaller rank, unless the solution is unique.
    Margin: columns to spare.
    """
    name, data, solution = "rank of K and Q", training.data, training.solution
    if not isinstance(training.parameterization, KeyQuery):
        return everywhere(data, name, None, "K and Q must be trained", _PATH)
    columns = training.parameterization.shapes(data)["key"][1]
    values = torch.linalg.svdvals(torch.nan_to_num(solution.weights))
    share = values / values[..., :1].clamp(min=1e-300)
    rank, most = (share > _RANK).sum(-1), min(data.n, data.d, data.dq)
    clear = ~((share <= _RANK) & (share > _UNCLEAR)).any(-1) & solution.solved
    holds = torch.full_like(clear, columns >= most) | (clear & (columns >= rank))
    margin = (columns - torch.where(solution.solved, rank, most)).double()
    said = f"K and Q have {columns} columns; a nuclear-norm solution must not need more"
    return Condition(name, holds, margin, said, _PATH, holds | (clear & solution.unique & (columns < rank)))


def _aligned(training: Training) -> Condition:
    """How far K and Q are from being balanced, K^T K = Q^T Q, at the start [TaSVM, key-query bias].

    The nuclear bias is proved for gradient flow under assumptions on how the factors are aligned with the solution.
    These are not checked here, so the answer is always "not known"; the margin is the one number that is cheap:
    minus ``||K^T K - Q^T Q||_F`` over ``||K^T K||_F + ||Q^T Q||_F``.
    """
    said = "K and Q must be aligned with the solution, which is not checked; margin: minus their relative imbalance"
    unknown = everywhere(training.data, "aligned factors", None, said, "[TaSVM, key-query bias]")
    if training.start is None or "key" not in training.start:
        return unknown
    key, query = (training.start[each].mT @ training.start[each] for each in ("key", "query"))
    size = torch.linalg.matrix_norm(key) + torch.linalg.matrix_norm(query)
    off = torch.linalg.matrix_norm(key - query) / size.clamp(min=1e-300)
    return replace(unknown, margin=-off.reshape(training.data.batch_shape).double())


def _several(training: Training) -> Condition:
    best = attention.optimal_token_set(training.data, training.head)
    found = several_optimal(training.data, best, limit=_SMALL)
    # Where all tokens tie the risk is constant, and nothing is selected.
    tied = ~training.get("unique")[0].holds & (training.data.real & ~best).any(-1).any(-1)
    solved = tied & found.solution.solved
    margin, name = torch.where(solved, 1 / found.value, -torch.inf), "several optima, separable"
    said = "some choice of one optimal token for each input must be separable from tokens outside the optimum"
    return Condition(name, solved, margin, said, "[TaSVM, several optima]", ~tied | found.exact)


def _everywhere(training: Training) -> Condition:
    counts = training.data.real.sum(-1).double().prod(-1)
    if float(counts.sum()) <= _SMALL or float(counts.max()) <= training.enumerate_local:
        return conditions.all_tokens_support_everywhere(training.data, training.bias.norm)
    said = f"all constraints of every SVM must be tight; not checked on up to {float(counts.max()):.3g} selections"
    return everywhere(training.data, "B1 for every selection", None, said, _GLOBAL)


def _barrier(training: Training) -> Condition:
    if training.start_weights is None:
        said = "the start's risk must be too low for descent to leave the optimal tokens; no start was given"
        return everywhere(training.data, "start below the barrier", None, said, "derived here (docs/proved.md)")
    start, loss = training.start_weights, training.loss
    return conditions.below_the_barrier(training.data, training.head, start, loss, training.solution)


_LINEAR, _FIXED = "the prediction head must be linear", "the prediction head must not be trained"
_SLOPE = "the loss must decrease strictly, with a bounded, Lipschitz slope on bounded intervals"
_SUM, _LOGISTIC = "the step sizes must not have a finite sum", "the loss must be logistic"
_CHECKS: dict[str, _Check] = {
    "linear": _fact("linear prediction head", _LINEAR, lambda it: isinstance(it.head, LinearHead)),
    "fixed": _fact("fixed prediction head", _FIXED, lambda it: not it.train_head),
    "loss": _fact("loss", _SLOPE, lambda it: isinstance(it.loss, _LOSSES) or None),
    "W": _fact("W is trained", "W itself must be trained", lambda it: isinstance(it.parameterization, Weights)),
    "plain": _fact("plain gradient descent", PLAIN, lambda it: isinstance(it.optimizer, GradientDescent), _DESCENT),
    "constant": _fact("constant steps", CONSTANT, lambda it: constant_steps(it.optimizer), _DESCENT),
    "lasting": _fact("steps not summable", _SUM, _lasting_steps, _DESCENT),
    "logistic": _fact("logistic loss", _LOGISTIC, lambda it: isinstance(it.loss, Logistic), "[MMTS, joint training]"),
    "unique": lambda it: conditions.unique_optimum(it.data, it.head),
    "by dimension": lambda it: separable_by_dimension(it.data),
    "separable": _separable,
    "step": _bounded_steps,
    "one input": lambda it: everywhere(
        it.data, "one input", it.data.n == 1, "there must be one input", _GLOBAL, 1 - it.data.n
    ),
    "B1": lambda it: conditions.all_tokens_support(it.data, it.head, selected=it.optimal, solution=it.solution),
    "B2": lambda it: conditions.equal_scores_condition(it.data, it.head),
    "nearly B2": lambda it: conditions.nearly_equal_scores(it.data, it.head),
    "B1 everywhere": _everywhere,
    "first gradient": lambda it: conditions.favourable_first_gradient(it.data, it.head, it.loss),
    "barrier": _barrier,
    "rank": _rank,
    "aligned": _aligned,
    "one winner": lambda it: mixtures.one_winner(it.data, it.head),
    "several": _several,
    "label margin": lambda it: mixtures.label_margin_assumption(it.data, it.optimal, samples=16),
}


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


_HEAD_AND_LOSS = ("linear", "fixed", "loss")
_LANDSCAPE = (*_HEAD_AND_LOSS, "W", "unique", "separable")
_STEPS = ("plain", "step", "constant")


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
    get(*_STEPS)
    flat = either("B1 or B2", *get("B1", "B2"))
    said = "from every start the direction tends to that of the optimal selection"
    cited = "[TaSVM, global convergence, B2, one input]"
    add("every start", cited, said, *_LANDSCAPE, *_STEPS, "B2", "one input")
    said = "from this start attention tends to 1 on every optimal token"
    add("this start", "derived here (docs/proved.md)", said, *_LANDSCAPE, "plain", "step", "lasting", "barrier")
    add("stationary", _GLOBAL, "no finite W is a stationary point of the risk", *_LANDSCAPE, flat)
    add("norm", _GLOBAL, "the norm grows without bound from every start", *_LANDSCAPE, *_STEPS, flat)
    said = "after one large first step from zero, these steps tend to the direction of the optimal selection"
    add("first gradient", "[TaSVM, favourable first gradient]", said, *_LANDSCAPE, *_STEPS, "first gradient")
    said = "no selection but the optimal one is locally optimal"
    add("only", _GLOBAL, said, "linear", "unique", "B1 everywhere")
    if isinstance(training.parameterization, KeyQuery):
        said = "the regularization path of (K, Q) tends to the set of nuclear-norm solutions of the optimal selection"
        add("path", _PATH, said, *_HEAD_AND_LOSS, "unique", "separable", "rank")
    else:
        said = "the regularization path tends to the max-margin direction of the optimal selection"
        add("path", _PATH, said, *_LANDSCAPE)
        if not bool(unique.holds.all()):
            said = "the path tends to the best of the SVMs that keep one optimal token of each input"
            add("several", "[TaSVM, several optima]", said, *_HEAD_AND_LOSS, "W", "several")
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
    return Result(said, bias.citation, training.get(*_HEAD_AND_LOSS, *steps, locally_optimal, cone))


def conjectures(training: Training, local: Result) -> tuple[Result, ...]:
    """What is conjectured, or stated without a bound; nothing here is called proved."""
    made = [local] if training.bias.standing is Standing.CONJECTURED else []
    if isinstance(training.parameterization, KeyQuery):
        said = "gradient flow of (K, Q) is biased to the nuclear norm; proved under assumptions on alignment"
        made.append(Result(said, "[TaSVM, key-query bias]", training.get(*_HEAD_AND_LOSS, "separable", "aligned")))
    if isinstance(training.head, LinearHead):
        said = "from a favourable first gradient the direction tends to that of the optimal selection"
        assumed = training.get("linear", "fixed", "W", "unique", "separable", "first gradient", "nearly B2")
        made.append(Result(said, "[TaSVM, talk, nearly equal scores]", assumed))
    else:
        said = "several tokens may be kept: W is about W_fin + C W_svm of the generalized SVM"
        made.append(Result(said, "[TaSVM, generalized SVM]", training.get("fixed", "loss")))
    return tuple(made)
