"""The law of growth: exact where a closed form exists, followed by runs, and never passed where it is a bound."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch

import attsvm
from attsvm.data import TokenDataset, random_sphere
from attsvm.descent import (
    Constant,
    InverseSqrt,
    JointSteepestDescent,
    NewtonSchulzDescent,
    NormalizedMirrorDescent,
    Optimizer,
    SteepestDescent,
)
from attsvm.descent.fingerprint import setting_object
from attsvm.norms import Frobenius, LargestColumn, LargestRow, MaxEntry, Nuclear, Spectral

SMALL = InverseSqrt(0.3)
ON_FACTORS = {
    "gradient": attsvm.NormalizedGradientDescent(SMALL),
    "joint": JointSteepestDescent(Frobenius(), SMALL),
    "Muon": SteepestDescent(Spectral(), SMALL),
    "row": SteepestDescent(LargestRow(), SMALL),
    "column": SteepestDescent(LargestColumn(), SMALL),
    "sign": SteepestDescent(MaxEntry(), SMALL),
}
DATA = random_sphere(n=2, T=3, d=3, batch=4, seed=21)


def two_tokens() -> TokenDataset:
    """x_1 = e_1 and x_2 = 0 with z = 1: every gradient is along e_1, and W = (r, 0) from W = 0."""
    tokens = torch.tensor([[[1.0, 0.0], [0.0, 0.0]]], dtype=torch.float64)
    return TokenDataset(tokens, torch.ones(1, 1).double(), [1], head=torch.tensor([1.0, 0.0]).double())


@pytest.mark.parametrize("decay", [0.0, 0.25])
def test_a_case_where_the_law_is_exact(decay: float) -> None:
    """One row: the gap of W equals r at every step, and the largest logit too."""
    optimizer = dataclasses.replace(attsvm.NormalizedGradientDescent(InverseSqrt(0.5)), weight_decay=decay)
    data = two_tokens()
    run = attsvm.fit(data, optimizer=optimizer, steps=60, initial="zeros", record=7, keep=("weights",))
    check = attsvm.verify_growth(data, run, initial="zeros")
    torch.testing.assert_close(check.gap, check.predicted.reach)
    for name in ("gap", "logit", "gap_bound", "logit_bound"):
        torch.testing.assert_close(getattr(check.predicted, name), check.gap, rtol=1e-9, atol=0)
    assert bool(check.holds)
    assert bool(check.within_bounds)
    r = 0.0
    for eta in InverseSqrt(0.5).sizes(0, 60):
        r = (1 - eta * decay) * r + eta
    assert float(check.predicted.reach[-1]) == pytest.approx(r, rel=1e-12)


@pytest.mark.parametrize("name", sorted(ON_FACTORS))
@pytest.mark.parametrize("decay", [0.0, 0.2])
def test_runs_follow_the_law_and_keep_within_its_bounds(name: str, decay: float) -> None:
    optimizer = dataclasses.replace(ON_FACTORS[name], weight_decay=decay)
    run = attsvm.fit(
        DATA, parameterization=attsvm.KeyQuery(), optimizer=optimizer, steps=400, record=[10, 100, 300, 400],
        keep=("weights",),
    )  # fmt: skip
    check = attsvm.verify_growth(DATA, run, tolerance=0.2)
    assert not bool(check.predicted.gap_bound.isnan().any())
    assert bool(check.within_bounds.all())
    assert bool((check.predicted.gap <= check.predicted.gap_bound).all())
    if name != "sign" and decay == 0:  # sign has bad attractors, and under decay the law is only a bound
        assert int(check.holds.sum()) >= 3, check.sentence
    if decay:
        assert bool((check.gap[-1] <= check.predicted.plateau).all())
        assert bool((check.logit[-1] <= check.predicted.logit_plateau).all())


def test_the_law_can_fail() -> None:
    """Constant steps of size 1: each changes logits by more and more, and the gap stays far below."""
    run = attsvm.fit(DATA, parameterization=attsvm.KeyQuery(), optimizer=attsvm.NormalizedGradientDescent(1.0),
                     steps=2000, record=[200, 2000], keep=("weights",))  # fmt: skip
    check = attsvm.verify_growth(DATA, run)
    assert not bool(check.holds.any())
    assert bool(check.within_bounds.all())
    assert "steps that change logits by" in check.predicted.sentence


def test_bounds_in_the_sentence_hold_on_every_data_set() -> None:
    optimizer = dataclasses.replace(ON_FACTORS["Muon"], weight_decay=0.2)
    found = attsvm.growth(DATA, parameterization=attsvm.KeyQuery(), optimizer=optimizer, steps=100)
    bounds = [float(each.max()) for each in (found.logit_bound[-1], found.plateau, found.logit_plateau)]
    assert f"no logit can be above {bounds[0]:.4g}; weight decay ends the gap's growth below {bounds[1]:.4g} and" in (
        found.sentence
    )
    assert f"that of every logit at {bounds[2]:.4g}" in found.sentence
    free = attsvm.growth(DATA, optimizer=NewtonSchulzDescent(SMALL), steps=10).sentence
    assert "no logit" not in free
    assert "weight decay" not in free


def test_when_a_threshold_is_passed() -> None:
    data, optimizer = two_tokens(), attsvm.NormalizedGradientDescent(Constant(0.5))
    found = attsvm.growth(data, optimizer=optimizer, threshold=12.3)
    assert float(found.passes) == 25  # 24 steps make 12, 25 make 12.5
    slow = attsvm.growth(data, optimizer=optimizer, threshold=20_000.0)
    assert float(slow.passes) == 40_000
    decayed = attsvm.growth(data, optimizer=dataclasses.replace(optimizer, weight_decay=0.1), threshold=11.0)
    assert float(decayed.plateau) == pytest.approx(10)
    assert math.isinf(float(decayed.passes))
    assert "by the law the threshold is passed on 0 of 1 data sets." in decayed.sentence
    assert "by the law the threshold is passed on 1 of 1 data sets, near step 25." in found.sentence
    clipped = attsvm.growth(data, optimizer=dataclasses.replace(optimizer, clip=2.0))
    assert float(clipped.passes) == 4


def test_nothing_is_predicted_where_nothing_separates() -> None:
    """A token between two others is never selected."""
    tokens = torch.tensor([[[0.0], [1.0], [-1.0]]], dtype=torch.float64)
    data = TokenDataset(tokens, torch.ones(1, 1).double(), [1])
    found = attsvm.growth(data, selected=[0], steps=10, threshold=1.0)
    no_solution = "Nothing is predicted: the selected tokens have no certified max-margin solution."
    assert found.sentence == no_solution
    mask = torch.tensor([[[True, True, True]], [[True, False, False]]])
    mixed = TokenDataset(tokens.expand(2, 1, 3, 1), torch.ones(2, 1, 1).double(), [[1], [1]], mask)
    assert attsvm.growth(mixed, selected=[[0], [0]], steps=10).sentence == no_solution
    alone = attsvm.growth(mixed[1], selected=[0], steps=10)
    assert alone.sentence == "Nothing is predicted: every input has one token."


def test_constants_and_norms() -> None:
    for name, constant in (("gradient", 1), ("joint", 0.5), ("Muon", 1), ("row", 1), ("column", 2), ("sign", 2)):
        found = attsvm.growth(DATA, parameterization=attsvm.KeyQuery(2), optimizer=ON_FACTORS[name], steps=10)
        assert (found.constant, found.power) == (constant, 2)
    assert attsvm.growth(DATA, optimizer=ON_FACTORS["joint"], steps=10).constant == 1
    each = attsvm.growth(DATA, parameterization=attsvm.KeyQuery(), optimizer=ON_FACTORS["gradient"], steps=[50])
    expected = (
        SMALL.sizes(0, 50).sum() ** 2
        / attsvm.solve(attsvm.AttentionSVM(DATA, attsvm.optimal_tokens(DATA)), Nuclear()).certificate.primal_value
    )
    torch.testing.assert_close(each.gap[0], expected)
    unbounded = attsvm.growth(DATA, parameterization=attsvm.KeyQuery(), optimizer=NewtonSchulzDescent(SMALL), steps=10)
    assert bool(unbounded.gap_bound.isnan().all())


def test_an_unknown_start_has_no_bound_but_a_law() -> None:
    start = {name: 2 * value for name, value in attsvm.initial_parameters(DATA, seed=5).items()}
    run = attsvm.fit(DATA, optimizer=ON_FACTORS["Muon"], steps=20, initial=start, keep=("weights",))
    assert bool(attsvm.growth(DATA, run).logit_bound.isnan().all())
    assert not bool(attsvm.growth(DATA, run, initial=start).logit_bound.isnan().any())
    assert not bool(attsvm.growth(DATA, run).gap.isnan().any())


@pytest.mark.parametrize("optimizer", [
    *ON_FACTORS.values(), NewtonSchulzDescent(0.1), NormalizedMirrorDescent(3.0, 0.1),
    SteepestDescent(Spectral(), 0.1, 0.9, weight_decay=0.1, clip=30.0),
], ids=repr)  # fmt: skip
def test_optimizers_are_read_from_what_runs_say(optimizer: Optimizer) -> None:
    assert setting_object(repr(optimizer), Optimizer, "optimizer=") == optimizer


def test_bad_input() -> None:
    with pytest.raises(ValueError, match="normalized steps, and GradientDescent"):
        attsvm.growth(DATA, optimizer=attsvm.GradientDescent(0.1))
    with pytest.raises(ValueError, match="pass optimizer="):
        setting_object("__import__('os').system('true')", Optimizer, "optimizer=")
    run = attsvm.fit(DATA, steps=5, keep=())
    with pytest.raises(ValueError, match="recorded weights"):
        attsvm.verify_growth(DATA, run)
    with pytest.raises(ValueError, match="other data of the same shape"):
        attsvm.growth(random_sphere(n=2, T=3, d=3, batch=4, seed=22), run)
    with pytest.raises(ValueError, match=r"1 / weight_decay = 2; the largest is 3"):
        attsvm.growth(DATA, optimizer=SteepestDescent(Spectral(), 3.0, weight_decay=0.5))
    with pytest.raises(ValueError, match="threshold"):
        attsvm.growth(DATA, threshold=-1.0)
    with pytest.raises(ValueError, match="at least one step"):
        attsvm.growth(DATA, steps=[])
    assert np.isfinite(attsvm.growth(DATA, run).gap.numpy()).all()
