"""What theory says of whole runs: p and W are one problem; normalized descent goes on for ever."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from attsvm import (
    Frobenius,
    GradientDescent,
    MaxEntry,
    NormalizedGradientDescent,
    Run,
    SteepestDescent,
    TokenDataset,
    direction_cosine,
    fit,
    optimal_tokens,
)
from attsvm.data import random_sphere
from attsvm.descent import CompiledEngine, Engine, Geometric, TorchEngine
from attsvm.norms import direction_distance

from .reference import assert_close, normal

every_engine = pytest.mark.parametrize("engine", [TorchEngine(), CompiledEngine()], ids=["torch", "compiled"])


def one_query(u: np.ndarray) -> tuple[TokenDataset, TokenDataset]:
    """The same inputs twice: logits X W^T u with W trained (tokens X, query u for all), and X p with p trained.

    Our W is their transpose: logits x^T W u, so p = W u.
    """
    data = random_sphere(n=4, T=5, d=3, seed=1)
    tokens, labels, head = data.tokens, data.labels, data.head
    queries = np.broadcast_to(u, (4, len(u))).copy()
    return (
        TokenDataset(tokens, queries, labels, head=head),
        TokenDataset.prompt(tokens, labels, head=head),
    )


@every_engine
@pytest.mark.parametrize("normalized", [False, True], ids=["plain", "normalized"])
def test_descent_on_p_and_on_W_is_one_path(engine: Engine, normalized: bool) -> None:
    u = np.array([0.7, -1.9, 0.4, 2.2])
    size = float(np.linalg.norm(u))
    with_weights, with_prompt = one_query(u)
    start = normal(3, 3, 4)
    rule = NormalizedGradientDescent if normalized else GradientDescent
    step = 0.1
    trained_w = fit(
        with_weights,
        optimizer=rule(step / size if normalized else step / size**2),
        initial=start,
        steps=200,
        record=1,
        engine=engine,
    )
    prompt = start @ torch.from_numpy(u)[:, None]
    trained_p = fit(with_prompt, optimizer=rule(step), initial=prompt, steps=200, record=1, engine=engine)
    followed = trained_w.history.weights @ torch.from_numpy(u)[:, None]
    for w, p in zip(followed, trained_p.history.weights, strict=True):
        assert_close(w, p)
    assert trained_p.norm > prompt.norm() if normalized else True


def test_other_steps_break_the_equivalence() -> None:
    u = np.array([0.7, -1.9, 0.4, 2.2])
    with_weights, with_prompt = one_query(u)
    start = normal(3, 3, 4)
    w = (
        fit(with_weights, optimizer=GradientDescent(0.1), initial=start, steps=50).weights
        @ torch.from_numpy(u)[:, None]
    )
    p = fit(with_prompt, optimizer=GradientDescent(0.1), initial=start @ torch.from_numpy(u)[:, None], steps=50).weights
    assert (w - p).norm() > 1e-3 * p.norm()


DECADES = (1e2, 1e3, 1e4, 1e5)


def test_continuation() -> None:
    """n = 6, T = 8, d = 10, 100 data sets: norms beyond 1e5, attention of 1, a direction that keeps settling.

    Steps grow to 20 and no further: a step hops between support rows and turns W by about step / ||W||, so that steps
    in proportion to the norm would keep the direction at a constant distance from its limit (the next test).
    """
    data = random_sphere(n=6, T=8, d=10, batch=100, seed=0)
    run = fit(
        data,
        optimizer=NormalizedGradientDescent(Geometric(0.05, 1.005, largest=20.0)),
        steps=24_000,
        record=25,
        keep=["norm", "weights"],
    )
    assert_far_and_finite(run)
    angles = decade_angles(run.history.norm, run.history.weights)
    medians = np.median(angles, axis=1)
    print("median angle between successive decades", dict(zip(DECADES[1:], medians, strict=True)))
    assert (medians[1:] < medians[:-1] / 3).all()
    assert (angles[1:] < angles[:-1]).mean() > 0.95


@pytest.mark.parametrize(
    ("engine", "batch", "steps", "growth"),
    [(CompiledEngine(), 100, 5200, 1.002), (TorchEngine(), 10, 1200, 1.01)],
    ids=["compiled", "torch"],
)
def test_steps_in_proportion_to_the_norm_go_far_but_stop_settling(
    engine: Engine, batch: int, steps: int, growth: float
) -> None:
    data = random_sphere(n=6, T=8, d=10, batch=batch, seed=0)
    optimizer = NormalizedGradientDescent(Geometric(0.05, growth))
    run = fit(data, optimizer=optimizer, steps=steps, record=10, keep=["norm", "weights"], engine=engine)
    assert_far_and_finite(run)
    medians = np.median(decade_angles(run.history.norm, run.history.weights), axis=1)
    assert medians[1] < medians[0] / 2
    assert medians[2] > medians[1] / 3


def assert_far_and_finite(run: Run) -> None:
    """Every norm beyond 1e5, no NaN, and attention of exactly 1 on the selected tokens."""
    assert bool(torch.isfinite(run.weights).all())
    assert bool((run.norm > 1e5).all())
    assert bool((run.attention.gather(-1, run.selected.unsqueeze(-1)) == 1.0).all())
    assert not run.overflowed.any()


def decade_angles(norms: torch.Tensor, weights: torch.Tensor) -> np.ndarray:
    """Angle between the iterates where the norm first passes one decade and the next: ``[decades - 1, batch]``."""
    at = [(norms >= decade).to(torch.int64).argmax(0) for decade in DECADES]
    batch = torch.arange(norms.shape[1])
    points = [weights[row, batch] for row in at]
    return np.array(
        [torch.acos((1 - direction_distance(a, b)).clamp(-1, 1)).numpy() for a, b in itertools.pairwise(points)]
    )


def test_decade_angles_can_see_a_turn() -> None:
    norms = torch.tensor([[1.0], [1e2], [1e3], [1e4], [1e5]])
    turn = [0.0, 0.0, 0.5, 0.5, 0.6]
    weights = torch.stack(
        [
            n * torch.tensor([[[np.cos(angle)], [np.sin(angle)]]], dtype=torch.float64)
            for n, angle in zip(norms, turn, strict=True)
        ]
    )
    assert np.allclose(decade_angles(norms, weights)[:, 0], [0.5, 0.0, 0.1], atol=1e-7)


def test_normalized_descent_tends_to_the_max_margin_direction() -> None:
    """Where it selects the optimal tokens; with the gradient of autograd it would stop at 1e-3 or so [saturation]."""
    from attention.reference import max_margin

    data = random_sphere(n=6, T=8, d=10, batch=20, seed=0)
    run = fit(data, optimizer=NormalizedGradientDescent(Geometric(0.05, 1.002)), steps=5000, keep=[])
    best = [b for b in range(20) if run.selected[b].equal(optimal_tokens(data)[b])]
    assert len(best) >= 5
    for b in best:
        expected = max_margin(data[b], run.selected[b])
        assert direction_distance(run.weights[b], expected) < 1e-4
        assert direction_cosine(run.weights[b], expected) > 1 - 1e-4


@pytest.mark.parametrize(
    "optimizer",
    [
        SteepestDescent(MaxEntry(), Geometric(0.01, 1.01)),
        SteepestDescent(Frobenius(), Geometric(0.05, 1.01), momentum=0.9),
    ],
    ids=repr,
)
def test_other_rules_go_as_far(optimizer: object) -> None:
    data = random_sphere(n=6, T=8, d=10, batch=5, seed=0)
    run = fit(data, optimizer=optimizer, steps=1200, record=1200, keep=[])
    assert bool(torch.isfinite(run.weights).all())
    assert bool((run.norm > 1e4).all())
    assert bool((run.attention.amax(-1) == 1.0).all())
