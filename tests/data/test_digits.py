"""Real patches: nothing of the images is lost, labels and order are right, bad requests are refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from attsvm.data import TokenDataset, digits_patches, one_hot_positions, patches_to_images

from .helpers import assert_same, same_bits

PATCHES = [1, 2, 4, 8]


def rows_of(classes: tuple[int, int] = (0, 1), count: int | None = None, seed: object = 0) -> np.ndarray:
    """Which images of the collection were drawn, read off their pixels."""
    data, images = digits_patches(1, classes, count=count, seed=seed), load_digits().images.reshape(-1, 64) / 16
    return np.array([np.flatnonzero((images == image.numpy()).all(-1))[0] for image in data.tokens.squeeze(-1)])


@pytest.mark.parametrize("patch", PATCHES)
@pytest.mark.parametrize("positions", [None, one_hot_positions])
def test_reassembling_gives_the_images_back(patch: int, positions: object) -> None:
    data = digits_patches(patch, (3, 8), count=30, seed=1, positions=positions)
    original = load_digits().images[rows_of((3, 8), 30, 1)] / 16
    assert np.array_equal(patches_to_images(data.tokens, patch), original)


@pytest.mark.parametrize("patch", PATCHES)
def test_a_patch_is_a_square_of_neighbouring_pixels(patch: int) -> None:
    data, images = digits_patches(patch, count=4), torch.from_numpy(load_digits().images[rows_of(count=4)] / 16)
    side = 8 // patch
    assert (data.T, data.d) == (side**2, patch**2)
    for row, column in np.ndindex(side, side):
        square = images[:, row * patch : (row + 1) * patch, column * patch : (column + 1) * patch]
        assert torch.equal(data.tokens[:, row * side + column], square.reshape(4, -1))


def test_labels_and_values() -> None:
    data, index, bunch = digits_patches(classes=(7, 2)), rows_of((7, 2)), load_digits()
    target = bunch.target[index]
    assert data.labels.tolist() == [-1.0 if digit == 7 else 1.0 for digit in target]
    assert set(target) == {2, 7}
    assert len(target) == int(np.isin(bunch.target, (2, 7)).sum())
    assert index.tolist() == sorted(index.tolist())
    assert (float(data.tokens.min()), float(data.tokens.max())) == (0.0, 1.0)


def test_counts_are_even_and_without_repetition() -> None:
    for count in (1, 2, 7, 100):
        assert len(set(rows_of(count=count, seed=3).tolist())) == count
        assert int((digits_patches(count=count, seed=3).labels == -1).sum()) == count - count // 2


def test_order_is_reproducible() -> None:
    assert_same(digits_patches(count=20, seed=5), digits_patches(count=20, seed=5))
    assert rows_of(count=20, seed=5).tolist() != rows_of(count=20, seed=6).tolist()
    assert rows_of(count=20, seed=5).tolist() == rows_of(count=20, seed=[(5, 0)]).tolist()
    assert rows_of(seed=5).tolist() == rows_of(seed=6).tolist()


def test_the_collection_cannot_be_changed_through_what_was_drawn() -> None:
    digits_patches().tokens.zero_()
    assert float(digits_patches().tokens.max()) == 1.0


@pytest.mark.parametrize(("patch", "middle"), [(1, 36), (2, 10), (4, 3), (8, 0)])
def test_query(patch: int, middle: int) -> None:
    if patch < 8:
        assert_same(digits_patches(patch, count=6), digits_patches(patch, count=6, query_token=middle))
    data = digits_patches(patch, count=6, query_token=0)
    assert same_bits(data.queries, data.tokens[:, 0])


def test_other_queries_from_the_docstring() -> None:
    data = digits_patches(count=6)
    mean = TokenDataset(data.tokens, data.tokens.mean(-2), data.labels)
    assert torch.allclose(mean.queries, data.tokens.sum(-2) / 4)
    assert TokenDataset.prompt(data.tokens, data.labels).dq == 1


def test_positions() -> None:
    tokens = digits_patches(4, count=3, positions=one_hot_positions).tokens
    assert torch.equal(tokens[..., 16:], torch.eye(4, dtype=torch.float64).expand(3, 4, 4))
    with pytest.raises(ValueError, match=r"^positions must give rows of shape \[4, k\]; got \[9, 9\]$"):
        digits_patches(4, count=3, positions=lambda side: one_hot_positions(side + 1))


def test_precision_and_device() -> None:
    assert digits_patches(count=4, dtype=torch.float32).dtype == torch.float32
    assert digits_patches(count=4, device="meta").device.type == "meta"


@pytest.mark.parametrize("bad", [0, 3, 16, -4, True, 2.5, "4"])
def test_patches_that_do_not_divide(bad: int) -> None:
    with pytest.raises(ValueError, match="patch"):
        digits_patches(bad)


@pytest.mark.parametrize("bad", [(0, 10), (-1, 1), (0, True), (0, 1.5), (0, "1"), (0,), (0, 1, 2), 3])
def test_classes_that_are_none(bad: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="classes"):
        digits_patches(classes=bad)


def test_sentences() -> None:
    with pytest.raises(ValueError, match=r"^patch must divide 8: 1, 2, 4 or 8; got 3$"):
        digits_patches(3)
    with pytest.raises(ValueError, match=r"^classes must be two different digits from 0 to 9; got \(0, 10\)$"):
        digits_patches(classes=(0, 10))
    with pytest.raises(ValueError, match=r"^classes must be two different digits from 0 to 9; got \(4, 4\)$"):
        digits_patches(classes=(4, 4))
    with pytest.raises(ValueError, match=r"there are 178 images of the digit 0, count = 400 needs 200$"):
        digits_patches(count=400)
    with pytest.raises(ValueError, match=r"^count must be a positive integer; got 0$"):
        digits_patches(count=0)
    for bad in (4, -1):
        with pytest.raises(ValueError, match=rf"^query_token must lie in 0..3; got {bad}$"):
            digits_patches(4, query_token=bad)
    with pytest.raises(ValueError, match=r"^tokens must have shape \[\*batch, 16, 4 or more\] .*; got \[3, 4, 16\]$"):
        patches_to_images(digits_patches(4, count=3).tokens, 2)


def test_largest_count() -> None:
    assert digits_patches(count=356).n == 356
    with pytest.raises(ValueError, match=r"digit 0, count = 357 needs 179$"):
        digits_patches(count=357)
