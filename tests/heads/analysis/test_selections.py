from __future__ import annotations

import numpy as np
import pytest
import torch

from attsvm.heads import HeadWeights
from attsvm.heads.analysis.selections import choices, selectivity
from heads.planted import random_form, random_views, view


def test_choices_are_those_of_a_plain_softmax():
    views, form = random_views(9, causal=True), random_form()
    found = choices(views, form)
    matrix = (form.key @ form.query.T).numpy()
    row = 0
    for index, seen in enumerate(views):
        for position in range(1, len(seen.keys)):  # the first position of a causal sentence has no choice
            logits = seen.keys.numpy()[: position + 1] @ matrix @ seen.queries[position].numpy()
            weights = np.exp(logits - logits.max())
            weights /= weights.sum()
            assert found.sentence[row] == index
            assert found.position[row] == position
            assert found.selected[row] == int(weights.argmax())
            assert found.mass[row] == pytest.approx(weights.max(), rel=1e-12)
            assert found.entropy[row] == pytest.approx(-(weights * np.log(weights)).sum(), rel=1e-9)
            assert found.options[row] == position + 1
            row += 1
    assert row == len(found)
    assert not found.tied.any()
    sharp = selectivity(found, views, 0.5)
    assert sharp.no_choice == len(views)
    assert sharp.confident == pytest.approx(float((found.mass > 0.5).double().mean()))


def test_equal_tokens_are_a_tie_and_no_selection():
    keys = torch.tensor([[1.0, 0.0], [3.0, 1.0], [3.0, 1.0]])
    form = HeadWeights(torch.eye(2).double(), 5 * torch.eye(2).double())
    found = choices([view(keys)], form)
    assert found.tied.all()
    assert len(found.confident(0.3)) == 0
    assert selectivity(found, [view(keys)], 0.3).tied == 3


def test_weights_of_zero_select_nothing():
    nothing = HeadWeights(torch.zeros(6, 2).double(), torch.zeros(6, 2).double())
    found = choices(random_views(4), nothing)
    assert found.tied.all()
    assert torch.allclose(found.entropy, found.options.double().log())


def test_one_token_has_no_choice():
    found = choices([view(torch.ones(1, 6))], random_form())
    assert len(found) == 0


def test_the_draw_is_seeded_and_without_repetition():
    found = choices(random_views(30), random_form())
    first, again = (found.draw(20, torch.Generator().manual_seed(3)) for _ in range(2))
    assert torch.equal(first.position, again.position)
    pairs = set(zip(first.sentence.tolist(), first.position.tolist(), strict=True))
    assert len(pairs) == 20
    assert found.draw(10_000, torch.Generator()) is found
