"""Spectral steps on the compiled engine: its polar factor against exact ones, its runs against the PyTorch engine."""

from __future__ import annotations

from typing import Any

import mpmath as mp
import numpy as np
import pytest
import torch
from numba import njit
from torch import Tensor

from attsvm import (
    Exponential,
    KeyQuery,
    NormalizedGradientDescent,
    ReluHead,
    Spectral,
    SteepestDescent,
    TokenDataset,
    Weights,
    fit,
    initial_parameters,
)
from attsvm.attention import Log
from attsvm.data import random_sphere
from attsvm.descent import CompiledEngine, InverseSqrt
from attsvm.descent.engines.matrices import polar_factor, stored_norm
from attsvm.descent.engines.numba.lanes import LANES
from attsvm.descent.engines.step import Place, Shape

from .reference import normal
from .test_compiled import both, masked, worst_error
from .test_resume import TENSORS

MUON = SteepestDescent(Spectral(), 0.05)
every_kind = pytest.mark.parametrize("kind", [Weights(), KeyQuery(), KeyQuery(2)], ids=repr)


# ---------------------------------------------------------- the polar factor


@njit
def _polar_factors(matrices, left, right, a, b, shape):  # type: ignore[no-untyped-def]
    rotated, board = np.empty((min(a, b) * (a + b), LANES)), np.empty((shape.n, LANES))
    for k in range(len(matrices)):
        norm = stored_norm(matrices[k], a * b)
        sides = matrices[k], left[k], a, right[k], b, norm
        polar_factor(*sides, rotated, board, False, board, shape, Place(0, shape.n, 0, 0, 1, 0, 1))


def polar(matrices: Tensor, left: Tensor | None = None, right: Tensor | None = None) -> Tensor:
    """Polar factors of ``[count, a, b]`` by the kernel, eight side by side; or of ``left^T right`` from these two."""
    count, a, b = matrices.shape
    n = max(a, b) if left is None else left.shape[1]
    left = matrices.new_zeros(count, n, a) if left is None else left
    right = matrices.new_zeros(count, n, b) if right is None else right

    def packed(value: Tensor) -> np.ndarray:
        rows = torch.cat([value.flatten(1), value.flatten(1)[:1].expand(-count % LANES, -1)])
        return np.ascontiguousarray(rows.reshape(-1, LANES, rows.shape[-1]).mT.numpy())

    shape = Shape(**{**dict.fromkeys(Shape._fields, 0), "n": n})
    lanes = packed(matrices)
    _polar_factors(lanes, packed(left), packed(right), a, b, shape)
    return torch.from_numpy(lanes).mT.reshape(-1, a, b)[:count].clone()


def with_values(seed: int, a: int, b: int, values: Tensor) -> tuple[Tensor, Tensor]:
    """Matrices with these singular values ``[count, min(a, b)]``, and their exact polar factors on those above 0."""
    count, m = values.shape
    left, right = (torch.linalg.qr(normal(seed + k, count, side, m)).Q for k, side in enumerate((a, b)))
    return left * values[:, None] @ right.mT, left * (values > 0)[:, None] @ right.mT


SIZES = [(1, 1), (2, 2), (3, 3), (10, 10), (7, 4), (4, 7), (10, 1), (1, 10), (5, 40), (32, 32), (33, 32), (200, 32)]


@pytest.mark.parametrize("size", SIZES, ids=repr)
@pytest.mark.parametrize("scale", [1.0, 1e-250, 1e250])
def test_polar_factors_of_well_conditioned_matrices(size: tuple[int, int], scale: float) -> None:
    values = 0.2 + torch.rand(12, min(size), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    matrices, exact = with_values(1, *size, values)
    assert float((polar(matrices * scale) - exact).abs().max()) < 1e-14


VALUES = {
    "all equal": lambda m: torch.ones(m),
    "clusters": lambda m: torch.where(torch.arange(m) % 2 == 0, 1.0, 1e-3) * (1 + 1e-12 * torch.arange(m)),
    "geometric": lambda m: 10.0 ** -torch.linspace(0, 6, m),
    "twelve decades": lambda m: 10.0 ** -torch.linspace(0, 12, m, dtype=torch.float64),
    "one large": lambda m: torch.where(torch.arange(m) == 0, 1.0, 1e-6),
    "one small": lambda m: torch.where(torch.arange(m) == m - 1, 1e-6, 1.0),
    "half the rank": lambda m: (torch.arange(m) < (m + 1) // 2).double(),
    "rank one": lambda m: (torch.arange(m) < 1).double(),
    "graded, half the rank": lambda m: 10.0 ** -torch.linspace(0, 6, m) * (torch.arange(m) < (m + 1) // 2),
}


@pytest.mark.parametrize("size", [size for size in SIZES if min(size) > 1], ids=repr)
@pytest.mark.parametrize("kind", VALUES)
def test_clustered_tiny_and_missing_singular_values(size: tuple[int, int], kind: str) -> None:
    """Round-off in the matrix moves a pair of singular vectors by its ratio to their singular value, at least 1e-12."""
    values = VALUES[kind](min(size)).double().expand(12, -1)
    matrices, exact = with_values(3, *size, values)
    found = polar(matrices)
    assert float((found - exact).abs().max()) < 1e-15 * size[0] / float(values[values > 0].min())
    # However large that error, singular values of the factor are 1, or 0 where those of the matrix are.
    sizes = torch.linalg.svdvals(found)
    assert float((sizes - (values > 0).double().sort(-1, descending=True).values).abs().max()) < 1e-13


def test_polar_factors_are_exact_to_the_last_digits() -> None:
    """Against 40 digits: 0.5 (X + X^-T) repeated, from X itself."""
    matrices = normal(5, 8, 6, 6)
    for matrix, found in zip(matrices, polar(matrices), strict=True):
        with mp.workdps(40):
            exact = mp.matrix(matrix.tolist())
            for _ in range(25):
                exact = (exact + (exact**-1).T) / 2
        assert float((found - torch.tensor(exact.tolist(), dtype=torch.float64)).abs().max()) < 1e-13


@pytest.mark.parametrize("turn", range(4))
def test_where_singular_values_are_dropped_is_where_the_norm_drops_them(turn: int) -> None:
    ladder = 10.0 ** -torch.linspace(13.0, 18.0, 64, dtype=torch.float64)
    values = torch.stack([torch.ones(64), torch.full((64,), 0.5), ladder], -1).double()
    matrices, _ = with_values(6 + turn, 3, 3, values)
    factors = polar(matrices), Spectral().steepest(matrices)
    ours, theirs = (torch.linalg.matrix_rank(each, atol=0.5) for each in factors)
    assert bool((ours[ladder > 1e-14] == 3).all())
    assert bool((ours[ladder < 1e-17] == 2).all())
    assert float((ours == theirs).double().mean()) > 0.9  # between them, round-off in the matrix decides


@pytest.mark.parametrize("size", [(10, 10), (9, 5), (5, 9), (40, 40)], ids=repr)
@pytest.mark.parametrize("spread", [1.0, 1e-4, 1e-7])
def test_fewer_inputs_than_rows(size: tuple[int, int], spread: float) -> None:
    """Made from the vectors of four inputs, nearly parallel ones too, of sizes from 1e-3 to 1e200."""
    sizes = torch.tensor([1.0, 1e-3, 30.0, 1.0], dtype=torch.float64)[:, None]
    left, right = (normal(20 + k, 16, 4, side) for k, side in enumerate(size))
    left = left[:, :1] + spread * left
    matrices = (left * sizes).mT @ right
    smallest = (torch.linalg.svdvals(matrices)[:, 3] / torch.linalg.svdvals(matrices)[:, 0]).min()
    found = polar(matrices, left * sizes * 1e200, right * 1e-200)
    assert float((found - Spectral().steepest(matrices)).abs().max()) < 1e-14 / float(smallest)
    assert float((torch.linalg.svdvals(found)[:, :4] - 1).abs().max()) < 1e-13


def test_fewer_inputs_than_rows_that_depend_on_each_other() -> None:
    left, right = normal(22, 8, 5, 10), normal(23, 8, 5, 10)
    left[:, 2], left[:, 3], right[:, 4] = left[:, 0], 0.0, right[:, 1]
    matrices = left.mT @ right
    found = polar(matrices, left, right)
    assert torch.linalg.matrix_rank(found).tolist() == [2] * 8  # l_0 (r_0 + r_2)^T + (l_1 + l_4) r_1^T
    assert float((found - Spectral().steepest(matrices)).abs().max()) < 1e-13


def test_lanes_do_not_depend_on_each_other() -> None:
    easy, hard = torch.eye(5, dtype=torch.float64).expand(8, 5, 5), normal(7, 8, 5, 5)
    mixed = torch.where(torch.arange(8)[:, None, None] % 2 == 0, easy, hard)
    assert polar(mixed)[1::2].equal(polar(hard)[1::2])
    assert polar(mixed)[::2].equal(easy[::2])
    zero = torch.zeros(8, 3, 4, dtype=torch.float64)
    assert polar(zero).equal(zero)


# ------------------------------------------------------------ the other engine


@every_kind
@pytest.mark.parametrize("seed", range(6))
def test_engines_agree(kind: Any, seed: int) -> None:
    data = random_sphere(n=6, T=8, d=10, batch=11, seed=seed)
    ours, peer = both(data, parameterization=kind, optimizer=MUON, steps=100 if kind == Weights() else 25)
    for name, value in peer.parameters.items():
        assert worst_error(ours.parameters[name], value) < 1e-9
    assert ours.selected.equal(peer.selected)
    assert not bool(ours.stalled.any())
    walked = torch.linalg.matrix_norm(ours.weights - initial_parameters(data, kind).get("weights", 0.0), 2)
    assert float(walked.min()) > 0.5  # or nothing was compared


@every_kind
@pytest.mark.parametrize(
    "options",
    [
        {"optimizer": SteepestDescent(Spectral(), InverseSqrt(0.3))},
        {"optimizer": SteepestDescent(Spectral(), 0.05, weight_decay=0.3)},
        {"ridge": 0.1},
        {"head": ReluHead(normal(8, 4, 3))},
        {"loss": Exponential()},
        {"starts": 3},
    ],
    ids=lambda options: next(iter(options)),
)
def test_decay_ridge_heads_losses_and_masks(kind: Any, options: dict[str, Any]) -> None:
    data = masked(random_sphere(n=5, T=6, d=4, dq=3, batch=9, seed=9), seed=10)
    ours, peer = both(data, **{"parameterization": kind, "optimizer": MUON, "steps": 25, **options})
    for name, value in peer.parameters.items():
        assert worst_error(ours.parameters[name], value) < 1e-9


def test_prompts() -> None:
    """With one column the polar factor is the normalized gradient."""
    single = random_sphere(n=4, T=5, d=6, batch=9, seed=11)
    data = TokenDataset(single.tokens, torch.ones_like(single.queries[..., :1]), single.labels, head=single.head)
    ours, peer = both(data, optimizer=MUON, steps=200)
    assert worst_error(ours.weights, peer.weights) < 1e-11
    assert worst_error(ours.weights, fit(data, optimizer=NormalizedGradientDescent(0.05), steps=200).weights) < 1e-11


def test_next_token_data() -> None:
    data = random_sphere(n=5, T=6, d=7, batch=9, seed=12)
    right = torch.zeros(9, 5, 6, 1, dtype=torch.float64)
    right[:, :, :2] = 1.0
    ones = torch.ones(9, 1, dtype=torch.float64)
    words = TokenDataset(data.tokens, data.queries, torch.ones(9, 5), values=right, head=ones)
    ours, peer = both(words, optimizer=MUON, loss=Log(), steps=60)
    assert worst_error(ours.weights, peer.weights) < 1e-9


def test_a_gradient_of_zero_stalls() -> None:
    data = random_sphere(n=3, T=4, d=5, batch=3, seed=13)
    heads = data.head.clone()
    heads[1] = 0.0
    for kind in (Weights(), KeyQuery(2)):
        for run in both(data.with_head(heads), parameterization=kind, optimizer=MUON, steps=20):
            assert run.stalled.tolist() == [False, True, False]
            assert run.weights[1].equal(run.history.weights[0][1])


@every_kind
def test_resumes_bit_for_bit_on_any_number_of_threads(kind: Any) -> None:
    data = random_sphere(n=3, T=4, d=4, batch=19, seed=14)
    options = {"parameterization": kind, "optimizer": MUON, "record": [60]}
    whole = fit(data, steps=60, engine=CompiledEngine(1), **options)
    part = fit(data, steps=21, engine=CompiledEngine(1), **options | {"record": [21]})
    resumed = fit(data, steps=60, resume=part, engine=CompiledEngine(3), **options)
    for name in TENSORS:
        assert getattr(resumed, name).equal(getattr(whole, name)), name


# ---------------------------------------------------------------- who runs it


def test_small_ranks_only() -> None:
    """The rank of a gradient is at most the number of inputs, unless a ridge fills it up."""
    wide, deep = (random_sphere(n=n, T=3, d=33, batch=9, seed=15) for n in (2, 33))
    refused: tuple[tuple[TokenDataset, dict[str, Any]], ...] = (
        (deep, {}),
        (deep, {"parameterization": KeyQuery()}),
        (wide, {"ridge": 0.1}),
    )
    for data, options in refused:
        run = fit(data, optimizer=MUON, steps=2, **options)
        assert run.engine.endswith(
            "CompiledEngine does not suit: it takes spectral steps along gradients of rank up to 32"
        )
        with pytest.raises(
            ValueError, match="cannot run this task: it takes spectral steps along gradients of rank up to 32"
        ):
            fit(data, optimizer=MUON, steps=2, engine=CompiledEngine(), **options)
    for data, kind in ((wide, Weights()), (wide, KeyQuery()), (deep, KeyQuery(32))):
        run, peer = both(data, optimizer=MUON, parameterization=kind, steps=3)
        assert worst_error(run.weights, peer.weights) < 1e-10
        assert fit(data, optimizer=MUON, parameterization=kind, steps=2).engine == "CompiledEngine(threads=None)"
    one = fit(deep[0], optimizer=MUON, parameterization=KeyQuery(32), steps=2)
    assert one.engine.endswith("does not suit: it is slower on a few large data sets, or with so wide a head")
