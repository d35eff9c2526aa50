"""Starts from which the optimal tokens are selected for certain: their risk is below every barrier on the way out."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from attsvm.attention import LinearHead, Loss, evaluate, token_scores
from attsvm.attention.prediction_heads import as_head
from attsvm.data import TokenDataset
from attsvm.data.checks import ArrayLike
from attsvm.svm import AttentionSVM, SVMSolution
from attsvm.theory.conditions import Condition, leads

_PAIRS = 20_000_000  # numbers in a table of pairs of tokens; beyond it a looser bound serves
_SLACK = 1e-6  # for rounding, in a logarithm


def below_the_barrier(
    data: TokenDataset, head: object, weights: ArrayLike, loss: Loss, solution: SVMSolution
) -> Condition:
    """Whether the risk at the start is so low that descent can only end at the optimal tokens (derived here).

    With a linear head, a unique optimum o_i of lead ``g_i`` over the second-best score, weights U that separate it with
    margins of at least 1, and logits ``h = X U z``:

    1. Where input i gives its optimal token a probability s <= q, its margin Y f is at most gamma_o - (1 - q) g_i, so
       its part of the risk exceeds the least possible one by at least ``E_i = loss(gamma_o - (1 - q) g_i) -
       loss(gamma_o)``. If ``n (L(W) - L_*) < E_i`` for every i, every optimal token has more than q; and a descent that
       never raises the risk keeps it so.
    2. Along U the margin Y f grows at the rate of the covariance of scores and logits under attention, which is at
       least ``(1 - s) (s g_i - (1 - s) c P_i)`` with ``P_i = max -(gamma_t - gamma_u)(h_t - h_u)`` over pairs of other
       tokens (at least 0), and ``c = (1 - 1 / (T_i - 1)) / 2``. It is positive for s > q_i = c P_i / (g_i + c P_i).
    3. So with q = q_i the gradient cannot vanish while some attention is spread. Steps of at most 1 / L that are not
       summable drive it to zero along a subsequence, there the risk tends to L_*, and as it never rises, attention
       tends to 1 on every optimal token.

    Under B1 and B2, and with two tokens, P = 0 and q = 0. It says nothing about selections that are not optimal, and
    nothing where it fails.

    Arguments:
        data: ``[*batch]`` data sets.
        head: a linear prediction head.
        weights: the start W(0), ``[*batch, d, dq]``.
        loss: strictly decreasing.
        solution: of the SVM of the optimal tokens, which gives U.

    Returns:
        A `Condition`; its margin is the logarithm of the smallest barrier over the excess risk of the start (inf where
        there is one token for each input). `certain` only where it holds: it is sufficient, not necessary.

    Raises:
        ValueError: for a nonlinear prediction head.
    """
    own = as_head(head, data)
    if not isinstance(own, LinearHead):
        raise ValueError(f"below_the_barrier needs a linear prediction head; got {type(own).__name__}")
    scores = token_scores(data, own).double()
    best = scores.amax(-1)
    lead, real = leads(scores), torch.isfinite(scores)
    several = real.sum(-1) > 1
    gaps = (best.unsqueeze(-1) - scores).masked_fill(~real, 0.0)
    log_attention = evaluate(data, weights, own, loss).log_attention.double()
    shortfall = torch.logsumexp(log_attention.masked_fill(~real, -math.inf) + gaps.clamp(min=0.0).log(), -1)
    excess = loss.log_excess(best, shortfall).masked_fill(~several, -math.inf)
    opposed = _opposed(data, scores, solution)
    others = (real.sum(-1) - 1).clamp(min=1)
    turned = opposed * (1 - 1 / others) / 2
    height = 2 * lead.log() - (lead + turned).log()  # log of (1 - q_i) g_i
    barrier = loss.log_excess(best, torch.where(several, height, 0.0)).masked_fill(~several, math.inf)
    margin = barrier.amin(-1) - torch.logsumexp(excess, -1)
    margin = torch.where(solution.solved & (lead > 0).all(-1), margin, -math.inf)
    holds = margin > _SLACK
    return Condition(
        name="start below the barrier",
        holds=holds,
        margin=margin,
        sentence="the start's risk must be too low for descent to leave the optimal tokens",
        citation="derived here (docs/proved.md)",
        certain=holds,
    )


def _opposed(data: TokenDataset, scores: Tensor, solution: SVMSolution) -> Float[Tensor, "*batch n"]:
    """P_i: how strongly scores and logits of U disagree about two tokens that are not optimal; 0 where they agree."""
    best = scores.argmax(-1, keepdim=True)
    # Margins are h_o - h_t, so their differences are those of the logits with the other sign.
    margins = AttentionSVM(data, best.squeeze(-1)).margins(torch.nan_to_num(solution.weights))
    other = torch.isfinite(scores).scatter(-1, best, False)
    gamma = torch.where(other, scores, torch.nan)
    logits = torch.where(other, -margins, torch.nan)
    if scores.numel() * scores.shape[-1] <= _PAIRS:
        pairs = -(gamma.unsqueeze(-1) - gamma.unsqueeze(-2)) * (logits.unsqueeze(-1) - logits.unsqueeze(-2))
        return pairs.nan_to_num(0.0).amax((-1, -2)).clamp(min=0.0)
    spread = [
        each.nan_to_num(-math.inf).amax(-1) - each.nan_to_num(math.inf).amin(-1) for each in (gamma, logits)
    ]  # nobody else: -inf - inf, clamped
    return (spread[0].clamp(min=0.0) * spread[1].clamp(min=0.0)).nan_to_num(0.0)
