"""Dual active set on the rows themselves (Goldfarb and Idnani with an orthonormal basis): the robust way.

The same method as `gram`, with A_act = L Q, Q orthonormal rows in R^{d dq}. The Gram matrix squares the condition
number of the active rows; here nothing is squared: the distance of an entering row to the span of the active ones is
right to a few units of round-off (repeated Gram-Schmidt), and W = Q^T L^-1 b_act is recomputed after every entry. Slow,
and called only where `gram` is unsure, from where that ended.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy.linalg import solve_triangular
from torch import Tensor

from attsvm.svm.problem import AttentionSVM
from attsvm.svm.solvers.base import BOUND, EPSILON, RAY
from attsvm.svm.solvers.batched.rows import scale

_INDEPENDENT = 1e-3  # distance to the others from which a row of the guess is taken; the rest may enter later
_TOLERANCE = 1e-12  # a row below b - TOLERANCE max |b| is violated and enters


def solve_again(problem: AttentionSVM, guesses: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Weights, duals and steps of problems, from duals that are a guess; a ray where that passes its check."""
    scaled, back = scale(problem, problem.most_rows)
    factor = back.factor / back.unit
    starts = guesses.flatten(1).gather(1, back.index) / factor
    weights = starts.new_zeros(len(starts), problem.data.d, problem.data.dq)
    multipliers, steps = torch.zeros_like(starts), torch.zeros(len(starts), dtype=torch.int64)
    for k in range(len(starts)):
        real = scaled.present[k].nonzero().flatten()
        matrices = scaled.differences[k, real, :, None] * scaled.queries[k, real, None]
        method = _ActiveRows(
            matrices.flatten(1).numpy(), scaled.right_hand_side[k, real].numpy(), scaled.equalities[k, real].numpy()
        )
        ray = method.run(starts[k, real].numpy(), _TOLERANCE * scaled.reach[k, real].numpy())
        steps[k] = method.steps
        if ray is None:
            weights[k] = torch.from_numpy(method.point.reshape(weights.shape[1:])) / back.unit[k]
            multipliers[k, real] = torch.from_numpy(method.multipliers())
        else:
            multipliers[k, real] = torch.from_numpy(ray) * back.unit[k] ** 2
    duals = torch.zeros_like(guesses).flatten(1).scatter_(1, back.index, multipliers * factor)
    return weights, duals.view_as(guesses), steps


class _ActiveRows:
    """Independent rows of one problem, A_act = L Q with Q orthonormal, and their multipliers.

    Arguments:
        matrix: all rows, of lengths in [1, 4), ``[m, d dq]``.
        sides: b, ``[m]``.
        equal: equality rows, ``[m]``.
    """

    def __init__(self, matrix: np.ndarray, sides: np.ndarray, equal: np.ndarray) -> None:
        self.matrix, self.sides, self.equal = matrix, sides, equal
        self.capacity = min(matrix.shape)
        self.rows = np.empty(0, int)
        self.values = np.empty(0)
        self.lower, self.basis = np.zeros((0, 0)), np.zeros((0, matrix.shape[1]))
        self.point, self.steps = np.zeros(matrix.shape[1]), 0

    def run(self, guess: np.ndarray, tolerance: np.ndarray) -> np.ndarray | None:
        """Go on from the rows whose multiplier in `guess` is positive, to the optimum or as near as round-off lets it.

        Returns:
            A ray, where one passes its check; else None, and `point`, `rows` and `values` hold the answer.
        """
        b, equal, lengths = self.sides, self.equal, np.linalg.norm(self.matrix, axis=1)
        for k in (*np.flatnonzero(equal), *np.flatnonzero(~equal & (guess > 0))):
            split = self._split(k)
            if len(self.rows) < self.capacity and split[2] > _INDEPENDENT:
                self._enter(k, *split, 0.0 if equal[k] else guess[k])
        self._settle()
        best, stalled, redundant = -np.inf, 0, np.zeros(len(b), bool)
        limit = 20 * len(b) + 100
        while True:
            half = self._half(b[self.rows])
            half = half + self._half(b[self.rows] - self.matrix[self.rows] @ (half @ self.basis))  # refined
            self.point, norm = half @ self.basis, float(np.linalg.norm(half))
            signed = self.matrix @ self.point - b
            slack = np.where(equal, -np.abs(signed), signed)
            violated = (slack < -(tolerance + 8.0 * EPSILON * norm)) & ~redundant
            violated[self.rows] = False
            best, stalled = (norm, 0) if norm > best * (1.0 + EPSILON) else (best, stalled + 1)
            if not violated.any() or stalled > 10 + redundant.sum():
                self.values = self._other_half(half)
                return None
            j = int(np.where(violated, slack / lengths, 0.0).argmin())
            sign, missing, entering = 1.0 if signed[j] < 0 else -1.0, -slack[j], 0.0
            while True:
                self.steps += 1
                if self.steps > limit:
                    return None
                rest, along, distance = self._split(j)
                r = sign * self._other_half(along)
                size = 1.0 + np.abs(r).sum()
                dependent = len(self.rows) == self.capacity or distance <= 16.0 * EPSILON * min(size, 1e3)
                blocking = (r > 1e-15 * size) & ~equal[self.rows]
                steps = np.where(blocking, self.values / np.where(blocking, r, 1.0), np.inf)
                full = np.inf if dependent else missing / distance**2
                if dependent and not blocking.any():
                    if entering == 0.0 and missing <= 64.0 * EPSILON * size * norm:
                        redundant[j] = True  # violated by round-off only
                        break
                    return self._ray(r, j, sign)
                step = min(full, steps.min(initial=np.inf))
                entering += step
                self.values = np.where(
                    equal[self.rows], self.values - step * r, np.maximum(self.values - step * r, 0.0)
                )
                if step == full:
                    self._enter(j, rest, along, distance, sign * entering)
                    redundant[:] = False  # the span has changed: look at them again
                    break
                missing -= 0.0 if dependent else step * distance**2
                self._drop(int(steps.argmin()))

    def multipliers(self) -> np.ndarray:
        """Of all rows, without signs that inequality rows may not have, ``[m]``."""
        found = np.zeros(len(self.sides))
        found[self.rows] = np.where(self.equal[self.rows], self.values, np.maximum(self.values, 0.0))
        return found

    def _ray(self, r: np.ndarray, entering: int, sign: float) -> np.ndarray | None:
        """sign a_j - sum r_k a_k = 0 as a ray with b^T ray = 1; None where sum lam A = 0, b^T lam > 0 fail."""
        ray = np.zeros(len(self.sides))
        ray[self.rows], ray[entering] = -r, sign
        ray = np.where(self.equal, ray, np.maximum(ray, 0.0))
        norm, each = np.linalg.norm(ray @ self.matrix), ray * self.sides
        good = norm <= RAY * np.abs(ray).sum() and each.sum() > max(1e-13 * np.abs(each).sum(), BOUND * norm)
        return ray / each.sum() if good else None

    def _settle(self) -> None:
        """Lawson and Hanson's inner loop: walk to (L L^T)^-1 b_act, dropping what blocks."""
        while len(self.rows):
            target = self._other_half(self._half(self.sides[self.rows]))
            blocking = (target < 0) & ~self.equal[self.rows]
            if not blocking.any():
                self.values = target
                return
            steps = np.where(blocking, self.values / np.where(blocking, self.values - target, 1.0), np.inf)
            self.values = self.values + steps.min() * (target - self.values)
            self._drop(int(steps.argmin()))

    def _split(self, j: int) -> tuple[np.ndarray, np.ndarray, float]:
        """a_j = along Q + rest with rest orthogonal to Q: (rest, along, ||rest||)."""
        rest, along = self.matrix[j].copy(), np.zeros(len(self.rows))
        for _ in range(3):
            more = self.basis @ rest
            along += more
            rest -= more @ self.basis
        return rest, along, float(np.linalg.norm(rest))

    def _enter(self, j: int, rest: np.ndarray, along: np.ndarray, distance: float, value: float) -> None:
        size = len(self.rows)
        self.lower = np.block([[self.lower, np.zeros((size, 1))], [along[None], np.array([[distance]])]])
        self.basis = np.concatenate([self.basis, rest[None] / distance])
        self.rows, self.values = np.append(self.rows, j), np.append(self.values, value)

    def _drop(self, a: int) -> None:
        self.rows, self.values = np.delete(self.rows, a), np.delete(self.values, a)
        basis, upper = np.linalg.qr(self.matrix[self.rows].T)
        self.basis, self.lower = basis.T, upper.T

    def _half(self, right: np.ndarray) -> np.ndarray:
        """L^-1 right."""
        return solve_triangular(self.lower, right, lower=True, check_finite=False) if len(right) else right

    def _other_half(self, right: np.ndarray) -> np.ndarray:
        """L^-T right."""
        return solve_triangular(self.lower, right, lower=True, trans=1, check_finite=False) if len(right) else right
