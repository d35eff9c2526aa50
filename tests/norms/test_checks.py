"""The checker of laws can fail: norms with one thing wrong, each caught by the law it breaks."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch

from attsvm.norms import Entrywise, Frobenius, MaxEntry, Norm, Nuclear, Spectral, SumEntry

from .checks import check_laws, random_matrices


@dataclass(frozen=True)
class DualTooLarge(Frobenius):
    @property
    def dual(self):
        return SumEntry()


@dataclass(frozen=True)
class RadialProjection(Entrywise):
    @property
    def dual(self):
        return self if self.p == 2 else RadialProjection(self.conjugate)

    def _project(self, matrix, radius):
        return matrix * (radius / self._value(matrix))[..., None, None]


@dataclass(frozen=True)
class ProjectionTooFar(Frobenius):
    def _project(self, matrix, radius):
        return super()._project(matrix, radius) * 0.99


@dataclass(frozen=True)
class NotConvex(SumEntry):
    def _value(self, matrix):
        return matrix.abs().sqrt().sum(dim=(-2, -1)) ** 2


@dataclass(frozen=True)
class NotHomogeneous(Frobenius):
    def value(self, matrix):
        return super().value(matrix) ** 2


@pytest.mark.parametrize(
    ("wrong", "law"),
    [
        (DualTooLarge(), "bidual"),
        (RadialProjection(1.5), "variational"),
        (ProjectionTooFar(), "lands on the ball"),
        (NotHomogeneous(), "homogeneity"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Norm) else "law",
)
def test_a_wrong_norm_is_caught(wrong: Norm, law: str) -> None:
    first = random_matrices(0, (20,), (3, 4), "dense")
    second = random_matrices(1, (20,), (3, 4), "dense")
    with pytest.raises(AssertionError, match=law):
        check_laws(wrong, first, second)


def test_a_function_that_is_not_convex_is_caught() -> None:
    first, second = torch.zeros(2, 2).double(), torch.zeros(2, 2).double()
    first[0, 0] = second[1, 1] = 1
    with pytest.raises(AssertionError, match="triangle"):
        check_laws(NotConvex(), first, second)


def largest_entry(_norm, matrix):
    return matrix.abs().amax(dim=(-2, -1))


def one_pair(_norm, gradient):
    return Nuclear()._steepest(gradient)


def long_sign(_norm, gradient):
    return 1.001 * gradient.sign()


def origin(_norm, matrix, _radius):
    return torch.zeros_like(matrix)


@pytest.mark.parametrize(
    ("norm", "spoiled", "method", "wrong", "law"),
    [
        (MaxEntry(), SumEntry, "_value", largest_entry, "Hölder inequality"),
        (Spectral(), Spectral, "_steepest", one_pair, "Hölder equality"),
        (MaxEntry(), MaxEntry, "_steepest", long_sign, "unit steepest"),
        (SumEntry(), MaxEntry, "_project", origin, "prox"),
    ],
    ids=["dual value", "steepest direction", "length of steepest", "prox"],
)
def test_a_wrong_method_is_caught(monkeypatch: pytest.MonkeyPatch, norm, spoiled, method, wrong, law) -> None:
    """Not only through the bidual: one wrong method, of the norm or of its dual, in classes otherwise whole."""
    matrix = random_matrices(0, (20,), (3, 4), "dense")
    check_laws(norm, matrix, matrix)
    monkeypatch.setattr(spoiled, method, wrong)
    with pytest.raises(AssertionError, match=law):
        check_laws(norm, matrix, matrix)
