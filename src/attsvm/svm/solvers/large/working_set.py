"""The compact working set: the rows that descent and polish see, stored as differences [rows, d], never as rows [rows, d dq]."""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators, allow-incomplete-defs
from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from attsvm.svm.solvers.large import kernels

GROUP = 32


@dataclass
class WorkingSet:
    """Rows grouped by input. ``inputs[r]`` is the input of block r, ``token[k]`` the token of row k."""

    inputs: np.ndarray
    token: np.ndarray
    start: np.ndarray
    differences: np.ndarray
    rhs: np.ndarray
    free: np.ndarray
    lam: np.ndarray
    queries: np.ndarray
    near: np.ndarray
    gram_start: np.ndarray
    gram: np.ndarray
    ids: np.ndarray

    @classmethod
    def gather(cls, problem, chosen, duals):
        """Collect the rows marked in ``chosen`` [n, T] with their multipliers ``duals`` [n, T]."""
        count = chosen.sum(1)
        inputs = np.flatnonzero(count)
        count = count[inputs].astype(np.int64)
        start = np.concatenate([[0], np.cumsum(count)])
        gram_start = np.concatenate([[0], np.cumsum(count * count)])
        owner, token = np.nonzero(chosen)
        differences = np.empty((len(token), problem.tokens.shape[2]))
        kernels.gather_rows(problem.tokens, problem.sequence, problem.selected, inputs, start, token, differences)
        queries = np.ascontiguousarray(problem.queries[inputs])
        square = np.einsum("rj,rj->r", queries, queries)
        gram = np.empty(gram_start[-1])
        kernels.block_grams(differences, start, gram_start, square, gram)
        near = np.zeros((len(inputs), GROUP))
        for lo in range(0, len(inputs), GROUP):
            z = queries[lo : lo + GROUP]
            near[lo : lo + len(z), : len(z)] = z @ z.T
        return cls(inputs, token, start, differences, problem.rhs[owner, token], problem.kind[owner, token] == 2,
                   duals[owner, token], queries, near, gram_start, gram, owner * np.int64(chosen.shape[1]) + token)

    @property
    def owner(self):
        """Block of each row."""
        return np.repeat(np.arange(len(self.inputs)), np.diff(self.start))

    @property
    def diagonal(self):
        """Where gram holds ||A_k||^2."""
        size = np.repeat(np.diff(self.start), np.diff(self.start))
        place = np.arange(len(self.token)) - np.repeat(self.start[:-1], np.diff(self.start))
        return np.repeat(self.gram_start[:-1], np.diff(self.start)) + place * (size + 1)

    @property
    def groups(self):
        return -(-len(self.inputs) // GROUP)

    def scatter(self, duals):
        duals[np.repeat(self.inputs, np.diff(self.start)), self.token] = self.lam

    def adjoint(self, vector):
        """A*(vector) = sum_k vector_k D_k z_k^T, [d, dq]."""
        sums = np.empty((len(self.inputs), self.differences.shape[1]))
        kernels.rows_to_blocks(vector, self.start, self.differences, sums)
        return sums.T @ self.queries

    def forward(self, weights, face):
        """<A_k, W> on the rows of the face, 0 elsewhere."""
        out = np.empty(len(self.token))
        kernels.blocks_to_rows(self.queries @ weights.T, self.start, self.differences, face, out)
        return out

    def descend(self, weights, generator, inner):
        """One pass of block dual coordinate descent in place; returns the decrease of the dual objective."""
        return kernels.descend(weights, self.queries, self.near, GROUP, generator.permutation(self.groups), self.start,
                               self.differences, self.rhs, self.free, self.lam, self.gram_start, self.gram, inner,
                               int(generator.integers(GROUP)))
