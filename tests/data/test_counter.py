"""Numbers by position: published answers, the same on every device, in parts and whole."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from attsvm import KeyQuery, fit, initial_parameters
from attsvm.data import Counter, equal_scores, orthonormal_tokens, random_gaussian, random_sphere
from attsvm.data.counter import CounterNumbers, _philox


@pytest.mark.parametrize("library", [np, torch])
@pytest.mark.parametrize(
    ("word", "answer"),
    [
        (0, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        (2**32 - 1, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    ],
)
def test_known_answers_of_philox(library: object, word: int, answer: tuple[int, ...]) -> None:
    """The first two known answers that Salmon and others publish with Random123."""
    full = np.full(1, word, dtype=np.int64) if library is np else torch.full((1,), word, dtype=torch.int64)
    assert tuple(int(found[0]) for found in _philox((full, full, full, full), (word, word))) == answer


def numbers(seed: int = 0, first: int = 0, count: int = 4000, purpose: int = 0) -> CounterNumbers:
    return CounterNumbers(Counter(seed, first), 0, count, purpose, torch.device("cpu"))


def test_moments_of_uniform_and_normal_numbers() -> None:
    """Each within five standard errors; mean, variance, skewness, kurtosis, and neighbours uncorrelated."""
    uniform, normal = numbers().random(51).ravel(), numbers().standard_normal(51).ravel()
    root = np.sqrt(len(normal))
    assert 0.0 <= uniform.min() < 1e-4 < 1 - 1e-4 < uniform.max() < 1.0
    assert abs(uniform.mean() - 0.5) < 5 / np.sqrt(12) / root
    for power, mean, spread in ((1, 0, 1), (2, 1, np.sqrt(2)), (3, 0, np.sqrt(15)), (4, 3, np.sqrt(96))):
        assert abs((normal**power).mean() - mean) < 5 * spread / root
    assert abs((normal[1:] * normal[:-1]).mean()) < 5 / root


def test_numbers_depend_on_position_seed_and_purpose_alone() -> None:
    whole = numbers(3).standard_normal(9)
    again = numbers(3)
    parts = [again.standard_normal(2), again.standard_normal((1, 3)).reshape(-1, 3), again.standard_normal(4)]
    assert np.array_equal(np.concatenate(parts, axis=1), whole)
    assert np.array_equal(numbers(3, first=5, count=10).standard_normal(9), whole[5:15])
    for other in (numbers(4), numbers(3, purpose=1), numbers(3, first=2**33), numbers(3 + 2**40)):
        assert not np.isin(other.standard_normal(9), whole).any()


@pytest.mark.parametrize("draw", [random_sphere, random_gaussian, orthonormal_tokens, equal_scores])
def test_data_sets_in_parts_and_whole(draw: object) -> None:
    whole = draw(2, 3, 4, batch=(2, 3), seed=Counter(1))  # type: ignore[operator]
    part = draw(2, 3, 4, batch=2, seed=Counter(1, first=4))  # type: ignore[operator]
    for name in ("tokens", "queries", "labels", "head"):
        assert torch.equal(getattr(whole, name).flatten(0, 1)[4:], getattr(part, name)), name
    assert set(whole.labels.unique().tolist()) <= {-1.0, 1.0}


def test_starting_points() -> None:
    data = random_sphere(2, 3, 4, batch=5, seed=Counter(1))
    start = initial_parameters(data, KeyQuery(rank=2), seed=Counter(1), starts=3)
    assert start["key"].shape == (3, 5, 4, 2)
    assert start["key"].abs().max() <= 0.5
    assert start["key"].unique().numel() == start["key"].numel()


def test_what_a_counter_must_be_and_where_it_cannot_be() -> None:
    with pytest.raises(ValueError, match=r"seed of a Counter .* got -1"):
        Counter(-1)
    with pytest.raises(ValueError, match=r"first of a Counter .* got 0.5"):
        Counter(1, first=0.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="give an integer here"):
        fit(random_sphere(2, 3, 4, seed=0), seed=Counter(1), steps=1)
