"""All rows of a large problem, never written out, and the working rows that descent and polish see."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from attsvm.svm.problem import AttentionSVM
from attsvm.svm.solvers.base import EQUALITY, row_kinds
from attsvm.svm.solvers.block_descent import kernels

_GROUP = 32  # inputs whose W z is one matrix product


@dataclass(frozen=True, eq=False)
class TokenRows:
    """The rows of one problem as its tokens give them: ``(x_i,reference - x_it)^T W z_i`` against b_it.

    Arrays are used in place, float64 and int64 in C order.

    Attributes:
        tokens: ``[sequences, T, d]``; several queries of one sequence share its tokens.
        queries: z_i, ``[n, dq]``.
        sequence: the sequence that input i reads, ``[n]``.
        reference: the token that input i is to keep, ``[n]``.
        kinds: ABSENT, INEQUALITY or EQUALITY, ``[n, T]`` int8.
        right_hand_side: b_it, ``[n, T]``.
    """

    tokens: np.ndarray
    queries: np.ndarray
    sequence: np.ndarray
    reference: np.ndarray
    kinds: np.ndarray
    right_hand_side: np.ndarray

    @staticmethod
    def of(problem: AttentionSVM) -> TokenRows:
        """The rows of a problem without a batch axis."""
        data = problem.data
        sequence = torch.arange(data.n).div(data.queries_per_sequence, rounding_mode="floor")
        tensors = (data.tokens, data.queries, sequence, problem.reference, row_kinds(problem), problem.right_hand_side)
        return TokenRows(*(tensor.cpu().contiguous().numpy() for tensor in tensors))

    @property
    def shape(self) -> tuple[int, int]:
        """(d, dq) of W."""
        return self.tokens.shape[2], self.queries.shape[1]


@dataclass(eq=False)
class WorkingSet:
    """Some rows of a problem as differences, never as d x dq matrices; solvers change ``lam`` in place.

    They are grouped in blocks, one for each input that has any.

    Attributes:
        inputs: the input of each block, ``[blocks]``.
        token: the token of each row, ``[rows]``.
        start: the rows of block r are ``start[r]:start[r + 1]``, ``[blocks + 1]``.
        differences: D_k = x_reference - x_t, ``[rows, d]``.
        right_hand_side: b_k, ``[rows]``.
        equalities: rows whose multipliers have no sign, ``[rows]``.
        lam: multipliers, ``[rows]``.
        queries: z of each block, ``[blocks, dq]``.
        near: z_r . z_s for the blocks s of r's group, ``[blocks, group]``.
        gram_start: where each block's Gram matrix begins in ``gram``, ``[blocks + 1]``.
        gram: ||z_r||^2 D_r D_r^T of every block, row after row.
        ids: a number for each row that stays the same from one working set to the next, ``[rows]``.
    """

    inputs: np.ndarray
    token: np.ndarray
    start: np.ndarray
    differences: np.ndarray
    right_hand_side: np.ndarray
    equalities: np.ndarray
    lam: np.ndarray
    queries: np.ndarray
    near: np.ndarray
    gram_start: np.ndarray
    gram: np.ndarray
    ids: np.ndarray

    @classmethod
    def gather(cls, problem: TokenRows, chosen: np.ndarray, duals: np.ndarray) -> WorkingSet:
        """Collect the rows marked in ``chosen`` [n, T] with their multipliers ``duals`` [n, T]."""
        count = chosen.sum(1)
        inputs = np.flatnonzero(count)
        count = count[inputs].astype(np.int64)
        start = np.concatenate([[0], np.cumsum(count)])
        gram_start = np.concatenate([[0], np.cumsum(count * count)])
        owner, token = np.nonzero(chosen)
        differences = np.empty((len(token), problem.tokens.shape[2]))
        kernels.gather_rows(problem.tokens, problem.sequence, problem.reference, inputs, start, token, differences)
        queries = np.ascontiguousarray(problem.queries[inputs])
        square = np.einsum("rj,rj->r", queries, queries)
        gram = np.empty(gram_start[-1])
        kernels.block_grams(differences, start, gram_start, square, gram)
        near = np.zeros((len(inputs), _GROUP))
        for first in range(0, len(inputs), _GROUP):
            z = queries[first : first + _GROUP]
            near[first : first + len(z), : len(z)] = z @ z.T
        return cls(
            inputs=inputs,
            token=token,
            start=start,
            differences=differences,
            right_hand_side=problem.right_hand_side[owner, token],
            equalities=problem.kinds[owner, token] == EQUALITY,
            lam=duals[owner, token],
            queries=queries,
            near=near,
            gram_start=gram_start,
            gram=gram,
            ids=owner * np.int64(chosen.shape[1]) + token,
        )

    @property
    def owner(self) -> np.ndarray:
        """Block of each row, ``[rows]``."""
        return np.repeat(np.arange(len(self.inputs)), np.diff(self.start))

    @property
    def squares(self) -> np.ndarray:
        """||A_k||^2, ``[rows]``: the diagonals of the block Gram matrices."""
        size = np.diff(self.start)
        place = np.arange(len(self.token)) - np.repeat(self.start[:-1], size)
        return self.gram[np.repeat(self.gram_start[:-1], size) + place * (np.repeat(size, size) + 1)]

    def scatter(self, duals: np.ndarray) -> None:
        """Write the multipliers to their places in ``duals`` [n, T]."""
        duals[np.repeat(self.inputs, np.diff(self.start)), self.token] = self.lam

    def adjoint(self, vector: np.ndarray) -> np.ndarray:
        """A*(vector) = sum_k vector_k D_k z_k^T, [d, dq]."""
        sums = np.empty((len(self.inputs), self.differences.shape[1]))
        kernels.rows_to_blocks(vector, self.start, self.differences, sums)
        return sums.T @ self.queries

    def forward(self, weights: np.ndarray, face: np.ndarray) -> np.ndarray:
        """<A_k, W> on the rows of the face, 0 elsewhere, [rows]."""
        out = np.empty(len(self.token))
        kernels.blocks_to_rows(self.queries @ weights.T, self.start, self.differences, face, out)
        return out

    def descend(self, weights: np.ndarray, generator: np.random.Generator, sweeps: int) -> None:
        """One pass of block dual coordinate descent, groups in random order; updates ``weights`` and ``lam``."""
        order = generator.permutation(-(-len(self.inputs) // _GROUP))
        rotate = int(generator.integers(_GROUP))
        kernels.descend(
            weights, self.queries, self.near, _GROUP, order, self.start, self.differences, self.right_hand_side,
            self.equalities, self.lam, self.gram_start, self.gram, sweeps, rotate,
        )  # fmt: skip
