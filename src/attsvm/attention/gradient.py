"""Softmax attention and a gradient whose direction is right at any norm of the weights.

Ordinary autograd forms ``s_it (u_it - sum_t s_it u_it)`` in one scale: once 1 - s_opt falls below 1e-16 it returns
round-off, and below 1e-308 zero. Here everything is measured from the input's own winner o = argmax_t s_it:

    gap_it = u_io - u_it,   delta_i = sum_t s_it gap_it,   d(Y_i f_i) / d a_it = s_it (delta_i - gap_it)   (t != o)

with u the effective scores Y_i x_it^T grad h(x_att), probabilities kept as logarithms, and the largest exponent
(probability times slope of the loss) factored out before exponentiating.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attsvm.attention.linear_maps import flat_mixture, flat_products
from attsvm.attention.losses import Loss
from attsvm.attention.prediction_heads import Head, LinearHead
from attsvm.attention.scaled import ScaledTensor
from attsvm.data import TokenDataset


@dataclass(frozen=True, eq=False)
class Attended:
    """One forward pass: log-probabilities, the winner of each input, attended values and margins Y_i f_i."""

    log_attention: Float[Tensor, "starts batch n T"]
    winner: Int[Tensor, "starts batch n"]
    mixed: Float[Tensor, "starts batch n dv"] | None
    margin: Float[Tensor, "starts batch n"]

    @property
    def values(self) -> Float[Tensor, "starts batch n dv"]:
        """The attended values X_i^T s_i, what the prediction head reads."""
        if self.mixed is None:
            raise ValueError("values were not mixed: this pass used the scores of a fixed linear prediction head")
        return self.mixed

    @property
    def attention(self) -> Float[Tensor, "starts batch n T"]:
        """softmax(X_i W z_i); exactly 0 at masked tokens."""
        return self.log_attention.exp()


@dataclass(frozen=True, eq=False)
class RiskGradient:
    """Gradient of the risk with respect to the logits and, where asked for, the parameters of the prediction head."""

    logits: ScaledTensor
    head: dict[str, ScaledTensor]
    outside: ScaledTensor | None = None  # logits outside given sets once more, in a scale of their own; 0 elsewhere


def log_softmax(
    data: TokenDataset, logits: Float[Tensor, "*lead n T"]
) -> tuple[Float[Tensor, "*lead n T"], Int[Tensor, "*lead n"]]:
    """Log-probabilities measured from the winner, and the winner; masked tokens get -inf."""
    real = data.fill_masked(logits, -math.inf)
    top, winner = real.max(-1, keepdim=True)
    shifted = real - top
    others = shifted.exp().scatter(-1, winner, 0.0).sum(-1, keepdim=True)
    return shifted - torch.log1p(others), winner.squeeze(-1)


def attend(
    data: TokenDataset,
    head: Head,
    logits: Float[Tensor, "starts batch n T"],
    scores: Float[Tensor, "1 batch n T"] | None = None,
) -> Attended:
    """Forward pass from logits (one batch axis, one axis of starts before it).

    Given the `scores` of a fixed linear prediction head (`fixed_scores`), margins are their means under the attention
    and values are not mixed.
    """
    log_attention, winner = log_softmax(data, logits)
    if scores is not None:
        return Attended(log_attention, winner, None, (log_attention.exp() * scores).sum(-1))
    values = flat_mixture(data, data.values, log_attention.exp())
    return Attended(log_attention, winner, values, data.labels * head.output(values))


def effective_scores(
    data: TokenDataset, head: Head, values: Float[Tensor, "starts batch n dv"]
) -> Float[Tensor, "starts batch n T"]:
    """``u_it = Y_i x_it^T grad h(x_att)``: what moving probability to token t gains at the attended value."""
    return flat_products(data, data.values, data.labels.unsqueeze(-1) * head.input_gradient(values))


def risk_gradient(
    data: TokenDataset,
    head: Head,
    loss: Loss,
    attended: Attended,
    *,
    train_head: bool = False,
    scores: Float[Tensor, "1 batch n T"] | None = None,
    kept: Bool[Tensor, "batch n T"] | None = None,
) -> RiskGradient:
    """Gradient of ``(1/n) sum_i loss(Y_i f_i)`` as mantissa and log-scale, after a forward pass at the same weights.

    `scores` are those of a fixed linear prediction head (`fixed_scores`), where the caller has them, and `kept` sets of
    tokens that keep probability: the gradient of all others comes in its own scale as well.
    """
    parts = _Parts(data, head, attended, scores)
    log_slope = loss.log_slope(attended.margin)
    # Tokens tied with the winner have no gap of their own, so they must not set the scale.
    exponent = parts.log_losers.masked_fill(parts.gap == 0, -math.inf) + log_slope.unsqueeze(-1)
    scale = exponent.flatten(2).amax(-1).nan_to_num(0.0, 0.0, 0.0)  # 0 where it is not finite
    pull = (exponent - scale[..., None, None]).exp() * parts.gap
    entries = (pull - parts.log_losers.exp() * pull.sum(-1, keepdim=True)) / data.n
    rows = entries.scatter(-1, attended.winner.unsqueeze(-1), -entries.sum(-1, keepdim=True))
    return RiskGradient(
        ScaledTensor(rows, scale),
        _head_gradient(data, head, attended, log_slope) if train_head else {},
        None if kept is None else _outside(data, attended, parts, log_slope, kept),
    )


def _outside(data: TokenDataset, attended: Attended, parts: _Parts, log_slope: Tensor, kept: Tensor) -> ScaledTensor:
    """The gradient at the tokens outside `kept`: |loss'_i| s_it (gap_it - delta_i) / n at their own scale."""
    delta = (parts.log_losers.exp() * parts.gap).sum(-1, keepdim=True)
    exponent = (attended.log_attention + log_slope.unsqueeze(-1)).masked_fill(kept | ~data.real, -math.inf)
    scale = exponent.flatten(2).amax(-1).nan_to_num(0.0, 0.0, 0.0)
    return ScaledTensor((exponent - scale[..., None, None]).exp() * (parts.gap - delta) / data.n, scale)


def invisible_tokens(data: TokenDataset, head: Head, attended: Attended) -> Bool[Tensor, "starts batch n T"]:
    """Tokens whose influence on the gradient has fallen below the round-off of more probable ones.

    Where several tokens keep probability (nonlinear prediction heads, scores tied to round-off) their own terms
    ``s_it (delta_i - gap_it)`` cancel to round-off; a token whose term is smaller than that round-off no longer
    turns the weights, whatever the theory says about it.
    """
    parts = _Parts(data, head, attended, None)
    worth = (parts.log_losers.exp() * parts.gap).sum(-1, keepdim=True) - parts.gap
    size = parts.effective.abs().amax(-1, keepdim=True).clamp(min=torch.finfo(data.dtype).tiny)
    second, place = parts.log_losers.max(-1, keepdim=True)
    drowning = (second > math.log(_KEPT)) | (worth.abs().gather(-1, place) < _CANCELLED * size)
    below = parts.log_losers + (worth.abs() / size).log() < second + math.log(torch.finfo(data.dtype).eps)
    return parts.losers.scatter(-1, place, False) & below & drowning & torch.isfinite(second)


# Others can drown in the round-off of the most probable loser if it keeps this much probability (the papers' threshold
# for a selected set), or if its own term has cancelled to this fraction of its size.
_KEPT = 1e-3
_CANCELLED = 1e-8


class _Parts:
    """Gaps to each input's winner and log-probabilities of the losers (-inf at the winner and at masked tokens)."""

    def __init__(self, data: TokenDataset, head: Head, attended: Attended, scores: Tensor | None) -> None:
        winner = attended.winner.unsqueeze(-1)
        effective = effective_scores(data, head, attended.values) if scores is None else scores
        self.effective = effective.expand_as(attended.log_attention)
        self.log_losers = attended.log_attention.scatter(-1, winner, -math.inf)
        self.losers = data.real.expand_as(self.log_losers).scatter(-1, winner, False)
        self.gap = (self.effective.gather(-1, winner) - self.effective).masked_fill(~self.losers, 0.0)


def fixed_scores(data: TokenDataset, head: Head) -> Float[Tensor, "1 batch n T"] | None:
    """Scores that stay the same throughout training: those of a fixed linear prediction head; None for the others."""
    if not isinstance(head, LinearHead):
        return None
    values = torch.zeros(1, data.tokens.shape[0], data.n, data.dv, dtype=data.dtype, device=data.device)
    return effective_scores(data, head, values)


def _head_gradient(data: TokenDataset, head: Head, attended: Attended, log_slope: Tensor) -> dict[str, ScaledTensor]:
    scale = log_slope.amax(-1).nan_to_num(0.0, 0.0, 0.0)
    weights = -data.labels * (log_slope - scale.unsqueeze(-1)).exp() / data.n
    gradients = head.parameter_gradient(attended.values, weights)
    return {name: ScaledTensor(value, scale) for name, value in gradients.items()}
