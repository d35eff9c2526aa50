"""The closed-form gradient against autograd, where autograd is sound: to 1e-12 relative."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from attsvm import Exponential, KeyQuery, LinearHead, Logistic, ModuleHead, QuadraticHead, ReluHead, TokenDataset
from attsvm.attention import CustomLoss, Linear, evaluate, gradient
from attsvm.data import random_sphere
from cases import Case, every_case

from .reference import assert_same_gradient, autograd, plain_risk

Map = Callable[[Tensor], Tensor]
LOSSES: dict[str, tuple[object, Map]] = {
    "logistic": (Logistic(), lambda m: torch.log(1 + torch.exp(-m))),
    "exponential": (Exponential(), lambda m: torch.exp(-m)),
    "linear": (Linear(), lambda m: -m),
    "a function": (lambda m: torch.sigmoid(-2 * m), lambda m: 1 / (1 + torch.exp(2 * m))),
    "a function and its slope": (
        CustomLoss(lambda m: -torch.atan(m), lambda m: -torch.log1p(m**2)),
        lambda m: -torch.atan(m),
    ),
}


def normal(seed: int, *shape: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape))


def tanh_module(dv: int) -> torch.nn.Module:
    module = torch.nn.Sequential(torch.nn.Linear(dv, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)).double()
    with torch.no_grad():
        for place, parameter in enumerate(module.parameters()):
            parameter.copy_(normal(place, *parameter.shape))
    return module


def heads(dv: int) -> dict[str, tuple[object, Map]]:
    vector, matrix, module = normal(1, dv), normal(2, dv, 3), tanh_module(dv)
    return {
        "vector": (vector, lambda x: x @ vector),
        "linear": (LinearHead(vector), lambda x: x @ vector),
        "relu": (ReluHead(matrix), lambda x: torch.relu(x @ matrix).sum(-1)),
        "quadratic": (QuadraticHead(vector, 0.7), lambda x: x @ vector - 0.7 * (x * x).sum(-1)),
        "module": (module, lambda x: module(x).squeeze(-1)),
        "module head": (ModuleHead(module), lambda x: module(x).squeeze(-1)),
    }


HEADS = ("vector", "linear", "relu", "quadratic", "module")


def causal() -> TokenDataset:
    return TokenDataset.causal(normal(3, 2, 4, 3), torch.sign(normal(4, 2, 4)))


def ragged_values() -> TokenDataset:
    mask = torch.arange(5) < torch.tensor([5, 3, 2])[:, None]
    return TokenDataset(normal(5, 3, 5, 4), normal(6, 3, 2), [1, -1, 1], mask=mask, values=normal(7, 3, 5, 3))


def prompt() -> TokenDataset:
    return TokenDataset.prompt(normal(8, 3, 4, 3), [1, -1, 1], normal(9, 5, 3))


DATA = {
    "cross-attention": lambda: TokenDataset(normal(10, 3, 4, 3), normal(11, 3, 5), [1, -1, -1]),
    "self-attention": lambda: TokenDataset.self_attention(normal(12, 3, 4, 3), [1, 1, -1]),
    "sequence": lambda: TokenDataset.sequence(normal(13, 2, 3, 3), torch.sign(normal(14, 2, 3))),
    "causal": causal,
    "ragged, values apart from keys": ragged_values,
    "prompt": prompt,
}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("kind", DATA)
def test_weights(kind: str, head: str, loss: str) -> None:
    data = DATA[kind]()
    own, plain = heads(data.dv)[head]
    ours, theirs = LOSSES[loss]
    weights = normal(15, data.d, data.dq)
    expected = autograd(lambda weights: plain_risk(data, weights, plain, theirs), weights=weights)
    assert_same_gradient(gradient(data, weights, own, ours), expected)
    risk = plain_risk(data, weights, plain, theirs)
    assert torch.allclose(evaluate(data, weights, own, ours).risk, risk, rtol=1e-13, atol=0)


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("kind", DATA)
def test_key_and_query(kind: str, head: str) -> None:
    data = DATA[kind]()
    own, plain = heads(data.dv)[head]
    factors = {"key": normal(16, data.d, 2), "query": normal(17, data.dq, 2)}
    expected = autograd(lambda key, query: plain_risk(data, key @ query.mT, plain), **factors)
    assert_same_gradient(gradient(data, factors, own, parameterization=KeyQuery(2)), expected)


@pytest.mark.parametrize("kind", DATA)
def test_trained_linear_head(kind: str) -> None:
    data = DATA[kind]()
    vector, weights = normal(18, data.dv), normal(19, data.d, data.dq)
    expected = autograd(
        lambda weights, head: plain_risk(data, weights, lambda x: x @ head), weights=weights, head=vector
    )
    assert_same_gradient(gradient(data, weights, vector, train_head=True), expected)


def test_trained_relu_and_quadratic_heads() -> None:
    data = DATA["ragged, values apart from keys"]()
    vector, matrix, weights = normal(20, data.dv), normal(21, data.dv, 4), normal(22, data.d, data.dq)
    for own, start, plain in (
        (ReluHead(matrix), matrix, lambda head: lambda x: torch.relu(x @ head).sum(-1)),
        (QuadraticHead(vector, 0.3), vector, lambda head: lambda x: x @ head - 0.3 * (x * x).sum(-1)),
    ):
        expected = autograd(
            lambda weights, head, plain=plain: plain_risk(data, weights, plain(head)), weights=weights, head=start
        )
        assert_same_gradient(gradient(data, weights, own, train_head=True), expected)


def test_trained_module() -> None:
    data, module = causal(), tanh_module(3)
    weights = normal(23, data.d, data.dq)
    names = [name for name, _ in module.named_parameters()]

    def risk(weights: Tensor, **parameters: Tensor) -> Tensor:
        bare = {name: parameters[name.replace(".", "_")] for name in names}
        return plain_risk(data, weights, lambda x: torch.func.functional_call(module, bare, (x,)).squeeze(-1))

    start = {name.replace(".", "_"): value.detach() for name, value in module.named_parameters()}
    expected = autograd(risk, weights=weights, **start)
    renamed = {"weights": expected["weights"]} | {f"head.{name}": expected[name.replace(".", "_")] for name in names}
    assert_same_gradient(gradient(data, weights, module, train_head=True), renamed)


@every_case
def test_every_case(case: Case) -> None:
    data = case.data
    weights = 0.5 * normal(24, *data.batch_shape, data.d, data.dq)
    expected = autograd(
        lambda weights: plain_risk(data, weights, lambda x: (x * data.head.unsqueeze(-2)).sum(-1)), weights=weights
    )["weights"]
    found = gradient(data, weights)["weights"].tensor()
    # Where the true gradient is zero (one token, a zero query) ours is exactly zero.
    if not expected.abs().max() > 1e-15:
        assert found.abs().max() == 0
    else:
        assert (found - expected).norm() <= 1e-12 * expected.norm()


def test_starts_and_batches_are_independent() -> None:
    data = random_sphere(n=3, T=4, d=3, batch=(2, 2), seed=5)
    weights = normal(25, 3, 2, 2, 3, 3)
    together = gradient(data, weights)["weights"]
    assert together.mantissa.shape == weights.shape
    for start in range(3):
        for i in range(2):
            for j in range(2):
                alone = gradient(data[i, j], weights[start, i, j])["weights"].tensor()
                assert torch.allclose(together.tensor()[start, i, j], alone, rtol=1e-13, atol=1e-18)


def test_one_head_per_data_set() -> None:
    data = random_sphere(n=3, T=4, d=3, batch=3, seed=6)
    weights, matrices, vectors = normal(26, 3, 3, 3), normal(27, 3, 3, 2), normal(28, 3, 3)
    penalties = torch.tensor([0.1, 0.5, 2.0], dtype=torch.float64)
    for make in (
        lambda at: ReluHead(matrices[at]),
        lambda at: QuadraticHead(vectors[at], penalties[at]),
        lambda at: LinearHead(vectors[at]),
    ):
        together = gradient(data, weights, make(slice(None)))["weights"].tensor()
        for element in range(3):
            alone = gradient(data[element], weights[element], make(element))["weights"].tensor()
            assert torch.allclose(together[element], alone, rtol=1e-13, atol=1e-18)


def test_float32_follows_float64() -> None:
    data = random_sphere(n=3, T=4, d=3, seed=7)
    weights = normal(29, 3, 3)
    single = gradient(data.to(dtype=torch.float32), weights.float())["weights"].tensor()
    assert single.dtype == torch.float32
    assert torch.allclose(single.double(), gradient(data, weights)["weights"].tensor(), rtol=1e-4, atol=1e-6)
