"""One large Frobenius attention SVM, held as the caller's arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

ABSENT, INEQUALITY, EQUALITY = 0, 1, 2
"""What `LargeProblem.kind` holds."""


@dataclass(frozen=True, eq=False)
class LargeProblem:
    """min 1/2 ||W||_F^2  s.t.  (x_selected - x_t)^T W z_i >= b_it, or = b_it where ``kind`` is EQUALITY.

    Arrays are used in place, float64 and int64 in C order.

    Attributes:
        tokens: ``[sequences, T, d]``; several queries of one sequence share its tokens.
        queries: z_i, ``[n, dq]``.
        selected: the token that input i is to keep, ``[n]``.
        kind: ``[n, T]`` int8: ABSENT, INEQUALITY or EQUALITY.
        rhs: b_it, ``[n, T]``.
        sequence: the sequence that input i reads, ``[n]``.
    """

    tokens: np.ndarray
    queries: np.ndarray
    selected: np.ndarray
    kind: np.ndarray
    rhs: np.ndarray
    sequence: np.ndarray

    @property
    def shape(self) -> tuple[int, int]:
        """(d, dq) of W."""
        return self.tokens.shape[2], self.queries.shape[1]
