"""What all norms share: the laws, batches, types, NaNs, scales, invariance, messages."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from attsvm import norms
from attsvm.norms import Entrywise, Frobenius, KyFan, MaxEntry, Norm, Nuclear, Spectral, SpectralOfRank, SumEntry

from .checks import EVERY_NORM, check_laws, check_norm_laws, inner, random_matrices

every_norm = pytest.mark.parametrize("norm", EVERY_NORM, ids=repr)
KINDS = ("dense", "low rank", "sparse", "ties")
SHAPES = [(4, 3), (3, 5), (1, 4), (5, 1), (1, 1)]


def every_result(norm: Norm, matrix: Tensor, size: float | Tensor) -> tuple[Tensor, ...]:
    """All five methods at once."""
    return (
        norm.value(matrix),
        norm.dual_value(matrix),
        norm.steepest(matrix),
        norm.project(matrix, size),
        norm.prox(matrix, size),
    )


@every_norm
@settings(deadline=None, max_examples=25)
@given(
    seed=st.integers(0, 2**32 - 1),
    batch=st.sampled_from([(), (1,), (4,), (2, 3)]),
    shape=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    kind=st.sampled_from(KINDS),
    size=st.sampled_from([1e-3, 1.0, 1e3]),
)
def test_laws(norm: Norm, seed: int, batch: tuple[int, ...], shape: tuple[int, int], kind: str, size: float) -> None:
    first = random_matrices(seed, batch, shape, kind)
    second = size * random_matrices(seed + 1, batch, shape, "dense")
    check_laws(norm, first, second)
    check_norm_laws(norm, second, first)


@every_norm
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_laws_in_float32(norm: Norm, shape: tuple[int, int]) -> None:
    for kind in KINDS:
        first, second = random_matrices(0, (6,), shape, kind).float(), random_matrices(1, (6,), shape, "dense").float()
        check_laws(norm, first, second)
        assert norm.project(first, 0.5).dtype == norm.steepest(first).dtype == norm.value(first).dtype == torch.float32


@every_norm
@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_equals_its_single_matrices(norm: Norm, kind: str) -> None:
    batch = random_matrices(3, (2, 3), (4, 3), kind)
    sizes = torch.tensor([[0.0, 0.1, 0.5], [1.0, 2.0, 100.0]], dtype=torch.float64)
    whole = every_result(norm, batch, sizes)
    for index in np.ndindex(2, 3):
        for together, alone in zip(whole, every_result(norm, batch[index], sizes[index].item()), strict=True):
            assert alone.shape == together[index].shape
            torch.testing.assert_close(together[index], alone, rtol=1e-14, atol=1e-14)


@every_norm
def test_an_empty_batch(norm: Norm) -> None:
    empty = torch.zeros(0, 3, 2, dtype=torch.float64)
    assert norm.value(empty).shape == (0,)
    assert norm.steepest(empty).shape == norm.project(empty, 1.0).shape == norm.prox(empty, 1.0).shape == (0, 3, 2)


@every_norm
def test_numpy_in_tensors_out(norm: Norm) -> None:
    array = np.arange(6.0).reshape(2, 3) - 2
    assert isinstance(norm.value(array), torch.Tensor)
    assert torch.equal(norm.steepest(array), norm.steepest(torch.from_numpy(array)))
    radius = np.array([0.5, 50.0])
    both = norm.project(np.stack([array, array]), radius)
    torch.testing.assert_close(both[0], norm.project(array, 0.5), rtol=1e-14, atol=1e-14)
    assert torch.equal(both[1], torch.from_numpy(array))


@every_norm
def test_the_zero_matrix(norm: Norm) -> None:
    zero = torch.zeros(2, 3, 4, dtype=torch.float64)
    assert norm.value(zero).eq(0).all()
    assert norm.dual_value(zero).eq(0).all()
    assert norm.steepest(zero).eq(0).all()
    for size in (0.0, 1.0):
        assert norm.project(zero, size).eq(0).all()
        assert norm.prox(zero, size).eq(0).all()


@every_norm
def test_a_radius_of_zero_and_a_step_of_zero(norm: Norm) -> None:
    matrix = random_matrices(0, (3,), (3, 4), "dense")
    assert norm.project(matrix, 0).eq(0).all()
    assert torch.equal(norm.prox(matrix, 0), matrix)


@every_norm
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_a_bad_element_gives_nan_and_spoils_no_other(norm: Norm, bad: float) -> None:
    matrix = random_matrices(0, (3,), (3, 4), "dense")
    spoiled = matrix.clone()
    spoiled[1, 2, 0] = bad
    for whole, broken in zip(every_result(norm, matrix, 0.5), every_result(norm, spoiled, 0.5), strict=True):
        assert broken[1].isnan().all()
        assert torch.equal(broken[[0, 2]], whole[[0, 2]])


@every_norm
@pytest.mark.parametrize("exponent", [-1000, -500, 500, 1000])
def test_extreme_scales(norm: Norm, exponent: int) -> None:
    """Powers of two scale every result exactly, far beyond the range of squares (2^500 is 3e150)."""
    matrix, scale = random_matrices(0, (3,), (3, 4), "dense"), 2.0**exponent
    assert torch.equal(norm.value(matrix * scale), norm.value(matrix) * scale)
    assert torch.equal(norm.steepest(matrix * scale), norm.steepest(matrix))
    assert torch.equal(norm.project(matrix * scale, 0.5 * scale), norm.project(matrix, 0.5) * scale)


@every_norm
def test_extreme_scales_in_float32(norm: Norm) -> None:
    matrix = random_matrices(0, (3,), (3, 4), "dense").float()
    for scale in (2.0**-120, 2.0**115):
        assert torch.equal(norm.value(matrix * scale), norm.value(matrix) * scale)
        assert torch.equal(norm.steepest(matrix * scale), norm.steepest(matrix))


def test_very_different_scales_in_one_batch() -> None:
    scales = torch.tensor([1e-150, 1.0, 1e150], dtype=torch.float64)
    matrix = torch.tensor([[3.0, 4.0], [0.0, 0.0]], dtype=torch.float64) * scales[:, None, None]
    expected = {Frobenius(): 5, Nuclear(): 5, Spectral(): 5, MaxEntry(): 4, SumEntry(): 7, Entrywise(3): 91 ** (1 / 3)}
    for norm, value in expected.items():
        torch.testing.assert_close(norm.value(matrix), value * scales, rtol=1e-14, atol=0)


@every_norm
def test_unitary_invariance_where_claimed_and_only_there(norm: Norm) -> None:
    matrix = random_matrices(0, (5,), (4, 3), "dense")
    left = torch.linalg.qr(random_matrices(1, (), (4, 4), "dense")).Q
    right = torch.linalg.qr(random_matrices(2, (), (3, 3), "dense")).Q
    turned = left @ matrix @ right
    moved = norm.value(turned) - norm.value(matrix)
    if norm.unitarily_invariant:
        assert moved.abs().max() < 1e-13
        expected = left @ norm.project(matrix, 1.0) @ right
        torch.testing.assert_close(norm.project(turned, 1.0), expected, rtol=0, atol=1e-13)
    elif norm != Entrywise(2):
        assert moved.abs().max() > 1e-2
    assert norm.unitarily_invariant == norm.dual.unitarily_invariant


def test_the_invariant_norms_are_these() -> None:
    invariant = {Frobenius(), Nuclear(), Spectral(), SpectralOfRank(2), KyFan(2)}
    assert {norm for norm in EVERY_NORM if norm.unitarily_invariant} == invariant


@every_norm
def test_a_gradient_step_along_steepest_is_the_best_of_many(norm: Norm) -> None:
    gradient = random_matrices(0, (), (3, 4), "dense")
    rivals = random_matrices(1, (500,), (3, 4), "dense")
    rivals = rivals / norm.value(rivals)[:, None, None]
    assert inner(gradient, rivals).max() <= inner(gradient, norm.steepest(gradient))


# ------------------------------------------------------------------ objects


@every_norm
def test_norms_are_values(norm: Norm) -> None:
    assert norm == dataclasses.replace(norm)
    assert hash(norm) == hash(dataclasses.replace(norm))
    assert norm.dual.dual == norm
    assert eval(repr(norm), vars(norms)) == norm
    assert len({norm, norm.dual.dual}) == 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        norm.anything = 1  # type: ignore[attr-defined]


def test_names_and_duals() -> None:
    assert [norm.name for norm in EVERY_NORM[:6]] == [
        "Frobenius",
        "nuclear",
        "spectral",
        "max entry",
        "sum of entries",
        "l_1.05 entrywise",
    ]
    assert len(set(EVERY_NORM)) == len(EVERY_NORM)
    assert [Frobenius().dual, Nuclear().dual, Spectral().dual, MaxEntry().dual, SumEntry().dual] == [
        Frobenius(),
        Spectral(),
        Nuclear(),
        SumEntry(),
        MaxEntry(),
    ]


def test_the_base_class_is_abstract() -> None:
    with pytest.raises(TypeError, match="abstract"):
        Norm()  # type: ignore[abstract]


# ----------------------------------------------------------------- messages


@every_norm
def test_bad_matrices_are_refused(norm: Norm) -> None:
    for method in (norm.value, norm.dual_value, lambda W: norm.project(W, 1.0), lambda W: norm.prox(W, 1.0)):
        with pytest.raises(ValueError, match=r"matrix must have shape \[\*batch, d, dq\]; got \[3\]"):
            method(torch.ones(3))
        with pytest.raises(ValueError, match="matrix must be float32 or float64; got int64"):
            method(torch.ones(3, 2, dtype=torch.int64))
        with pytest.raises(ValueError, match="matrix must have at least one row and one column; got shape"):
            method(torch.ones(3, 0))
    with pytest.raises(ValueError, match=r"gradient must have shape \[\*batch, d, dq\]; got \[\]"):
        norm.steepest(torch.tensor(1.0))


@every_norm
def test_bad_radii_and_steps_are_refused(norm: Norm) -> None:
    matrix = torch.ones(2, 3, 4)
    for method, name in ((norm.project, "radius"), (norm.prox, "step")):
        with pytest.raises(ValueError, match=f"{name} must be at least 0; got -1.0$"):
            method(matrix, -1.0)
        with pytest.raises(ValueError, match=f"{name} must be at least 0; got nan$"):
            method(matrix, float("nan"))
        with pytest.raises(ValueError, match=f"{name} must be at least 0; got -2.0 at element 1"):
            method(matrix, torch.tensor([1.0, -2.0]))
        with pytest.raises(ValueError, match=rf"{name} must be one number or have the batch's shape \[2\]; got \[3\]"):
            method(matrix, torch.ones(3))
        with pytest.raises(ValueError, match=f"{name} must be a number or numbers; got bool"):
            method(matrix, torch.tensor(True))
        with pytest.raises(ValueError, match=f"{name} must be on cpu, like the matrix; got meta"):
            method(matrix, torch.ones(2, device="meta"))


@every_norm
def test_what_is_no_array_is_refused(norm: Norm) -> None:
    """With a ValueError, unless a run-time type checker sees it first."""
    with pytest.raises((ValueError, TypeError)):
        norm.value("W")  # type: ignore[arg-type]
    with pytest.raises((ValueError, TypeError)):
        norm.project(torch.ones(2, 3), None)  # type: ignore[arg-type]
