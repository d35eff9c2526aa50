"""Does a ray prove that no weights separate, for the data exactly as given?

A ray is lam >= 0 (free on equality rows) with b^T lam > 0 and M = sum_k lam_k A_k = 0, A_k = d_k z_k^T. A ray of
floating point leaves a small M, and a small M proves only N(W) >= b^T lam / N°(M): tokens (0, 0), (-1, -e), (1, -e)
with a tiny e can be separated, though by a large W. Here a ray is a proof in one of three ways.

- **A row that is zero to the last bit**, a twin of the selected token or a zero query, asks for a positive margin.
- **Absorbed.** Where the rows of the ray, scaled to length 1, span their whole space with smallest singular value s,
  some delta has sum_k delta_k A_k = -M exactly and ||delta|| <= ||M|| / s. If lam_k > ||M|| / s on every inequality
  row, and b^T lam outweighs ||b|| ||M|| / s, then lam + delta is an exact ray. It is enough that some of the rows,
  those with large multipliers, span the space: then they alone move. The space is that of d dq numbers or,
  where the different queries of the ray are independent, one copy of R^d for each: sum_q u_q z_q^T = 0 then means that
  every u_q = sum_{k of query q} lam_k d_k is 0. ||M|| is taken at its computed value plus 4 (m + 8) units of round-off
  for m rows (each row of length 1 is known to 8 units), s at its computed value minus 16 max(m, D) sqrt(m) units, the
  error of a backward stable decomposition in dimension D with room to spare; queries of length 1 count as independent
  with a smallest singular value of 1e-8.
- **Exact.** The doubles are integers up to powers of two. The rows are written in integers, the largest multipliers
  are solved for in exact arithmetic with the others fixed, and every equation and sign is checked exactly.

What is not proved so may still be infeasible; it is not known to be.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attsvm.svm.certificate import signed
from attsvm.svm.problem import AttentionSVM
from attsvm.svm.solvers.base import unit

_UNIT = 2.0**-52
_INDEPENDENT = 1e-8
# Multipliers below such a share of the largest may be round-off of a zero; each line is tried.
_LINES = (1e-12, 1e-9, 1e-6)
# What is left is absorbed by all rows above a line, or by those alone whose multipliers are above a second one.
_ABSORBING = (*((line, 0.0) for line in _LINES), (_LINES[0], 1e-3), (_LINES[0], 1e-2))
_MOST_ROWS, _MOST_NUMBERS = 2000, 2**24  # of a ray that is looked at, and of one batch of matrices
_EXACT_ROWS, _EXACT_NUMBERS, _EXACT_WORK = 64, 20_000, 3_000_000  # exact: rows, numbers, and steps for a whole batch


def proves_infeasible(problem: AttentionSVM, rays: Float[Tensor, "batch n T"]) -> Bool[Tensor, " batch"]:
    """Where the multipliers `rays`, or a row that is exactly zero, prove that no W at all meets the problem's rows.

    Problems have one batch axis; negative multipliers of inequality rows are read as 0.
    """
    proved = (problem.asking & problem.vanishing).flatten(1).any(1)
    lam = signed(problem, rays)
    weights = (lam.abs() * problem.row_norms).flatten(1)
    most = int((weights > _LINES[0] * weights.amax(1, keepdim=True)).sum(1).max().clamp(1, _MOST_ROWS))
    at_once = max(1, _MOST_NUMBERS // (most * most * problem.data.dq + most * problem.data.d))
    work = _EXACT_WORK
    for part in torch.nonzero(~proved).flatten().split(at_once):
        listed = _ListedRows.of(problem[part], lam[part], weights[part].topk(most, dim=1).indices)
        for line, moving in _ABSORBING:
            left = ~proved[part]
            proved[part[left]] = _absorbed(listed[left].above(line), moving)
        for k in torch.nonzero(~proved[part]).flatten().tolist():
            for line in _LINES[1:]:
                if work > 0 and not proved[part[k]]:
                    found, spent = _exactly(problem[part[k : k + 1]], listed[k : k + 1].above(line))
                    proved[part[k]], work = found, work - spent
    return proved


@dataclass(frozen=True, eq=False)
class _ListedRows:
    """The rows of each ray in one list, largest multipliers first, scaled to length 1; zero rows are padding."""

    places: Tensor  #: of the rows among n T, ``[batch, m]``
    differences: Tensor  #: d_k / ||d_k||, ``[batch, m, d]``
    queries: Tensor  #: z_k / ||z_k||, ``[batch, m, dq]``
    duals: Tensor  #: lam_k ||d_k|| ||z_k||, scaled to a largest one of 1, ``[batch, m]``
    sides: Tensor  #: b_k / (||d_k|| ||z_k||), up to the same scale
    multipliers: Tensor  #: lam_k as given
    free: Tensor  #: equality rows
    names: Tensor  #: of the query of each row: the first row of the list with exactly the same one

    @staticmethod
    def of(problem: AttentionSVM, lam: Tensor, places: Tensor) -> _ListedRows:
        differences, own = problem.listed(places)
        own = own + 0.0  # -0 is 0
        (differences, lengths), (queries, sizes) = unit(differences), unit(own)
        scale = lengths * sizes
        multipliers = lam.flatten(1).gather(1, places)
        duals = multipliers * scale
        duals = duals / duals.abs().amax(1, keepdim=True)
        duals = torch.where(torch.isfinite(duals) & (scale > 0), duals, 0.0)
        sides = problem.right_hand_side.flatten(1).gather(1, places) / torch.where(scale > 0, scale, 1.0)
        same = (own[:, :, None] == own[:, None]).all(-1)
        return _ListedRows(
            places=places, differences=differences, queries=queries, duals=duals, sides=sides,
            multipliers=multipliers, free=problem.equalities.flatten(1).gather(1, places),
            names=same.to(torch.uint8).argmax(-1),
        )  # fmt: skip

    def __getitem__(self, index: Tensor | slice) -> _ListedRows:
        return _ListedRows(**{name: part[index] for name, part in vars(self).items()})

    def above(self, line: float) -> _ListedRows:
        """Only the rows whose multiplier is above `line` times the largest; the others become padding."""
        return replace(self, duals=self.duals.masked_fill(self.duals.abs() <= line, 0.0))

    @property
    def present(self) -> Tensor:
        return self.duals != 0


def _absorbed(rows: _ListedRows, line: float) -> Tensor:
    """Where the residual of the ray can be absorbed by a small change of its multipliers above `line`."""
    m = rows.duals.shape[1]
    d, dq = rows.differences.shape[2], rows.queries.shape[2]
    moving = rows.present & (rows.duals.abs() > line)
    answer = _absorbed_by_query(rows, moving)
    many = moving.sum(1) >= d * dq
    left = torch.nonzero(~answer & many).flatten()
    for part in left.split(max(1, _MOST_NUMBERS // max(1, m * d * dq))):
        some = rows[part]
        outer = (some.differences[..., None] * some.queries[..., None, :]).flatten(2) * some.present[..., None]
        answer[part] = _outweighs(some, moving[part], _change(outer, some.duals, moving[part]))
    return answer


def _absorbed_by_query(rows: _ListedRows, moving: Tensor) -> Tensor:
    """The same, one condition in R^d for each query, where the different queries are independent."""
    count, m = rows.duals.shape
    d, dq = rows.differences.shape[2], rows.queries.shape[2]
    # Names may point at a row that is padding here: the first present row of a name stands for its query.
    alike = (rows.names[:, :, None] == rows.names[:, None]) & rows.present[:, None, :] & rows.present[:, :, None]
    heads = rows.present & (alike.to(torch.uint8).argmax(-1) == torch.arange(m, device=rows.duals.device))
    different, sizes = heads.sum(1), (alike & moving[:, None, :]).sum(-1)
    fits = (different <= dq) & (sizes.masked_fill(~heads, m + d + 1).amin(1) >= d) & heads.any(1)
    part = torch.nonzero(fits).flatten()
    answer = torch.zeros(count, dtype=torch.bool, device=rows.duals.device)
    if part.numel() == 0:
        return answer
    values = torch.linalg.svdvals(rows.queries[part] * heads[part][..., None])
    independent = values.gather(1, different[part, None] - 1).squeeze(1) > _INDEPENDENT
    part = part[independent]
    where, head = torch.nonzero(heads[part], as_tuple=True)
    total = torch.zeros(len(part), dtype=torch.float64, device=rows.duals.device)
    for some in torch.arange(len(where), device=where.device).split(max(1, _MOST_NUMBERS // max(1, m * d))):
        own = part[where[some]]
        inside = alike[own, head[some]]
        change = _change(rows.differences[own] * inside[..., None], rows.duals[own] * inside, moving[own] & inside)
        total.index_add_(0, where[some], change.square())
    answer[part] = _outweighs(rows[part], moving[part], total.sqrt())
    return answer


def _change(vectors: Tensor, duals: Tensor, moving: Tensor) -> Tensor:
    """A bound on the change of the moving `duals` that makes the combination of unit (or zero) vectors exactly 0."""
    m, size = vectors.shape[1:]
    left = torch.linalg.vector_norm((vectors * duals[..., None]).sum(1), dim=-1)
    left = left + 4 * (m + 8) * _UNIT * duals.abs().sum(1)
    smallest = torch.linalg.svdvals(vectors * moving[..., None])[:, -1] - 16 * max(m, size) * m**0.5 * _UNIT
    return torch.where(smallest > 0, left / smallest, torch.inf)


def _outweighs(rows: _ListedRows, moving: Tensor, change: Tensor) -> Tensor:
    """Whether multipliers stay positive, and b^T lam as well, under every change of the moving ones of this length."""
    change = change * (1 + 1e-9)  # far more than the round-off of these few operations
    smallest = rows.duals.masked_fill(~moving | rows.free, torch.inf).amin(1)
    sides = rows.sides.masked_fill(~rows.present, 0.0)
    each = sides * rows.duals
    earned = each.sum(1) - 8 * (each.shape[1] + 8) * _UNIT * each.abs().sum(1)
    return (smallest > change) & (earned > change * torch.linalg.vector_norm(sides.masked_fill(~moving, 0.0), dim=1))


def _exactly(problem: AttentionSVM, rows: _ListedRows) -> tuple[bool, int]:
    """Whether there is an exact ray near this one, on its rows (one problem); and the steps that were spent."""
    data, present = problem.data, rows.present[0]
    places, names = rows.places[0][present].tolist(), rows.names[0][present].tolist()
    different = sorted(set(names))
    if not 0 < len(places) <= _EXACT_ROWS:
        return False, 1
    first = rows.queries[0][present][[names.index(name) for name in different]]
    grouped = len(different) <= data.dq and bool(torch.linalg.svdvals(first).amin() > _INDEPENDENT)
    if len(places) * data.d * (len(different) if grouped else data.dq) > _EXACT_NUMBERS:
        return False, 1
    matrix: list[list[int]] = []  # A_k times scale_k, a power of two
    scales: list[int] = []
    for place, name in zip(places, names, strict=True):
        i, t = divmod(place, data.T)
        tokens = data.tokens[0, i // data.queries_per_sequence]
        kept, other = (map(Fraction, tokens[k].tolist()) for k in (problem.reference[0, i], t))
        query = [float(name == one) for one in different] if grouped else data.queries[0, i].tolist()
        difference, exact_query = [x - y for x, y in zip(kept, other, strict=True)], list(map(Fraction, query))
        row = [x * z for x in difference for z in exact_query]
        scales.append(max(x.denominator for x in row))
        matrix.append([x.numerator * (scales[-1] // x.denominator) for x in row])
    near = [Fraction(x) / scale for x, scale in zip(rows.multipliers[0][present].tolist(), scales, strict=True)]
    spent = len(matrix) * len(matrix[0]) + len(matrix) ** 3
    if (exact := _null_vector(matrix, near)) is None:
        return False, spent
    signs = all(x >= 0 or equal for x, equal in zip(exact, rows.free[0][present].tolist(), strict=True))
    sides = problem.right_hand_side[0].flatten()[places].tolist()
    return signs and sum(Fraction(b) * x * scale for b, x, scale in zip(sides, exact, scales, strict=True)) > 0, spent


def _null_vector(matrix: list[list[int]], near: list[Fraction]) -> list[Fraction] | None:
    """x with sum_k x_k matrix_k = 0 exactly and some entries as in `near`, or None where only 0 would do.

    Rows come in the order in which they should be solved for. As many equations as rows are made of the columns at
    random, and eliminated without fractions (Gauss, Jordan, Bareiss); what comes of it is checked on all columns.
    """
    m, columns = len(matrix), np.array(matrix, dtype=object)
    if columns.shape[1] > m:
        mixed = columns @ np.random.default_rng(0).integers(-1, 2, (columns.shape[1], m)).astype(object)
    else:
        mixed = columns
    system, pivots, before = list(mixed.T), list[int](), 1
    for k in range(m):
        rank = len(pivots)
        swap = next((i for i in range(rank, len(system)) if system[i][k] != 0), None)
        if swap is None:
            continue
        system[rank], system[swap] = system[swap], system[rank]
        top, pivot = system[rank], system[rank][k]
        system = [row if row is top else (pivot * row - row[k] * top) // before for row in system]
        pivots, before = [*pivots, k], pivot
    x = [Fraction(0) if k in pivots else value for k, value in enumerate(near)]
    common = max(value.denominator for value in x)  # powers of two
    fixed = np.array([int(value * common) for value in x], dtype=object)
    for row, k in zip(system, pivots, strict=False):
        x[k] = Fraction(-int(row @ fixed), before * common)
    whole = np.array([int(value * before * common) for value in x], dtype=object)
    return x if len(pivots) < m and not (whole @ columns).any() else None
