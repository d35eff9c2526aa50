"""A resumed run is the uninterrupted one, bit for bit; files give back the same bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from attsvm import (
    Adam,
    GradientDescent,
    KeyQuery,
    MaxEntry,
    NormalizedGradientDescent,
    NormalizedMirrorDescent,
    PolyakDescent,
    Run,
    Spectral,
    SteepestDescent,
    fit,
)
from attsvm.attention import CustomLoss
from attsvm.data import random_sphere
from attsvm.descent import (
    CompiledEngine,
    Geometric,
    InverseSqrt,
    Lion,
    NewtonSchulzDescent,
    Saturated,
    Settled,
    TorchEngine,
)

DATA = random_sphere(n=4, T=5, d=4, batch=3, seed=1)
TENSORS = ("weights", "attention", "log_attention", "risk", "steps_taken", "stalled", "overflowed", "invisible")


def assert_same_run(found: Run, expected: Run) -> None:
    """Raise unless every number of two runs is the same, bit for bit."""
    assert found.step == expected.step
    for name in TENSORS:
        _same(getattr(found, name), getattr(expected, name), name)
    for group in ("parameters", "state"):
        mine, theirs = getattr(found, group), getattr(expected, group)
        assert set(mine) == set(theirs), group
        for name in mine:
            _same(mine[name], theirs[name], f"{group} {name}")
    for name in ("step", "risk", "norm", "attention", "weights"):
        mine, theirs = getattr(found.history, name), getattr(expected.history, name)
        assert (mine is None) == (theirs is None), name
        if mine is not None:
            _same(mine, theirs, f"history {name}")


def _same(found: Tensor, expected: Tensor, name: str) -> None:
    assert found.dtype == expected.dtype, name
    assert found.equal(expected), name


def test_comparison_can_fail() -> None:
    run = fit(DATA, steps=4)
    assert_same_run(run, run)
    with pytest.raises(AssertionError):
        assert_same_run(run, fit(DATA, steps=5))
    with pytest.raises(AssertionError, match="weights"):
        assert_same_run(run, fit(DATA, steps=4, initial=run.history.weights[0] * (1 + 2e-16) + 1e-17))


OPTIONS: dict[str, dict[str, Any]] = {
    "gradient": {"optimizer": GradientDescent(0.5)},
    "normalized": {"optimizer": NormalizedGradientDescent(0.1)},
    "torch engine": {"engine": TorchEngine()},
    "compiled engine": {"engine": CompiledEngine()},
    "factors": {"parameterization": KeyQuery(2)},
    "starts": {"starts": 3},
    "falling steps": {"optimizer": NormalizedGradientDescent(InverseSqrt(1.0))},
    "growing steps": {"optimizer": NormalizedGradientDescent(Geometric(0.01, 1.1))},
    "sign with momentum": {"optimizer": SteepestDescent(MaxEntry(), 0.1, momentum=0.9)},
    "muon": {"optimizer": SteepestDescent(Spectral(), 0.1, momentum=0.9), "parameterization": KeyQuery(2)},
    "mirror": {"optimizer": NormalizedMirrorDescent(1.5, 0.1)},
    "adam": {"optimizer": Adam(0.1)},
    "lion": {"optimizer": Lion(0.1, weight_decay=0.1)},
    "clipped": {"optimizer": NewtonSchulzDescent(0.1, clip=2.0), "parameterization": KeyQuery(2)},
    "polyak": {"optimizer": PolyakDescent()},
    "mini-batches": {"batch_size": 2, "seed": 4},
    "trained head": {"train_head": True, "optimizer": Adam(0.1)},
    "custom loss": {"loss": CustomLoss(lambda m: -torch.atan(m))},
    "saturated": {"stop": Saturated(1e-2, every=7), "optimizer": NormalizedGradientDescent(1.0)},
    "settled": {"stop": Settled(0.05, growth=1.2, every=3)},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("interrupted", [0, 1, 21, 26])
def test_resumed_equals_uninterrupted(options: dict[str, Any], interrupted: int) -> None:
    whole = fit(DATA, steps=60, record=6, **options)
    part = fit(DATA, steps=interrupted, record=6, **options)
    resumed = fit(DATA, steps=60, record=6, resume=part, **options)
    # The interruption itself left one more record, of the step where it happened.
    extra = part.step if part.step % 6 and part.step != whole.step else None
    kept = resumed.history.step != (-1 if extra is None else extra)
    assert resumed.history.step[kept].equal(whole.history.step)
    assert resumed.history.weights[kept].equal(whole.history.weights)
    for name in TENSORS:
        assert getattr(resumed, name).equal(getattr(whole, name)), name
    for name, value in whole.state.items():
        assert resumed.state[name].equal(value), name


def test_stopping_tests_do_stop() -> None:
    """The two stopping rules above end some elements between the interruptions, or nothing is tested."""
    for name in ("saturated", "settled"):
        taken = fit(DATA, steps=60, **OPTIONS[name]).steps_taken
        assert int(taken.min()) < 60


def test_every_stopping_point_resumes_alike() -> None:
    """Interrupted at each step in turn, also exactly where a rule stops an element."""
    options = OPTIONS["settled"]
    whole = fit(DATA, steps=60, record=[60], **options)
    for interrupted in range(61):
        part = fit(DATA, steps=interrupted, record=[], **options)
        resumed = fit(DATA, steps=60, record=[60], resume=part, **options)
        assert resumed.steps_taken.equal(whole.steps_taken), interrupted
        assert resumed.weights.equal(whole.weights), interrupted


def test_a_finished_run_stays_finished_under_its_rule_and_goes_on_without_it() -> None:
    options = {"stop": Saturated(1e-2, every=5)}
    done = fit(DATA[0], steps=2000, **options)
    assert done.step < 2000
    assert fit(DATA[0], steps=2000, resume=done, **options).weights.equal(done.weights)
    further = fit(DATA[0], steps=done.step + 10, resume=done)
    assert further.weights.equal(fit(DATA[0], steps=done.step + 10).weights)


def test_resuming_a_finished_run_changes_nothing() -> None:
    run = fit(DATA, steps=20)
    assert fit(DATA, steps=20, resume=run).weights.equal(run.weights)


def test_seconds_add_up() -> None:
    run = fit(DATA, steps=20)
    assert fit(DATA, steps=40, resume=run).seconds > run.seconds > 0


# ------------------------------------------------------------------------ files


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"parameterization": KeyQuery(2), "starts": 2, "keep": ["risk", "parameters"]},
        {"optimizer": Adam(0.1)},
        {"stop": Settled(), "batch_size": 2, "train_head": True},
        {"record": []},
    ],
    ids=["plain", "factors", "adam", "stop", "no records"],
)
def test_round_trip(tmp_path: Path, suffix: str, options: dict[str, Any]) -> None:
    run = fit(DATA, steps=20, **{"record": 5, **options})
    path = run.save(tmp_path / f"run{suffix}")
    loaded = Run.load(path)
    assert_same_run(loaded, run)
    assert loaded.seconds == run.seconds
    assert loaded.selected.equal(run.selected)
    assert loaded.notes == run.notes
    assert loaded.configuration["optimizer"] == run.configuration["optimizer"]
    if run.history.parameters is not None:
        for name, value in run.history.parameters.items():
            assert loaded.history.parameters[name].equal(value)


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_a_single_run_keeps_its_shapes(tmp_path: Path, suffix: str) -> None:
    run = fit(DATA[0], steps=10)
    loaded = Run.load(run.save(tmp_path / f"run{suffix}"))
    assert loaded.risk.shape == ()
    assert loaded.weights.shape == (4, 4)


@pytest.mark.parametrize("name", ["adam", "muon", "mini-batches", "settled", "custom loss"])
def test_resume_from_a_file(tmp_path: Path, name: str) -> None:
    options = OPTIONS[name]
    part = fit(DATA, steps=26, record=6, **options)
    loaded = Run.load(part.save(tmp_path / "run.npz"))
    whole = fit(DATA, steps=60, record=6, **options)
    assert fit(DATA, steps=60, record=6, resume=loaded, **options).weights.equal(whole.weights)


def test_what_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"missing\.npz"):
        Run.load(tmp_path / "missing.npz")
    data = DATA.save(tmp_path / "data.npz")
    with pytest.raises(ValueError, match=r"data\.npz is not a saved run \(its kind is 'TokenDataset'\)"):
        Run.load(data)
    whole = fit(DATA, steps=5).save(tmp_path / "run.npz")
    cut = tmp_path / "cut.npz"
    cut.write_bytes(whole.read_bytes()[:2000])
    with pytest.raises(ValueError, match=r"cut\.npz"):
        Run.load(cut)
    np.savez(tmp_path / "other.npz", a=np.ones(3))
    with pytest.raises(ValueError, match=r"other\.npz is not a saved run"):
        Run.load(tmp_path / "other.npz")


# ------------------------------------------------------------------- what does not fit


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"optimizer": Adam(0.2)},
            r"resume needs the same optimizer; .* made with Adam\(step_size=0.1.*now it is Adam\(step_size=0.2",
        ),
        ({"parameterization": KeyQuery(2)}, "resume needs the same parameterization"),
        ({"train_head": True}, "resume needs the same train_head; the run was made with False, now it is True"),
        ({"batch_size": 2}, "resume needs the same batch_size; the run was made with None, now it is 2"),
        ({"loss": torch.neg}, "resume needs the same loss"),
        ({"steps": 5}, "steps counts from the start of the run and must be at least the 10 already taken; got 5"),
    ],
)
def test_resume_needs_the_same_configuration(change: dict[str, Any], words: str) -> None:
    run = fit(DATA, steps=10, optimizer=Adam(0.1))
    with pytest.raises(ValueError, match=words):
        fit(DATA, resume=run, **{"optimizer": Adam(0.1), "steps": 20, **change})


def test_resume_needs_the_same_data_and_seed() -> None:
    run = fit(DATA, steps=10, batch_size=2, seed=1)
    with pytest.raises(
        ValueError, match=r"resume needs the same data; the run was made with TokenDataset\(batch=\[3\]"
    ):
        fit(DATA[:2], steps=20, resume=run, batch_size=2, seed=1)
    with pytest.raises(ValueError, match="resume needs the same seed; mini-batches are drawn from it"):
        fit(DATA, steps=20, resume=run, batch_size=2, seed=2)


def test_a_resumed_run_takes_no_new_start() -> None:
    run = fit(DATA, steps=10)
    with pytest.raises(ValueError, match="resume goes on from the run's own weights; leave initial out"):
        fit(DATA, steps=20, resume=run, initial="zeros")
    with pytest.raises(ValueError, match=r"resume needs the same starts; the run has shape \[3\], got 2"):
        fit(DATA, steps=20, resume=run, starts=2)
    several = fit(DATA, steps=10, starts=2)
    with pytest.raises(ValueError, match=r"resume needs the same starts; the run has shape \[2, 3\], got 4"):
        fit(DATA, steps=20, resume=several, starts=4)
