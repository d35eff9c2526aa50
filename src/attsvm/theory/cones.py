"""Cones around a max-margin direction, and how wide the cone is from which descent comes back."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attsvm.attention.prediction_heads import as_head
from attsvm.data import TokenDataset
from attsvm.data.checks import ArrayLike, as_floating, as_tensor, check_count, check_finite
from attsvm.data.streams import Purpose, Seed, streams
from attsvm.descent import NormalizedGradientDescent, fit
from attsvm.norms import direction_distance
from attsvm.svm import AttentionSVM, SVMSolution, solve

_SATURATED = 0.9


@dataclass(frozen=True, eq=False)
class AngleCone:
    """{ W : cos(W, direction) >= 1 - opening }, the neighbourhood in which local results hold [TaSVM, local path].

    The direction is ``[d, dq]`` or ``[*batch, d, dq]``, for example the max-margin solution of a locally optimal
    selection; the opening mu lies in (0, 1).
    """

    direction: Tensor
    opening: float

    def __init__(self, direction: ArrayLike, opening: float) -> None:
        matrix = as_floating(direction, "direction").to(torch.float64)
        check_finite(matrix, "direction", ("row", "column"))
        if matrix.ndim < 2 or bool((torch.linalg.matrix_norm(matrix) == 0).any()):
            raise ValueError(f"direction must be a matrix [*batch, d, dq] that is not zero; got {list(matrix.shape)}")
        if isinstance(opening, bool) or not isinstance(opening, int | float) or not 0 < opening < 1:
            raise ValueError(f"opening must lie strictly between 0 and 1; got {opening!r}")
        vars(self).update(direction=matrix, opening=float(opening))

    def fitted(self, data: TokenDataset) -> AngleCone:
        """The cone with one unit direction for each element of `data`, batch axes flattened."""
        shape = (*data.batch_shape, data.d, data.dq)
        if tuple(self.direction.shape) not in (shape, shape[-2:]):
            expected, got = f"{list(shape[-2:])} or {list(shape)}", list(self.direction.shape)
            raise ValueError(f"direction of the cone must have shape {expected}; got {got}")
        unit = self.direction / torch.linalg.matrix_norm(self.direction, keepdim=True)
        return AngleCone(unit.to(data.device).expand(shape).reshape(-1, data.d, data.dq), self.opening)


def in_angle_cone(
    weights: ArrayLike, direction: ArrayLike, opening: float, radius: float = 0.0
) -> Bool[Tensor, "*lead"]:
    """Whether ``cos(W, direction) >= 1 - opening`` and ``||W||_F >= radius`` [TaSVM, local convergence].

    Leading axes of W and the direction, for example W_mm, broadcast. Zero, which has no direction, and NaN lie in no
    cone. 1 - cosine is compared without cancellation, so openings of 1e-20 make sense.

    >>> W = torch.tensor([[3.0], [4.0]]).double()
    >>> axis = torch.tensor([[0.0], [1.0]]).double()
    >>> bool(in_angle_cone(W, axis, 0.2001)), bool(in_angle_cone(W, axis, 0.1)), bool(in_angle_cone(W, axis, 0.3, 6.0))
    (True, False, False)
    """
    if not 0 <= opening <= 2:
        raise ValueError(f"opening must lie in [0, 2]; got {opening!r}")
    if not 0 <= radius < math.inf:
        raise ValueError(f"radius must be at least 0 and finite; got {radius!r}")
    matrix = as_floating(weights, "weights").double()
    near = direction_distance(matrix, as_floating(direction, "direction").double()) <= opening
    size = torch.linalg.matrix_norm(matrix)
    return near & (size >= radius) & (size > 0)


def in_margin_cone(weights: ArrayLike, problem: AttentionSVM, opening: float) -> Bool[Tensor, "*lead"]:
    """Whether ``<(x_i,alpha - x_it) z_i^T, W / ||W||_F> >= opening`` for every row [TaSVM, global convergence].

    The paper's cone is that of the optimal tokens. No weights lie in the cone of mu > 1 / ||W_mm||_F; zero weights lie
    in none, and where there are no rows any others do.
    """
    if not math.isfinite(opening):
        raise ValueError(f"opening must be a finite number; got {opening!r}")
    return margin_of_direction(weights, problem) >= float(opening)


def margin_of_direction(weights: ArrayLike, problem: AttentionSVM) -> Float[Tensor, "*lead"]:
    """The widest margin cone that holds W: its smallest margin over its norm; -inf for W = 0, +inf without rows."""
    matrix = as_floating(weights, "weights").double()
    size = torch.linalg.matrix_norm(matrix)
    smallest = problem.smallest_ratio(problem.margins(matrix)) / torch.where(size > 0, size, 1.0)
    return smallest.masked_fill(size == 0, -math.inf)


@dataclass(frozen=True, eq=False)
class ConeSearch:
    """From where around W_mm descent still comes back to the selection."""

    openings: Float[Tensor, " openings"]  #: mu = 1 - cosine of the starts, growing
    radii: Float[Tensor, " radii"]  #: their norms, growing
    returned: Float[Tensor, "*batch openings radii"]  #: share that ended at it, saturated; NaN if it has no solution
    #: share of starts whose attention was still spread at the end (a winner below 0.9): these are undecided, and
    #: counted as not returned
    unsaturated: Float[Tensor, "*batch openings radii"]
    cosine: Float[Tensor, "*batch openings radii"]  #: the smallest final cosine to W_mm among the starts of each cell
    largest_opening: Float[Tensor, "*batch radii"]  #: widest one such that all starts up to it returned; 0 if none did
    directions: int  #: number of random directions per cell
    solution: SVMSolution  #: of the selection's SVM

    def __str__(self) -> str:
        """The table of shares for one data set; for a batch its mean over those that can be separated."""
        shares = self.returned.reshape(-1, *self.returned.shape[-2:]).nanmean(0)
        lines = ["share returned   " + "".join(f"R={radius:<9.4g}" for radius in self.radii.tolist())]
        for opening, row in zip(self.openings.tolist(), shares.tolist(), strict=True):
            lines.append(f"mu={opening:<13.4g} " + "".join(f"{share:<11.3f}" for share in row))
        return "\n".join(lines)


def search_cone(
    data: TokenDataset,
    head: object = None,
    selected: ArrayLike | None = None,
    *,
    openings: Sequence[float] = (0.001, 0.01, 0.03, 0.1, 0.2, 0.4, 0.7, 1.0),
    radii: Sequence[float] = (1.0, 10.0, 100.0),
    directions: int = 16,
    steps: int = 2000,
    seed: Seed = 0,
) -> ConeSearch:
    """Measure the cone around W_mm(selected) from which descent returns [TaSVM, local convergence].

    The theorem promises some opening mu and norm R for a locally optimal selection. Here starts

        W(0) = R ( (1 - mu) U + sqrt(1 - (1 - mu)^2) P ),    U = W_mm / ||W_mm||_F,  P random, unit, orthogonal to U

    are followed for `steps` steps and counted as returned if every input ends with more than 0.9 of its attention on
    the selected token. An empirical answer: it proves nothing about directions not drawn.

    Arguments:
        openings, radii: the grid; openings in [0, 2], radii positive.
        directions: random P for each cell; the same P serve all cells of an element.
        steps: of normalized descent by 0.1; steps of plain descent would vanish at large R.
    """
    if selected is None:
        raise ValueError("selected must hold one token index per input; got None")
    if data.d * data.dq == 1:
        raise ValueError("W has a single entry, so there are no directions around it to search")
    mus = checked_numbers(openings, "openings", data, 0.0, 2.0).sort().values
    norms = checked_numbers(radii, "radii", data).sort().values
    directions = check_count(directions, "directions")
    own = as_head(head, data)
    problem = AttentionSVM(data, selected)
    solution = solve(problem)
    axis = torch.nan_to_num(solution.weights)
    # A stand-in direction for problems without one, so that the others of the batch can run.
    axis[..., 0, 0] += (axis == 0).all(-1).all(-1).double()
    axis = axis / torch.linalg.matrix_norm(axis, keepdim=True)
    sideways = _orthogonal(axis, directions, data, seed)
    # [openings, radii, directions, *batch, d, dq], all as starts of one fit
    cells, ones = (len(mus), len(norms), directions), [1] * axis.ndim
    opened = mus.reshape(-1, 1, 1, *ones)
    units = (1 - opened) * axis + (opened * (2 - opened)).clamp(min=0).sqrt() * sideways
    initial = (norms.reshape(1, -1, 1, *ones) * units).reshape(-1, *axis.shape).to(data.dtype)
    run = fit(data, own, initial=initial, steps=steps, keep=(), optimizer=NormalizedGradientDescent(0.1))
    certain = (run.attention.amax(-1) > _SATURATED).all(-1)
    home = certain & (run.selected == problem.reference).all(-1)
    near = 1 - direction_distance(run.weights.double(), axis)

    def shaped(value: Tensor) -> Tensor:
        return value.reshape(*cells, *data.batch_shape).movedim((0, 1), (-2, -1))

    unknown = ~solution.solved[..., None, None]
    returned = shaped(home).double().mean(0).masked_fill(unknown, math.nan)
    held = (returned == 1).to(torch.int64).cumprod(-2).sum(-2)
    largest = torch.cat([mus.new_zeros(1), mus])[held].masked_fill(unknown.squeeze(-1), math.nan)
    spread = shaped(~certain).double().mean(0).masked_fill(unknown, math.nan)
    cosine = shaped(near).amin(0).masked_fill(unknown, math.nan)
    return ConeSearch(mus, norms, returned, spread, cosine, largest, directions, solution)


def checked_numbers(
    values: object, name: str, data: TokenDataset, least: float = sys.float_info.min, most: float = sys.float_info.max
) -> Float[Tensor, "numbers"]:
    """A list of numbers on the device of the data, each between the ends; a ValueError says which is not."""
    numbers = as_tensor(values, name)
    if numbers.dtype == torch.bool or numbers.is_complex() or numbers.ndim != 1 or numbers.numel() == 0:
        raise ValueError(f"{name} must be a list of numbers, one axis, not empty; got shape {list(numbers.shape)}")
    numbers = numbers.to(device=data.device, dtype=torch.float64)
    wrong = torch.nonzero(~((numbers >= least) & (numbers <= most))).flatten().tolist()
    if wrong:
        allowed = "positive and finite" if least > 0 else f"in [{least:g}, {most:g}]"
        raise ValueError(f"{name} must be {allowed}; got {float(numbers[wrong[0]])} at position {wrong[0]}")
    return numbers


def _orthogonal(axis: Tensor, count: int, data: TokenDataset, seed: Seed) -> Float[Tensor, "count *batch d dq"]:
    """Random unit matrices orthogonal to `axis`, from the stream of each element."""
    shape, own = (count, data.d, data.dq), streams(seed, data.batch_shape, purpose=Purpose.CONE_DIRECTIONS)
    each = [stream.standard_normal(shape) for stream in own]
    drawn = torch.from_numpy(np.stack(each, axis=1)).to(axis.device).reshape(count, *axis.shape)
    for _ in range(2):  # once leaves a component of rounding size along the axis
        drawn = drawn - (drawn * axis).sum((-1, -2), keepdim=True) * axis
        drawn = drawn / torch.linalg.matrix_norm(drawn, keepdim=True)
    return drawn
