"""A fixed head as the compiled kernel reads it: numbers of single tokens, and one function of their mixtures.

Linear, ReLU and quadratic heads are all ``h(x) = v^T x + sum_k phi(c_k^T x)``. With the scores ``gamma_it = Y_i v^T
x_it`` and the features ``F_itk = c_k^T x_it`` an attention s_i needs no product with a matrix of the head:

    F_ik = sum_t s_it F_itk,   Y_i f_i = sum_t s_it gamma_it + Y_i sum_k phi(F_ik),
    u_it = gamma_it + Y_i sum_k phi'(F_ik) F_itk
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from attsvm.attention import Head, LinearHead, QuadraticHead, ReluHead
from attsvm.attention.gradient import fixed_scores
from attsvm.data import TokenDataset

# phi(x) = max(x, 0), whose slope at 0 is 0, and phi(x) = -x^2.
RELU, SQUARE = 0, 1


@dataclass(frozen=True, eq=False)
class HeadTerms:
    """Scores, features and the function phi of a head on a batch of data sets.

    Attributes:
        scores: Y_i v^T x_it, 0 at masked tokens.
        features: c_k^T x_it, 0 at masked tokens; None for a linear head, which has none.
        curve: the number by which the kernel knows phi.
        bound: no margin and no effective score of a data set is larger, whatever the attention.
    """

    scores: Float[Tensor, "batch n T"]
    features: Float[Tensor, "batch n T width"] | None
    curve: int
    bound: Float[Tensor, "batch"]


def head_terms(data: TokenDataset, head: Head) -> HeadTerms | None:
    """The terms of a head on data with one batch axis and tokens of their own for every input; None if it has none."""
    if type(head) is LinearHead:
        scores = scores_of(data, head)
        return HeadTerms(scores, None, RELU, scores.abs().flatten(1).amax(1))
    if type(head) is ReluHead:
        matrix = head.matrix if head.matrix.ndim == 2 else head.matrix.unsqueeze(1)
        features = _real(data, data.values @ matrix)
        bound = features.abs().sum(-1).flatten(1).amax(1)
        return HeadTerms(torch.zeros_like(features[..., 0]), features, RELU, bound)
    if type(head) is QuadraticHead:
        scores = scores_of(data, LinearHead(head.vector))
        features = _real(data, data.values * head.penalty.sqrt().reshape(-1, 1, 1, 1))
        squares = features.square().sum(-1).flatten(1).amax(1)
        return HeadTerms(scores, features, SQUARE, scores.abs().flatten(1).amax(1) + 2 * squares)
    return None


def scores_of(data: TokenDataset, head: LinearHead) -> Float[Tensor, "batch n T"]:
    """Token scores, 0 at masked tokens."""
    scores = fixed_scores(data, head)
    assert scores is not None  # it is linear
    return scores[0] if data.mask is None else scores[0].masked_fill(~data.mask, 0.0)


def _real(data: TokenDataset, features: Tensor) -> Tensor:
    return features if data.mask is None else features.masked_fill(~data.mask.unsqueeze(-1), 0.0)
