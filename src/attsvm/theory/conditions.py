"""The assumptions of the theorems as code: each says whether it holds, by how much, and whose it is."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attsvm.attention import LinearHead, Loss, evaluate, gradient, lipschitz_bound, optimal_token_set, token_scores
from attsvm.attention.prediction_heads import as_head
from attsvm.attention.scores import linear_only, tie_line
from attsvm.data import TokenDataset
from attsvm.data.checks import ArrayLike, as_tensor, check_shape
from attsvm.norms import Norm
from attsvm.svm import AttentionSVM, SVMSolution
from attsvm.svm.solution import SUPPORT_TOLERANCE
from attsvm.theory.enumeration import every_separable_selection
from attsvm.theory.optimality import solve_or_retry

_EXACT = 200_000  # products of exact numbers that are worth a proof that scores tie
_SLACK = 1e-6  # for rounding, in a logarithm, of a start below the barrier
_GLOBAL = "[TaSVM, global convergence]"


@dataclass(frozen=True, eq=False)
class Condition:
    """An assumption of a theorem, checked on every data set of a batch."""

    name: str  #: what it is called
    holds: Bool[Tensor, "*batch"]
    #: by how much it holds (positive) or fails (negative), in the unit the function's docstring names; conditions that
    #: are equalities have margin at most 0, minus the amount by which they miss
    margin: Float[Tensor, "*batch"]
    sentence: str  #: what was asked, and of what
    citation: str  #: key and subject of the result that needs it
    #: where the answer is proved by what was computed, and does not rest on samples or a bound; everywhere by default
    certain: Bool[Tensor, "*batch"] = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        if self.certain is None:
            object.__setattr__(self, "certain", torch.ones_like(self.holds))

    @property
    def proved(self) -> Bool[Tensor, "*batch"]:
        """Where it is certain that the condition holds: all that a theorem may rest on."""
        return self.holds & self.certain

    @property
    def refuted(self) -> Bool[Tensor, "*batch"]:
        """Where it is certain that the condition fails; where neither, it is not known."""
        return ~self.holds & self.certain

    def __bool__(self) -> bool:
        if self.holds.ndim:
            raise ValueError(f"the condition '{self.name}' was checked on a batch; use .holds")
        return bool(self.holds)

    def __str__(self) -> str:
        if self.holds.ndim == 0:
            verdict = "holds" if bool(self.holds) else "fails" if bool(self.certain) else "not known"
            verdict += f" (margin {self.margin.item():.3g}{'' if bool(self.certain) else ', not proved'})"
        else:
            verdict, unknown = f"holds for {int(self.holds.sum())} of {self.holds.numel()}", ~self.holds & ~self.certain
            verdict += f", not known for {int(unknown.sum())}" if bool(unknown.any()) else ""
        return f"{self.name}: {verdict}; {self.sentence} {self.citation}"


def unique_optimum(data: TokenDataset, head: object = None) -> Condition:
    """Whether one token of every input scores strictly best [TaSVM, regularization path].

    Margin: the smallest lead ``gamma_i,opt - max_t gamma_it`` over the inputs; inf where every input has one token.
    A lead within round-off of the scores counts as a tie.
    """
    own = as_head(head, data)
    scores = token_scores(data, own).double()
    lead = leads(scores)
    holds = (lead > tie_line(data, scores, own)).all(-1)
    said = "the best token of every input must out-score all others"
    return Condition("unique optimum", holds, lead.amin(-1), said, "[TaSVM, regularization path]")


def all_tokens_support(
    data: TokenDataset,
    head: object = None,
    norm: Norm | None = None,
    *,
    selected: ArrayLike | None = None,
    solution: SVMSolution | None = None,
) -> Condition:
    """B1: every token that is not selected is a support token of the SVM [TaSVM, global convergence].

    Without `selected` the head decides: the optimal tokens, the first where several tie. `solution` is that of the
    SVM, if at hand.

    Margin: minus the largest excess of a margin over 1 (support: at most 1e-6); -inf where the SVM has no solution.
    `certain` where it fails, and where every multiplier is clearly positive, so that the constraints of the exact
    solution are tight too.
    """
    if selected is None:
        selected = optimal_token_set(data, head).to(torch.int64).argmax(-1)
    problem = AttentionSVM(data, selected)
    solution = solution if solution is not None else solve_or_retry(problem, norm)
    margin = torch.where(solution.solved, -_excess(solution.margins), -math.inf)
    holds = margin >= -SUPPORT_TOLERANCE
    rows = problem.inequalities
    weight = solution.duals.masked_fill(~rows, 0.0).amax((-1, -2))
    least = solution.duals.masked_fill(~rows, math.inf).amin((-1, -2))
    certain = torch.where(holds, least > SUPPORT_TOLERANCE * weight, solution.solved | solution.infeasible)
    said = "all constraints of the SVM of the optimal tokens must be tight"
    return Condition("B1: all tokens support", holds, margin, said, _GLOBAL, certain)


def all_tokens_support_everywhere(data: TokenDataset, norm: Norm | None = None, limit: int = 200_000) -> Condition:
    """Whether all tokens support the SVM of *every* selection that can be separated [TaSVM, global convergence].

    Then no selection but the optimal one is locally optimal: any other has a better token among its neighbours. All
    selections are solved, so this is for small problems, of at most `limit` candidate selections.

    Margin: the smallest over the selections, as in `all_tokens_support`.
    """
    flat, found = data.flatten(), []
    for element in range(len(flat)):
        kept, margins, undecided = every_separable_selection(flat[element], norm, limit)
        found.append((-float(_excess(margins).amax()) if len(kept) else math.inf, undecided == 0))
    columns = torch.tensor(found, dtype=torch.float64, device=data.device).reshape(*data.batch_shape, 2)
    margin, proved = columns[..., 0], columns[..., 1] > 0
    said = "all constraints of the SVM of every separable selection must be tight"
    return Condition("B1 for every selection", margin >= -SUPPORT_TOLERANCE, margin, said, _GLOBAL, proved)


def equal_scores_condition(data: TokenDataset, head: object = None) -> Condition:
    """B2: all tokens of an input but the optimal one share one score [TaSVM, global convergence].

    Under it no finite W is stationary. With one input (n = 1) every start converges in direction to W_mm(opt). With
    more it need not: tokens that tie do not pull, so an input on a wrong token keeps it if its optimal token trails by
    more than the margin of the other inputs' own SVM (docs/proved.md has a counterexample with two inputs). Needs a
    unique optimum and a linear head.

    Margin: minus the largest spread of non-optimal scores (within round-off of 0: holds); -inf if the optimum ties.
    `certain` where it fails, and where the scores are equal in exact arithmetic and not to round-off only.
    """
    own = linear_only(head, data, "equal_scores_condition")
    scores = token_scores(data, own).double()
    line = tie_line(data, scores, own)
    unique = (leads(scores) > line).all(-1)
    others = scores.scatter(-1, scores.argmax(-1, keepdim=True), -math.inf)  # as masked tokens
    real = torch.isfinite(others)
    spread = (others.amax(-1) - others.masked_fill(~real, math.inf).amin(-1)).clamp(min=0.0)
    holds = unique & (spread <= line).all(-1)
    margin, certain = torch.where(unique, -spread.amax(-1), -math.inf), ~holds | _exactly_equal(data, own, real, holds)
    said = "all tokens of an input except its unique best must share one score"
    return Condition("B2: equal scores", holds, margin, said, _GLOBAL, certain)


def _exactly_equal(data: TokenDataset, head: LinearHead, asked: Tensor, where: Tensor) -> Bool[Tensor, "*batch"]:
    """Whether the scores of the tokens `asked` for are equal in exact arithmetic; False where that is too much work."""
    flat, kept = data.flatten(), asked.reshape(-1, data.n, data.T)
    vectors = head.vector.expand(*data.batch_shape, data.dv).reshape(-1, data.dv)
    found = (kept.sum(-1) <= 1).all(-1)  # one other token: nothing to compare
    left = torch.nonzero(where.reshape(-1) & ~found).flatten().tolist()
    exact = np.frompyfunc(Fraction, 1, 1)
    for element in left if len(left) * data.n * data.T * data.dv <= _EXACT else ():
        scores = exact(flat.input_values[element].cpu().numpy()) @ exact(vectors[element].cpu().numpy())
        rows = zip(scores, kept[element].cpu().numpy(), strict=True)
        found[element] = all(len(set(row[mask])) <= 1 for row, mask in rows)
    return found.reshape(where.shape)


def favourable_first_gradient(data: TokenDataset, head: object = None, loss: Loss | None = None) -> Condition:
    """Whether the first step from zero already selects the optimal tokens [TaSVM, global convergence].

        (x_i,opt - x_it)^T (-grad L(0)) z_i > 0   for every input i and token t != opt_i

    Then ``W(1) = -R grad L(0)/||grad L(0)||`` with R large lies in the margin cone of opt and small steps stay in it;
    small steps from 0 may leave it for a while.

    Margin: the smallest left side over ``||grad L(0)||_F``; inf without rows, 0 where the gradient vanishes. Where the
    optimum of an input ties there is no one token to favour: not known, with margin NaN.
    """
    own = as_head(head, data)
    unique = unique_optimum(data, own).holds
    best = token_scores(data, own).argmax(-1)
    start = torch.zeros(*data.batch_shape, data.d, data.dq, dtype=data.dtype, device=data.device)
    direction = -gradient(data, start, own, loss)["weights"].normalized().double()
    problem = AttentionSVM(data, best)
    margin = problem.smallest_ratio(problem.margins(direction))
    holds, margin = unique & (margin > 0), margin.masked_fill(~unique, math.nan)
    said = "minus the gradient at zero must rank the optimal token of every input first"
    return Condition("favourable first gradient", holds, margin, said, _GLOBAL, unique)


def step_size_bound(
    data: TokenDataset, head: object = None, step_size: float | ArrayLike = 0.1, loss: Loss | None = None
) -> Condition:
    """Whether plain gradient descent on W steps at most 1/L, L the Lipschitz bound of the gradient [TaSVM, descent].

    Then the risk never increases. Sufficient only, and about ``GradientDescent``: normalized steps have no such bound.
    `step_size` is eta, one positive number or ``[*batch]``. Needs a linear head and a loss that states its bounds.

    Margin: ``1 / L - eta``; inf where the risk is constant.
    """
    bound = lipschitz_bound(data, head, loss).double()
    size = as_tensor(step_size, "step_size").to(device=data.device, dtype=torch.float64)
    if size.ndim:
        check_shape(size, "step_size", data.batch_shape, "batch")
    if not bool(((size > 0) & torch.isfinite(size)).all()):
        raise ValueError(f"step_size must be positive and finite; got {step_size!r}")
    margin = torch.where(bound > 0, 1 / bound, math.inf) - size
    said = "the step of plain gradient descent must not exceed 1 / L"
    return Condition("step size", margin >= 0, margin, said, "[TaSVM, descent]")


def nearly_equal_scores(data: TokenDataset, head: object = None) -> Condition:
    """The talk's form of B2: the scores of non-optimal tokens are nearly equal [TaSVM, talk].

    The talk names no bound, so this is never proved: it counts as holding where the scores of the other tokens of every
    input spread by less than a tenth of the optimal token's lead, and `certain` is False unless they are equal. Needs a
    linear head.

    Margin: 1 minus the largest spread over lead; -inf if the optimum ties.
    """
    exact = equal_scores_condition(data, head)
    lead = leads(token_scores(data, head).double()).amin(-1)
    known = torch.isfinite(exact.margin)
    margin = torch.where(known, 1 + torch.where(known, exact.margin, 0.0) / lead.clamp(min=1e-300), -math.inf)
    holds, certain = exact.holds | (margin > 0.9), exact.holds | ~known
    said = "the other scores must be nearly equal; how nearly is not said (here: a tenth of the lead)"
    return Condition("nearly equal scores", holds, margin, said, "[TaSVM, talk]", certain)


def below_the_barrier(
    data: TokenDataset, head: object, weights: ArrayLike, loss: Loss, solution: SVMSolution
) -> Condition:
    """Whether the risk at the start is so low that descent can only end at the optimal tokens (derived here).

    With a linear head, a unique optimum o_i of lead ``g_i`` over the second-best score, and weights that separate it,

        n (L(W) - L_*) < E_i = loss(gamma_o - g_i) - loss(gamma_o)   for every input i

    bars the way to other tokens: a descent that never raises the risk, in steps of at most 1 / L that are not summable,
    brings attention to 1 on every optimal token. The proof is in docs/proved.md, (p). ``E_i`` is the risk of input i
    wholly on its second-best token: no larger barrier of this kind can be had. The start itself may still have most of
    its attention elsewhere. It says nothing about selections that are not optimal, and nothing where it fails. The head
    is linear, `weights` are the start W(0), the loss is strictly decreasing, and `solution` is that of the SVM of the
    optimal tokens.

    Margin: the logarithm of the smallest barrier over the excess risk of the start; inf where there is one token for
    each input. `certain` only where it holds: it is sufficient, not necessary.
    """
    own = linear_only(head, data, "below_the_barrier")
    scores = token_scores(data, own).double()
    best = scores.amax(-1)
    lead, real = leads(scores), torch.isfinite(scores)
    several = real.sum(-1) > 1
    gaps = (best.unsqueeze(-1) - scores).masked_fill(~real, 0.0)
    log_attention = evaluate(data, weights, own, loss).log_attention.double()
    shortfall = torch.logsumexp(log_attention.masked_fill(~real, -math.inf) + gaps.clamp(min=0.0).log(), -1)
    excess = loss.log_excess(best, shortfall).masked_fill(~several, -math.inf)
    barrier = loss.log_excess(best, torch.where(several, lead.log(), 0.0)).masked_fill(~several, math.inf)
    margin = barrier.amin(-1) - torch.logsumexp(excess, -1)
    margin = torch.where(solution.separable & (lead > 0).all(-1), margin, -math.inf)
    holds = margin > _SLACK
    said = "the start's risk must be too low for descent to leave the optimal tokens"
    return Condition("start below the barrier", holds, margin, said, "derived here (docs/proved.md)", holds)


def leads(scores: Float[Tensor, "*batch n T"], chosen: Tensor | None = None) -> Float[Tensor, "*batch n"]:
    """Lead of the chosen token of every input, the best one if None, over the best other; inf where there is none."""
    index = (scores.argmax(-1) if chosen is None else chosen).unsqueeze(-1)
    return scores.gather(-1, index).squeeze(-1) - scores.scatter(-1, index, -math.inf).amax(-1)


def _excess(margins: Float[Tensor, "*batch n T"]) -> Float[Tensor, "*batch"]:
    """The largest excess of a margin over 1; where there is no row the margin is 0 and exceeds nothing."""
    return (margins - 1).clamp(min=0.0).amax((-1, -2))
