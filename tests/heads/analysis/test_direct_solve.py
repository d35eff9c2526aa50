"""`analyze` on arrays, against the max-margin problem of its docstring, written out and solved by itself."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import attsvm
from attsvm.heads import analyze, from_arrays

D, M, LENGTH, SENTENCES, CONFIDENCE = 8, 4, 6, 5, 0.3


def draw(seed: int, *shapes: tuple[int, ...]) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in shapes]


def with_one(states: Tensor) -> Tensor:
    return torch.cat([states, torch.ones(*states.shape[:-1], 1, dtype=torch.float64)], -1)


def direct_cosine(keys: Tensor, queries: Tensor, weights: Tensor) -> Tensor:
    """Cosine of W and the solution for what W selects confidently; keys and queries are ``[sentences, T, width]``."""
    tokens = keys.repeat_interleave(LENGTH, 0)
    asking = queries.flatten(0, 1)
    attention = torch.einsum("ntd,de,ne->nt", tokens, weights, asking).softmax(-1)
    sure = attention.amax(-1) > CONFIDENCE
    data = attsvm.TokenDataset(tokens[sure], asking[sure], torch.ones(int(sure.sum())))
    solution = attsvm.solve(attsvm.AttentionSVM(data, attention[sure].argmax(-1))).require_solved()
    return attsvm.direction_cosine(weights, solution.weights)


@pytest.mark.parametrize("biases", ["", "key", "query", "key and query"])
@pytest.mark.parametrize("seed", [0, 17])
def test_the_cosine_is_that_of_the_direct_solve(biases: str, seed: int) -> None:
    states, key, query, key_bias, query_bias = draw(seed, (SENTENCES, LENGTH, D), (D, M), (D, M), (M,), (M,))
    given = {
        name: value[None, None]
        for name, value in (("key_bias", key_bias), ("query_bias", query_bias))
        if name.removesuffix("_bias") in biases
    }
    model = from_arrays([one[None] for one in states], key[None, None], query[None, None], **given)
    report = analyze(model, held_out=0.0, confidence=CONFIDENCE, accuracy=1e-9)
    measured = report.heads[0].comparisons[0].head.cosine

    keys, left = (with_one(states), torch.cat([key, key_bias[None]])) if "key" in biases else (states, key)
    queries, right = (with_one(states), torch.cat([query, query_bias[None]])) if "query" in biases else (states, query)
    assert measured == pytest.approx(float(direct_cosine(keys, queries, left @ right.T / M**0.5)), abs=1e-6)
    if not biases:  # the wider problem is another one
        wide = torch.nn.functional.pad(left @ right.T / M**0.5, (0, 1, 0, 1))
        assert abs(measured - float(direct_cosine(with_one(states), with_one(states), wide))) > 1e-3
