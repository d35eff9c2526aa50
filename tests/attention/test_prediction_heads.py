"""Prediction heads along the batch: indexed, flattened, broadcast and moved like the data they belong to."""

from __future__ import annotations

import pytest
import torch

from attsvm.attention import Head, LinearHead, ModuleHead, QuadraticHead, ReluHead

BATCH, N, DV = (3, 4), 5, 2


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape)))


def module_head(*batch: int) -> ModuleHead:
    module = torch.nn.Sequential(torch.nn.Linear(DV, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1)).double()
    shapes = {f"head.{name}": value.shape for name, value in module.named_parameters()}
    return ModuleHead(module).with_parameters({name: normal(*batch, *shape) for name, shape in shapes.items()})


def heads(*batch: int) -> dict[str, Head]:
    penalty = normal(*batch).abs() if batch else torch.tensor(0.3, dtype=torch.float64)
    return {
        "linear": LinearHead(normal(*batch, DV)),
        "relu": ReluHead(normal(*batch, DV, 3)),
        "quadratic": QuadraticHead(normal(*batch, DV), penalty),
        "quadratic, one penalty": QuadraticHead(normal(*batch, DV), 0.3),
        "quadratic, one vector": QuadraticHead(normal(DV), penalty),
        "module": module_head(*batch),
    }


def assert_same(head: Head, values: torch.Tensor, output: torch.Tensor, gradient: torch.Tensor) -> None:
    assert torch.allclose(head.output(values), output, rtol=1e-14, atol=1e-14)
    assert torch.allclose(head.input_gradient(values), gradient, rtol=1e-14, atol=1e-14)


every_head = pytest.mark.parametrize("kind", heads())


@every_head
@pytest.mark.parametrize(
    "index",
    [
        1,
        -1,
        slice(1, None),
        (2, 3),
        (slice(None), 0),
        (..., 1),
        None,
        torch.tensor([2, 0, 2]),
        [True, False, True],
        (torch.tensor([0, 2]), torch.tensor([3, 3])),
    ],
    ids=str,
)
def test_a_head_is_indexed_like_its_data(kind: str, index: object) -> None:
    head, values = heads(*BATCH)[kind], normal(*BATCH, N, DV)
    output, gradient = head.output(values), head.input_gradient(values)
    within = torch.tensor(index) if isinstance(index, list) else index
    if within == (..., 1):
        within = (slice(None), 1)
    assert_same(head[index], values[within], output[within], gradient[within])


@every_head
def test_a_head_that_serves_all_data_sets_stays(kind: str) -> None:
    head, values = heads()[kind], normal(*BATCH, N, DV)
    output, gradient = head.output(values), head.input_gradient(values)
    assert_same(head[1, 2], values, output, gradient)
    assert_same(head.flatten(), values, output, gradient)


def test_a_module_without_parameters_of_its_own_for_each_data_set_stays_the_same_object() -> None:
    head = ModuleHead(torch.nn.Linear(DV, 1).double())
    assert head[7] is head
    assert head.flatten() is head


@every_head
def test_an_index_outside_the_batch_is_an_error(kind: str) -> None:
    with pytest.raises(IndexError, match=r"index 3 does not fit the batch of shape \[3, 4\]"):
        heads(*BATCH)[kind][3]
    with pytest.raises(IndexError, match=r"does not fit the batch of shape \[3, 4\]"):
        heads(*BATCH)[kind][0, 0, 0]


@every_head
def test_heads_are_not_iterated(kind: str) -> None:
    with pytest.raises(TypeError, match="not iterable"):
        list(heads()[kind])  # type: ignore[call-overload]


@every_head
def test_flatten_and_broadcast(kind: str) -> None:
    head, values = heads(*BATCH)[kind], normal(*BATCH, N, DV)
    output, gradient = head.output(values), head.input_gradient(values)
    assert_same(head.flatten(), values.flatten(0, 1), output.flatten(0, 1), gradient.flatten(0, 1))
    assert_same(head.broadcast(BATCH), values, output, gradient)
    shared = heads()[kind]
    assert_same(
        shared.broadcast(BATCH)[2, 1], values[2, 1], shared.output(values[2, 1]), shared.input_gradient(values[2, 1])
    )


@every_head
def test_another_precision_leaves_the_head_itself_unchanged(kind: str) -> None:
    head = heads(*BATCH)[kind]
    single = head.to(dtype=torch.float32)
    assert {value.dtype for value in single.parameters().values()} == {torch.float32}
    assert {value.dtype for value in head.parameters().values()} == {torch.float64}
    values = normal(*BATCH, N, DV)
    assert torch.allclose(single.output(values.float()).double(), head.output(values), rtol=1e-4, atol=1e-5)
