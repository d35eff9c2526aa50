"""The pieces of the study of rotary heads: shares of the gap, and the stack of a head that is trained from scratch."""

from __future__ import annotations

import pytest
import torch
from benchmarks.heads_frequencies import gap_shares
from benchmarks.heads_rotary import BASE, SETTINGS, data_set, stack_of

from attsvm.heads import HeadWeights
from attsvm.heads.analysis.selections import SentenceView, choices
from heads.planted import sentence

ANGLES = torch.tensor([1.0, 0.3, 0.05], dtype=torch.float64)


def rotary(seed: int, content: float) -> tuple[list[SentenceView], HeadWeights]:
    """Sentences whose keys are a constant, and `content` times random numbers."""
    generator = torch.Generator().manual_seed(seed)
    views = []
    for length in (6, 9, 11):
        states = content * torch.randn(length, 4, generator=generator, dtype=torch.float64)
        states = torch.cat([states, torch.ones(length, 1).double()], -1)
        turns = torch.arange(length)[:, None] * ANGLES
        phases = torch.complex(turns.cos(), turns.sin())
        allowed = torch.ones(length, length, dtype=torch.bool).tril()
        names = sentence(*(f"t{k}" for k in range(length)))
        views.append(SentenceView(states, states, allowed, phases, sentence=names))
    key, query = (torch.randn(5, 6, generator=generator, dtype=torch.float64) for _ in range(2))
    return views, HeadWeights(key, 3 * query, pairs=torch.tensor([[0, 3], [1, 4], [2, 5]]))


@pytest.mark.parametrize("seed", range(3))
def test_shares_of_all_frequencies_add_up(seed):
    views, form = rotary(seed, 1.0)
    found = gap_shares(form, views, choices(views, form))
    assert sum(found["gap"]) == pytest.approx(1.0)
    assert 0 <= found["by_position"] < 1


def test_a_head_that_sees_no_content_goes_by_position():
    views, form = rotary(0, 0.0)
    found = gap_shares(form, views, choices(views, form))
    assert found["position"] == pytest.approx(1.0)
    assert found["by_position"] == 1.0


def test_the_stack_of_factors_turns_keys_against_queries():
    """u^T W z of lifted tokens is q^T R_Delta k, the rotation written out."""
    setting = SETTINGS["many frequencies"]
    tokens, queries, selected, back = data_set(setting, 0)
    generator = torch.Generator().manual_seed(1)
    key, query = (torch.randn(8, 2, 3, generator=generator, dtype=torch.float64) for _ in range(2))
    logits = torch.einsum("ntd,dq,nq->nt", tokens, stack_of(key, query), queries)
    position = int(selected[0]) + back  # the first query of the first sequence
    states = tokens[:1, :, : 2 * 3]  # the fastest frequency: [cos x ; sin x]
    turns = torch.arange(8) - position
    angle = BASE**0 * turns
    x = states[0, :, :3] * angle.cos()[:, None] + states[0, :, 3:] * angle.sin()[:, None]
    expected = torch.zeros(8, dtype=torch.float64)
    for f in range(8):
        theta = BASE ** (-f / 8) * turns
        k, q = x @ key[f].T, query[f] @ queries[0]
        turned = torch.stack(
            [theta.cos() * k[:, 0] - theta.sin() * k[:, 1], theta.sin() * k[:, 0] + theta.cos() * k[:, 1]]
        )
        expected += q @ turned
    torch.testing.assert_close(logits[0], expected)
