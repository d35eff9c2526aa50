"""W -> logits and its adjoint: the identity that makes them a pair, and what they store."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from attsvm import TokenDataset, logits, logits_adjoint
from attsvm.data import random_gaussian
from cases import Case, every_case


def normal(seed: int, *shape: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape))


def adjoint_gap(data: TokenDataset, weights: Tensor, multipliers: Tensor, adjoint: Tensor) -> Tensor:
    """|<A(W), mu> - <W, A*(mu)>| relative to the sizes involved, for each element; masked tokens count for nothing."""
    rows = logits(data, weights)
    if data.mask is not None:
        rows, multipliers = (part.masked_fill(~data.mask, 0) for part in (rows, multipliers))
    left, right = (rows * multipliers).sum((-1, -2)), (weights * adjoint).sum((-1, -2))
    size = rows.norm(dim=(-1, -2)) * multipliers.norm(dim=(-1, -2)) + 1e-300
    return (left - right).abs() / size


@every_case
@pytest.mark.parametrize("starts", [(), (3,), (2, 2)], ids=str)
def test_adjoint_identity(case: Case, starts: tuple[int, ...]) -> None:
    data = case.data
    weights = normal(0, *starts, *data.batch_shape, data.d, data.dq)
    multipliers = normal(1, *starts, *data.batch_shape, data.n, data.T)
    adjoint = logits_adjoint(data, multipliers)
    assert adjoint.shape == weights.shape
    assert bool((adjoint_gap(data, weights, multipliers, adjoint) < 1e-14).all())


@given(n=st.integers(1, 5), T=st.integers(1, 5), d=st.integers(1, 5), dq=st.integers(1, 5), seed=st.integers(0, 1000))
def test_adjoint_identity_in_any_shape(n: int, T: int, d: int, dq: int, seed: int) -> None:
    data = random_gaussian(n=n, T=T, d=d, dq=dq, seed=seed)
    weights, multipliers = normal(seed, d, dq), normal(seed + 1, n, T)
    assert adjoint_gap(data, weights, multipliers, logits_adjoint(data, multipliers)) < 1e-13


def test_adjoint_comparison_can_fail() -> None:
    data = random_gaussian(n=2, T=3, d=3, seed=0)
    weights, multipliers = normal(0, 3, 3), normal(1, 2, 3)
    off = logits_adjoint(data, multipliers) + 1e-10
    assert adjoint_gap(data, weights, multipliers, off) > 1e-13


def test_logits_by_the_formula() -> None:
    data = TokenDataset.causal(normal(2, 2, 3, 4), torch.sign(normal(3, 2, 3)))
    weights = normal(4, 4, 4)
    found = logits(data, weights)
    for sequence in range(2):
        for k in range(3):
            for t in range(3):
                expected = data.tokens[sequence, t] @ weights @ data.tokens[sequence, k]
                assert found[3 * sequence + k, t].item() == pytest.approx(expected.item(), rel=1e-13, abs=1e-14)


class Largest(torch.utils._python_dispatch.TorchDispatchMode):
    """Notes the largest tensor that any operation makes."""

    elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        out = func(*args, **(kwargs or {}))
        for part in out if isinstance(out, (tuple, list)) else (out,):
            if isinstance(part, Tensor) and not part._is_view():
                self.elements = max(self.elements, part.untyped_storage().nbytes() // part.element_size())
        return out


def test_causal_data_never_become_one_copy_of_the_tokens_a_query() -> None:
    sequences, T, d = 2, 64, 48
    data = TokenDataset.causal(normal(5, sequences, T, d), torch.sign(normal(6, sequences, T)))
    written_out = data.n * data.T * data.d
    with Largest() as watch:
        logits_adjoint(data, logits(data, normal(7, d, d)))
    # The results themselves are n * T and d * d numbers.
    assert watch.elements <= max(data.n * data.T, data.d * data.d, data.n * data.d)
    assert watch.elements * 10 < written_out


def test_the_watch_can_see_a_copy() -> None:
    data = TokenDataset.causal(normal(5, 2, 8, 4), torch.sign(normal(6, 2, 8)))
    with Largest() as watch:
        data.tokens.repeat_interleave(8, -3) * 2.0
    assert watch.elements >= data.n * data.T * data.d


def test_numpy_in_tensor_out() -> None:
    data = TokenDataset(np.eye(2)[None], np.ones((1, 1)), [1])
    assert isinstance(logits(data, np.ones((2, 1))), Tensor)


def test_bad_shapes_types_and_devices() -> None:
    data = random_gaussian(n=2, T=3, d=4, dq=5, batch=2, seed=0)
    with pytest.raises(ValueError, match=r"weights must have shape \[2, 4, 5\] \(batch, d, dq, .*got \[2, 5, 4\]"):
        logits(data, np.zeros((2, 5, 4)))
    with pytest.raises(ValueError, match=r"weights must have shape \[2, 4, 5\].*got \[3, 4, 5\]"):
        logits(data, np.zeros((3, 4, 5)))
    with pytest.raises(ValueError, match=r"multipliers must have shape \[2, 2, 3\] \(batch, n, T, .*got \[2, 3\]"):
        logits_adjoint(data, np.zeros((2, 3)))
    with pytest.raises(ValueError, match="weights must be float64 on cpu, like the data; got float32 on cpu"):
        logits(data, np.zeros((2, 4, 5), dtype=np.float32))
    with pytest.raises(ValueError, match="weights must be float64 on cpu, like the data; got float64 on meta"):
        logits(data, torch.zeros(2, 4, 5, dtype=torch.float64, device="meta"))
    with pytest.raises(ValueError, match="weights must be float32 or float64; got int64"):
        logits(data, torch.zeros(2, 4, 5, dtype=torch.int64))
