"""What is refused, and in which words."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from attsvm import KeyQuery, LinearHead, ModuleHead, QuadraticHead, ReluHead, TokenDataset, optimal_tokens, token_scores
from attsvm.attention import evaluate, gradient
from attsvm.attention.gradient import attend
from attsvm.data import random_sphere

DATA = random_sphere(n=2, T=3, d=4, batch=2, seed=0)
BARE = TokenDataset(DATA.tokens, DATA.queries, DATA.labels)
WEIGHTS = torch.zeros(2, 4, 4, dtype=torch.float64)


def test_a_head_is_needed() -> None:
    for ask in (
        token_scores,
        optimal_tokens,
        lambda data: evaluate(data, WEIGHTS),
        lambda data: gradient(data, WEIGHTS),
    ):
        with pytest.raises(ValueError, match=r"a prediction head is needed: pass one, as LinearHead\(v\), or data"):
            ask(BARE)


@pytest.mark.parametrize(
    ("head", "words"),
    [
        (np.ones(3), r"head must have shape \[4\] \(to fit the data, .*\); got \[3\]"),
        (np.ones((3, 4)), r"head must have shape \[2, 4\] \(to fit the data, .*\); got \[3, 4\]"),
        (np.ones(4, dtype=np.float32), "head must be float64 on cpu, like the data; got float32 on cpu"),
        (np.array([1.0, np.nan, 0, 0]), "head vector must be finite; got nan at coordinate 1"),
        ("linear", "head vector must be a"),
        ([1, 2, 3, 4], "head vector must be float32 or float64; got int64"),
    ],
)
def test_vectors(head: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        token_scores(BARE, head)


def test_other_heads() -> None:
    with pytest.raises(ValueError, match=r"head matrix must have an axis for each row and column; got shape \[4\]"):
        ReluHead(np.ones(4))
    with pytest.raises(ValueError, match="head matrix must be finite; got inf at row 1, column 0"):
        ReluHead(np.array([[1.0], [np.inf]]))
    with pytest.raises(ValueError, match=r"head must have shape \[4, width\] \(to fit the data, .*\); got \[3, 2\]"):
        token_scores(BARE, ReluHead(np.ones((3, 2))))
    for penalty in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="penalty must be finite and not negative; got"):
            QuadraticHead(np.ones(4), penalty)
    with pytest.raises(ValueError, match=r"penalty must have shape \[2\] \(to fit the data, .*\); got \[3\]"):
        token_scores(BARE, QuadraticHead(np.ones(4), np.ones(3)))


def test_modules() -> None:
    sentence = "parameter weight of the head module must be float64 on cpu, like the data; got float32 on cpu"
    with pytest.raises(ValueError, match=sentence):
        token_scores(BARE, torch.nn.Linear(4, 1))
    with pytest.raises(ValueError, match=r"head module must accept values \[..., 4\]; it raised:"):
        token_scores(BARE, torch.nn.Linear(3, 1).double())
    with pytest.raises(
        ValueError, match=r"head module must return one number per input; for \[2, 4\] it gave \[2, 2\]"
    ):
        token_scores(BARE, ModuleHead(torch.nn.Linear(4, 2).double()))


def test_a_module_is_never_changed() -> None:
    module = torch.nn.Linear(4, 1).double()
    before = module.weight.detach().clone()
    gradient(BARE, WEIGHTS, module, train_head=True)
    assert module.weight.detach().equal(before)
    assert module.weight.grad is None


def test_weights() -> None:
    bad = WEIGHTS.clone()
    bad[1, 2, 3] = torch.nan
    with pytest.raises(ValueError, match=r"weights must be finite; got nan at element 1, row 2, column 3"):
        evaluate(DATA, bad)
    with pytest.raises(
        ValueError,
        match=r"weights must have shape \[2, 4, 4\] \(batch, d, dq, with any axes of starts before\); got \[4, 4\]",
    ):
        evaluate(DATA, WEIGHTS[0])
    with pytest.raises(ValueError, match="weights must be float64 on cpu, like the data; got float32 on cpu"):
        evaluate(DATA, WEIGHTS.float())
    with pytest.raises(ValueError, match=r"parameters of KeyQuery\(rank=2\) must be key, query; got weights"):
        gradient(DATA, WEIGHTS, parameterization=KeyQuery(2))
    with pytest.raises(ValueError, match=r"query must have shape \[2, 4, 2\]"):
        gradient(DATA, {"key": WEIGHTS[..., :2], "query": WEIGHTS}, parameterization=KeyQuery(2))


@pytest.mark.parametrize("rank", [0, -1, 1.5, True, "full"])
def test_rank(rank: object) -> None:
    with pytest.raises(ValueError, match="rank must be a positive integer or None; got"):
        KeyQuery(rank)  # type: ignore[arg-type]


def test_starts_must_agree_between_factors() -> None:
    with pytest.raises(ValueError, match=r"parameters must have the same starts; got key \[3\] and query \[2\]"):
        gradient(
            DATA[0],
            {"key": torch.ones(3, 4, 2).double(), "query": torch.ones(2, 4, 2).double()},
            parameterization=KeyQuery(2),
        )


def test_values_that_were_not_mixed() -> None:
    """A stopping rule of a user's own may ask for them."""
    logits = torch.zeros(1, 2, 2, 3, dtype=torch.float64)
    head = LinearHead(DATA.head)
    assert attend(DATA, head, logits).values.shape == (1, 2, 2, 4)
    with pytest.raises(ValueError, match="values were not mixed: this pass used the scores of a fixed linear"):
        _ = attend(DATA, head, logits, token_scores(DATA)[None]).values


def test_vectors_become_linear_heads() -> None:
    vector = np.arange(4.0)
    assert token_scores(BARE, vector).equal(token_scores(BARE, LinearHead(vector)))
    assert token_scores(BARE, torch.from_numpy(vector)).equal(token_scores(BARE, LinearHead(vector)))
