"""Random data: reproducible, distributed as promised, and with the properties that their names state."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from attsvm.data import TokenDataset, equal_scores, orthonormal_tokens, random_gaussian, random_sphere

from .helpers import assert_same

GENERATORS = [random_sphere, random_gaussian, orthonormal_tokens, equal_scores]
every = pytest.mark.parametrize("generate", GENERATORS)
Generate = Callable[..., TokenDataset]


def scores(data: TokenDataset) -> Tensor:
    assert data.head is not None
    return data.labels[..., None] * torch.einsum("...ntd,...d->...nt", data.values, data.head)


@every
def test_shapes(generate: Generate) -> None:
    data = generate(n=3, T=4, d=5, dq=2, batch=(2, 3), seed=0)
    assert (data.batch_shape, data.n, data.T, data.d, data.dq) == ((2, 3), 3, 4, 5, 2)
    assert data.head is not None
    assert data.head.shape == (2, 3, 5)
    assert data.mask is None
    single = generate(3, 4, 5, seed=0)
    assert (single.batch_shape, single.dq, single.dtype) == ((), 5, torch.float64)
    assert generate(1, 1, 1, seed=0).T == 1


@every
def test_reproducible_and_batched_like_single_runs(generate: Generate) -> None:
    batch = generate(3, 4, 5, batch=4, seed=7)
    assert_same(batch, generate(3, 4, 5, batch=4, seed=7))
    assert_same(batch[2], generate(3, 4, 5, seed=[(7, 2)]))
    assert_same(batch[0], generate(3, 4, 5, seed=7))
    assert_same(batch[:2], generate(3, 4, 5, batch=2, seed=7))
    assert_same(batch, generate(3, 4, 5, batch=(2, 2), seed=7).flatten())
    assert not torch.equal(batch.tokens[0], batch.tokens[1])
    assert not torch.equal(batch.tokens, generate(3, 4, 5, batch=4, seed=8).tokens)


@every
def test_one_seed_an_element(generate: Generate) -> None:
    batch = generate(3, 4, 5, batch=2, seed=[11, 12])
    for b, seed in enumerate((11, 12)):
        assert_same(batch[b], generate(3, 4, 5, seed=seed))


@every
def test_a_generator_goes_on(generate: Generate) -> None:
    first, second = torch.Generator().manual_seed(0), torch.Generator().manual_seed(0)
    assert_same(generate(2, 3, 4, seed=first), generate(2, 3, 4, seed=second))
    assert not torch.equal(generate(2, 3, 4, seed=first).tokens, generate(2, 3, 4, seed=0).tokens)


@every
def test_drawn_in_float64_then_converted(generate: Generate) -> None:
    wide = generate(2, 3, 4, batch=2, seed=3)
    assert_same(generate(2, 3, 4, batch=2, seed=3, dtype=torch.float32), wide.to(dtype=torch.float32))
    assert generate(2, 3, 4, seed=3, device="meta").device.type == "meta"


def test_sphere_draws_head_tokens_queries_labels_in_this_order() -> None:
    stream = np.random.Generator(np.random.Philox(np.random.SeedSequence([5, 1])))

    def unit(*shape: int) -> np.ndarray:
        vectors = stream.standard_normal(shape)
        return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)

    head, tokens, queries = unit(4), unit(2, 3, 4), unit(2, 5)
    labels = [-1.0 if number < 0.5 else 1.0 for number in stream.random(2)]
    data = random_sphere(2, 3, 4, dq=5, batch=2, seed=5)[1]
    assert np.allclose(data.head, head, rtol=0, atol=3e-16)  # type: ignore[arg-type]
    assert np.allclose(data.tokens, tokens, rtol=0, atol=3e-16)
    assert np.allclose(data.queries, queries, rtol=0, atol=3e-16)
    assert data.labels.tolist() == labels


def test_gaussian_is_exactly_the_stream_scaled() -> None:
    stream = np.random.Generator(np.random.Philox(np.random.SeedSequence([5, 0])))
    data = random_gaussian(2, 3, 4, token_scale=2.0, query_scale=0.5, head_scale=4.0, seed=5)
    assert np.array_equal(data.head, 4 * stream.standard_normal(4))  # type: ignore[arg-type]
    assert np.array_equal(data.tokens, 2 * stream.standard_normal((2, 3, 4)))
    assert np.array_equal(data.queries, stream.standard_normal((2, 4)) / 2)


@pytest.mark.parametrize("d", [1, 2, 10, 300])
def test_on_the_sphere(d: int) -> None:
    data = random_sphere(4, 5, d, batch=20, seed=0)
    for vectors in (data.tokens, data.queries, data.head):
        assert vectors is not None
        assert float((vectors.norm(dim=-1) - 1).abs().max()) < 1e-15


def test_isotropic_and_fair() -> None:
    d, count = 3, 300 * 5 * 8
    data = random_sphere(5, 8, d, batch=300, seed=1)
    tokens = data.tokens.reshape(-1, d)
    # Five standard deviations: an entry of x has variance 1/d, of x x^T at most 2/(d(d+2)).
    assert float(tokens.mean(0).abs().max()) < 5 * (1 / d / count) ** 0.5
    spread = tokens.T @ tokens / count - torch.eye(d, dtype=torch.float64) / d
    assert float(spread.abs().max()) < 5 * (2 / (d * (d + 2)) / count) ** 0.5
    assert abs(float(data.labels.mean())) < 5 / 1500**0.5
    uniform = tokens[:, 0].sort().values  # Archimedes: a coordinate of the sphere in three dimensions is uniform
    expected = torch.linspace(-1, 1, count, dtype=torch.float64)
    assert float((uniform - expected).abs().max()) < 2 * 2 / count**0.5


@pytest.mark.parametrize(("T", "d"), [(1, 1), (1, 4), (3, 4), (40, 40)])
def test_orthonormal(T: int, d: int) -> None:
    data = orthonormal_tokens(3, T, d, batch=4, seed=0)
    assert float((data.tokens @ data.tokens.mT - torch.eye(T, dtype=torch.float64)).abs().max()) < 3e-15


def test_orthonormal_frames_are_isotropic() -> None:
    last = orthonormal_tokens(10, 3, 3, batch=200, seed=0).tokens[..., -1, :].reshape(-1, 3)
    assert float(last.mean(0).abs().max()) < 5 * (1 / 3 / 2000) ** 0.5


def test_orthonormal_needs_room() -> None:
    with pytest.raises(ValueError, match=r"^T must be at most d for orthonormal tokens; got T = 5, d = 4$"):
        orthonormal_tokens(2, 5, 4, seed=0)


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(1, 4),
    T=st.integers(2, 6),
    d=st.integers(1, 6),
    seed=st.integers(0, 10**6),
    gap=st.floats(1e-3, 10),
)
def test_condition_b2(n: int, T: int, d: int, seed: int, gap: float) -> None:
    found = scores(equal_scores(n, T, d, gap=gap, batch=3, seed=seed)).sort(-1).values
    rounding = 1e-15 * (1 + gap)
    assert float((found[..., :-1] - found[..., :1]).abs().max()) <= rounding
    assert float((found[..., -1] - found[..., -2] - gap).abs().max()) <= rounding


def test_b2_every_token_may_be_the_optimal_one() -> None:
    best = scores(equal_scores(4, 3, 5, batch=100, seed=0)).argmax(-1)
    shares = torch.bincount(best.reshape(-1), minlength=3) / 400
    assert float((shares - 1 / 3).abs().max()) < 5 * (2 / 9 / 400) ** 0.5


def test_sphere_data_break_b2() -> None:
    found = scores(random_sphere(4, 5, 6, batch=3, seed=0)).sort(-1).values
    assert float((found[..., -2] - found[..., 0]).min()) > 1e-3


def test_self_attention_from_the_docstring() -> None:
    data = random_sphere(3, 4, 5, batch=2, seed=0)
    own = TokenDataset.self_attention(data.tokens, data.labels, head=data.head)
    assert torch.equal(own.queries, data.tokens[..., 0, :])


@every
@pytest.mark.parametrize(
    "bad",
    [{"n": 0}, {"T": -1}, {"d": 0}, {"dq": 0}, {"n": 2.0}, {"d": True}, {"batch": 0}, {"batch": (2, -1)}, {"seed": -1}],
)
def test_sizes_that_are_none(generate: Generate, bad: dict[str, int]) -> None:
    (name,) = bad
    with pytest.raises(ValueError, match=f"^{name} must"):
        generate(**{"n": 2, "T": 3, "d": 4, "seed": 0, **bad})


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), float("inf"), True])
def test_scales_that_are_none(bad: float) -> None:
    for name in ("token_scale", "query_scale", "head_scale"):
        with pytest.raises(ValueError, match=f"^{name} must be a positive finite number; got"):
            random_gaussian(2, 3, 4, seed=0, **{name: bad})
    with pytest.raises(ValueError, match=r"^gap must be a positive finite number; got"):
        equal_scores(2, 3, 4, seed=0, gap=bad)


@every
def test_other_types(generate: Generate) -> None:
    with pytest.raises(ValueError, match=r"^dtype must be torch.float32 or torch.float64; got torch.float16$"):
        generate(2, 3, 4, seed=0, dtype=torch.float16)
    with pytest.raises(TypeError, match="seed"):
        generate(2, 3, 4)
