"""The rows of a large problem that descent and its accelerations see, and systems on them, matrix-free; all other rows
are only ever scanned.

On the face F = {k : lam_k > 0 or k an equality} the optimum solves A_F A_F^T delta = b_F - A_F W. A product costs one
adjoint and one forward over the working rows; the preconditioner is the block diagonal of the Gram matrix, with a block
for each input.

On an infeasible problem descent keeps W = A*(lam) bounded while b^T lam grows, so lam / sum(lam) tends to a ray,
lam >= 0 with A*(lam) = 0 and b^T lam > 0. The correction lam (1 - A y), (A^T diag(lam) A) y = A*(lam), removes the
rest; rows that would turn negative are dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from attsvm.svm.problem import AttentionSVM
from attsvm.svm.solvers.block_descent import kernels

Map = Callable[[np.ndarray], np.ndarray]
MapOnFace = Callable[[np.ndarray, np.ndarray], np.ndarray]
Test = Callable[[np.ndarray], bool]

_GROUP = 32  # inputs whose W z is one matrix product
_HALVINGS = 8  # of a step that does not lower the dual objective
_RAY_TARGET = 1e-12  # residual at which a ray needs no further round
_RAY_ROUNDS, _RAY_PRODUCTS = 12, 200  # and products of conjugate gradients in each


@dataclass(eq=False)
class WorkingSet:
    """Some rows of one problem as differences, never as d x dq matrices; solvers change ``lam`` in place.

    They are grouped in blocks, one for each input that has any.
    """

    place: np.ndarray  #: of each row among n T, ``[rows]``
    start: np.ndarray  #: the rows of block r are ``start[r]:start[r + 1]``, ``[blocks + 1]``
    owner: np.ndarray  #: block of each row, ``[rows]``
    differences: np.ndarray  #: D_k = x_reference - x_t, ``[rows, d]``
    right_hand_side: np.ndarray  #: b_k, ``[rows]``
    equalities: np.ndarray  #: rows whose multipliers have no sign, ``[rows]``
    lam: np.ndarray  #: multipliers, ``[rows]``
    queries: np.ndarray  #: z of each block, ``[blocks, dq]``
    near: np.ndarray  #: z_r . z_s for the blocks s of r's group, ``[blocks, group]``
    gram_start: np.ndarray  #: where each block's Gram matrix begins in ``gram``, ``[blocks + 1]``
    gram: np.ndarray  #: ||z_r||^2 D_r D_r^T of every block, row after row

    @classmethod
    def gather(cls, problem: AttentionSVM, chosen: np.ndarray, duals: np.ndarray) -> WorkingSet:
        """Collect the rows marked in ``chosen`` [n, T] of a problem on the CPU, with multipliers ``duals`` [n, T]."""
        place = np.flatnonzero(chosen)
        count = chosen.sum(1)
        inputs = np.flatnonzero(count)
        count = count[inputs]
        owner = np.repeat(np.arange(len(inputs)), count)
        start, gram_start = (np.concatenate([[0], np.cumsum(size)]) for size in (count, count * count))
        row_inputs, token = np.divmod(place, chosen.shape[1])
        first = row_inputs // problem.data.queries_per_sequence * chosen.shape[1]
        kept, tokens = first + problem.reference.numpy()[row_inputs], problem.data.tokens.flatten(0, 1).numpy()
        differences = tokens.take(kept, 0) - tokens.take(first + token, 0)
        queries = problem.data.queries.numpy()[inputs]
        groups = -(-len(inputs) // _GROUP)
        padded = np.zeros((groups, _GROUP, queries.shape[1]))
        padded.reshape(-1, queries.shape[1])[: len(inputs)] = queries
        near = (padded @ padded.transpose(0, 2, 1)).reshape(-1, _GROUP)[: len(inputs)]
        gram = np.empty(gram_start[-1])
        kernels.block_grams(differences, start, gram_start, np.einsum("rj,rj->r", queries, queries), gram)
        sides, equalities = problem.right_hand_side.numpy(), problem.equalities.numpy()
        return cls(
            place=place, start=start, owner=owner, differences=differences, right_hand_side=sides.ravel()[place],
            equalities=equalities.ravel()[place], lam=duals.ravel()[place], queries=queries, near=near,
            gram_start=gram_start, gram=gram,
        )  # fmt: skip

    @property
    def squares(self) -> np.ndarray:
        """||A_k||^2, ``[rows]``."""
        size = np.diff(self.start)[self.owner]
        return self.gram[self.gram_start[self.owner] + (np.arange(len(size)) - self.start[self.owner]) * (size + 1)]

    def scatter(self, duals: np.ndarray) -> None:
        """Write the multipliers to their places in ``duals`` [n, T]."""
        duals.reshape(-1)[self.place] = self.lam

    def adjoint(self, vector: np.ndarray) -> np.ndarray:
        """A*(vector) = sum_k vector_k D_k z_k^T, [d, dq]."""
        sums = np.empty((len(self.queries), self.differences.shape[1]))
        kernels.rows_to_blocks(vector, self.start, self.differences, sums)
        return sums.T @ self.queries

    def forward(self, weights: np.ndarray, face: np.ndarray) -> np.ndarray:
        """<A_k, W> on the rows of the face, 0 elsewhere, [rows]."""
        out = np.empty(len(self.place))
        kernels.blocks_to_rows(self.queries @ weights.T, self.start, self.differences, face, out)
        return out

    def descend(self, weights: np.ndarray, generator: np.random.Generator, sweeps: int) -> None:
        """One pass of block dual coordinate descent, groups in random order; updates ``weights`` and ``lam``."""
        order = generator.permutation(-(-len(self.queries) // _GROUP))
        rotate = int(generator.integers(_GROUP))
        kernels.descend(
            weights, self.queries, self.near, _GROUP, order, self.start, self.differences, self.right_hand_side,
            self.equalities, self.lam, self.gram_start, self.gram, sweeps, rotate,
        )  # fmt: skip


def conjugate_gradients(
    product: Map, right: np.ndarray, done: Test, limit: int, precondition: Map = np.copy, flat: float = 0.0
) -> tuple[np.ndarray, bool]:
    """x with ``product(x) = right`` after at most `limit` products, and whether `done` was said of the residual.

    The operator is positive semidefinite. A direction whose curvature is at most `flat` of what the preconditioner
    expects ends the iteration: a singular system that is consistent may stop short of it.
    """
    residual, x = right.copy(), np.zeros_like(right)
    p = precondition(residual)
    rho = np.vdot(residual, p)
    for _ in range(limit):
        if done(residual):
            return x, True
        image = product(p)
        curvature = np.vdot(p, image)
        if curvature <= flat * rho:
            break
        alpha = rho / curvature
        x += alpha * p
        residual -= alpha * image
        scaled = precondition(residual)
        rho, old = np.vdot(residual, scaled), rho
        p *= rho / old
        p += scaled
    return x, done(residual)


def polish_face(
    rows: WorkingSet, weights: np.ndarray, tolerance: float, limit: int, precondition: MapOnFace | None = None
) -> None:
    """Move ``rows.lam`` and ``weights`` (in place) to, or towards, the optimum of the current face.

    The full step, to a relative residual of `tolerance` in the maximum norm or after `limit` products, is projected on
    lam >= 0 and halved until the dual objective falls; the longest feasible step, which always lowers it, is the last
    resort. `precondition` maps (vector, face) to about (A_F A_F^T)^-1 vector, in place of the block diagonal.
    """
    face, free, lam = (rows.lam > 0) | rows.equalities, rows.equalities, rows.lam
    residual = np.where(face, rows.right_hand_side - rows.forward(weights, face), 0.0)
    if not residual.any():
        return
    target = tolerance * np.abs(residual).max()
    step, _ = conjugate_gradients(
        lambda p: rows.forward(rows.adjoint(p), face),
        residual,
        lambda left: bool(np.abs(left).max() <= target),
        limit,
        (lambda vector: precondition(vector, face)) if precondition else _block_diagonal(rows, face),
        1e-14,  # a direction without curvature: dependent rows, or an unbounded dual
    )

    blocked = ~free & (lam + step < 0)
    sizes = [0.5**k for k in range(_HALVINGS)] + [float((lam[blocked] / -step[blocked]).min(initial=1.0))]
    for size in sizes:
        moved = np.where(free, lam + size * step, np.maximum(lam + size * step, 0.0))
        image = rows.adjoint(moved - lam)
        if residual @ (moved - lam) - 0.5 * np.vdot(image, image) > 0 or not blocked.any():
            rows.lam[:] = moved
            weights += image
            return


def _block_diagonal(rows: WorkingSet, face: np.ndarray) -> Map:
    """The block-Jacobi preconditioner of the face: a Cholesky factor for each input."""
    factor = np.empty_like(rows.gram)
    kernels.factor_blocks(rows.gram, rows.gram_start, rows.start, face, factor)

    def apply(vector: np.ndarray) -> np.ndarray:
        out = np.empty_like(vector)
        kernels.apply_factor(factor, rows.gram_start, rows.start, vector, out)
        return out

    return apply


def refine_ray(rows: WorkingSet) -> tuple[np.ndarray, float] | None:
    """A ray near ``rows.lam`` and its ``||A*(lam)|| / sum_k |lam_k| ||A_k||``; None where b^T lam > 0 is lost."""
    norms, everything, free = np.sqrt(rows.squares), np.ones(len(rows.lam), bool), rows.equalities
    lam, image = rows.lam, rows.adjoint(rows.lam)

    def relative() -> float:
        total = float(np.abs(lam) @ norms)
        return float(np.linalg.norm(image)) / total if total > 0 else np.inf

    residual = relative()
    best: tuple[np.ndarray, float] | None = None
    for _ in range(_RAY_ROUNDS):
        weight = np.where(free, np.maximum(np.abs(lam), np.abs(lam).mean()), lam)
        target = 1e-24 * np.vdot(image, image)
        potential, _ = conjugate_gradients(
            lambda p, weight=weight: rows.adjoint(weight * rows.forward(p, everything)),  # type: ignore[misc]
            image,
            lambda left, target=target: bool(np.vdot(left, left) <= target),  # type: ignore[misc]
            _RAY_PRODUCTS,
        )
        correction = weight * rows.forward(potential, everything)
        lam = np.where(free, lam - correction, np.maximum(lam - correction, 0.0))
        image = rows.adjoint(lam)
        old, residual = residual, relative()
        if lam @ rows.right_hand_side <= 0 or not np.isfinite(residual):
            return None
        if best is None or residual < best[1]:
            best = lam, residual
        if residual <= _RAY_TARGET or residual > 0.5 * old:
            break
    return best
