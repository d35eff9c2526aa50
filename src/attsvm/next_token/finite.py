"""W_fin: what training makes of the logits inside components, with a proof of how near the computed one is.

The restricted loss forgets all tokens outside the label's component,

    F(W) = (1/n) sum_i  log sum_{t in O_i} exp(x_it^T W z_i)  -  log sum_{t : x_it = y_i} exp(x_it^T W z_i),

and W_fin is its minimiser in S_fin. It exists and is unique: along a direction V in S_fin that never raises F every
edge inside a component has (e_y - e_x)^T V e_k >= 0, the sum around a cycle is 0, so all of them are 0 and V = 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from attsvm.attention import FiniteSpace
from attsvm.next_token.graph import PriorityGraph

_ACCURATE = 1e-13  # of the gradient, relative to its largest possible size
_STEPS = 100


@dataclass(frozen=True, eq=False)
class FinitePart:
    """W_fin and its certificate of stationarity."""

    weights: Float[Tensor, "d d"]  #: W_fin
    space: FiniteSpace  #: S_fin
    distance_bound: float  #: how far the exact W_fin can be away; infinite where the certificate does not hold

    @property
    def certified(self) -> bool:
        """Whether the exact W_fin is proved to be near: within 1e-6 (1 + ||W_fin||)."""
        return self.distance_bound <= 1e-6 * (1 + float(self.weights.norm()))


def finite_part(graph: PriorityGraph) -> FinitePart:
    """W_fin of the data behind a priority graph, by Newton's method in S_fin.

    **Certificate.** Along any direction the third derivative of F is at most D times the second, D the largest
    difference of two logits inside a set O_i that a direction of length 1 makes. So the Hessian at distance r is at
    least mu e^{-D r}, and the minimiser lies within ``-log(1 - D g / mu) / D`` of a point with gradient norm g, if
    D g < mu. That mu is a lower bound is checked by a Cholesky factorization of H - mu I. For the same reason a Newton
    step that moves no such difference by more than r, shortened by ``log(1 + r) / r``, never raises F.
    """
    data, problem = graph.data, graph.problem
    space = FiniteSpace.of(problem.data, graph.relations.kept)
    zero = torch.zeros(1, data.d, data.d, dtype=torch.float64)
    if int(space.dimension) == 0:
        return FinitePart(zero[0], space, 0.0)
    loss = _RestrictedLoss(graph, space)
    point = torch.zeros(int(space.dimension), dtype=torch.float64)
    gradient, hessian = loss.at(point)
    for _ in range(_STEPS):
        if float(gradient.norm()) <= _ACCURATE * loss.slope:
            break
        step = -torch.linalg.solve(hessian, gradient)
        length = 2 * float((loss.rows @ step).abs().max())
        moved = point + math.log1p(length) / length * step
        there = loss.at(moved)
        if length < 1e-3 and float(there[0].norm()) >= float(gradient.norm()):
            break  # round-off has taken over
        point, (gradient, hessian) = moved, there
    size = float(gradient.norm()) + 1e-15 * loss.slope * math.sqrt(len(point))
    mu = _curvature(hessian)
    reach = loss.reach * size / mu if mu > 0 else math.inf
    bound = -math.log1p(-reach) / loss.reach if reach < 1 else math.inf
    return FinitePart(space.matrix(point[None], zero)[0], space, bound)


class _RestrictedLoss:
    """F in the coordinates of S_fin, over the samples that keep at least two different tokens."""

    def __init__(self, graph: PriorityGraph, space: FiniteSpace) -> None:
        data = graph.data
        kept, ids, size, others = graph.kept.numpy(), data.ids.numpy(), data.K, data.ids != data.labels[:, None]
        sample, place = np.nonzero(kept & (kept & others.numpy()).any(1, keepdims=True))
        pairs, pair = np.unique(data.last.numpy()[sample] * size + ids[sample, place], return_inverse=True)
        _, inverse = np.unique(sample, return_inverse=True)
        hit = (~others.numpy())[sample, place].astype(float)  # a label that repeats shares its 1
        self.n = data.n
        self.pair, self.sample = torch.from_numpy(pair), torch.from_numpy(inverse)
        self.target = torch.from_numpy(hit / np.bincount(inverse, hit)[inverse])
        tokens = data.embeddings[torch.from_numpy(pairs % size)]
        queries = data.embeddings[torch.from_numpy(pairs // size)]
        self.rows = space.logits(tokens, queries)[:, : int(space.dimension)]
        sizes = torch.linalg.vector_norm(tokens, dim=1) * torch.linalg.vector_norm(queries, dim=1)
        self.reach = 2 * float(sizes.max())
        self.slope = self.reach * (int(inverse.max()) + 1) / data.n

    def at(self, point: Tensor) -> tuple[Tensor, Tensor]:
        """Gradient and Hessian."""
        from scipy.sparse import csr_array

        groups = int(self.sample.max()) + 1
        logits = (self.rows @ point)[self.pair]
        top = torch.full((groups,), -math.inf, dtype=torch.float64).scatter_reduce(0, self.sample, logits, "amax")
        shifted = logits - top[self.sample]
        total = torch.zeros(groups, dtype=torch.float64).index_add(0, self.sample, shifted.exp())
        share = shifted.exp() / total[self.sample]
        count = len(self.rows)
        pull = torch.zeros(count, dtype=torch.float64).index_add(0, self.pair, share - self.target)
        # Hessian: diag of the shares minus, for each sample, the product of its mean rows.
        weight = torch.zeros(count, dtype=torch.float64).index_add(0, self.pair, share)
        mix = csr_array((share.numpy(), (self.sample.numpy(), self.pair.numpy())), shape=(groups, count))
        means = torch.from_numpy(mix @ self.rows.numpy())
        hessian = (self.rows.mT * weight) @ self.rows - means.mT @ means
        return self.rows.mT @ pull / self.n, hessian / self.n


def _curvature(hessian: Tensor) -> float:
    """A lower bound on the smallest eigenvalue, proved by a Cholesky factorization; 0 where none is found."""
    guess, eye = float(torch.linalg.eigvalsh(hessian)[0]), torch.eye(len(hessian), dtype=torch.float64)
    for share in (0.9, 0.5, 0.1, 0.01):
        if guess > 0 and int(torch.linalg.cholesky_ex(hessian - share * guess * eye).info) == 0:
            return share * guess
    return 0.0
