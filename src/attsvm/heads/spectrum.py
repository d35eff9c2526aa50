"""Rank and spectrum of weights, and their part in the spans of the data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from attsvm.heads.choices import Choices
from attsvm.heads.views import SentenceView

# Directions whose share of the data is below this, as a singular value relative to the largest, are float32 rounding.
_SPAN = 1e-6
# A gap of g leaves singular values below about sqrt(g) of the largest undetermined; they do not count in a rank.
_RANK = 1e-2


@dataclass(frozen=True)
class Spectrum:
    """Singular values, largest first and relative to it.

    Arguments:
        values: relative singular values above 1e-6.
        rank: how many exceed 1e-2.
        effective_rank: exp of the entropy of the singular values over their sum (Roy and Vetterli, 2007).
    """

    values: tuple[float, ...]
    rank: int
    effective_rank: float


def spectrum(weights: Float[Tensor, "d dq"]) -> Spectrum:
    """The spectrum of a matrix.

    >>> spectrum(torch.diag(torch.tensor([3.0, 3.0, 0.0])).double())
    Spectrum(values=(1.0, 1.0), rank=2, effective_rank=2.0)
    """
    values = torch.linalg.svdvals(weights)
    total = float(values.sum())
    if total == 0:
        return Spectrum((), 0, 0.0)
    share = values / total
    entropy = -float(torch.special.xlogy(share, share).sum())
    relative = values / values[0]
    return Spectrum(
        values=tuple(round(value, 9) for value in relative[relative > _SPAN].tolist()),
        rank=int((relative > _RANK).sum()),
        effective_rank=round(float(torch.tensor(entropy, dtype=torch.float64).exp()), 9),
    )


def projected(weights: Float[Tensor, "D D"], views: Sequence[SentenceView], drawn: Choices) -> Float[Tensor, "D D"]:
    """The part of `weights` that the data can see: P_x W P_z.

    P_x projects on the span of the differences of candidates, P_z on that of the queries; margins do not change. The
    rest of W adds to its norm what no sample of this size could have taught.
    """
    width = weights.shape[0]
    left = torch.zeros(width, width, dtype=torch.float64)
    for index in torch.unique(drawn.sentence).tolist():
        view = views[index]
        positions = drawn.position[drawn.sentence == index]
        for candidates in torch.unique(view.candidates[positions], dim=0):
            tokens = view.keys[candidates]
            centred = tokens - tokens.mean(0)
            left += centred.T @ centred
    queries = torch.stack(
        [views[i].queries[k] for i, k in zip(drawn.sentence.tolist(), drawn.position.tolist(), strict=True)]
    )
    return _onto(left) @ weights @ _onto(queries.T @ queries)


def _onto(gram: Tensor) -> Tensor:
    """Projection on the span of the rows that have this Gram matrix."""
    values, vectors = torch.linalg.eigh(gram)
    kept = vectors[:, values > _SPAN**2 * values[-1].clamp(min=0.0)]
    return kept @ kept.T
