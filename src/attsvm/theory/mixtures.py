"""Conditions on mixtures of tokens, which nonlinear prediction heads and joint training need."""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from attsvm.attention import Head, LinearHead, QuadraticHead, ReluHead, token_scores
from attsvm.attention.prediction_heads import as_head
from attsvm.attention.scores import tie_line
from attsvm.data import TokenDataset
from attsvm.data.checks import ArrayLike
from attsvm.data.streams import Purpose, Seed, streams
from attsvm.svm import AttentionSVM, label_svm
from attsvm.theory.conditions import Condition, leads
from attsvm.theory.optimality import chosen_values, effective_scores

_SAMPLES = 256  # random mixtures for heads that are neither linear nor quadratic nor ReLU


def one_winner(data: TokenDataset, head: object = None) -> Condition:
    """Whether the best token beats every mixture by a gap linear in what the mixture takes [TaSVM, nonlinear heads].

    With ``F_i(s) = Y_i h(X_i^T s)``: some c > 0 has ``F_i(e_opt) - F_i(s) >= c (1 - s_opt)`` for all s on the simplex.

    * F_i convex in s (linear; ReLU with Y = 1; quadratic with Y = -1): F lies below its chords, so the best c is the
      smallest lead of the scores themselves.
    * F_i concave in s (quadratic with Y = 1; ReLU with Y = -1): F lies below its tangent at e_opt and touches it
      there, so the best c is the smallest lead of the *effective* scores at opt. A unique winner alone does not
      suffice. At a kink of a ReLU head the tangent is one of several, and a failure is then not certain.
    * Any other head: the leads, the tangents, and 256 random mixtures; a success is then not certain.

    Margin: c. Failure: at most 0 (within round-off).
    """
    own = as_head(head, data)
    scores = token_scores(data, own).double()
    best = scores.argmax(-1)
    chords = leads(scores)
    tangents = leads(effective_scores(data, own, best), best)
    positive = data.labels > 0
    certain = torch.ones(data.batch_shape, dtype=torch.bool, device=data.device)
    if isinstance(own, LinearHead):
        gap = chords
    elif isinstance(own, QuadraticHead):
        gap = torch.where(positive, tangents, chords)
    elif isinstance(own, ReluHead):
        gap = torch.where(positive, chords, tangents)
    else:
        gap = torch.minimum(torch.minimum(chords, tangents), _sampled_gap(data, own, scores, best))
    holds = (gap > tie_line(data, scores, own)).all(-1)
    if isinstance(own, ReluHead):  # at a kink a ReLU is exactly 0
        inner = chosen_values(data.flatten(), best.reshape(-1, data.n)) @ own.flatten().matrix  # type: ignore[attr-defined]
        certain = holds | ~(~positive & (inner == 0).any(-1).reshape(best.shape)).any(-1)
    elif not isinstance(own, LinearHead | QuadraticHead):
        certain = ~holds
    said = "picking the best token must beat every mixture by a gap linear in the weight of the others"
    return Condition("one winner", holds, gap.amin(-1), said, "[TaSVM, nonlinear heads, one winner]", certain)


def label_margin_assumption(data: TokenDataset, selected: ArrayLike, *, samples: int = 64, seed: Seed = 0) -> Condition:
    """Joint training: any admixture of other tokens must strictly lower the label margin [MMTS, joint training].

    With mixtures ``r_i = X_i^T s_i`` and ``G(s) = max_{||v|| <= 1} min_i Y_i v^T r_i``, G of the selection is
    ``1 / ||v_mm||``, and some c > 0 must have ``G(selected) - G(s) >= c max_i (1 - s_i,alpha_i)`` over the support
    inputs S of v_mm. (An input outside S never raises G by mixing: the multipliers lam of v_mm show it.)

    * Proved by ``g(s) = ||sum_i lam_i Y_i r_i||``, sum lam = 1: ``G(s) <= g(s)`` with equality at the selection, g is
      convex, so if every other choice of tokens on S has g below G(selected), the gap is linear in 1 - s. Choices are
      enumerated, 20,000 of them at most.
    * Refuted by any mixture with ``G(s) >= G(selected)``: label SVMs are solved for every exchange of one token (by
      1/1000, half and whole) and for `samples` random mixtures.
    * Neither: counted as holding, with ``certain`` False.

    Margin: the smallest ``(G(selected) - G(s)) / (G(selected) max_i (1 - s_i,alpha_i))`` among the mixtures tried; -inf
    where the labels of the selected tokens cannot be separated, inf where there is nothing to mix.
    """
    problem = AttentionSVM(data, selected)
    label = label_svm(data, problem.reference)
    flat, chosen = problem.data.flatten(), problem.reference.reshape(-1, data.n)
    support, duals = label.support.reshape(-1, data.n), label.solution.duals[..., 1].reshape(-1, data.n)
    vectors = label.vector.reshape(-1, data.dv)
    solved, size = label.solution.solved.reshape(-1), torch.linalg.vector_norm(label.vector, dim=-1).reshape(-1)
    answers: list[tuple[float, bool, bool]] = []  # margin, holds, certain
    for element, stream in enumerate(streams(seed, data.batch_shape, purpose=Purpose.MIXTURES)):
        if not bool(solved[element]):
            answers.append((-math.inf, False, bool(label.solution.infeasible.reshape(-1)[element])))
            continue
        one, best, mixed = flat[element], chosen[element], support[element]
        mixtures = _mixtures(one, best, mixed, samples, stream)
        taken = (1 - mixtures.gather(-1, best.expand(len(mixtures), -1).unsqueeze(-1)).squeeze(-1)).amax(-1)
        values = torch.einsum("mnt,ntd->mnd", mixtures, one.input_values)
        drop = 1 - _label_margins(values, one.labels) * size[element]
        refuted = bool((drop <= 1e-9).any())
        smallest = (drop / taken).amin().item() if len(mixtures) else math.inf
        proved = not refuted and _convex_bound(one, best, mixed, vectors[element], duals[element])
        answers.append((smallest, not refuted, refuted or proved))
    columns = torch.tensor(answers, dtype=torch.float64, device=data.device).reshape(*data.batch_shape, 3)
    margin, holds, certain = columns[..., 0], columns[..., 1] > 0, columns[..., 2] > 0
    said = "any admixture of other tokens to a label-support input must strictly lower the label margin"
    return Condition("label margin", holds, margin, said, "[MMTS, joint training]", certain)


def _sampled_gap(data: TokenDataset, head: Head, scores: Tensor, best: Tensor) -> Tensor:
    """Smallest ``(F(e_opt) - F(s)) / (1 - s_opt)`` over random mixtures s: ``[*batch, n]``."""
    flat, own = data.flatten(), head.flatten()
    top, chosen = scores.amax(-1).reshape(-1, 1, data.n), best.reshape(-1, 1, data.n, 1).expand(-1, _SAMPLES, -1, -1)
    own_streams = streams(0, data.batch_shape, purpose=Purpose.MIXTURES)
    drawn = [torch.from_numpy(stream.dirichlet([0.5] * data.T, (_SAMPLES, data.n))) for stream in own_streams]
    weights = torch.stack(drawn).to(data.device).masked_fill(~flat.real.unsqueeze(1), 0.0)
    weights = weights / weights.sum(-1, keepdim=True).clamp(min=1e-300)
    mixed = torch.einsum("bsnt,bntd->bsnd", weights.to(data.dtype), flat.input_values).flatten(1, 2)
    output = own.output(mixed).double().unflatten(1, (_SAMPLES, data.n)) * flat.labels.unsqueeze(1)
    taken = 1 - weights.gather(-1, chosen).squeeze(-1)
    ratio = torch.where(taken > 1e-6, (top - output) / taken.clamp(min=1e-6), math.inf)
    return ratio.amin(1).reshape(*data.batch_shape, data.n)


def _mixtures(data: TokenDataset, best: Tensor, mixed: Tensor, samples: int, stream: np.random.Generator) -> Tensor:
    """Exchanges of one token of a support input by 1/1000, half and whole, and random mixtures ``[m, n, T]``."""
    one_hot, real = torch.nn.functional.one_hot, data.real
    pure = one_hot(best, data.T).double()
    pairs = torch.nonzero(real & mixed.unsqueeze(-1) & (pure == 0))
    if len(pairs) == 0:
        return pure[None][:0]
    single = pure.repeat(len(pairs), 1, 1)
    single[torch.arange(len(pairs), device=data.device), pairs[:, 0]] = one_hot(pairs[:, 1], data.T).double()
    fractions = torch.tensor([1e-3, 0.5, 1.0], dtype=torch.float64, device=data.device)[:, None, None, None]
    exchanged = ((1 - fractions) * pure + fractions * single).flatten(0, 1)
    drawn = torch.from_numpy(stream.dirichlet([0.5] * data.T, (samples, data.n))).to(data.device)
    drawn = drawn.masked_fill(~real, 0.0) + 1e-12 * real
    drawn = drawn / drawn.sum(-1, keepdim=True)
    share = torch.from_numpy(stream.random((samples, 1, 1))).to(data.device)
    joint = torch.where(mixed.unsqueeze(-1), (1 - share) * pure + share * drawn, pure)
    return torch.cat([exchanged, joint])


def _label_margins(values: Float[Tensor, "m n dv"], labels: Float[Tensor, " n"]) -> Float[Tensor, " m"]:
    """max_{||v|| <= 1} min_i Y_i v^T r_i, or 0 where no v has a positive margin."""
    signs = labels.expand(values.shape[:2])
    mixed = TokenDataset(values.unsqueeze(-2), torch.ones_like(values[..., :1]), signs)
    found = label_svm(mixed, torch.zeros_like(signs, dtype=torch.int64))
    size = torch.linalg.vector_norm(torch.nan_to_num(found.vector), dim=-1)
    return torch.where(found.solution.solved & (size > 0), 1 / size.clamp(min=1e-300), 0.0)


def _convex_bound(data: TokenDataset, best: Tensor, mixed: Tensor, vector: Tensor, duals: Tensor) -> bool:
    """Whether ``||sum_i lam_i Y_i x_i,t_i||`` is largest at the selection alone, over all choices t of the support."""
    row = torch.arange(data.n, device=data.device)
    signed = data.input_values * data.labels[:, None, None]
    # With more support inputs than needed lam is not unique; the least one leaves out none of them, if it is positive.
    least = torch.zeros_like(duals)
    least[mixed] = torch.linalg.pinv(signed[row, best][mixed].mT) @ (vector / vector.square().sum())
    weight = least if bool((least >= 0).all()) else duals.clamp(min=0.0)
    signed = signed * (weight / weight.sum())[:, None, None]
    own = signed[row, best]
    sums, changed = own[~mixed].sum(0, keepdim=True), torch.zeros(1, dtype=torch.bool, device=data.device)
    real = data.real
    for i in torch.nonzero(mixed).flatten().tolist():
        tokens = torch.nonzero(real[i]).flatten()
        if len(sums) * len(tokens) > 20_000:
            return False
        sums = (sums[:, None] + signed[i, tokens]).flatten(0, 1)
        changed = (changed[:, None] | (tokens != best[i])).flatten()
    lengths = torch.linalg.vector_norm(sums, dim=-1)
    return not bool((lengths[changed] >= lengths[~changed].amin() * (1 - 1e-9)).any())
