"""Each optimizer against a plain loop: torch.optim where it has the rule, the formula otherwise."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from attsvm import (
    Adam,
    Entrywise,
    Exponential,
    Frobenius,
    GradientDescent,
    KeyQuery,
    Logistic,
    MaxEntry,
    MirrorDescent,
    NormalizedGradientDescent,
    NormalizedMirrorDescent,
    Nuclear,
    PolyakDescent,
    QuadraticHead,
    Spectral,
    SteepestDescent,
    SumEntry,
    TokenDataset,
    Weights,
    best_risk,
    fit,
    logits,
    optimal_tokens,
)
from attsvm.attention import Linear, Parameterization, evaluate
from attsvm.data import random_sphere
from attsvm.descent import (
    CompiledEngine,
    JointSteepestDescent,
    Lion,
    NewtonSchulzDescent,
    Optimizer,
    TorchEngine,
)
from attsvm.norms import LargestColumn, LargestRow, Norm

from .reference import Rule, assert_close, descend, normal

DATA = random_sphere(n=4, T=5, d=4, dq=3, seed=1)
START = {"weights": normal(2, 4, 3)}
FACTORS = {"key": normal(3, 4, 2), "query": normal(4, 3, 2)}
STEPS = 40


def test_comparison_can_fail() -> None:
    assert_close(torch.ones(2), torch.ones(2))
    with pytest.raises(AssertionError, match="relative error"):
        assert_close(torch.ones(2, dtype=torch.float64) * (1 + 1e-11), torch.ones(2, dtype=torch.float64))


# ------------------------------------------------------------ the rules, as formulas


def sign(x: Tensor, power: float) -> Tensor:
    return x.sign() * x.abs() ** power


def normalized(step: int, w: Tensor, g: Tensor, memory: dict[str, Tensor]) -> Tensor:
    return w - 0.1 * g / g.norm()


def polar(step: int, w: Tensor, g: Tensor, memory: dict[str, Tensor]) -> Tensor:
    u, _, v = torch.linalg.svd(g, full_matrices=False)
    return w - 0.1 * u @ v


def nuclear(step: int, w: Tensor, g: Tensor, memory: dict[str, Tensor]) -> Tensor:
    u, _, v = torch.linalg.svd(g, full_matrices=False)
    return w - 0.1 * torch.outer(u[:, 0], v[0])


def one_entry(step: int, w: Tensor, g: Tensor, memory: dict[str, Tensor]) -> Tensor:
    place = g.abs().argmax()
    move = torch.zeros_like(g).flatten()
    move[place] = g.flatten()[place].sign()
    return w - 0.1 * move.reshape(g.shape)


def entrywise(p: float) -> Rule:
    q = p / (p - 1)

    def rule(step: int, w: Tensor, g: Tensor, memory: dict[str, Tensor]) -> Tensor:
        return w - 0.1 * sign(g, q - 1) / (g.abs() ** q).sum() ** (1 / p)

    return rule


def with_momentum(beta: float, rule: Rule) -> Rule:
    def averaged(step: int, w: Tensor, g: Tensor, memory: dict[str, Tensor]) -> Tensor:
        memory["mean"] = beta * memory.get("mean", torch.zeros_like(g)) + (1 - beta) * g
        return rule(step, w, memory["mean"], memory)

    return averaged


def mirror(p: float) -> Rule:
    def rule(step: int, w: Tensor, g: Tensor, memory: dict[str, Tensor]) -> Tensor:
        return sign(sign(w, p - 1) - 0.1 * g, 1 / (p - 1))

    return rule


def normalized_mirror(p: float) -> Rule:
    q = p / (p - 1)

    def half_square(w: Tensor, r: float) -> Tensor:
        return sign(w, r - 1) * (w.abs() ** r).sum() ** (2 / r - 1)

    def rule(step: int, w: Tensor, g: Tensor, memory: dict[str, Tensor]) -> Tensor:
        dual = half_square(w, p) - 0.1 * g / (g.abs() ** q).sum() ** (1 / q)
        return half_square(dual, q)

    return rule


def rows(w: Tensor, g: Tensor, axis: int) -> Tensor:
    return w - 0.1 * g / g.norm(dim=axis, keepdim=True)


def newton_schulz(step: int, w: Tensor, g: Tensor, memory: dict[str, Tensor]) -> Tensor:
    """The odd polynomial a s + b s^3 + c s^5 of the singular values, applied five times."""
    u, sizes, v = torch.linalg.svd(g / g.norm(), full_matrices=False)
    for _ in range(5):
        sizes = 3.4445 * sizes - 4.7750 * sizes**3 + 2.0315 * sizes**5
    return w - 0.1 * u * sizes @ v


def lion(step: int, w: Tensor, g: Tensor, memory: dict[str, Tensor]) -> Tensor:
    mean = memory.get("mean", torch.zeros_like(g))
    memory["mean"] = 0.99 * mean + 0.01 * g
    return w - 0.1 * (0.9 * mean + 0.1 * g).sign()


def decayed(amount: float, rule: Rule) -> Rule:
    return lambda step, w, g, memory: rule(step, w, g, memory) - 0.1 * amount * w


RULES: list[tuple[Optimizer, Rule]] = [
    (GradientDescent(0.5), lambda step, w, g, memory: w - 0.5 * g),
    (NormalizedGradientDescent(0.1), normalized),
    (SteepestDescent(Frobenius(), 0.1), normalized),
    (SteepestDescent(MaxEntry(), 0.1), lambda step, w, g, memory: w - 0.1 * g.sign()),
    (SteepestDescent(Spectral(), 0.1), polar),
    (SteepestDescent(Nuclear(), 0.1), nuclear),
    (SteepestDescent(SumEntry(), 0.1), one_entry),
    (SteepestDescent(Entrywise(3), 0.1), entrywise(3)),
    (SteepestDescent(MaxEntry(), 0.1, momentum=0.9), with_momentum(0.9, lambda step, w, g, memory: w - 0.1 * g.sign())),
    (SteepestDescent(Spectral(), 0.1, momentum=0.8), with_momentum(0.8, polar)),
    (SteepestDescent(Frobenius(), 0.1, momentum=0.5), with_momentum(0.5, normalized)),
    (MirrorDescent(3.0, 0.1), mirror(3.0)),
    (MirrorDescent(1.5, 0.1), mirror(1.5)),
    (NormalizedMirrorDescent(3.0, 0.1), normalized_mirror(3.0)),
    (NormalizedMirrorDescent(1.2, 0.1), normalized_mirror(1.2)),
    (SteepestDescent(LargestRow(), 0.1), lambda step, w, g, memory: rows(w, g, 1)),
    (SteepestDescent(LargestColumn(), 0.1), lambda step, w, g, memory: rows(w, g, 0)),
    (NewtonSchulzDescent(0.1, momentum=0.0), newton_schulz),
    (NewtonSchulzDescent(0.1), with_momentum(0.95, newton_schulz)),
    (Lion(0.1), lion),
    (Lion(0.1, weight_decay=0.3), decayed(0.3, lion)),
    (GradientDescent(0.1, weight_decay=2.0), decayed(2.0, lambda step, w, g, memory: w - 0.1 * g)),
    (NormalizedMirrorDescent(3.0, 0.1, weight_decay=0.5), decayed(0.5, normalized_mirror(3.0))),
    (SteepestDescent(Spectral(), 0.1, momentum=0.8, weight_decay=1.0), decayed(1.0, with_momentum(0.8, polar))),
]


@pytest.mark.parametrize(
    ("optimizer", "rule"), RULES, ids=lambda value: repr(value) if isinstance(value, Optimizer) else ""
)
def test_weights(optimizer: Optimizer, rule: Rule) -> None:
    run = fit(DATA, optimizer=optimizer, initial=START, steps=STEPS, engine=TorchEngine())
    assert_close(run.weights, descend(DATA, rule, START, STEPS)["weights"], 1e-10)


# Normalized steps on factors amplify rounding once they oscillate (see test_compiled.py), so these are shorter.
@pytest.mark.parametrize(
    ("optimizer", "rule"), RULES, ids=lambda value: repr(value) if isinstance(value, Optimizer) else ""
)
def test_factors(optimizer: Optimizer, rule: Rule) -> None:
    run = fit(DATA, optimizer=optimizer, parameterization=KeyQuery(2), initial=FACTORS, steps=20, engine=TorchEngine())
    expected = descend(DATA, rule, FACTORS, 20)
    for name, value in expected.items():
        assert_close(run.parameters[name], value, 1e-9)
    assert_close(run.weights, expected["key"] @ expected["query"].mT, 1e-9)


@pytest.mark.parametrize(
    ("loss", "plain"),
    [
        (Logistic(), None),
        (Exponential(), lambda m: torch.exp(-m)),
        (Linear(), lambda m: -m),
        (lambda m: -torch.atan(m), lambda m: -torch.atan(m)),
    ],
    ids=["logistic", "exponential", "linear", "custom"],
)
def test_losses(loss: Any, plain: Callable[[Tensor], Tensor] | None) -> None:
    run = fit(DATA, optimizer=GradientDescent(0.5), loss=loss, initial=START, steps=STEPS, engine=TorchEngine())
    expected = descend(DATA, lambda step, w, g, memory: w - 0.5 * g, START, STEPS, plain)
    assert_close(run.weights, expected["weights"])


def test_trained_head() -> None:
    rule: Rule = lambda step, w, g, memory: w - 0.5 * g  # noqa: E731
    run = fit(DATA, optimizer=GradientDescent(0.5), initial=START, steps=STEPS, train_head=True)
    expected = descend(DATA, rule, {**START, "head": DATA.head}, STEPS)
    assert_close(run.parameters["weights"], expected["weights"])
    assert_close(run.parameters["head"], expected["head"])


# ------------------------------------------------------------------------ torch.optim


def torch_optim(make: Callable[[list[Tensor]], torch.optim.Optimizer], steps: int) -> Tensor:
    def rule(step: int, w: Tensor, g: Tensor, memory: dict[str, Any]) -> Tensor:
        if "leaf" not in memory:
            memory["leaf"] = w.clone().requires_grad_(True)
            memory["optimizer"] = make([memory["leaf"]])
        memory["leaf"].grad = g.clone()
        memory["optimizer"].step()
        return memory["leaf"].detach().clone()

    return descend(DATA, rule, START, steps)["weights"]


def test_gradient_descent_is_sgd() -> None:
    run = fit(DATA, optimizer=GradientDescent(0.3), initial=START, steps=STEPS)
    assert_close(run.weights, torch_optim(lambda leaves: torch.optim.SGD(leaves, lr=0.3), STEPS))


@pytest.mark.parametrize("epsilon", [1e-8, 1e-3])
def test_adam_is_adam(epsilon: float) -> None:
    run = fit(DATA, optimizer=Adam(0.05, beta1=0.8, beta2=0.95, epsilon=epsilon), initial=START, steps=STEPS)
    peer = torch_optim(lambda leaves: torch.optim.Adam(leaves, lr=0.05, betas=(0.8, 0.95), eps=epsilon), STEPS)
    assert_close(run.weights, peer, 1e-11)


def test_adam_without_epsilon_is_the_limit() -> None:
    run = fit(DATA, optimizer=Adam(0.05), initial=START, steps=STEPS)
    assert_close(run.weights, torch_optim(lambda leaves: torch.optim.Adam(leaves, lr=0.05, eps=1e-300), STEPS), 1e-11)


def test_adam_with_weight_decay_is_adamw() -> None:
    run = fit(DATA, optimizer=Adam(0.05, epsilon=1e-8, weight_decay=0.4), initial=START, steps=STEPS)
    assert_close(
        run.weights, torch_optim(lambda leaves: torch.optim.AdamW(leaves, lr=0.05, weight_decay=0.4), STEPS), 1e-11
    )


# ------------------------------------------------------------------- relations between them


@pytest.mark.parametrize("norm", [Frobenius(), Spectral(), MaxEntry()], ids=repr)
def test_joint_steps_are_steepest_in_the_norm_of_the_pair(norm: Norm) -> None:
    """One step has length .1 in (N(K)^2 + N(Q)^2)^(1/2) and lowers the risk at the pair's dual norm."""
    from attsvm.attention import gradient

    start = {name: value[None] for name, value in FACTORS.items()}
    run = fit(DATA, optimizer=JointSteepestDescent(norm, 0.1), parameterization=KeyQuery(2), initial=FACTORS, steps=1)
    moves = {name: (value[0] - run.parameters[name]) / 0.1 for name, value in start.items()}
    lengths = torch.stack([norm.value(move) for move in moves.values()])
    assert float(lengths.norm()) == pytest.approx(1, rel=1e-12)
    slopes = {name: each.tensor() for name, each in gradient(DATA, FACTORS, parameterization=KeyQuery(2)).items()}
    rate = sum(float((slopes[name] * move).sum()) for name, move in moves.items())
    dual = torch.stack([norm.dual_value(slope) for slope in slopes.values()]).norm()
    assert rate == pytest.approx(float(dual), rel=1e-12)


def test_joint_steps_on_one_matrix_are_blockwise_ones() -> None:
    joint, block = (
        fit(DATA, optimizer=kind(Spectral(), 0.1, 0.5), initial=START, steps=STEPS).weights
        for kind in (JointSteepestDescent, SteepestDescent)
    )
    assert_close(joint, block)


def test_decay_ends_the_growth_and_leaves_a_trained_head_alone() -> None:
    optimizer = SteepestDescent(Spectral(), 0.1, weight_decay=0.5)
    run = fit(DATA, optimizer=optimizer, initial=START, steps=400, keep=("norm",))
    assert float(Spectral().value(run.weights)) <= 2 + 1e-12
    plain, decayed_run = (
        fit(DATA, optimizer=GradientDescent(0.5, weight_decay=each), initial=START, steps=1, train_head=True)
        for each in (0.0, 0.3)
    )
    assert decayed_run.parameters["head"].equal(plain.parameters["head"])
    assert not decayed_run.weights.equal(plain.weights)


@pytest.mark.parametrize("parameterization", [Weights(), KeyQuery(2)], ids=repr)
def test_clip_holds_logits_at_its_threshold(parameterization: Parameterization) -> None:
    """A step first, then both factors by the root of tau over the largest |logit| before it (arXiv 2507.20534)."""
    data = random_sphere(n=3, T=4, d=4, dq=3, seed=5, batch=2)
    options: dict[str, Any] = {"parameterization": parameterization, "seed": 1, "record": 1, "engine": TorchEngine()}
    free = fit(data, optimizer=SteepestDescent(Spectral(), 0.3), steps=40, **options)
    held = fit(data, optimizer=SteepestDescent(Spectral(), 0.3, clip=2.0), steps=40, **options)
    size = [logits(data, weights).abs().amax((-1, -2)) for weights in held.history.weights]
    passed = [place for place, each in enumerate(size) if bool((each > 2).any())]
    assert held.history.weights[: passed[0] + 1].equal(free.history.weights[: passed[0] + 1])
    assert float(size[-1].max()) < 3 < float(logits(data, free.weights).abs().max())
    at = passed[0]
    again = fit(
        data, optimizer=SteepestDescent(Spectral(), 0.3), parameterization=parameterization, steps=1,
        initial=fit(data, optimizer=SteepestDescent(Spectral(), 0.3), steps=at, **options).parameters,
    )  # fmt: skip
    ratio = (2 / size[at].clamp(min=2))[:, None, None]
    assert_close(held.history.weights[at + 1], ratio * again.weights, 1e-10)


def test_options_are_shown_only_where_they_are_set() -> None:
    assert repr(Adam(0.1)) == "Adam(step_size=0.1, beta1=0.9, beta2=0.999, epsilon=0.0)"
    assert repr(GradientDescent(0.1, clip=5.0, weight_decay=0.2)) == (
        "GradientDescent(step_size=0.1, weight_decay=0.2, clip=5.0)"
    )


def test_a_run_says_why_it_was_not_compiled() -> None:
    said = fit(DATA, optimizer=NormalizedGradientDescent(0.1, clip=1.0), steps=1).engine
    assert said == "TorchEngine(), as CompiledEngine does not suit: it knows no QK-clip"
    assert fit(DATA, steps=1, engine=CompiledEngine()).engine == "CompiledEngine(threads=None)"
    assert fit(DATA, steps=1, engine=TorchEngine()).engine == "TorchEngine()"


def test_p_equal_2_mirror_is_gradient_descent() -> None:
    ours = fit(DATA, optimizer=MirrorDescent(2.0, 0.3), initial=START, steps=STEPS).weights
    assert_close(ours, fit(DATA, optimizer=GradientDescent(0.3), initial=START, steps=STEPS).weights)
    ours = fit(DATA, optimizer=NormalizedMirrorDescent(2.0, 0.1), initial=START, steps=STEPS).weights
    assert_close(ours, fit(DATA, optimizer=NormalizedGradientDescent(0.1), initial=START, steps=STEPS).weights, 1e-10)


def test_normalized_mirror_grows_by_its_step() -> None:
    run = fit(DATA, optimizer=NormalizedMirrorDescent(1.3, 0.5), initial="zeros", steps=200)
    size = Entrywise(1.3).value(run.weights).item()
    assert 50 < size <= 100 * (1 + 1e-9)


# ------------------------------------------------------------------------- far out


def far_start(norm: float) -> Tensor:
    """A point where gradients are far below 1e-308: a separating direction of the optimal tokens times `norm`."""
    from attention.reference import max_margin

    weights = max_margin(DATA, optimal_tokens(DATA))
    return norm * weights / weights.norm()


@pytest.mark.parametrize(
    "optimizer",
    [
        SteepestDescent(MaxEntry(), 0.1, momentum=0.9),
        SteepestDescent(Spectral(), 0.1, momentum=0.9),
        SteepestDescent(Frobenius(), 0.1, momentum=0.9),
        NewtonSchulzDescent(0.1),
        JointSteepestDescent(LargestRow(), 0.1),
        Lion(0.1),
        Adam(0.1),
    ],
    ids=repr,
)
def test_memory_outlives_the_smallest_float(optimizer: Optimizer) -> None:
    """At norm 1e4 the gradient is about exp(-3000); every step still has the size of a step."""
    start = far_start(1e4)
    run = fit(DATA, optimizer=optimizer, initial=start, steps=30, record=1)
    assert run.history.weights is not None
    moves = run.history.weights.diff(dim=0)
    sizes = torch.linalg.matrix_norm(moves) if not isinstance(optimizer, Adam) else moves.abs().amax((-1, -2))
    assert bool((sizes > 0.05).all())
    assert bool(torch.isfinite(run.weights).all())


def test_momentum_of_tiny_gradients_is_the_running_mean() -> None:
    """With entries of the optimizer's state put together in logarithms, the mean is the formula's."""
    start = far_start(5e3)
    optimizer = SteepestDescent(Frobenius(), 0.5, momentum=0.9)
    run = fit(DATA, optimizer=optimizer, initial=start, steps=12, record=1)
    from attsvm.attention import gradient

    assert run.history.weights is not None
    each = [gradient(DATA, weights)["weights"] for weights in run.history.weights[:-1]]
    top = max(float(part.log_norm()) for part in each)
    mean = sum(
        (0.1 * 0.9 ** (11 - t) * part.mantissa * math.exp(float(part.log_scale) - top) for t, part in enumerate(each)),
        torch.zeros_like(start),
    )
    kept = run.state["mean/weights"] * torch.exp(run.state["mean_scale/weights"] - top)
    assert top < -1000
    assert_close(kept, mean, 1e-11)


def test_plain_gradient_descent_stands_still_where_its_gradient_underflows() -> None:
    start = far_start(1e4)
    for engine in (TorchEngine(), CompiledEngine()):
        run = fit(DATA, optimizer=GradientDescent(1.0), initial=start, steps=5, engine=engine)
        assert run.weights.equal(start)
        assert not run.stalled.any()


# --------------------------------------------------------------------------- Polyak


def test_polyak_is_its_formula() -> None:
    best = best_risk(DATA)

    def rule(step: int, w: Tensor, g: Tensor, memory: dict[str, Tensor]) -> Tensor:
        move = 0.7 * (evaluate(DATA, w).risk - best) / g.norm() ** 2 * g
        return w - move * min(1.0, 2.0 / float(move.norm()))

    run = fit(DATA, optimizer=PolyakDescent(0.7, largest_displacement=2.0), initial=START, steps=10)
    assert_close(run.weights, descend(DATA, rule, START, 10)["weights"], 1e-9)


def log_excess(data: TokenDataset, weights: Tensor) -> float:
    """log(L - L_*) for one far-out W, from the shortfalls of each input and the slope of the loss at its best score."""
    from attsvm import token_scores

    scores = token_scores(data)
    best = scores.amax(-1, keepdim=True)
    shortfall = (evaluate(data, weights).log_attention + (best - scores).log()).logsumexp(-1)
    return float((shortfall + torch.nn.functional.logsigmoid(-best.squeeze(-1))).logsumexp(-1)) - math.log(data.n)


def test_polyak_decreases_the_log_excess_linearly() -> None:
    """From inside the margin cone the logarithm falls by about the same amount each step, far below 1e-308."""
    run = fit(DATA, optimizer=PolyakDescent(), initial=far_start(1500.0), steps=1000, record=200)
    assert run.history.weights is not None
    logs = np.array([log_excess(DATA, weights) for weights in run.history.weights])
    falls = -np.diff(logs)
    assert logs[-1] < -745
    assert falls.min() > 0
    assert falls[1:].max() < 1.5 * falls[1:].min()


def test_polyak_needs_a_fixed_linear_head() -> None:
    words = "PolyakDescent needs a fixed linear head, whose best risk is known; use NormalizedGradientDescent instead"
    for arguments in ({"head": QuadraticHead(DATA.head, 0.1)}, {"train_head": True}):
        with pytest.raises(ValueError, match=words):
            fit(DATA, optimizer=PolyakDescent(), steps=1, **arguments)


def test_polyak_is_capped_on_locally_optimal_selections() -> None:
    """L - L_* stays positive while the gradient vanishes: each step is at most the cap, and nothing overflows."""
    data = random_sphere(n=4, T=5, d=4, batch=30, seed=3)
    run = fit(data, optimizer=PolyakDescent(largest_displacement=3.0), steps=300, record=1)
    assert run.history.weights is not None
    moves = torch.linalg.matrix_norm(run.history.weights.diff(dim=0))
    assert moves.max() <= 3.0 * (1 + 1e-12)
    assert bool(torch.isfinite(run.weights).all())
    assert not bool(run.overflowed.any())
