"""The laws of growth and decay as benchmarks, on a few data sets, and the small transformer."""

from __future__ import annotations

import math

import pytest
import torch

from benchmarks import factor_laws, logits_of_text


def test_growth_counts_every_data_set() -> None:
    (row,) = factor_laws.grow("Muon", 3, 100)
    assert (row["data_sets"], row["steps"], row["not_solved"], row["above_a_bound"]) == (3, 300, 0, 0)
    assert 0 <= row["within_5_percent_over_last_decade"] <= 3
    assert row["in_the_end_least"] <= row["in_the_end_median"] <= 1.1


def test_decay_ends_on_the_ball() -> None:
    (row,) = factor_laws.decay("Muon; R = 4", 3, 20)
    assert row["decay"] == 0.5
    assert row["norm_off_median"] <= 1e-6
    assert row["gap_median"] <= 1e-6


def test_what_is_not_stationary_is_seen() -> None:
    data = factor_laws.drawn(2)
    off, gap = factor_laws.stationary(data, torch.eye(5).double().expand(2, 5, 5), factor_laws.Spectral(), 2.0)
    assert off.tolist() == [0.5, 0.5]
    assert bool((gap > 0.1).all())


def test_newton_schulz_keeps_singular_values_near_one() -> None:
    made = logits_of_text.orthogonalized(torch.randn(5, 16, 6, generator=torch.Generator().manual_seed(0)))
    values = torch.linalg.svdvals(made)
    assert 0.5 < float(values.min()) < float(values.max()) <= logits_of_text.LONGEST


@pytest.mark.parametrize("fused", [True, False])
def test_logits_of_heads_and_their_bound(fused: bool) -> None:
    torch.manual_seed(0)
    model = logits_of_text.Model(30, fused)
    found = logits_of_text.sizes(model, torch.randint(30, (2, logits_of_text.CONTEXT)))
    heads = logits_of_text.HEADS * logits_of_text.LAYERS
    assert all(len(each) == heads for each in found.values())
    most = logits_of_text.WIDTH / math.sqrt(logits_of_text.COLUMNS) * found["key"] * found["query"]
    assert bool((found["logit"] <= most * (1 + 1e-5)).all())
