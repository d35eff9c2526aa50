"""Optimizers of PyTorch: against a plain loop of theirs, against ours far out, batched, resumed, and at underflow."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from attsvm import Adam, GradientDescent, KeyQuery, Run, TorchOptimizer, fit
from attsvm.attention import Parameterization, Weights
from attsvm.data import random_sphere
from attsvm.descent import InverseSqrt, LipschitzStep, NewtonSchulzDescent, Optimizer

from .reference import Rule, assert_close, descend, normal
from .test_optimizers import far_start

DATA = random_sphere(n=4, T=5, d=4, dq=3, batch=3, seed=1)
FACTORS = {"key": normal(3, 4, 2), "query": normal(4, 3, 2)}

RULES: dict[str, tuple[Any, dict[str, Any]]] = {
    "SGD": (torch.optim.SGD, {"lr": 0.3, "momentum": 0.9, "nesterov": True}),
    "SGD with L2": (torch.optim.SGD, {"lr": 0.3, "weight_decay": 0.1}),
    "Adam": (torch.optim.Adam, {"lr": 0.05}),
    "AMSGrad": (torch.optim.Adam, {"lr": 0.05, "amsgrad": True}),
    "AdamW": (torch.optim.AdamW, {"lr": 0.05, "weight_decay": 0.3}),
    "NAdam": (torch.optim.NAdam, {"lr": 0.05}),
    "RAdam": (torch.optim.RAdam, {"lr": 0.05}),
    "Adamax": (torch.optim.Adamax, {"lr": 0.05}),
    "Adagrad": (torch.optim.Adagrad, {"lr": 0.05}),
    "Adadelta": (torch.optim.Adadelta, {"lr": 1.0}),
    "RMSprop": (torch.optim.RMSprop, {"lr": 0.01, "momentum": 0.5, "centered": True}),
    "Rprop": (torch.optim.Rprop, {"lr": 0.01}),
    "Adafactor": (torch.optim.Adafactor, {"lr": 0.05}),
    "Muon": (torch.optim.Muon, {"lr": 0.05}),
}
every_rule = pytest.mark.parametrize("name", RULES)


def plain(make: Callable[[list[Tensor]], torch.optim.Optimizer]) -> Rule:
    def rule(step: int, w: Tensor, g: Tensor, memory: dict[str, Any]) -> Tensor:
        if "leaf" not in memory:
            memory["leaf"] = w.clone().requires_grad_(True)
            memory["optimizer"] = make([memory["leaf"]])
        memory["leaf"].grad = g.clone()
        memory["optimizer"].step()
        return memory["leaf"].detach().clone()

    return rule


@every_rule
@pytest.mark.parametrize("parameterization", [Weights(), KeyQuery(2)], ids=repr)
def test_a_batch_takes_the_steps_of_a_plain_loop(name: str, parameterization: Parameterization) -> None:
    factory, settings = RULES[name]
    start = {"weights": normal(2, 4, 3)} if parameterization == Weights() else FACTORS
    run = fit(
        DATA, optimizer=TorchOptimizer(factory, **settings), parameterization=parameterization, initial=start, steps=12
    )
    for element in range(3):
        expected = descend(DATA[element], plain(lambda leaves: factory(leaves, **settings)), start, 12)
        for key, value in expected.items():
            # bfloat16 rounds a gradient that differs in its last bit to another number now and then.
            assert_close(run.parameters[key][element], value, 1e-2 if name == "Muon" else 1e-9)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (Adam(0.1), TorchOptimizer(torch.optim.Adam, lr=0.1, eps=0.0)),
        (Adam(0.1, epsilon=1e-8), TorchOptimizer(torch.optim.Adam, lr=0.1)),
        (GradientDescent(1e3), TorchOptimizer(torch.optim.SGD, lr=1e3)),
    ],
    ids=["Adam", "Adam with epsilon", "SGD"],
)
def test_far_out_they_are_ours(ours: Optimizer, theirs: TorchOptimizer) -> None:
    """From norms 3, 300 and 1e4 on: gradients from 1 down to exp(-3000), each run at a scale of its own."""
    data = random_sphere(n=4, T=5, d=4, dq=3, seed=1)
    starts = torch.stack([far_start(norm) for norm in (3.0, 300.0, 1e4)])
    first, second = (fit(data, optimizer=each, initial=starts, steps=60) for each in (ours, theirs))
    ended = second.state["underflowed"]
    assert ended.tolist() == ([False] * 3 if "eps=0.0" in repr(theirs) else [False, False, True])
    for place in range(3):
        if not ended[place]:
            assert_close(second.weights[place] - starts[place], first.weights[place] - starts[place], 1e-6)
    if ended.any():
        assert any("underflow" in note for note in second.notes)
    else:
        assert len(set(second.state["torch_scale"].tolist())) == 3


def test_muon_far_out_still_moves_by_its_step() -> None:
    data = random_sphere(n=4, T=5, d=4, dq=3, seed=1)
    start = far_start(1e4)
    exact, theirs = (
        fit(data, optimizer=each, initial=start, steps=1).weights - start
        for each in (
            NewtonSchulzDescent(0.1, momentum=0.0),
            TorchOptimizer(torch.optim.Muon, lr=0.1, momentum=0.0, weight_decay=0.0, eps=0.0, nesterov=False,
                           adjust_lr_fn="match_rms_adamw"),
        )
    )  # fmt: skip
    assert_close(theirs / (0.2 * 2), exact, 0.1)


@pytest.mark.parametrize("name", ["Adam", "NAdam", "Muon", "SGD"])
def test_resumed_equals_uninterrupted(name: str) -> None:
    factory, settings = RULES[name]

    def go(steps: int, resume: Run | None = None) -> Run:
        optimizer = TorchOptimizer(factory, **{**settings, "lr": InverseSqrt(0.1)})
        return fit(DATA, optimizer=optimizer, parameterization=KeyQuery(2), steps=steps, resume=resume, batch_size=2)

    whole, parts = go(40), go(40, go(17))
    for key, value in {**whole.parameters, **whole.state}.items():
        assert {**parts.parameters, **parts.state}[key].equal(value), key
    with pytest.raises(ValueError, match="resume needs the same optimizer"):
        fit(DATA, optimizer=TorchOptimizer(factory, **settings, clip=3.0), resume=go(3), steps=4,
            parameterization=KeyQuery(2), batch_size=2)  # fmt: skip


def test_unknown_rules_end_at_underflow_and_say_so() -> None:
    data = random_sphere(n=4, T=5, d=4, dq=3, seed=1)
    starts = torch.stack([far_start(norm) for norm in (3.0, 1e4)])
    run = fit(data, optimizer=TorchOptimizer(torch.optim.Adafactor, lr=0.1), initial=starts, steps=5)
    assert run.steps_taken.tolist() == [5, 0]
    assert run.notes[0].startswith("1 of 2 runs met gradients whose squares underflow")
    assert "ends where gradients underflow" in run.configuration["optimizer"]


class Signs(torch.optim.Optimizer):
    """Someone's own rule, with a running mean."""

    def __init__(self, parameters: Any, lr: float) -> None:
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for leaf in self.param_groups[0]["params"]:
            mean = self.state[leaf].setdefault("mean", torch.zeros_like(leaf))
            mean.lerp_(leaf.grad, 0.1)
            leaf -= self.param_groups[0]["lr"] * mean.sign()
            self.grown(self.param_groups[0])

    def grown(self, group: dict[str, Any]) -> None:
        return None


class Growing(Signs):
    def grown(self, group: dict[str, Any]) -> None:
        group["lr"] *= 1.1


def test_a_rule_of_ones_own_may_name_its_powers() -> None:
    data = random_sphere(n=4, T=5, d=4, dq=3, seed=1)
    start = far_start(1e4)
    run = fit(data, optimizer=TorchOptimizer(Signs, lr=0.1, powers={"mean": 1}), initial=start, steps=20)
    assert float((run.weights - start).abs().max()) == pytest.approx(2.0)
    stopped = fit(data, optimizer=TorchOptimizer(Signs, lr=0.1), initial=start, steps=20)
    assert stopped.weights.equal(start)
    with pytest.raises(ValueError, match="Growing changes its setting lr as it goes"):
        fit(data, optimizer=TorchOptimizer(Growing, lr=0.1), steps=3)


def test_what_was_run_is_said() -> None:
    said = repr(TorchOptimizer(torch.optim.Muon, lr=0.02))
    assert "weight_decay=0.1" in said
    assert said.endswith("; one data set after the other, orthogonalizes in bfloat16)")
    assert repr(TorchOptimizer(torch.optim.Adam)).endswith("; one optimizer for all data sets)")
    changed = dataclasses.replace(TorchOptimizer(torch.optim.Muon, lr=0.02), step_size=0.5, weight_decay=0.0)
    assert "lr=0.5, weight_decay=0.0" in repr(changed)
    assert dataclasses.replace(TorchOptimizer(torch.optim.Rprop, lr=0.02), step_size=0.5).step_size == 0.5


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: TorchOptimizer(torch.optim.LBFGS), "steps without a closure"),
        (lambda: TorchOptimizer(torch.optim.Adam, beta=3), "unexpected keyword"),
        (lambda: TorchOptimizer("adam"), "must make an optimizer of PyTorch"),
        (lambda: TorchOptimizer(len), "must make an optimizer of PyTorch"),
        (lambda: TorchOptimizer(torch.optim.Adam, lr=-1.0), "step_size must be"),
        (lambda: fit(DATA, optimizer=TorchOptimizer(torch.optim.SGD, lr=LipschitzStep())), "one for each"),
    ],
)
def test_refusals(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()
