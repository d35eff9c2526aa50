"""Starts from which the optimal tokens are selected for certain: their risk is below every barrier on the way out."""

from __future__ import annotations

import math

import torch

from attsvm.attention import LinearHead, Loss, evaluate, token_scores
from attsvm.attention.prediction_heads import as_head
from attsvm.data import TokenDataset
from attsvm.data.checks import ArrayLike
from attsvm.svm import SVMSolution
from attsvm.theory.conditions import Condition, leads

_SLACK = 1e-6  # for rounding, in a logarithm


def below_the_barrier(
    data: TokenDataset, head: object, weights: ArrayLike, loss: Loss, solution: SVMSolution
) -> Condition:
    """Whether the risk at the start is so low that descent can only end at the optimal tokens (derived here).

    With a linear head, a unique optimum o_i of lead ``g_i`` over the second-best score, shortfalls ``g_it = gamma_o -
    gamma_t`` of the others, and attention s, let ``delta_i = sum_t s_t g_it``, so that the margin is ``gamma_o -
    delta_i``; let U be any weights that separate the optimum, with margins ``m_it > 0``.

    1. An input with ``delta_i >= g_i`` adds at least ``E_i = loss(gamma_o - g_i) - loss(gamma_o)`` to ``n (L(W) -
       L_*)``, and no input adds less than 0. So where ``n (L(W) - L_*) < E_i`` for every i, every ``delta_i < g_i``,
       and a descent that never raises the risk keeps it so.
    2. Along U the margin of input i grows at the rate ``Cov_s(gamma, X U z) = sum_{t != o} s_t m_it (g_it - delta_i)``.
       There every term is positive, since ``g_it >= g_i > delta_i``.
    3. So the gradient cannot vanish while some attention is spread. Steps of at most 1 / L that are not summable drive
       it to zero along a subsequence, there attention tends to 1 on every optimal token and the risk to L_*, and as it
       never rises the whole run follows.

    ``E_i`` is the risk of input i wholly on its second-best token: no larger barrier of this kind can be had. The start
    itself may still have most of its attention elsewhere. It says nothing about selections that are not optimal, and
    nothing where it fails.

    Arguments:
        data: ``[*batch]`` data sets.
        head: a linear prediction head.
        weights: the start W(0), ``[*batch, d, dq]``.
        loss: strictly decreasing.
        solution: of the SVM of the optimal tokens, which gives U where it is separable.

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
    barrier = loss.log_excess(best, torch.where(several, lead.log(), 0.0)).masked_fill(~several, math.inf)
    margin = barrier.amin(-1) - torch.logsumexp(excess, -1)
    margin = torch.where(solution.separable & (lead > 0).all(-1), margin, -math.inf)
    holds = margin > _SLACK
    return Condition(
        name="start below the barrier",
        holds=holds,
        margin=margin,
        sentence="the start's risk must be too low for descent to leave the optimal tokens",
        citation="derived here (docs/proved.md)",
        certain=holds,
    )
