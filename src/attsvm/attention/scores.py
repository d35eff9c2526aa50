"""What each token is worth: scores, optimal tokens, the best risk, and how smooth the risk is."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attsvm.attention.losses import Loss, LossLike, as_loss
from attsvm.attention.prediction_heads import Head, LinearHead, as_head
from attsvm.data import TokenDataset
from attsvm.data.checks import place


def token_scores(data: TokenDataset, head: object = None) -> Float[Tensor, "*batch n T"]:
    """Score of every token taken alone, ``gamma_it = Y_i h(x_it)`` (``Y_i v^T x_it`` for a linear h).

    Masked tokens score -inf.

    >>> import numpy as np
    >>> data = TokenDataset(np.eye(2)[None], np.ones((1, 1)), [-1], head=np.array([1.0, 2.0]))
    >>> token_scores(data).tolist()
    [[-1.0, -2.0]]
    """
    own = as_head(head, data)
    return flat_scores(data.flatten(), own.flatten()).reshape(*data.batch_shape, data.n, data.T)


def flat_scores(data: TokenDataset, head: Head) -> Float[Tensor, "batch n T"]:
    """`token_scores` for data with one batch axis and a prediction head that was flattened with it."""
    each = head.output(data.values.flatten(1, 2)).unflatten(1, (data.sequences, 1, data.T))
    spread = each.expand(-1, -1, data.queries_per_sequence, -1).flatten(1, 2)
    return data.fill_masked(spread * data.labels.unsqueeze(-1), -math.inf)


def log_excess(data: TokenDataset, head: Head, loss: Loss, log_attention: Tensor) -> Float[Tensor, "starts batch"]:
    """log(L - L_*) of a linear head on flat data, from the shortfalls D_i = sum_t s_it (gamma_i,opt - gamma_it)."""
    scores = flat_scores(data, head)
    best, real = scores.amax(-1), torch.isfinite(scores)
    log_gaps = (best.unsqueeze(-1) - scores).clamp(min=0).log().masked_fill(~real, 0.0)
    shortfall = (log_attention + log_gaps).masked_fill(~real, -math.inf).logsumexp(-1)
    return loss.log_excess(best.expand_as(shortfall), shortfall).logsumexp(-1) - math.log(data.n)


def tie_line(data: TokenDataset, scores: Float[Tensor, "*batch n T"], head: Head) -> Float[Tensor, "*batch n"]:
    """The difference up to which two scores of an input count as tied: the one rule for every comparison of scores.

    A score is a sum of products and known to a few units of round-off of their sizes, so that a tie of the mathematics
    shows as a difference of that order, and a difference of that order may be a tie. The line is 1e-12 (1e-5 for
    float32 data) of the largest score of the input in size or, for a linear h, of the largest ``sum_j |v_j x_itj|``,
    which does not shrink where the products cancel. A prediction head of zero ties everything. The scores are
    `token_scores`, or `effective_scores` of a nonlinear head.
    """
    size = scores.masked_fill(torch.isinf(scores), 0.0).abs().amax(-1)
    if isinstance(head, LinearHead):
        positive = replace(data, values=data.values.abs(), labels=data.labels.abs())
        products = token_scores(positive, LinearHead(head.vector.abs()))
        size = torch.maximum(size, products.masked_fill(torch.isinf(products), 0.0).amax(-1).to(size))
    return size * (1e-12 if data.dtype == torch.float64 else 1e-5)


def optimal_token_set(
    data: TokenDataset, head: object = None, tolerance: float | None = None
) -> Bool[Tensor, "*batch n T"]:
    """Mask of the tokens whose score lies within `tolerance` of the input's best; None means `tie_line`, round-off."""
    own = as_head(head, data)
    scores = token_scores(data, own)
    line = tie_line(data, scores, own).unsqueeze(-1) if tolerance is None else tolerance
    return scores >= scores.amax(-1, keepdim=True) - line


def optimal_tokens(data: TokenDataset, head: object = None) -> Int[Tensor, "*batch n"]:
    """Index of the highest-scoring token of each input, ``opt_i = argmax_t gamma_it``.

    A tie up to round-off (`tie_line`) is a ValueError; `optimal_token_set` gives all that tie.
    """
    best = optimal_token_set(data, head)
    if bool((tied := best.sum(-1) > 1).any()):
        where = torch.nonzero(tied)[0].tolist()
        names, at = torch.nonzero(best[tuple(where)]).flatten().tolist(), place(where, ("input",))
        raise ValueError(f"the optimal token of {at} is not unique: tokens {names} tie; use optimal_token_set")
    return best.to(torch.uint8).argmax(-1)


def linear_only(head: object, data: TokenDataset, name: str) -> LinearHead:
    """The prediction head, which the function `name` needs to be linear."""
    own = as_head(head, data)
    if not isinstance(own, LinearHead):
        raise ValueError(f"{name} needs a linear prediction head; got {type(own).__name__}")
    return own


def best_risk(data: TokenDataset, head: object = None, loss: LossLike = None) -> Float[Tensor, "*batch"]:
    """The infimum candidate ``L_* = (1/n) sum_i loss(max_t gamma_it)`` of a linear prediction head.

    No finite W attains it where the optimum is unique; it is the infimum if and only if the SVM of the optimal tokens
    is feasible. A nonlinear prediction head, whose best mixture of tokens has no closed form, is refused.
    """
    linear = linear_only(head, data, "best_risk")
    return as_loss(loss).value(token_scores(data, linear).amax(-1)).mean(-1)


def lipschitz_bound(data: TokenDataset, head: object = None, loss: LossLike = None) -> Float[Tensor, "*batch"]:
    """An upper bound on the Lipschitz constant of the risk's gradient in W (Frobenius norm), for a linear h.

    With range r_i of the scores of input i, diameter D_i of its tokens, and suprema M1_i, M2_i of |loss'| and |loss''|
    over those scores,

        L = (1/n) sum_i ||z_i||^2 D_i^2 ( M2_i r_i^2 / 16 + M1_i r_i / 4 ).

    It follows from d f/d eps = Cov(u, h) and d^2 f/d eps^2 = E[(u - Eu)(h - Eh)^2] under the attention weights, for a
    change h of the logits and scores u: |Cov| <= r/2 * range(h)/2 and Var(h) <= range(h)^2 / 4. It is sharper than the
    papers' constant, which bounds by operator norms of X_i. A custom loss, which states no suprema, is refused.
    """
    linear, flat = linear_only(head, data, "lipschitz_bound"), data.flatten()
    scores = flat_scores(flat, linear.flatten())
    high = scores.amax(-1)
    low = scores.masked_fill(torch.isinf(scores), math.inf).amin(-1)
    slope, curvature = as_loss(loss).slope_bounds(low, high)
    spread = high - low
    squared = flat.queries.square().sum(-1) * _squared_diameters(flat)
    each = squared * (curvature * spread.square() / 16 + slope * spread / 4)
    # One token, tied scores or a zero query leave nothing to change, however steep the loss (0 * inf).
    bound = each.masked_fill((squared == 0) | (spread == 0), 0).mean(-1)
    return bound.reshape(data.batch_shape)


def _squared_diameters(data: TokenDataset) -> Float[Tensor, "batch n"]:
    """Largest squared distance between two real tokens of each input."""
    gaps = torch.cdist(data.tokens, data.tokens, compute_mode="donot_use_mm_for_euclid_dist").square()
    if data.mask is None:
        return gaps.amax((-1, -2)).repeat_interleave(data.queries_per_sequence, -1)
    real = data.mask.unflatten(1, (data.sequences, data.queries_per_sequence))
    pairs = real.unsqueeze(-1) & real.unsqueeze(-2)
    return gaps.unsqueeze(2).expand_as(pairs).masked_fill(~pairs, 0).amax((-1, -2)).flatten(1)
