"""The assumptions of the theorems as code: each says whether it holds, by how much, and whose it is."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attsvm._checks import ArrayLike, as_tensor, check_shape
from attsvm.attention import (
    Head,
    LinearHead,
    Loss,
    QuadraticHead,
    ReluHead,
    gradient,
    lipschitz_bound,
    optimal_token_set,
    token_scores,
)  # fmt: skip
from attsvm.attention.module_head import as_head
from attsvm.data import TokenDataset, stream_keys, streams
from attsvm.data.streams import Seed
from attsvm.norms import Norm
from attsvm.svm import AttentionSVM, SVMSolution, label_svm
from attsvm.svm.solution import SUPPORT_TOLERANCE
from attsvm.theory.enumeration import every_separable_selection
from attsvm.theory.optimality import effective_scores, solve_or_retry, tie_line, values_of_inputs

_PURPOSE = 9


@dataclass(frozen=True, eq=False)
class Condition:
    """An assumption of a theorem, checked on every data set of a batch.

    Attributes:
        name: what it is called.
        holds: ``[*batch]``.
        margin: by how much it holds (positive) or fails (negative), in the unit the function's docstring names;
            conditions that are equalities have margin at most 0, minus the amount by which they miss.
        sentence: what was asked, and of what.
        citation: key and subject of the result that needs it.
        certain: where the answer is proved by what was computed; False where it rests on samples or a bound.
    """

    name: str
    holds: Bool[Tensor, "*batch"]
    margin: Float[Tensor, "*batch"]
    sentence: str
    citation: str
    certain: Bool[Tensor, "*batch"] | None = None

    def __post_init__(self) -> None:
        if self.certain is None:
            object.__setattr__(self, "certain", torch.ones_like(self.holds))

    def __bool__(self) -> bool:
        if self.holds.ndim:
            raise ValueError(f"the condition '{self.name}' was checked on a batch; use .holds")
        return bool(self.holds)

    def __str__(self) -> str:
        if self.holds.ndim == 0:
            verdict = "holds" if bool(self.holds) else "fails"
            verdict += f" (margin {self.margin.item():.3g}{'' if bool(self.certain) else ', not proved'})"
        else:
            verdict = f"holds for {int(self.holds.sum())} of {self.holds.numel()}"
        return f"{self.name}: {verdict}; {self.sentence} {self.citation}"


def unique_optimum(data: TokenDataset, head: object = None) -> Condition:
    """Whether one token of every input scores strictly best [TaSVM, regularization path].

    Margin: the smallest lead ``gamma_i,opt - max_t gamma_it`` over the inputs; inf where every input has one token.
    A lead within round-off of the scores counts as a tie.
    """
    scores = token_scores(data, head).double()
    lead = _leads(scores)
    return Condition(
        name="unique optimum",
        holds=(lead > tie_line(data, scores)).all(-1),
        margin=lead.amin(-1),
        sentence="the best token of every input must out-score all others",
        citation="[TaSVM, regularization path]",
    )


def all_tokens_support(
    data: TokenDataset,
    head: object = None,
    norm: Norm | None = None,
    *,
    selected: ArrayLike | None = None,
    solution: SVMSolution | None = None,
) -> Condition:
    """B1: every token that is not selected is a support token of the SVM [TaSVM, global convergence].

    Arguments:
        data: ``[*batch]`` data sets.
        head: decides the selection, the optimal tokens (the first where several tie).
        norm: `Frobenius()` by default.
        selected: another selection ``[*batch, n]``.
        solution: of its SVM, if at hand.

    Margin: minus the largest excess of a margin over 1 (support: at most 1e-6); -inf where the SVM has no solution.
    """
    if selected is None:
        selected = optimal_token_set(data, head).to(torch.int64).argmax(-1)
    problem = AttentionSVM(data, selected)
    solution = solution if solution is not None else solve_or_retry(problem, norm)
    margin, holds = _support(solution.margins, problem.inequalities, solution.solved)
    return Condition(
        name="B1: all tokens support",
        holds=holds,
        margin=margin,
        sentence="all constraints of the SVM of the optimal tokens must be tight",
        citation="[TaSVM, global convergence]",
        certain=solution.solved | solution.infeasible,
    )


def all_tokens_support_everywhere(data: TokenDataset, norm: Norm | None = None, limit: int = 200_000) -> Condition:
    """Whether all tokens support the SVM of *every* selection that can be separated [TaSVM, global convergence].

    Then the optimal selection is the only locally optimal one: any other has the better token among its neighbours.
    All selections are solved, so this is for small problems.

    Margin: the smallest over the selections, as in `all_tokens_support`.

    Raises:
        ValueError: if a data set has more than `limit` candidate selections.
    """
    flat = data.flatten()
    margins, certain = [], []
    for element in range(len(flat)):
        kept, found, undecided = every_separable_selection(flat[element], norm, limit)
        problem_rows = _rows(flat[element], kept)
        margin, _ = _support(found, problem_rows, torch.ones(len(kept), dtype=torch.bool, device=data.device))
        margins.append(margin.amin() if len(kept) else margin.new_tensor(math.inf))
        certain.append(undecided == 0)
    margin = torch.stack(margins).reshape(data.batch_shape)
    return Condition(
        name="B1 for every selection",
        holds=margin >= -SUPPORT_TOLERANCE,
        margin=margin,
        sentence="all constraints of the SVM of every separable selection must be tight",
        citation="[TaSVM, global convergence]",
        certain=torch.tensor(certain, device=data.device).reshape(data.batch_shape),
    )


def equal_scores_condition(data: TokenDataset, head: object = None) -> Condition:
    """B2: all tokens of an input but the optimal one share one score [TaSVM, global convergence].

    Under it no finite W is stationary and, says the paper, every start converges in direction to W_mm(opt). Needs a
    unique optimum and a linear head. We see all starts of norm 1 do so, but of starts of norm 20 about one in a hundred
    does not (n = 4, T = 6, d = 10): tied tokens do not pull, so an input on a wrong token keeps it if its optimal token
    trails by more than the margin of the other inputs' own SVM; the run then tends to that reduced SVM.

    Margin: minus the largest spread of non-optimal scores (within round-off of 0: holds); -inf if the optimum ties.

    Raises:
        ValueError: for a nonlinear head.
    """
    scores = token_scores(data, _linear(head, data, "equal_scores_condition")).double()
    line = tie_line(data, scores)
    unique = (_leads(scores) > line).all(-1)
    others = scores.scatter(-1, scores.argmax(-1, keepdim=True), math.nan)
    real = torch.isfinite(others)
    low, high = others.masked_fill(~real, math.inf).amin(-1), others.masked_fill(~real, -math.inf).amax(-1)
    spread = (high - low).clamp(min=0.0)
    return Condition(
        name="B2: equal scores",
        holds=unique & (spread <= line).all(-1),
        margin=torch.where(unique, -spread.amax(-1), -math.inf),
        sentence="all tokens of an input except its unique best must share one score",
        citation="[TaSVM, global convergence]",
    )


def favourable_first_gradient(data: TokenDataset, head: object = None, loss: Loss | None = None) -> Condition:
    """Whether the first step from zero already selects the optimal tokens [TaSVM, global convergence].

        (x_i,opt - x_it)^T (-grad L(0)) z_i > 0   for every input i and token t != opt_i

    Then ``W(1) = -R grad L(0)/||grad L(0)||`` with R large lies in the margin cone of opt and small steps stay in it;
    small steps from 0 may leave it for a while.

    Margin: the smallest left side over ``||grad L(0)||_F``; inf without rows, 0 where the gradient vanishes.

    Raises:
        ValueError: if the optimum of an input ties.
    """
    own = as_head(head, data)
    best = _one_best(data, own)
    start = torch.zeros(*data.batch_shape, data.d, data.dq, dtype=data.dtype, device=data.device)
    direction = -gradient(data, start, own, loss)["weights"].normalized().double()
    problem = AttentionSVM(data, best)
    margin = problem.margins(direction).masked_fill(~problem.inequalities, math.inf).amin((-1, -2))
    return Condition(
        name="favourable first gradient",
        holds=margin > 0,
        margin=margin,
        sentence="minus the gradient at zero must rank the optimal token of every input first",
        citation="[TaSVM, global convergence]",
    )


def step_size_bound(
    data: TokenDataset, head: object = None, step_size: float | ArrayLike = 0.1, loss: Loss | None = None
) -> Condition:
    """Whether plain gradient descent on W steps at most 1/L, L the Lipschitz bound of the gradient [TaSVM, descent].

    Then the risk never increases. Sufficient only, and about ``GradientDescent``: normalized steps have no such bound.

    Arguments:
        step_size: eta, one positive number or ``[*batch]``.

    Margin: ``1 / L - eta``; inf where the risk is constant.

    Raises:
        ValueError: for a nonlinear head or a custom loss, which state no bound.
    """
    bound = lipschitz_bound(data, head, loss).double()
    size = as_tensor(step_size, "step_size").to(device=data.device, dtype=torch.float64)
    if size.ndim:
        check_shape(size, "step_size", data.batch_shape, "batch")
    if not bool(((size > 0) & torch.isfinite(size)).all()):
        raise ValueError(f"step_size must be positive and finite; got {step_size!r}")
    margin = torch.where(bound > 0, 1 / bound, math.inf) - size
    return Condition(
        name="step size",
        holds=margin >= 0,
        margin=margin,
        sentence="the step of plain gradient descent must not exceed 1 / L",
        citation="[TaSVM, descent]",
    )


def one_winner(data: TokenDataset, head: object = None, *, samples: int = 256, seed: Seed = 0) -> Condition:
    """Whether the best token beats every mixture by a gap linear in what the mixture takes [TaSVM, nonlinear heads].

    With ``F_i(s) = Y_i h(X_i^T s)``: some c > 0 has ``F_i(e_opt) - F_i(s) >= c (1 - s_opt)`` for all s on the simplex.

    * F_i convex in s (linear; ReLU with Y = 1; quadratic with Y = -1): F lies below its chords, so the best c is the
      smallest lead of the scores themselves.
    * F_i concave in s (quadratic with Y = 1; ReLU with Y = -1): F lies below its tangent at e_opt and touches it
      there, so the best c is the smallest lead of the *effective* scores at opt. A unique winner alone does not
      suffice. At a kink of a ReLU head the tangent is one of several, and a failure is then not certain.
    * Any other head: the leads, the tangents, and `samples` random mixtures; a success is then not certain.

    Margin: c. Failure: at most 0 (within round-off).

    Arguments:
        samples, seed: of the random mixtures, for heads without structure; element b draws from stream (seed, b).
    """
    own = as_head(head, data)
    scores = token_scores(data, own).double()
    best = scores.argmax(-1)
    chords = _leads(scores)
    tangents = _leads_of(effective_scores(data, own, best), best)
    positive = data.labels > 0
    certain = torch.ones(data.batch_shape, dtype=torch.bool, device=data.device)
    if isinstance(own, LinearHead):
        gap = chords
    elif isinstance(own, QuadraticHead):
        gap = torch.where(positive, tangents, chords)
    elif isinstance(own, ReluHead):
        gap = torch.where(positive, chords, tangents)
    else:
        gap = torch.minimum(torch.minimum(chords, tangents), _sampled_gap(data, own, scores, best, samples, seed))
    holds = (gap > tie_line(data, scores)).all(-1)
    if isinstance(own, ReluHead):
        certain = holds | ~(~positive & _at_kink(data, own, best)).any(-1)
    elif not isinstance(own, LinearHead | QuadraticHead):
        certain = ~holds
    return Condition(
        name="one winner",
        holds=holds,
        margin=gap.amin(-1),
        sentence="picking the best token must beat every mixture by a gap linear in the weight of the others",
        citation="[TaSVM, nonlinear heads, one winner]",
        certain=certain,
    )


def label_margin_assumption(
    data: TokenDataset, selected: ArrayLike, *, samples: int = 64, limit: int = 20_000, seed: Seed = 0
) -> Condition:
    """Joint training: any admixture of other tokens must strictly lower the label margin [MMTS, joint training].

    With mixtures ``r_i = X_i^T s_i`` and ``G(s) = max_{||v|| <= 1} min_i Y_i v^T r_i``, G of the selection is
    ``1 / ||v_mm||``, and some c > 0 must have ``G(selected) - G(s) >= c max_i (1 - s_i,alpha_i)`` over the support
    inputs S of v_mm. (An input outside S never raises G by mixing: the multipliers lam of v_mm show it.)

    * Proved by ``g(s) = ||sum_i lam_i Y_i r_i||``, sum lam = 1: ``G(s) <= g(s)`` with equality at the selection, g is
      convex, so if every other choice of tokens on S has g below G(selected), the gap is linear in 1 - s. Choices are
      enumerated, `limit` of them at most.
    * Refuted by any mixture with ``G(s) >= G(selected)``: label SVMs are solved for every exchange of one token (by
      1/1000, half and whole) and for `samples` random mixtures.
    * Neither: counted as holding, with ``certain`` False.

    Arguments:
        data: ``[*batch]`` data sets; the head reads `values`.
        selected: ``[*batch, n]``.

    Margin: the smallest ``(G(selected) - G(s)) / (G(selected) max_i (1 - s_i,alpha_i))`` among the mixtures tried; -inf
    where the labels of the selected tokens cannot be separated. inf where there is nothing to mix.
    """
    problem = AttentionSVM(data, selected)
    label = label_svm(data, problem.reference)
    flat, chosen = problem.data.flatten(), problem.reference.reshape(-1, data.n)
    support, duals = label.support.reshape(-1, data.n), label.solution.duals[..., 1].reshape(-1, data.n)
    vectors = label.vector.reshape(-1, data.dv)
    solved, size = label.solution.solved.reshape(-1), torch.linalg.vector_norm(label.vector, dim=-1).reshape(-1)
    answers: list[tuple[float, bool, bool]] = []  # margin, holds, certain
    for element, stream in enumerate(streams(stream_keys(seed, data.batch_shape), data.batch_shape, purpose=_PURPOSE)):
        if not bool(solved[element]):
            answers.append((-math.inf, False, bool(label.solution.infeasible.reshape(-1)[element])))
            continue
        one, best, mixed = flat[element], chosen[element], support[element]
        mixtures = _mixtures(one, best, mixed, samples, stream)
        taken = (1 - mixtures.gather(-1, best.expand(len(mixtures), -1).unsqueeze(-1)).squeeze(-1)).amax(-1)
        values = torch.einsum("mnt,ntd->mnd", mixtures, values_of_inputs(one))
        drop = 1 - _label_margins(values, one.labels) * size[element]
        refuted = bool((drop <= 1e-9).any())
        smallest = (drop / taken).amin().item() if len(mixtures) else math.inf
        proved = not refuted and _convex_bound(one, best, mixed, vectors[element], duals[element], limit)
        answers.append((smallest, not refuted, refuted or proved))
    margins, holds, certain = zip(*answers, strict=True)
    shape, device = data.batch_shape, data.device
    return Condition(
        name="label margin",
        holds=torch.tensor(holds, device=device).reshape(shape),
        margin=torch.tensor(margins, dtype=torch.float64, device=device).reshape(shape),
        sentence="any admixture of other tokens to a label-support input must strictly lower the label margin",
        citation="[MMTS, joint training]",
        certain=torch.tensor(certain, device=device).reshape(shape),
    )


def _leads(scores: Float[Tensor, "*batch n T"]) -> Float[Tensor, "*batch n"]:
    """Lead of the best token of every input over the second; inf where there is no second."""
    if scores.shape[-1] == 1:
        return torch.full_like(scores[..., 0], math.inf)
    top = scores.topk(2, dim=-1).values
    return top[..., 0] - top[..., 1]


def _leads_of(scores: Float[Tensor, "*batch n T"], chosen: Int[Tensor, "*batch n"]) -> Float[Tensor, "*batch n"]:
    """Lead of the chosen token of every input over the best other; may be negative."""
    own = scores.gather(-1, chosen.unsqueeze(-1))
    return own.squeeze(-1) - scores.scatter(-1, chosen.unsqueeze(-1), -math.inf).amax(-1)


def _support(margins: Tensor, rows: Tensor, solved: Tensor) -> tuple[Tensor, Tensor]:
    """Minus the largest excess over 1 of each problem, and whether all its rows are tight."""
    excess = (margins - 1).clamp(min=0.0).masked_fill(~rows, 0.0).amax((-1, -2))
    margin = torch.where(solved, -excess, -math.inf)
    return margin, margin >= -SUPPORT_TOLERANCE


def _rows(data: TokenDataset, selections: Int[Tensor, "k n"]) -> Bool[Tensor, "k n T"]:
    rows = torch.ones(*selections.shape, data.T, dtype=torch.bool, device=data.device)
    rows = rows if data.mask is None else rows & data.mask
    return rows.scatter(-1, selections.unsqueeze(-1), False)


def _linear(head: object, data: TokenDataset, name: str) -> LinearHead:
    own = as_head(head, data)
    if not isinstance(own, LinearHead):
        raise ValueError(f"{name} needs a linear head; got {type(own).__name__}")
    return own


def _one_best(data: TokenDataset, head: Head) -> Tensor:
    unique = unique_optimum(data, head).holds
    if not bool(unique.all()):
        where = torch.nonzero(~unique)[0].tolist()
        element = f" of element {where}" if where else ""
        raise ValueError(f"the optimal token of an input{element} is not unique, so no gradient can favour it")
    return token_scores(data, head).argmax(-1)


def _at_kink(data: TokenDataset, head: ReluHead, best: Tensor) -> Tensor:
    flat, own = data.flatten(), head.flatten(data.batch_shape)
    values = values_of_inputs(flat)
    index = best.reshape(*values.shape[:2], 1, 1).expand(-1, -1, 1, values.shape[-1])
    inner = values.gather(2, index).squeeze(2) @ own.matrix  # type: ignore[attr-defined]
    return (inner == 0).any(-1).reshape(*data.batch_shape, data.n)


def _sampled_gap(data: TokenDataset, head: Head, scores: Tensor, best: Tensor, samples: int, seed: Seed) -> Tensor:
    """Smallest ``(F(e_opt) - F(s)) / (1 - s_opt)`` over random mixtures s: ``[*batch, n]``."""
    flat, own = data.flatten(), head.flatten(data.batch_shape)
    values, real = values_of_inputs(flat), _real(flat)
    top, chosen = scores.amax(-1).reshape(-1, data.n), best.reshape(-1, data.n, 1)
    drawn = [
        torch.from_numpy(stream.dirichlet([0.5] * data.T, (samples, data.n)))
        for stream in streams(stream_keys(seed, data.batch_shape), data.batch_shape, purpose=_PURPOSE)
    ]
    weights = torch.stack(drawn).to(data.device).masked_fill(~real.unsqueeze(1), 0.0)
    weights = weights / weights.sum(-1, keepdim=True).clamp(min=1e-300)
    smallest = torch.full_like(top, math.inf)
    for each in weights.unbind(1):
        output = own.output((each.to(data.dtype).unsqueeze(-2) @ values).squeeze(-2)).double() * flat.labels
        taken = 1 - each.gather(-1, chosen).squeeze(-1)
        ratio = torch.where(taken > 1e-6, (top - output) / taken.clamp(min=1e-6), math.inf)
        smallest = torch.minimum(smallest, ratio)
    return smallest.reshape(*data.batch_shape, data.n)


def _real(data: TokenDataset) -> Tensor:
    shape = (*data.batch_shape, data.n, data.T)
    return torch.ones(shape, dtype=torch.bool, device=data.device) if data.mask is None else data.mask


def _mixtures(data: TokenDataset, best: Tensor, mixed: Tensor, samples: int, stream: object) -> Tensor:
    """Exchanges of one token of a support input by 1/1000, half and whole, and random mixtures ``[m, n, T]``."""
    pure = torch.nn.functional.one_hot(best, data.T).double()
    real = _real(data)
    pairs = torch.nonzero(real & mixed.unsqueeze(-1) & (pure == 0))
    if len(pairs) == 0:
        return pure[None][:0]
    single = pure.repeat(len(pairs), 1, 1)
    row = torch.arange(len(pairs), device=data.device)
    single[row, pairs[:, 0]] = torch.nn.functional.one_hot(pairs[:, 1], data.T).double()
    fractions = torch.tensor([1e-3, 0.5, 1.0], dtype=torch.float64, device=data.device)[:, None, None, None]
    exchanged = ((1 - fractions) * pure + fractions * single).flatten(0, 1)
    drawn = torch.from_numpy(stream.dirichlet([0.5] * data.T, (samples, data.n))).to(data.device)  # type: ignore[attr-defined]
    drawn = drawn.masked_fill(~real, 0.0) + 1e-12 * real
    drawn = drawn / drawn.sum(-1, keepdim=True)
    share = torch.from_numpy(stream.random((samples, 1, 1))).to(data.device)  # type: ignore[attr-defined]
    joint = torch.where(mixed.unsqueeze(-1), (1 - share) * pure + share * drawn, pure)
    return torch.cat([exchanged, joint])


def _label_margins(values: Float[Tensor, "m n dv"], labels: Float[Tensor, " n"]) -> Float[Tensor, " m"]:
    """max_{||v|| <= 1} min_i Y_i v^T r_i, or 0 where no v has a positive margin."""
    if len(values) == 0:
        return values.new_zeros(0)
    count, n, _ = values.shape
    ones = torch.ones(count, n, 1, dtype=values.dtype, device=values.device)
    mixed = TokenDataset(values.unsqueeze(-2), ones, labels.expand(count, n))
    found = label_svm(mixed, torch.zeros(count, n, dtype=torch.int64, device=values.device))
    size = torch.linalg.vector_norm(torch.nan_to_num(found.vector), dim=-1)
    return torch.where(found.solution.solved & (size > 0), 1 / size.clamp(min=1e-300), 0.0)


def _convex_bound(data: TokenDataset, best: Tensor, mixed: Tensor, vector: Tensor, duals: Tensor, limit: int) -> bool:
    """Whether ``||sum_i lam_i Y_i x_i,t_i||`` is largest at the selection alone, over all choices t of the support."""
    row = torch.arange(data.n, device=data.device)
    signed = values_of_inputs(data) * data.labels[:, None, None]
    # With more support inputs than needed lam is not unique; the least one leaves out none of them, if it is positive.
    least = torch.zeros_like(duals)
    least[mixed] = torch.linalg.pinv(signed[row, best][mixed].mT) @ (vector / vector.square().sum())
    weight = least if bool((least >= 0).all()) else duals.clamp(min=0.0)
    signed = signed * (weight / weight.sum())[:, None, None]
    own = signed[row, best]
    sums, changed = own[~mixed].sum(0, keepdim=True), torch.zeros(1, dtype=torch.bool, device=data.device)
    real = _real(data)
    for i in torch.nonzero(mixed).flatten().tolist():
        tokens = torch.nonzero(real[i]).flatten()
        if len(sums) * len(tokens) > limit:
            return False
        sums = (sums[:, None] + signed[i, tokens]).flatten(0, 1)
        changed = (changed[:, None] | (tokens != best[i])).flatten()
    lengths = torch.linalg.vector_norm(sums, dim=-1)
    return not bool((lengths[changed] >= lengths[~changed].amin() * (1 - 1e-9)).any())
