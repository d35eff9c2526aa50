"""What training refuses, and in which words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from attsvm import (
    Adam,
    GradientDescent,
    KeyQuery,
    MaxEntry,
    MirrorDescent,
    NormalizedGradientDescent,
    NormalizedMirrorDescent,
    PolyakDescent,
    ReluHead,
    SteepestDescent,
    TokenDataset,
    fit,
)
from attsvm.data import random_sphere
from attsvm.descent import (
    Constant,
    Geometric,
    InverseSqrt,
    Lion,
    LipschitzStep,
    NewtonSchulzDescent,
    Saturated,
    Settled,
)

DATA = random_sphere(n=4, T=5, d=4, dq=3, batch=2, seed=1)
MAKERS = (
    GradientDescent,
    NormalizedGradientDescent,
    Adam,
    PolyakDescent,
    InverseSqrt,
    Constant,
    lambda size: SteepestDescent(MaxEntry(), size),
    lambda size: MirrorDescent(3.0, size),
    lambda size: NormalizedMirrorDescent(3.0, size),
    lambda size: Geometric(size, 1.1),
)


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("size", [0, 0.0, -0.1, float("nan"), float("inf"), "0.1", None, True])
def test_step_sizes(make: Any, size: Any) -> None:
    with pytest.raises(ValueError, match="step_size must be a positive finite number; got"):
        make(size)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Geometric(0.1, 0.0), "growth must be a positive finite number; got 0.0"),
        (lambda: Geometric(0.1, 1.1, largest=-1.0), "largest must be a positive finite number; got -1.0"),
        (lambda: LipschitzStep(0), "fraction must be a positive finite number; got 0"),
        (lambda: SteepestDescent(MaxEntry(), 0.1, momentum=1.0), r"momentum must lie in \[0, 1\); got 1.0"),
        (lambda: SteepestDescent(MaxEntry(), 0.1, momentum=-0.1), r"momentum must lie in \[0, 1\); got -0.1"),
        (
            lambda: SteepestDescent("spectral", 0.1),
            r"norm must be a norm such as Spectral\(\) or MaxEntry\(\); got 'spectral'",
        ),
        (lambda: SteepestDescent(MaxEntry, 0.1), r"norm must be a norm such as Spectral\(\)"),
        (lambda: MirrorDescent(1.0), r"p must .*, as in MirrorDescent\(p=3, step_size=0.1\); got 1.0"),
        (lambda: MirrorDescent(float("inf"), 0.1), "p must"),
        (lambda: Adam(0.1, weight_decay=-0.1), "weight_decay must be finite and not negative; got -0.1"),
        (lambda: GradientDescent(0.1, clip=0.0), "clip must be"),
        (lambda: NewtonSchulzDescent(0.1, iterations=0), "iterations must be"),
        (lambda: NewtonSchulzDescent(0.1, coefficients=(1.0, 2.0)), "coefficients must be three numbers"),
        (lambda: Lion(0.1, beta2=1.0), r"beta2 must lie in \[0, 1\); got 1.0"),
        (lambda: Adam(0.1, beta1=1.0), r"beta1 must lie in \[0, 1\); got 1.0"),
        (lambda: Adam(0.1, beta2=-1), r"beta2 must lie in \[0, 1\); got -1"),
        (lambda: Adam(0.1, epsilon="none"), "epsilon must be finite and not negative; got 'none'"),
        (lambda: Adam(0.1, beta1=None), r"beta1 must lie in \[0, 1\); got None"),
        (lambda: Adam(0.1, weight_decay="0.1"), "weight_decay must be finite and not negative; got '0.1'"),
        (lambda: Adam(0.1, epsilon=-1e-8), "epsilon must be finite and not negative; got -1e-08"),
        (
            lambda: PolyakDescent(1.0, largest_displacement=0),
            "largest_displacement must be a positive finite number; got 0",
        ),
        (lambda: Saturated(tolerance=1), "tolerance must be below 1; got 1"),
        (lambda: Saturated(tolerance=0), "tolerance must be a positive finite number; got 0"),
        (lambda: Saturated(every=0), "every must be a positive integer; got 0"),
        (lambda: Saturated(every=True), "every must be a positive integer; got True"),
        (lambda: Settled(growth=1.0), "growth must be above 1; got 1.0"),
        (lambda: Settled(tolerance=-1.0), "tolerance must be a positive finite number; got -1.0"),
    ],
)
def test_optimizers_schedules_and_rules(make: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()


NAN = torch.full((4, 3), torch.nan, dtype=torch.float64)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"steps": -1}, "steps must be a non-negative integer; got -1"),
        ({"steps": 2.5}, "steps must be a non-negative integer; got 2.5"),
        ({"steps": True}, "steps must be a non-negative integer; got True"),
        ({"record": 0}, "record must be a positive number of steps or a sequence of steps; got 0"),
        ({"record": -5}, "record must be a positive number of steps or a sequence of steps; got -5"),
        ({"record": "all"}, "record must be a positive number of steps or a sequence of steps; got 'all'"),
        ({"record": 2.5}, "record must be a positive number of steps or a sequence of steps; got 2.5"),
        ({"record": [0, 99]}, "record must hold whole numbers of steps from 0 to 10; got 99"),
        ({"record": [-1]}, "record must hold whole numbers of steps from 0 to 10; got -1"),
        ({"record": [0, 1.5]}, "record must hold whole numbers of steps from 0 to 10; got 1.5"),
        ({"keep": ["risks"]}, "keep must name some of risk, norm, attention, weights, parameters; got 'risks'"),
        ({"keep": "risk"}, "keep must name some of .*; got the string 'risk' where a tuple of names is due"),
        ({"keep": [3]}, "keep must name some of .*; got 3"),
        ({"optimizer": "ngd"}, r"optimizer must be an optimizer such as GradientDescent\(0.1\); got 'ngd'"),
        ({"optimizer": "adam"}, r"got 'adam'; did you mean Adam\(...\)\?$"),
        ({"optimizer": GradientDescent}, r"got GradientDescent; did you mean GradientDescent\(...\)\?$"),
        ({"device": "gpu"}, "device must be cpu, cuda or cuda:N; got 'gpu'"),
        ({"device": "cuda:77"}, "device cuda:77 is not there: PyTorch finds .* on this machine; use cpu"),
        ({"optimizer": 0.1}, r"optimizer must be an optimizer such as GradientDescent\(0.1\); got 0.1"),
        ({"parameterization": "kq"}, r"parameterization must be Weights\(\) or KeyQuery\(rank\); got 'kq'"),
        (
            {"loss": "logistic"},
            r"loss must be Logistic\(\), Exponential\(\), Linear\(\), Log\(\) or a function of the margin",
        ),
        ({"loss": 0}, r"loss must be Logistic\(\)"),
        ({"loss": lambda m: m**2}, "loss must decrease with the margin"),
        ({"stop": "saturated"}, r"stop must be a rule such as Saturated\(\) or Settled\(\); got 'saturated'"),
        ({"engine": "torch"}, r"engine must be an engine such as TorchEngine\(\); got 'torch'"),
        ({"resume": "run.npz"}, r"resume must be a Run, for example Run.load\(path\); got 'run.npz'"),
        ({"batch_size": 0}, "batch_size must be an integer from 1 to n = 4; got 0"),
        ({"batch_size": 5}, "batch_size must be an integer from 1 to n = 4; got 5"),
        ({"batch_size": 1.5}, "batch_size must be an integer from 1 to n = 4; got 1.5"),
        ({"starts": 0}, "starts must be a positive integer or None; got 0"),
        ({"starts": 1.5}, "starts must be a positive integer or None; got 1.5"),
        (
            {"starts": 2, "initial": np.zeros((3, 2, 4, 3))},
            "starts is 2, but initial holds 3 of them; leave starts out",
        ),
        ({"seed": -1}, "seed must be an integer of at least 0"),
        ({"seed": [1, 2, 3]}, "seed must have one entry for each .*; got 3"),
        ({"initial": "ones"}, "initial must be 'zeros', a tensor or a mapping of tensors; got 'ones'"),
        ({"initial": 1.0}, "initial must be 'zeros', a tensor or a mapping of tensors; got 1.0"),
        (
            {"initial": np.zeros((3, 4))},
            r"initial weights must have shape \[4, 3\] \(for one data set, .*\); got \[3, 4\]",
        ),
        ({"initial": np.zeros((3, 4, 3))}, r"initial weights must have shape .*; got \[3, 4, 3\]"),
        ({"initial": np.zeros((0, 2, 4, 3))}, r"initial weights must have shape .*; got \[0, 2, 4, 3\]"),
        ({"initial": np.zeros(3)}, r"initial weights must have shape .*; got \[3\]"),
        (
            {"initial": np.zeros((4, 3), dtype=np.float32)},
            "initial weights must be float64 on cpu, like the data; got float32 on cpu",
        ),
        (
            {"initial": torch.zeros(4, 3, dtype=torch.float64, device="meta")},
            "initial weights must be float64 on cpu, like the data; got float64 on meta",
        ),
        ({"initial": np.zeros((4, 3), dtype=int)}, "initial weights must be float32 or float64; got int64"),
        ({"initial": NAN}, "initial weights must be finite; got nan at row 0, column 0"),
        (
            {"initial": {"key": np.zeros((4, 2))}},
            "initial names 'key', which is not trained; the trained parameters are weights",
        ),
        (
            {"initial": np.zeros((4, 3)), "parameterization": KeyQuery(2)},
            r"initial of KeyQuery\(rank=2\) must be a mapping with key and query; got one array",
        ),
        (
            {"initial": "zeros", "parameterization": KeyQuery(2)},
            "initial key and query are both zero, a saddle that descent never leaves",
        ),
        (
            {
                "initial": {"key": np.ones((2, 2, 4, 2)), "query": np.ones((3, 2, 3, 2))},
                "parameterization": KeyQuery(2),
            },
            "initial query holds 3 starts, another parameter 2; they must agree",
        ),
        (
            {"head": ReluHead(np.ones((4, 2))), "optimizer": GradientDescent(LipschitzStep())},
            "lipschitz_bound needs a linear prediction head; got ReluHead",
        ),
        ({"loss": torch.neg, "optimizer": GradientDescent(LipschitzStep())}, "states no bounds"),
        (
            {"parameterization": KeyQuery(2), "optimizer": GradientDescent(LipschitzStep())},
            r"LipschitzStep\(\) bounds the gradient in W; it needs Weights\(\), got KeyQuery\(rank=2\)",
        ),
        (
            {"train_head": True, "optimizer": GradientDescent(LipschitzStep())},
            r"LipschitzStep\(\) bounds the gradient in W; it needs a fixed head",
        ),
        ({"head": np.ones(3)}, r"head must have shape \[4\] \(to fit the data, .*\); got \[3\]"),
        ({"head": np.ones(4, dtype=np.float32)}, "head must be float64 on cpu, like the data; got float32 on cpu"),
    ],
)
def test_fit(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        fit(DATA, **{"steps": 10, **options})


def test_a_head_is_needed() -> None:
    with pytest.raises(ValueError, match="a prediction head is needed: pass one, as LinearHead"):
        fit(TokenDataset(DATA.tokens, DATA.queries, DATA.labels), steps=1)


def test_data_must_be_a_data_set() -> None:
    with pytest.raises(ValueError, match="data must be a TokenDataset; got Tensor"):
        fit(DATA.tokens, steps=1)  # type: ignore[arg-type]


@pytest.mark.parametrize("zero", ["key", "query"])
def test_one_zero_factor_is_allowed(zero: str) -> None:
    run = fit(DATA, initial={zero: np.zeros((4 if zero == "key" else 3, 2))}, parameterization=KeyQuery(2), steps=3)
    assert run.weights.abs().max() > 0


def test_zero_factors_in_one_of_many_starts() -> None:
    key, query = np.ones((2, 2, 4, 2)), np.ones((2, 2, 3, 2))
    key[1, 0], query[1, 0] = 0, 0
    with pytest.raises(ValueError, match="both zero, a saddle"):
        fit(DATA, initial={"key": key, "query": query}, parameterization=KeyQuery(2), steps=3)


def test_an_empty_batch_and_counts_from_numpy() -> None:
    none = TokenDataset(np.zeros((0, 1, 2, 2)), np.zeros((0, 1, 2)), np.zeros((0, 1)), head=np.zeros((0, 2)))
    with pytest.raises(ValueError, match=r"data must hold at least one data set; its batch is \[0\]"):
        fit(none)
    run = fit(random_sphere(n=2, T=3, d=3, seed=0), steps=np.int64(4), record=np.int64(2))  # type: ignore[arg-type]
    assert (run.step, run.history.step.tolist()) == (4, [0, 2, 4])
