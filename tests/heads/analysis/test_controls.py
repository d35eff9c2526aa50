from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

import attsvm
from attsvm.heads.analysis.head import matching_temperature, same_spectrum, shuffled
from attsvm.heads.analysis.selections import Choices, choices
from heads.planted import random_form, random_views


def test_random_weights_have_the_same_singular_values_and_another_direction():
    form = random_form(12, 4)
    other = same_spectrum(form, torch.Generator().manual_seed(0), 0)
    assert torch.allclose(torch.linalg.svdvals(other.weights)[:4], torch.linalg.svdvals(form.weights)[:4])
    assert abs(float(attsvm.direction_cosine(form.weights, other.weights))) < 0.5


def test_random_weights_keep_the_structure_of_the_head():
    """Rotary pairs, the energy of every frequency, and keys that two heads share."""
    one, two = random_form(12, 4), random_form(12, 4)
    pairs = torch.tensor([[0, 2], [1, 3]])
    one, two = replace(one, pairs=pairs), replace(two, pairs=pairs, query=two.query.flip(0))

    def drawn(form, head, seed):
        return same_spectrum(form, torch.Generator().manual_seed(head), seed)

    first, second, again = drawn(one, 1, 0), drawn(two, 2, 0), drawn(one, 1, 1)
    assert first.pairs is pairs
    assert torch.equal(first.key, second.key)
    assert not torch.allclose(first.query, second.query)
    assert not torch.allclose(first.key, again.key)

    def energy(form):
        return [float(form.key[:, pair].norm() * form.query[:, pair].norm()) for pair in pairs]

    assert energy(first) == pytest.approx(energy(one))
    assert torch.allclose(torch.linalg.svdvals(first.stacked), torch.linalg.svdvals(one.stacked))


@pytest.mark.parametrize("causal", [False, True])
def test_shuffling_deals_out_the_same_tokens(causal):
    views = random_views(10, causal=causal)
    found = choices(views, random_form()).confident(0.0)
    mixed = shuffled(found, views, torch.Generator().manual_seed(1))
    assert not torch.equal(mixed.selected, found.selected)
    for index in range(10):
        here = found.sentence == index
        for query, token in zip(found.position[here].tolist(), mixed.selected[here].tolist(), strict=True):
            assert views[index].allowed[query, token]
        if not causal:
            assert sorted(mixed.selected[here].tolist()) == sorted(found.selected[here].tolist())


def test_a_constant_selection_survives_shuffling():
    views = random_views(3)
    found = choices(views, random_form()).confident(0.0)
    constant = Choices(
        found.sentence, found.position, torch.zeros_like(found.selected), *list(vars(found).values())[3:]
    )
    assert torch.equal(shuffled(constant, views, torch.Generator().manual_seed(1)).selected, constant.selected)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_the_temperature_gives_the_share_asked_for(share):
    views, form = random_views(60), random_form(scale=1e-3)
    factor = matching_temperature(views, form, 0.5, share)
    found = choices(views, form.scaled(factor))
    assert float((found.mass > 0.5).double().mean()) == pytest.approx(share, abs=1.5 / len(found))
    assert math.isfinite(factor)


def test_the_temperature_depends_on_nothing_but_the_scale():
    views = random_views(40)
    ratio = matching_temperature(views, random_form(), 0.5, 0.4) / matching_temperature(
        views, random_form(scale=10.0), 0.5, 0.4
    )
    assert ratio == pytest.approx(10.0, rel=1e-6)
