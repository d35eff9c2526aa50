from __future__ import annotations

import pytest
import torch

import attsvm
from attsvm.experiments.naive import naive_descent


def start(name):
    return attsvm.data.starting_points(name).weights[..., 0]


@pytest.mark.parametrize("name", ["single-input-global", "single-input-local", "multi-input"])
def test_it_agrees_with_the_exact_descent_while_nothing_saturates(name):
    data = attsvm.data.example(name)
    naive, _ = naive_descent(data, start(name), steps=60, record=[0, 60])
    exact = attsvm.fit(data, initial=start(name)[..., None], steps=60, engine=attsvm.descent.TorchEngine())
    assert torch.equal(naive[0], start(name))
    assert torch.allclose(naive[1], exact.weights[..., 0], atol=1e-3)


@pytest.mark.parametrize("loss", [attsvm.attention.Linear(), attsvm.Logistic(), attsvm.Exponential()])
def test_every_loss_takes_the_exact_first_steps(loss):
    data = attsvm.data.example("loss-comparison", C=3.0)
    naive, _ = naive_descent(data, torch.zeros(2).double(), steps=5, record=[5], loss=loss)
    exact = attsvm.fit(data, initial="zeros", steps=5, loss=loss, engine=attsvm.descent.TorchEngine())
    assert torch.allclose(naive[0], exact.weights[:, 0], atol=1e-5)


def test_heads_are_trained_beside_prompts():
    data, starts = attsvm.data.example("joint-training-tight"), attsvm.data.starting_points("joint-training-tight")
    naive, heads = naive_descent(data, starts.weights[0, :, 0], steps=30, record=[30], initial_head=starts.head[0])
    exact = attsvm.fit(
        data, starts.head[0], initial=starts.weights[0], steps=30, train_head=True, engine=attsvm.descent.TorchEngine()
    )
    assert torch.allclose(naive[0], exact.weights[:, 0], atol=1e-3)
    assert torch.allclose(heads[0], exact.parameters["head"], atol=1e-3)


def test_it_needs_a_head():
    data = attsvm.data.example("joint-training-tight")
    with pytest.raises(ValueError, match="give initial_head"):
        naive_descent(data, torch.zeros(2).double(), steps=1, record=[0])


def test_far_out_its_steps_fade():
    # 1 - s falls below 1e-16 at a logit lead of 40: in float32 the gradient is then zero, and p stays where it is.
    data = attsvm.data.example("loss-comparison")
    far, _ = naive_descent(data, torch.tensor([100.0, 0.0]).double(), steps=50, record=[50])
    assert far[0].tolist() == [100.0, 0.0]
