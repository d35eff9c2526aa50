"""One large Frobenius attention SVM, held as the caller's arrays."""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators, allow-incomplete-defs
from __future__ import annotations

from dataclasses import dataclass

import numpy as np

ABSENT, INEQUALITY, EQUALITY = 0, 1, 2


@dataclass(frozen=True)
class LargeProblem:
    """min 1/2 ||W||_F^2  s.t.  (x_selected - x_t)^T W z_i >= b_it, or = b_it where ``kind`` is EQUALITY.

    ``tokens`` [S, T, d] is used in place (float64, C order, never copied when it already is that); sample i reads sequence
    ``sequence[i]``, so several queries of one sequence share its tokens. ``kind`` [n, T] says which rows exist.
    """

    tokens: np.ndarray
    queries: np.ndarray
    selected: np.ndarray
    kind: np.ndarray
    rhs: np.ndarray
    sequence: np.ndarray

    @classmethod
    def build(cls, tokens, queries, selected, mask=None, right_hand_side=1.0, equality=None, queries_per_sequence=1):
        """Arguments: tokens [S, T, d]; queries [n, dq], n = S * queries_per_sequence; selected [n]; mask [n, T] of real
        tokens (for causal data the prefix); right_hand_side scalar, [n, 1] or [n, T]; equality [n, T] marks equality rows."""
        tokens = np.ascontiguousarray(tokens, dtype=np.float64)
        queries = np.ascontiguousarray(queries, dtype=np.float64)
        selected = np.ascontiguousarray(selected, dtype=np.int64)
        n, length = len(queries), tokens.shape[1]
        if len(tokens) * queries_per_sequence != n or selected.shape != (n,):
            raise ValueError(f"queries and selected need {len(tokens)} x {queries_per_sequence} entries; got {n} and {selected.shape}")
        if selected.min(initial=0) < 0 or selected.max(initial=0) >= length:
            raise ValueError(f"selected must lie in 0..{length - 1}; got {selected.min()}..{selected.max()}")
        kind = np.full((n, length), INEQUALITY, dtype=np.int8)
        if equality is not None:
            kind[np.asarray(equality, bool)] = EQUALITY
        if mask is not None:
            if not np.asarray(mask, bool)[np.arange(n), selected].all():
                raise ValueError("selected must point at tokens the mask keeps")
            kind[~np.asarray(mask, bool)] = ABSENT
        kind[np.arange(n), selected] = ABSENT
        rhs = np.broadcast_to(np.asarray(right_hand_side, np.float64), (n, length))
        return cls(tokens, queries, selected, kind, rhs, np.arange(n) // queries_per_sequence)

    @property
    def shape(self):
        """(d, dq) of W."""
        return self.tokens.shape[2], self.queries.shape[1]
