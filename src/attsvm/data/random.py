"""Random data sets.

Element b of a batch is drawn from stream (seed, b), in float64 on the CPU, and then moved to the device and precision
asked for: the same seed gives the same data everywhere. A seed ``Counter(7)`` draws on the device itself.
All take n, T, d, dq, batch and seed as `random_sphere` does, and raise a ValueError for what does not fit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from attsvm.data.checks import check_count, check_positive
from attsvm.data.counter import Numbers
from attsvm.data.dataset import TokenDataset
from attsvm.data.streams import Batch, Draw, Seed, draw_batch


def random_sphere(
    n: int,
    T: int,
    d: int,
    *,
    dq: int | None = None,
    batch: Batch = None,
    seed: Seed,
    dtype: torch.dtype = torch.float64,
    device: torch.device | str = "cpu",
) -> TokenDataset:
    """The papers' random data: v, every token and every query uniform on the unit sphere, labels fair +-1.

    A stream draws v, X, z, Y in this order. Self-attention on the same tokens:
    ``TokenDataset.self_attention(data.tokens, data.labels, head=data.head)``.

    Arguments:
        n, T, d: number of inputs, of tokens per input, and dimension of a token.
        dq: dimension of a query; d by default.
        batch: None for one data set, else how many, as an int or a shape.
        seed: see `attsvm.data.streams`.

    Returns:
        A data set ``[*batch, n, T, d]`` with its linear prediction head v.

    >>> data = random_sphere(n=6, T=8, d=10, batch=100, seed=0)
    >>> data
    TokenDataset(batch=[100], n=6, T=8, d=10, dq=10, head, float64, cpu)
    >>> bool((data.tokens.norm(dim=-1) - 1).abs().max() < 1e-15)
    True
    """
    n, T, d, dq = _checked_sizes(n, T, d, dq)

    def draw(stream: Numbers) -> dict[str, np.ndarray]:
        head, tokens, queries = unit(stream, d), unit(stream, n, T, d), unit(stream, n, dq)
        return {"head": head, "tokens": tokens, "queries": queries, "labels": _fair_labels(stream, n)}

    return draw_dataset(draw, batch, seed, device, dtype)


def random_gaussian(
    n: int,
    T: int,
    d: int,
    *,
    dq: int | None = None,
    token_scale: float = 1.0,
    query_scale: float = 1.0,
    head_scale: float = 1.0,
    batch: Batch = None,
    seed: Seed,
    dtype: torch.dtype = torch.float64,
    device: torch.device | str = "cpu",
) -> TokenDataset:
    """Independent normal entries: tokens, queries and head N(0, scale^2), each scale positive, labels fair +-1."""
    n, T, d, dq = _checked_sizes(n, T, d, dq)
    for scale, name in ((token_scale, "token_scale"), (query_scale, "query_scale"), (head_scale, "head_scale")):
        check_positive(scale, name)

    def draw(stream: Numbers) -> dict[str, np.ndarray]:
        return {
            "head": head_scale * stream.standard_normal(d),
            "tokens": token_scale * stream.standard_normal((n, T, d)),
            "queries": query_scale * stream.standard_normal((n, dq)),
            "labels": _fair_labels(stream, n),
        }

    return draw_dataset(draw, batch, seed, device, dtype)


def orthonormal_tokens(
    n: int,
    T: int,
    d: int,
    *,
    dq: int | None = None,
    batch: Batch = None,
    seed: Seed,
    dtype: torch.dtype = torch.float64,
    device: torch.device | str = "cpu",
) -> TokenDataset:
    """Tokens of each input orthonormal, X_i X_i^T = I (T <= d), uniform among such frames; else as `random_sphere`."""
    n, T, d, dq = _checked_sizes(n, T, d, dq)
    if d < T:
        raise ValueError(f"T must be at most d for orthonormal tokens; got T = {T}, d = {d}")

    def draw(stream: Numbers) -> dict[str, np.ndarray]:
        head, tokens = unit(stream, d), _orthonormalized(stream.standard_normal((n, T, d)))
        return {"head": head, "tokens": tokens, "queries": unit(stream, n, dq), "labels": _fair_labels(stream, n)}

    return draw_dataset(draw, batch, seed, device, dtype)


def equal_scores(
    n: int,
    T: int,
    d: int,
    *,
    gap: float = 0.5,
    dq: int | None = None,
    batch: Batch = None,
    seed: Seed,
    dtype: torch.dtype = torch.float64,
    device: torch.device | str = "cpu",
) -> TokenDataset:
    """Condition B2 of [TaSVM, global convergence]: all non-optimal tokens of an input share one score.

    `random_sphere` data whose component along v is replaced: Y_i v^T x_it = c_i, and c_i + gap (positive) for one token
    of each input, chosen uniformly; c_i is the mean score that the input had. Scores are equal up to the rounding of
    `dtype`; the tokens no longer have norm 1.
    """
    n, T, d, dq = _checked_sizes(n, T, d, dq)
    check_positive(gap, "gap")

    def draw(stream: Numbers) -> dict[str, np.ndarray]:
        head, tokens, queries = unit(stream, d), unit(stream, n, T, d), unit(stream, n, dq)
        labels = _fair_labels(stream, n)
        optimal = stream.random(n) * T // 1
        along = head[:, None, None]
        scores = labels * _dot(tokens, along).mean(-1)
        chosen = stream.library.arange(T, **stream.where) == optimal[..., None]
        wanted = scores[..., None] + chosen * (0.0 * scores[..., None] + gap)  # in the precision of the scores
        for _ in range(2):  # once leaves a component of rounding size along v, twice does not
            tokens = tokens - _dot(tokens, along)[..., None] * along
        tokens = tokens + (labels[..., None] * wanted)[..., None] * along
        return {"head": head, "tokens": tokens, "queries": queries, "labels": labels}

    return draw_dataset(draw, batch, seed, device, dtype)


def unit(stream: np.random.Generator | Numbers, *shape: int) -> np.ndarray:
    """Vectors of the last axis uniform on the unit sphere."""
    normal = stream.standard_normal(shape)
    return normal / _dot(normal, normal)[..., None] ** 0.5


def draw_dataset(
    draw: Draw, batch: Batch, seed: Seed, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float64
) -> TokenDataset:
    """The data set whose element b is what `draw` makes of stream (seed, b): tokens, queries, labels and head."""
    parts: dict[str, Any] = draw_batch(draw, batch, seed, device=device)
    return TokenDataset(**parts).to(device, dtype)


def _dot(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    return (left * right).sum(-1)  # BLAS and einsum round differently from machine to machine


def _fair_labels(stream: Numbers, n: int) -> np.ndarray:
    return 1.0 - 2.0 * (stream.random(n) < 0.5)


def _orthonormalized(vectors: np.ndarray) -> np.ndarray:
    """Gram-Schmidt, each vector cleaned twice; LAPACK's QR would round differently from machine to machine."""
    frame = 1.0 * vectors
    for t in range(vectors.shape[-2]):
        x = frame[..., t, :]
        for _ in range(2):
            before = frame[..., :t, :]
            x = x - (_dot(before, x[..., None, :])[..., None] * before).sum(-2)
            x = x / _dot(x, x)[..., None] ** 0.5
        frame[..., t, :] = x
    return frame


def _checked_sizes(n: int, T: int, d: int, dq: int | None) -> tuple[int, int, int, int]:
    named = (("n", n), ("T", T), ("d", d), ("dq", d if dq is None else dq))
    return tuple(check_count(size, name) for name, size in named)  # type: ignore[return-value]
