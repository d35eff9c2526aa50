"""Real images as token data: scikit-learn's bundled 8 x 8 digits, cut into patches. Nothing is downloaded."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from functools import lru_cache

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from attsvm.data.checks import check_count
from attsvm.data.dataset import TokenDataset
from attsvm.data.streams import Seed, streams

_SIDE = 8


def digits_patches(
    patch: int = 4,
    classes: tuple[int, int] = (0, 1),
    *,
    count: int | None = None,
    seed: Seed = 0,
    query_token: int | None = None,
    positions: Callable[[int], Tensor] | None = None,
    dtype: torch.dtype = torch.float64,
    device: torch.device | str = "cpu",
) -> TokenDataset:
    """Two digits as token data: an image is an input, its patches (row by row) are the tokens, self-attention.

    There is no prediction head. Other queries: ``TokenDataset(data.tokens, data.tokens.mean(-2), data.labels)`` asks
    with the mean patch, and ``TokenDataset.prompt(data.tokens, data.labels)`` with a trained prompt. Blank patches are
    equal tokens: a selection that must tell two of them apart is not separable unless `positions` are appended.

    Arguments:
        patch: side of a patch, 1, 2, 4 or 8: T = (8 / patch)^2 tokens of d = patch^2 grey values in [0, 1].
        classes: two different digits; the first gets label -1, the second +1.
        count: how many images to draw without replacement, half of each class (the first class takes the odd one),
            in random order; None means all, in the order of the collection.
        seed: see `attsvm.data.streams`; without `count` nothing is drawn.
        query_token: the patch that asks, z_i = x_{i, query_token}; None means the one below and right of the middle
            (the corners are often blank, and a zero query sees nothing).
        positions: `one_hot_positions` or any function from the number of patches along a side to the
            rows ``[T, k]`` that are appended to the tokens; None appends nothing.

    >>> digits_patches(patch=2, classes=(3, 8), count=20)
    TokenDataset(n=20, T=16, d=4, dq=4, float64, cpu)
    """
    side = _SIDE // _checked_patch(patch)
    if query_token is None:
        query_token = side // 2 * (side + 1)
    elif not isinstance(query_token, numbers.Integral) or not 0 <= query_token < side * side:
        raise ValueError(f"query_token must lie in 0..{side * side - 1}; got {query_token!r}")
    index = _drawn(classes, count, seed)
    pixels, target = _load()
    cut = torch.from_numpy(pixels[index]).reshape(-1, side, patch, side, patch).transpose(2, 3)
    tokens = cut.reshape(-1, side * side, patch * patch)
    if positions is not None:
        rows = positions(side).to(tokens)
        if rows.ndim != 2 or len(rows) != side * side:
            raise ValueError(f"positions must give rows of shape [{side * side}, k]; got {list(rows.shape)}")
        tokens = torch.cat([tokens, rows.expand(len(tokens), *rows.shape)], dim=-1)
    labels = np.where(target[index] == classes[0], -1.0, 1.0)
    return TokenDataset.self_attention(tokens, labels, query_token=query_token).to(device, dtype)


def patches_to_images(tokens: Float[Tensor, "*batch T d"], patch: int) -> Float[Tensor, "*batch 8 8"]:
    """The images whose patches these are; appended positions are dropped."""
    side = _SIDE // _checked_patch(patch)
    if tokens.ndim < 2 or tokens.shape[-2] != side * side or tokens.shape[-1] < patch * patch:
        expected = f"[*batch, {side * side}, {patch * patch} or more]"
        raise ValueError(f"tokens must have shape {expected} for patches of side {patch}; got {list(tokens.shape)}")
    grid = tokens[..., : patch * patch].reshape(*tokens.shape[:-2], side, side, patch, patch)
    return grid.transpose(-3, -2).reshape(*tokens.shape[:-2], _SIDE, _SIDE)


def one_hot_positions(side: int) -> Float[Tensor, "T T"]:
    """A 1 in the place of each patch, with `side` patches in a row: the identity of order side^2."""
    return torch.eye(side * side, dtype=torch.float64)


def _drawn(classes: tuple[int, int], count: int | None, seed: Seed) -> np.ndarray:
    """Rows of ``sklearn.datasets.load_digits()``."""
    pair = classes if isinstance(classes, (tuple, list)) else ()
    digits = {each for each in pair if isinstance(each, numbers.Integral) and not isinstance(each, bool)}
    if len(pair) != 2 or len(digits & set(range(10))) != 2:
        raise ValueError(f"classes must be two different digits from 0 to 9; got {classes!r}")
    rows = [np.flatnonzero(_load()[1] == digit) for digit in classes]
    if count is None:
        return np.sort(np.concatenate(rows))
    count = check_count(count, "count")
    wanted = (count - count // 2, count // 2)
    for digit, of_class, number in zip(classes, rows, wanted, strict=True):
        if number > len(of_class):
            have = f"there are {len(of_class)} images of the digit {digit}"
            raise ValueError(f"count must leave enough images: {have}, count = {count} needs {number}")
    (stream,) = streams(seed, ())
    chosen = [stream.permutation(of_class)[:number] for of_class, number in zip(rows, wanted, strict=True)]
    return stream.permutation(np.concatenate(chosen))


@lru_cache(maxsize=1)
def _load() -> tuple[np.ndarray, np.ndarray]:
    from sklearn.datasets import load_digits

    bunch = load_digits()
    return bunch.images / 16.0, bunch.target


def _checked_patch(patch: int) -> int:
    if isinstance(patch, bool) or patch not in (1, 2, 4, 8):
        raise ValueError(f"patch must divide 8: 1, 2, 4 or 8; got {patch!r}")
    return patch
