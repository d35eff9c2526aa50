"""The rows of a large problem that descent and its accelerations see; all others are only ever scanned."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from attsvm.svm.problem import AttentionSVM
from attsvm.svm.solvers.block_descent import kernels

_GROUP = 32  # inputs whose W z is one matrix product


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
