"""Mehrotra's predictor-corrector method for the duals of Frobenius problems, whatever holds their Gram matrix.

min 1/2 u^T Q u - b^T u,   u >= 0 (free on equality rows)         Q u - b = s >= 0,   u s = 0
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

import torch
from torch import Tensor


class Gram(Protocol):
    """Q of a batch of problems, seen through products and systems.

    `ridge` is what is added to the diagonal at rows whose multiplier is free: as small as the solutions bear.
    """

    ridge: float

    def times(self, u: Tensor) -> Tensor:
        """Q u, ``[batch, m]``."""

    def factored(self, diagonal: Tensor) -> Callable[[Tensor], Tensor]:
        """right -> (Q + diag)^-1 right, both ``[batch, m]``."""


def predictor_corrector(
    gram: Gram, b: Tensor, bound: Tensor, present: Tensor, u: Tensor, s: Tensor
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """The iterates (u, s, Q u - b - s), without end, from u, s > 0 on the rows `bound` ``[batch, m]``.

    Rows that are `present` and not bound are equalities, with s = 0.
    """
    count = bound.sum(1).clamp(min=1)
    while True:
        residual = torch.where(present, gram.times(u) - b - s, 0.0)
        yield u, s, residual
        safe_u, safe_s = torch.where(bound, u, 1.0), torch.where(bound, s, 1.0)
        solve = gram.factored(torch.where(bound, safe_s / safe_u, torch.where(present, gram.ridge, 1.0)))
        mu = (u * s).sum(1) / count

        def direction(complement: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            """(du, ds) with u ds + s du = complement on bound rows; 1 / the longest step that keeps u, s > 0."""
            du = solve(torch.where(bound, complement / safe_u, 0.0) - residual)  # noqa: B023, used before the next turn
            ds = torch.where(bound, (complement - safe_s * du) / safe_u, 0.0)  # noqa: B023
            blocking = torch.where(bound, torch.maximum(-du / safe_u, -ds / safe_s), 0.0).amax(1)  # noqa: B023
            return torch.where(present, du, 0.0), ds, blocking

        du, ds, blocking = direction(-u * s)
        step = (1.0 / blocking.clamp(min=1.0))[:, None]
        ahead = ((u + step * du) * (s + step * ds)).sum(1) / count
        centre = (ahead / mu.clamp(min=1e-300)).clamp(0, 1) ** 3 * mu
        du, ds, blocking = direction(centre[:, None] - u * s - du * ds)
        step = (1.0 / (blocking / 0.995).clamp(min=1.0))[:, None]
        good = (torch.isfinite(du).all(1) & torch.isfinite(ds).all(1))[:, None]
        u, s = torch.where(good, u + step * du, u), torch.where(good, s + step * ds, s)
        u, s = (torch.where(bound, x.clamp(min=1e-300), x) for x in (u, s))
