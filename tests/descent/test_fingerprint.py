"""Digests of large data: summed where they are, and as sensitive as a hash to what people change."""

from __future__ import annotations

import pytest
import torch

import attsvm
from attsvm.descent import fingerprint
from attsvm.descent.fingerprint import data_digest, same_digest


@pytest.fixture(autouse=True)
def _everything_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fingerprint, "_LARGE", 7)  # also that numbers go through in several parts


def data(seed: int = 0) -> attsvm.TokenDataset:
    return attsvm.data.random_sphere(2, 3, 4, batch=5, seed=seed)


def test_every_number_and_its_place_counts() -> None:
    own = data_digest(data())
    assert own.endswith("~")
    assert data_digest(data()) == own
    changed = [data(1)]
    for where, how in (((4, 1, 2, 3), 1 + 2e-16), ((0, 0, 0, 0), -1.0)):
        tokens = data().tokens.clone()
        tokens[where] *= how
        changed.append(attsvm.TokenDataset(tokens, data().queries, data().labels))
    for axis in range(4):  # the same numbers in another order
        changed.append(attsvm.TokenDataset(data().tokens.flip(axis), data().queries, data().labels))
    assert len({own, *map(data_digest, changed)}) == 1 + len(changed)


def test_precision_does_not_count_where_the_numbers_are_the_same() -> None:
    single = data().to("cpu", torch.float32)
    assert data_digest(single) == data_digest(single.to("cpu", torch.float64))


def test_resuming_is_refused_on_other_data_and_allowed_on_the_same() -> None:
    run = attsvm.fit(data(), steps=5)
    assert attsvm.fit(data(), steps=9, resume=run).step == 9
    with pytest.raises(ValueError, match="same data"):
        attsvm.fit(data(1), steps=9, resume=run)


def test_digests_of_two_kinds_cannot_be_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    run = attsvm.fit(data(), steps=5)
    monkeypatch.setattr(fingerprint, "_LARGE", 2**22)
    assert attsvm.fit(data(), steps=9, resume=run).step == 9
    assert not same_digest("ab", "ba")
    assert not same_digest("ab~", "ba~")
    assert same_digest("ab", "ab~")
