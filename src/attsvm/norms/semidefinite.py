"""Norms of factors whose value is that of a semidefinite program: gamma_2, and the spectral norm of heads fused in one.

    N(W_1 | ... | W_H) = min t  s.t.  [[A_h, W_h], [W_h^T, B_h]] psd for all h,  cap(sum A_h) <= t, cap(sum B_h) <= t
    N°(G_1 | ... | G_H) = min tr U + tr V  s.t.  [[U, G_h / 2], [G_h^T / 2, V]] psd for all h

The cap is the largest diagonal entry (U, V diagonal) or the largest eigenvalue (U, V any). Clarabel solves both; what
it returns is shifted until the matrices are positive semidefinite, so that values are bounds from above, exact to
about 1e-9.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from attsvm.data.checks import check_count
from attsvm.norms.base import Norm


@dataclass(eq=False)
class ConicProgram:
    """min cost^T x  s.t.  A x + s = b, s in a product of cones, for Clarabel."""

    cost: np.ndarray
    blocks: list[Any] = field(default_factory=list)
    sides: list[np.ndarray] = field(default_factory=list)
    cones: list[object] = field(default_factory=list)

    def add(self, matrix: Any, side: np.ndarray, *cones: object) -> None:
        """Rows of A, dense or sparse, with their b and the cones of their s."""
        self.blocks.append(matrix)
        self.sides.append(side)
        self.cones += cones

    def add_definite(self, order: int, m: int, entry: np.ndarray, own: np.ndarray, sign: Any = 1.0) -> None:
        """[[P, S], [S^T, Q]] psd, S [m, order - m], of the variables `entry` times `sign` and `own`.

        They come in the order of the upper triangle, column by column (`corner` for S); -1 stands for the number 0.
        """
        import clarabel
        import scipy.sparse as sp

        row, column = triangle(order)
        cross = (row < m) & (column >= m)
        values, variables = -_factor(row, column), np.empty(len(row), int)
        values[cross] *= sign
        variables[cross], variables[~cross] = entry, own
        there = np.flatnonzero(variables >= 0)
        matrix = sp.csc_matrix((values[there], (there, variables[there])), shape=(len(row), len(self.cost)))
        self.add(matrix, np.zeros(len(row)), clarabel.PSDTriangleConeT(order))

    def solve(self, **settings: float) -> Any:
        """Clarabel's answer, under settings by its own names."""
        import clarabel
        import scipy.sparse as sp

        options = clarabel.DefaultSettings()
        options.verbose = False
        for name, value in settings.items():
            setattr(options, name, value)
        variables = len(self.cost)
        matrix = sp.vstack([sp.csc_matrix(block) for block in self.blocks]).tocsc()
        nothing = sp.csc_matrix((variables, variables))
        sides = np.concatenate(self.sides)
        return clarabel.DefaultSolver(nothing, self.cost, matrix, sides, self.cones, options).solve()


class ProgramNorm(Norm):
    """A norm that a program finds for one matrix at a time, in float64. There is no projection and no prox."""

    @property
    @abstractmethod
    def dual(self) -> ProgramNorm:
        """The dual norm N°, found by another program."""

    @abstractmethod
    def solved(self, matrix: np.ndarray) -> tuple[float, np.ndarray]:
        """N(W), and G with N°(G) = 1 and <G, W> = N(W), of a matrix that is not zero."""

    def _value(self, matrix: Tensor) -> Tensor:
        values = [self.solved(one)[0] if one.any() else 0.0 for one in each_matrix(matrix)]
        return torch.tensor(values, dtype=matrix.dtype, device=matrix.device).view(matrix.shape[:-2])

    def _steepest(self, gradient: Tensor) -> Tensor:
        found = np.array([self.dual.solved(one)[1] if one.any() else one for one in each_matrix(gradient)])
        return torch.from_numpy(found).to(gradient).view(gradient.shape)

    def _project(self, matrix: Tensor, radius: Tensor) -> Tensor:
        raise ValueError(f"the {self.name} norm has neither projection nor prox here")


def each_matrix(matrix: Tensor) -> np.ndarray:
    """All matrices of a batch in one axis, float64."""
    return matrix.detach().double().cpu().numpy().reshape(-1, *matrix.shape[-2:])


@dataclass(frozen=True)
class Semidefinite(ProgramNorm):
    """A norm of the form above."""

    whole: ClassVar[bool]
    """Whether the cap is the largest eigenvalue, not the largest diagonal entry."""

    @property
    def count(self) -> int:
        """H, the number of heads side by side in W."""
        return 1

    @property
    def dual(self) -> ProgramNorm:
        return SemidefiniteDual(self)

    def check_width(self, dq: int) -> None:
        """Raise unless W of so many columns holds the heads side by side."""
        if dq % self.count:
            raise ValueError(f"W of {self.count} heads needs a multiple of {self.count} columns; it has {dq}")

    def variables(self, d: int, dq: int) -> int:
        """How many the program has: W, row by row, then t, then A_h and B_h."""
        width = dq // self.count
        return d * dq + 1 + self.count * (d * (d + 1) + width * (width + 1)) // 2

    def add_ball(self, program: ConicProgram, d: int, dq: int) -> None:
        """N(W) <= t: the blocks first, then the caps of A and of B."""
        import clarabel
        import scipy.sparse as sp

        self.check_width(dq)
        size, width, total = d * dq, dq // self.count, len(program.cost)
        row, column = triangle(d + width)
        own = np.flatnonzero((row >= d) | (column < d))
        above, right = corner(d + width, d)
        for head in range(self.count):
            more = size + 1 + head * len(own) + np.arange(len(own))
            program.add_definite(d + width, d, above * dq + head * width + right, more)
        for inside, order in ((column[own] < d, d), (row[own] >= d, width)):
            first = np.flatnonzero(inside)  # the triangle of A or of B, in its own order
            line, other = triangle(order)
            kept = np.flatnonzero((line == other) | self.whole)
            diagonal = np.flatnonzero((line == other)[kept])
            factor = _factor(line, other)[kept]
            places = np.concatenate([np.tile(np.arange(len(kept)), self.count), diagonal])
            heads = [size + 1 + head * len(own) + first[kept] for head in range(self.count)]
            variable = np.concatenate([*heads, np.full(len(diagonal), size)])
            values = np.concatenate([np.tile(factor, self.count), -np.ones(len(diagonal))])
            matrix = sp.csc_matrix((values, (places, variable)), shape=(len(kept), total))
            cone = clarabel.PSDTriangleConeT(order) if self.whole else clarabel.NonnegativeConeT(order)
            program.add(matrix, np.zeros(len(kept)), cone)

    def _solve(self, matrix: np.ndarray, fixed: np.ndarray, side: np.ndarray, cost: np.ndarray) -> Any:
        """The program with some of the variables (W, t) `fixed`, in its first rows, and a cost on these variables."""
        import clarabel
        import scipy.sparse as sp

        variables = self.variables(*matrix.shape)
        program = ConicProgram(np.concatenate([cost, np.zeros(variables - len(cost))]))
        rows = sp.csc_matrix((np.ones(len(fixed)), (np.arange(len(fixed)), fixed)), shape=(len(fixed), variables))
        program.add(rows, side, clarabel.ZeroConeT(len(fixed)))
        self.add_ball(program, *matrix.shape)
        return program.solve(tol_gap_abs=1e-12, tol_gap_rel=1e-12, tol_feas=1e-12)

    def solved(self, matrix: np.ndarray) -> tuple[float, np.ndarray]:
        d, width = matrix.shape[0], matrix.shape[1] // self.count
        cost = np.concatenate([np.zeros(matrix.size), np.ones(1)])
        found = self._solve(matrix, np.arange(matrix.size), matrix.ravel(), cost)
        row, column = triangle(d + width)
        own = np.flatnonzero((row >= d) | (column < d))
        blocks = np.zeros((self.count, d + width, d + width))
        entries = np.array(found.x)[matrix.size + 1 :].reshape(self.count, -1)
        blocks[:, row[own], column[own]] = blocks[:, column[own], row[own]] = entries
        shift, sums = self._shift(blocks, matrix), blocks.sum(0)
        corners = sums[:d, :d], sums[d:, d:]
        tops = [np.linalg.eigvalsh(each)[-1] if self.whole else each.diagonal().max() for each in corners]
        normal = -np.array(found.z)[: matrix.size].reshape(matrix.shape)
        return float(max(tops)) + self.count * shift, normal

    def dual_solved(self, matrix: np.ndarray) -> tuple[float, np.ndarray]:
        """N°(G) from above, and D with N(D) <= 1, up to round-off, that attains it."""
        d, width = matrix.shape[0], matrix.shape[1] // self.count
        found = self._solve(matrix, np.array([matrix.size]), np.ones(1), -matrix.ravel())
        last, block = np.array(found.z), np.zeros((d + width, d + width))
        for order, place in ((width, d), (d, 0)):  # the multipliers of the last two cones
            row, column = triangle(order)
            kept = (row == column) | self.whole
            row, column = row[kept], column[kept]
            part, last = last[-len(row) :] / _factor(row, column), last[: -len(row)]
            block[place + row, place + column] = block[place + column, place + row] = part
        shift = self._shift(np.stack([block] * self.count), matrix / 2)
        value = float(np.trace(block)) + (d + width) * shift
        return value, np.array(found.x)[: matrix.size].reshape(matrix.shape)

    def _shift(self, blocks: np.ndarray, matrix: np.ndarray) -> float:
        """What the diagonals lack until every block, with its part of `matrix` in the corners, is semidefinite."""
        d = matrix.shape[0]
        parts = np.stack(np.split(matrix, self.count, axis=1))
        blocks[:, :d, d:], blocks[:, d:, :d] = parts, parts.transpose(0, 2, 1)
        return max(0.0, -float(np.linalg.eigvalsh(blocks).min()))


@dataclass(frozen=True)
class SemidefiniteDual(ProgramNorm):
    """The dual of a norm that a semidefinite program defines."""

    primal: Semidefinite

    @property
    def name(self) -> str:
        return f"dual of {self.primal.name}"

    @property
    def dual(self) -> ProgramNorm:
        return self.primal

    def solved(self, matrix: np.ndarray) -> tuple[float, np.ndarray]:
        return self.primal.dual_solved(matrix)

    def _steepest(self, gradient: Tensor) -> Tensor:
        found = super()._steepest(gradient)  # of size 1 to the solver's accuracy only
        size = self._value(found)[..., None, None]
        return found / size.masked_fill(size == 0, 1.0)


@dataclass(frozen=True)
class Gamma2(Semidefinite):
    """gamma_2(W) = min { largest row of K times largest row of Q : K Q^T = W }, row lengths in l_2.

    The geometry of steps on K and Q that normalize every row. Between the projective norm over 1.7823 and that norm;
    its dual is Grothendieck's semidefinite program, as much above the (infinity -> 1) norm.

    >>> round(float(Gamma2().value(torch.eye(2).double())), 6), round(float(Gamma2().dual_value(torch.eye(2))), 6)
    (1.0, 2.0)
    """

    name = "gamma_2"
    whole = False


@dataclass(frozen=True)
class SpectralOfHeads(Semidefinite):
    """min { ||[K_1 ... K_H]|| ||[Q_1 ... Q_H]|| : K_h Q_h^T = W_h }, spectral norms, for W = (W_1 | ... | W_H).

    The geometry of Muon on the keys of several heads stored in one matrix, and on their queries; for one head the
    spectral norm of W, for columns of K_h at least the rank of W_h.

    >>> W = torch.eye(2).double()
    >>> [round(float(SpectralOfHeads(heads).value(torch.cat([W] * heads, 1))), 6) for heads in (1, 3)]
    [1.0, 3.0]
    """

    heads: int
    whole = True

    def __post_init__(self) -> None:
        check_count(self.heads, "heads")

    @property
    def name(self) -> str:
        return f"spectral of {self.heads} fused heads"

    @property
    def count(self) -> int:
        return self.heads

    def bracket(self, matrix: Float[Tensor, "d dq"]) -> tuple[float, float]:
        """Bounds without a program: max over signs of ||sum_h +-W_h|| below,
        (||sum_h |W_h^T| || ||sum_h |W_h| ||)^(1/2) above, |W| = (W^T W)^(1/2)."""
        self.check_width(matrix.shape[-1])
        parts = torch.stack(matrix.double().tensor_split(self.heads, -1))
        bits = torch.arange(2 ** (self.heads - 1))[:, None] >> torch.arange(self.heads)
        low = torch.linalg.matrix_norm(torch.einsum("sh,hij->sij", 1.0 - 2.0 * (bits & 1).double(), parts), 2).max()
        left, sizes, right = torch.linalg.svd(parts, full_matrices=False)
        sums = ((left * sizes[:, None]) @ left.mT).sum(0), ((right.mT * sizes[:, None]) @ right).sum(0)
        high = (torch.linalg.matrix_norm(sums[0], 2) * torch.linalg.matrix_norm(sums[1], 2)).sqrt()
        return float(low), float(high)


def triangle(order: int) -> tuple[np.ndarray, np.ndarray]:
    """Row and column of the upper triangle, column by column, as Clarabel has it (off-diagonal times sqrt 2)."""
    column, row = np.tril_indices(order)
    return row, column


def corner(order: int, m: int) -> tuple[np.ndarray, np.ndarray]:
    """Row and column of the upper right block of m rows, in the same order."""
    column, row = np.divmod(np.arange(m * (order - m)), m)
    return row, column


def _factor(row: np.ndarray, column: np.ndarray) -> np.ndarray:
    """By which Clarabel multiplies these entries of a symmetric matrix."""
    return np.where(row == column, 1.0, np.sqrt(2.0))
