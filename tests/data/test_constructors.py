"""The ways to build a data set: self-attention, sequences, causal data, prompts."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from attsvm.data import TokenDataset

from .helpers import assert_same, parts, same_bits

TOKENS = parts(n=3)["tokens"]
EVERY_LABEL = np.ones((3, 4))


@pytest.mark.parametrize("query_token", [0, 2, -1])
def test_self_attention_asks_with_its_own_token(query_token: int) -> None:
    data = TokenDataset.self_attention(TOKENS, [1, -1, 1], query_token=query_token)
    assert same_bits(data.queries, torch.from_numpy(TOKENS[:, query_token].copy()))
    assert data.dq == data.d


def test_self_attention_refuses() -> None:
    with pytest.raises(ValueError, match=r"^query_token must lie in 0..3; got 4$"):
        TokenDataset.self_attention(TOKENS, [1, 1, 1], query_token=4)
    with pytest.raises(ValueError, match=r"^query_token must lie in 0..3; got 1.0$"):
        TokenDataset.self_attention(TOKENS, [1, 1, 1], query_token=1.0)  # type: ignore[arg-type]
    mask = np.ones((3, 4), bool)
    mask[1, 0] = False
    with pytest.raises(ValueError, match=r"^query_token 0 is masked at input 1; choose a real token$"):
        TokenDataset.self_attention(TOKENS, [1, 1, 1], mask=mask)
    with pytest.raises(ValueError, match=r"^mask must have shape \[3, 4\]"):
        TokenDataset.self_attention(TOKENS, [1, 1, 1], mask=np.ones(3, bool))
    with pytest.raises(ValueError, match=r"^mask must be a boolean mask"):
        TokenDataset.self_attention(TOKENS, [1, 1, 1], mask=mask.astype(int))


def brute_force(tokens: np.ndarray, causal: bool) -> list[tuple[np.ndarray, np.ndarray]]:
    """(tokens seen, query) of every position of every sequence, in the order of the samples."""
    return [
        (sequence[: k + 1] if causal else sequence, sequence[k]) for sequence in tokens for k in range(len(sequence))
    ]


@pytest.mark.parametrize("causal", [True, False])
def test_every_position_is_a_sample(causal: bool) -> None:
    build = TokenDataset.causal if causal else TokenDataset.sequence
    labels = np.where(np.random.default_rng(1).random((3, 4)) < 0.5, -1, 1)
    data = build(TOKENS, labels)
    assert (data.n, data.sequences, data.queries_per_sequence) == (12, 3, 4)
    assert data.labels.tolist() == labels.reshape(-1).tolist()
    expanded = data.take_inputs(torch.arange(12))
    for i, (seen, query) in enumerate(brute_force(TOKENS, causal)):
        real = torch.ones(4, dtype=torch.bool) if data.mask is None else data.mask[i]
        assert same_bits(expanded.tokens[i][real], torch.from_numpy(seen))
        assert same_bits(data.queries[i], torch.from_numpy(query))


def test_causal_logits_equal_those_of_the_prefixes() -> None:
    data = TokenDataset.causal(TOKENS, EVERY_LABEL).take_inputs(torch.arange(12))
    weights = np.random.default_rng(2).standard_normal((3, 3))
    assert data.mask is not None
    logits = torch.einsum("itd,de,ie->it", data.tokens, torch.from_numpy(weights), data.queries)
    for i, (seen, query) in enumerate(brute_force(TOKENS, True)):
        assert np.allclose(logits[i][data.mask[i]], seen @ weights @ query, atol=1e-14)


def test_causal_data_store_each_token_once() -> None:
    tokens = torch.from_numpy(TOKENS)
    data = TokenDataset.causal(tokens, EVERY_LABEL)
    assert data.tokens.data_ptr() == tokens.data_ptr()
    assert data.queries.data_ptr() == tokens.data_ptr()
    assert data.values is data.tokens


def test_causal_mask_is_shared_along_the_batch() -> None:
    data = TokenDataset.causal(np.ones((5, 3, 4, 2)), np.ones((5, 3, 4)))
    assert data.mask is not None
    assert data.mask.stride(0) == 0
    assert data.mask.shape == (5, 12, 4)
    assert torch.equal(data.mask[3], torch.ones(4, 4, dtype=torch.bool).tril().repeat(3, 1))


def test_a_batch_of_causal_data_equals_its_elements() -> None:
    tokens = parts(2, n=3)["tokens"]
    batch = TokenDataset.causal(tokens, np.ones((2, 3, 4)))
    assert_same(batch[1], TokenDataset.causal(tokens[1], EVERY_LABEL))


def test_sequences_refuse() -> None:
    with pytest.raises(ValueError, match=r"^labels must have shape \[3, 4\] \(batch, sequences, T\); got \[3\]$"):
        TokenDataset.causal(TOKENS, [1, 1, 1])
    bad = TOKENS.copy()
    bad[1, 2, 0] = np.nan
    with pytest.raises(ValueError, match=r"^tokens must be finite; got nan at sequence 1, token 2, coordinate 0$"):
        TokenDataset.causal(bad, EVERY_LABEL)
    with pytest.raises(ValueError, match=r"^tokens must have shape"):
        TokenDataset.causal(np.ones((2, 3)), np.ones(2))


@pytest.mark.parametrize("batched_weights", [True, False])
def test_prompt(batched_weights: bool) -> None:
    tokens = parts(5, n=3)["tokens"]
    weights = np.random.default_rng(3).standard_normal((5, 2, 3) if batched_weights else (2, 3))
    data = TokenDataset.prompt(tokens, np.ones((5, 3)), weights, head=np.ones((5, 3)))
    assert (data.d, data.dv, data.dq) == (2, 3, 1)
    assert same_bits(data.values, torch.from_numpy(tokens))
    assert bool((data.queries == 1).all())
    for b, i, t in np.ndindex(5, 3, 4):
        expected = (weights[b] if batched_weights else weights) @ tokens[b, i, t]
        assert np.allclose(data.tokens[b, i, t], expected, atol=1e-14)


def test_prompt_with_identity_keys() -> None:
    data = TokenDataset.prompt(TOKENS, [1, 1, 1])
    assert data.values is data.tokens
    assert same_bits(data.tokens, torch.from_numpy(TOKENS))


def test_prompt_refuses() -> None:
    for shape in ((3,), (3, 2), (1, 2, 3), (0, 3)):
        with pytest.raises(ValueError, match=r"^weights must have shape \[d, 3\] \(d, dv, alone or for each element"):
            TokenDataset.prompt(TOKENS, [1, 1, 1], np.ones(shape))
    with pytest.raises(ValueError, match=r"^weights must be finite; got nan at row 1, column 2$"):
        TokenDataset.prompt(TOKENS, [1, 1, 1], np.array([[1.0, 1, 1], [1, 1, np.nan]]))
    with pytest.raises(ValueError, match=r"^weights must be float64 on cpu, like the tokens; got float32 on cpu$"):
        TokenDataset.prompt(TOKENS, [1, 1, 1], np.ones((2, 3), np.float32))
    bad = TOKENS.copy()
    bad[1, 2, 2] = np.inf
    with pytest.raises(ValueError, match=r"^tokens must be finite; got inf at input 1, token 2, coordinate 2$"):
        TokenDataset.prompt(bad, [1, 1, 1], np.ones((1, 3)))
