"""The laws every norm must obey, as one checker that names the law that broke."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from attsvm.norms import (
    Entrywise,
    Frobenius,
    KyFan,
    LargestColumn,
    LargestRow,
    MaxEntry,
    Norm,
    Nuclear,
    Spectral,
    SpectralOfRank,
    SumEntry,
    SumOfColumns,
    SumOfRows,
)

EVERY_NORM: tuple[Norm, ...] = (
    Frobenius(),
    Nuclear(),
    Spectral(),
    MaxEntry(),
    SumEntry(),
    Entrywise(1.05),
    Entrywise(1.75),
    Entrywise(2),
    Entrywise(3),
    Entrywise(50),
    SpectralOfRank(2),
    KyFan(2),
    LargestRow(),
    SumOfRows(),
    LargestColumn(),
    SumOfColumns(),
)
TOLERANCE = {torch.float64: 2e-12, torch.float32: 2e-4}


def random_matrices(seed: int, batch: tuple[int, ...], shape: tuple[int, int], kind: str) -> Tensor:
    """Matrices of one kind: dense, low rank, with many zeros, or small integers (ties)."""
    rng = np.random.default_rng(seed)
    d, dq = shape
    dense = rng.standard_normal((*batch, d, dq))
    if kind == "low rank":
        dense = rng.standard_normal((*batch, d, 1)) * rng.standard_normal((*batch, 1, dq))
    elif kind == "sparse":
        dense = dense * (rng.random(dense.shape) < 0.4)
    elif kind == "ties":
        dense = np.round(2 * dense)
    return torch.from_numpy(dense)


def inner(a: Tensor, b: Tensor) -> Tensor:
    """<A, B> over the last two axes, in float64."""
    return (a.double() * b.double()).sum(dim=(-2, -1))


def unit(norm: Norm, matrix: Tensor) -> Tensor:
    """The matrix scaled onto the unit sphere of the norm; zero stays zero."""
    value = norm.value(matrix)[..., None, None]
    return torch.where(value > 0, matrix / torch.where(value > 0, value, 1), 0)


def check_laws(norm: Norm, first: Tensor, second: Tensor) -> None:
    """Raise AssertionError naming the first law that fails on these two batches of matrices of one shape and type."""
    check_norm_laws(norm, first, second)
    check_duality_laws(norm, first, second)
    check_projection_laws(norm, first, second)


def check_norm_laws(norm: Norm, first: Tensor, second: Tensor) -> None:
    """Definiteness, absolute homogeneity, the triangle inequality."""
    a, b = norm.value(first).double(), norm.value(second).double()
    slack = TOLERANCE[first.dtype] * (1 + a + b)
    nonzero = first.ne(0).any(-1).any(-1)
    _law("shape", a.shape == first.shape[:-2])
    _law("definiteness", bool(((a > 0) == nonzero).all()))
    _law("homogeneity", bool(((norm.value(-2.5 * first).double() - 2.5 * a).abs() <= 2.5 * slack).all()))
    _law("triangle inequality", bool((norm.value(first + second).double() <= a + b + slack).all()))


def check_duality_laws(norm: Norm, first: Tensor, second: Tensor) -> None:
    """Hölder's inequality, equality at the steepest direction of unit length, and the bidual."""
    dual, steepest = norm.dual_value(first).double(), norm.steepest(first)
    slack = TOLERANCE[first.dtype] * (1 + dual) * (1 + norm.value(second).double())
    nonzero = first.ne(0).any(-1).any(-1)
    _law("Hölder inequality", bool((inner(first, second) <= dual * norm.value(second).double() + slack).all()))
    _law("bidual", norm.dual.dual == norm)
    length = norm.value(steepest).double()
    _law("unit steepest direction", bool(((length - nonzero.double()).abs() <= TOLERANCE[first.dtype]).all()))
    _law("zero steepest direction", bool(steepest[~nonzero].eq(0).all()))
    _law("Hölder equality at steepest", bool(((inner(first, steepest) - dual).abs() <= slack).all()))


def check_projection_laws(norm: Norm, first: Tensor, second: Tensor) -> None:
    """Projection: on the ball, closer than any of its points, still inside. Prox: its subgradient certificate."""
    tolerance = TOLERANCE[first.dtype]
    value = norm.value(first)
    for radius in (0.0, 0.01, 0.6):
        bound = radius * value
        nearest = norm.project(first, bound)
        rest = first - nearest
        slack = tolerance * (1 + inner(first, first))
        missed = (norm.value(nearest) - bound).abs()
        _law("projection lands on the ball", bool((missed <= tolerance * (1 + value)).all()))
        # X is nearest iff <W - X, Y - X> <= 0 for every Y in the ball: for one Y, and for the worst one.
        other = unit(norm, second) * bound[..., None, None]
        _law("variational inequality", bool((inner(rest, other - nearest) <= slack).all()))
        support = bound.double() * norm.dual_value(rest).double()
        _law("worst case of the variational inequality", bool((support - inner(rest, nearest) <= slack).all()))
    _law("inside is unchanged", torch.equal(norm.project(first, value), first))
    _law("inside is unchanged", torch.equal(norm.project(first, torch.inf), first))

    for fraction in (0.0, 0.3, 1.0):
        step = fraction * norm.dual_value(first)
        result = norm.prox(first, step)
        rest = first - result
        slack = tolerance * (1 + inner(first, first))
        # (W - P) / step is a subgradient of N at P iff N°(W - P) <= step and <W - P, P> = step N(P).
        _law("prox: subgradient in the dual ball", bool((norm.dual_value(rest) <= step + slack).all()))
        aligned = inner(rest, result) - step.double() * norm.value(result).double()
        _law("prox: subgradient aligned", bool((aligned.abs() <= slack).all()))
        _law("Moreau", bool(((result + norm.dual.project(first, step) - first).abs().amax((-2, -1)) <= slack).all()))
    _law("prox vanishes in the dual ball", bool(norm.prox(first, norm.dual_value(first)).eq(0).all()))


def _law(name: str, holds: bool) -> None:
    if not holds:
        raise AssertionError(f"law broken: {name}")
