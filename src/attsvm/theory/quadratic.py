"""The quadratic head on orthonormal tokens: optimum attention in closed form."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attsvm.attention import QuadraticHead
from attsvm.data import TokenDataset
from attsvm.data.checks import place
from attsvm.norms._linalg import project_onto_simplex

_ORTHONORMAL = {torch.float64: 1e-8, torch.float32: 1e-5}


@dataclass(frozen=True, eq=False)
class QuadraticAttention:
    """Optimum attention of a quadratic head.

    Attributes:
        attention: the optimum s ``[*batch, n, T]``.
        selected_set: O, the tokens of positive probability ``[*batch, n, T]``.
        gaps: how much moving probability to a token costs at the optimum, ``max_u worth_iu - worth_it`` with
            ``worth_it = gamma_it - 2 Y_i lambda s_it``: 0 on O, positive outside unless degenerate ``[*batch, n, T]``.
        degenerate: tokens of probability 0 and gap 0: a little of them costs nothing to first order, so descent
            separates them at half the rate of the others ``[*batch, n, T]``.
    """

    attention: Float[Tensor, "*batch n T"]
    selected_set: Bool[Tensor, "*batch n T"]
    gaps: Float[Tensor, "*batch n T"]
    degenerate: Bool[Tensor, "*batch n T"]

    @property
    def count(self) -> Int[Tensor, "*batch n"]:
        """How many tokens each input selects."""
        return self.selected_set.sum(-1)


def quadratic_attention(data: TokenDataset, head: QuadraticHead) -> QuadraticAttention:
    """The attention that minimises the loss of each input under h(x) = v^T x - lambda ||x||^2, tokens orthonormal.

    Derived here from [TaSVM, nonlinear heads]. Orthonormal values make ||X_i^T s||^2 = ||s||^2, so with
    gamma_it = Y_i v^T x_it the margin Y_i h is ``gamma_i^T s - Y_i lambda ||s||^2`` on the simplex, and every
    decreasing loss asks for its maximum:

        Y_i = +1:   s_i = projection of gamma_i / (2 lambda) onto the simplex; more tokens as lambda grows
        Y_i = -1:   the margin is convex in s, so s_i is a corner, the token of largest gamma_it.

    For Y_i = -1 the corner of token t is a local maximum whenever gamma_it + 2 lambda exceeds every other score, so
    descent may end at another corner. lambda = 0 is the linear head, whose optimum is a corner for both labels. Inputs
    need not be separable for this optimum; whether one W reaches it for all inputs at once is the question of W_fin and
    W_svm (`generalized_components`).

    Arguments:
        data: ``[*batch]`` data sets; the values of each input's real tokens must be orthonormal to 1e-8, to
            1e-5 in float32.
        head: v and lambda, each for all data sets or one per element.

    Raises:
        ValueError: if the values are not orthonormal, the head is no quadratic one or does not fit, or a corner is
            asked for and two tokens tie.

    >>> data = TokenDataset(torch.eye(3).double()[None], torch.ones(1, 1).double(), [1])
    >>> quadratic_attention(data, QuadraticHead(torch.tensor([0.75, 0.25, -1.0]).double(), 0.5)).attention.tolist()
    [[0.75, 0.25, 0.0]]
    """
    if not isinstance(head, QuadraticHead):
        raise ValueError(f"head must be a QuadraticHead; got {type(head).__name__}")
    head.check(data)
    whole = data.to(dtype=torch.float64)
    values, real = whole.input_values, whole.real
    _check_orthonormal(values, real, _ORTHONORMAL[data.dtype])
    vector = head.vector.to(torch.float64)
    penalty = head.penalty.to(torch.float64).expand(data.batch_shape)[..., None, None]
    gamma = whole.labels.unsqueeze(-1) * (values * vector[..., None, None, :]).sum(-1)

    corner = (whole.labels.unsqueeze(-1) < 0) | (penalty == 0)
    best = gamma.masked_fill(~real, -torch.inf)
    _check_unique(best, corner)
    at_corner = torch.zeros_like(gamma).scatter(-1, best.argmax(-1, keepdim=True), 1.0)
    # A masked token far below every real one keeps probability 0; -inf would make the projection's sums NaN.
    scaled = gamma / torch.where(penalty == 0, 1.0, 2 * penalty)
    low = scaled.masked_fill(~real, torch.inf).amin(-1, keepdim=True)
    radius = torch.ones(scaled.shape[:-1], dtype=scaled.dtype, device=scaled.device)
    projected = project_onto_simplex(torch.where(real, scaled, low - 2), radius)
    attention = torch.where(corner, at_corner, projected).masked_fill(~real, 0.0)

    worth = gamma - 2 * whole.labels.unsqueeze(-1) * penalty * attention
    kept = attention > 0
    top = worth.masked_fill(~kept, -torch.inf).amax(-1, keepdim=True)
    gaps = (top - worth).masked_fill(~real | kept, 0.0)
    size = gamma.abs().masked_fill(~real, 0.0).amax(-1, keepdim=True) + 2 * penalty
    return QuadraticAttention(attention, kept, gaps, real & ~kept & (gaps <= 1e-12 * size))


def _check_orthonormal(
    values: Float[Tensor, "*batch n T d"], real: Bool[Tensor, "*batch n T"], tolerance: float
) -> None:
    gram = values @ values.mT
    pairs = real.unsqueeze(-1) & real.unsqueeze(-2)
    off = (gram - torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)).abs().masked_fill(~pairs, 0.0)
    if bool((off > tolerance).any()):
        where = torch.nonzero(off > tolerance)[0].tolist()
        raise ValueError(
            f"the values of each input must be orthonormal to {tolerance:g}; <x_t, x_u> is"
            f" {gram[tuple(where)].item():.6g} at {place(where, ('input', 'token', 'token'))}"
        )


def _check_unique(scores: Float[Tensor, "*batch n T"], asked: Tensor) -> None:
    tied = ((scores == scores.amax(-1, keepdim=True)).sum(-1) > 1) & asked.expand_as(scores)[..., 0]
    if bool(tied.any()):
        at = place(torch.nonzero(tied)[0].tolist(), ("input",))
        raise ValueError(f"the optimum is a corner that is not unique: two tokens tie at {at}")
