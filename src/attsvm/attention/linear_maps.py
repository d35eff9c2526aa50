"""The linear map from W to the logits, and its adjoint.

Each costs as much as one forward or backward pass of attention; the matrix of the map is never formed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attsvm.data import TokenDataset
from attsvm.data.checks import ArrayLike, as_floating, check_same_kind, check_shape


def logits(data: TokenDataset, weights: ArrayLike) -> Float[Tensor, "*lead n T"]:
    """Attention logits ``a_it = x_it^T W z_i`` of every token, masked ones included.

    Leading axes of the weights ``[*starts, *batch, d, dq]`` before the batch are several weights per data set.

    >>> import numpy as np
    >>> data = TokenDataset(np.eye(2)[None], np.ones((1, 1)), [1])
    >>> logits(data, np.array([[3.0], [5.0]])).tolist()
    [[3.0, 5.0]]
    """
    matrix, lead = folded(data, weights, (data.d, data.dq), "weights", "d, dq")
    return flat_logits(data.flatten(), matrix).reshape(*lead, data.n, data.T)


def logits_adjoint(data: TokenDataset, multipliers: ArrayLike) -> Float[Tensor, "*lead d dq"]:
    """Adjoint of `logits`: ``sum_it mu_it x_it z_i^T`` over the real tokens, mu ``[*starts, *batch, n, T]``.

    >>> import numpy as np
    >>> data = TokenDataset(np.eye(2)[None], 2 * np.ones((1, 1)), [1])
    >>> logits_adjoint(data, np.array([[1.0, -1.0]])).tolist()
    [[2.0], [-2.0]]
    """
    rows, lead = folded(data, multipliers, (data.n, data.T), "multipliers", "n, T")
    flat = data.flatten()
    return flat_adjoint(flat, flat.fill_masked(rows, 0.0)).reshape(*lead, data.d, data.dq)


def flat_logits(data: TokenDataset, weights: Float[Tensor, "starts batch d dq"]) -> Float[Tensor, "starts batch n T"]:
    """`logits` for data with one batch axis and weights with one axis of starts before it."""
    directions = torch.einsum("bnq,sbdq->sbnd", data.queries, weights)
    return flat_products(data, data.tokens, directions)


def flat_adjoint(data: TokenDataset, rows: Float[Tensor, "starts batch n T"]) -> Float[Tensor, "starts batch d dq"]:
    """`logits_adjoint` for data with one batch axis; entries of `rows` at masked tokens must be zero."""
    return torch.einsum("sbnd,bnq->sbdq", flat_mixture(data, data.tokens, rows), data.queries)


def flat_mixture(
    data: TokenDataset, tokens: Float[Tensor, "batch sequences T d"], rows: Float[Tensor, "starts batch n T"]
) -> Float[Tensor, "starts batch n d"]:
    """``sum_t rows_it x_it`` for every input: keys or values, weighted by one number per token."""
    grouped = rows.unflatten(2, (data.sequences, data.queries_per_sequence))
    return torch.einsum("sbgpt,bgtd->sbgpd", grouped, tokens).flatten(2, 3)


def flat_products(
    data: TokenDataset, tokens: Float[Tensor, "batch sequences T d"], vectors: Float[Tensor, "starts batch n d"]
) -> Float[Tensor, "starts batch n T"]:
    """``x_it^T vector_i`` for every input and token."""
    grouped = vectors.unflatten(2, (data.sequences, data.queries_per_sequence))
    return torch.einsum("bgtd,sbgpd->sbgpt", tokens, grouped).flatten(2, 3)


@dataclass(frozen=True, eq=False)
class SharedPairs:
    """The maps of data sets whose tokens and queries come from one vocabulary each.

    Windows of a text share their words: all logits are entries of the table ``E W E^T``. `pair` is the entry of each
    token of each input, K times its number plus that of the query; any at masked tokens.
    """

    embeddings: Float[Tensor, "batch K d"]
    pair: Int[Tensor, "batch n T"]

    def logits(self, weights: Float[Tensor, "starts batch d d"]) -> Float[Tensor, "starts batch n T"]:
        """As `flat_logits`."""
        entries = (self.embeddings @ weights @ self.embeddings.mT).flatten(2)
        return entries.gather(2, self.pair.flatten(1).expand(len(weights), -1, -1)).unflatten(2, self.pair.shape[1:])

    def adjoint(self, rows: Float[Tensor, "starts batch n T"]) -> Float[Tensor, "starts batch d d"]:
        """As `flat_adjoint`."""
        count = self.embeddings.shape[1]
        entries = rows.new_zeros(*rows.shape[:2], count * count)
        entries = entries.scatter_add(2, self.pair.flatten(1).expand(len(rows), -1, -1), rows.flatten(2))
        return self.embeddings.mT @ entries.unflatten(2, (count, count)) @ self.embeddings


def folded(
    data: TokenDataset, value: ArrayLike, trailing: tuple[int, int], name: str, meaning: str
) -> tuple[Tensor, tuple[int, ...]]:
    """`value` as ``[starts, batch, *trailing]`` and the leading shape to give back."""
    tensor, own = as_floating(value, name), (*data.batch_shape, *trailing)
    starts = tensor.shape[: max(tensor.ndim - len(own), 0)]
    check_shape(tensor, name, (*starts, *own), f"batch, {meaning}, with any axes of starts before")
    check_same_kind(tensor, name, data.tokens)
    return tensor.reshape(math.prod(starts), math.prod(data.batch_shape), *trailing), tuple(tensor.shape[:-2])
