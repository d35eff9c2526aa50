"""A verdict compares what it claims to compare: each part can fail, alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

import attsvm
from attsvm import (
    KeyQuery,
    MaxEntry,
    NormalizedGradientDescent,
    Run,
    Spectral,
    SumEntry,
    TokenDataset,
    diagnose,
    fit,
    verify,
)
from attsvm.data import random_sphere
from attsvm.theory import Diagnosis, Outcome
from attsvm.theory.diagnosis.verify import OUTCOMES

DATA = random_sphere(n=3, T=4, d=8, batch=6, seed=5201)
PARTS = ("same_problem", "trained", "saturated", "selection", "locally_optimal")


class Case(NamedTuple):
    start: Tensor
    report: Diagnosis
    run: Run


@pytest.fixture(scope="module")
def case() -> Case:
    start = fit(DATA, steps=0, seed=5201).weights
    return Case(start, diagnose(DATA, initial=start), fit(DATA, initial=start, steps=2000))


def test_a_verdict_in_parts(case: Case) -> None:
    verdict = verify(case.report, case.run)
    parts = torch.stack([getattr(verdict, name) for name in PARTS])
    assert verdict.holds.equal(parts.all(0))
    assert bool(verdict.holds.any())
    assert bool(verdict.problem_known.all())
    assert verdict.differences == verdict.unknown == ()
    text = str(verdict)
    for words in ("same problem", "trained", "saturated", "selection", "locally optimal", "direction", "0.99", "0.9"):
        assert words in text
    assert len(verdict.sentences) == 6
    parsed = json.loads(verdict.to_json())
    assert parsed["holds"] == verdict.holds.tolist()
    assert parsed["parts"]["direction_holds"] == verdict.direction_holds.tolist()


def test_a_run_without_steps_shows_nothing(case: Case) -> None:
    """A start that is saturated on the predicted selection already, and no step taken."""
    far = 200 * case.report.limit.direction
    report = diagnose(DATA, initial=far)
    idle = verify(report, fit(DATA, initial=far, steps=0))
    assert bool(idle.saturated.all())
    assert not bool(idle.trained.any())
    assert not bool(idle.holds.any())
    assert idle.outcomes[Outcome.NOT_TRAINED] == 6
    moved = verify(report, fit(DATA, initial=far, steps=5))
    assert bool(moved.saturated_at_start.all())
    assert "its start was saturated already" in moved.sentences[0]


@pytest.mark.parametrize("kind", ["data", "values", "head", "optimizer", "loss", "parameterization", "start", "ridge"])
def test_a_run_of_another_problem(case: Case, kind: str) -> None:
    other: dict[str, Any] = {"data": DATA, "head": None, "initial": case.start, "steps": 20}
    if kind == "data":
        other["data"] = random_sphere(n=3, T=4, d=8, batch=6, seed=5202)
    elif kind == "values":
        other["data"] = TokenDataset(DATA.tokens, DATA.queries, DATA.labels, values=2 * DATA.tokens, head=DATA.head)
    elif kind == "head":
        other["head"] = -DATA.head
    elif kind == "optimizer":
        other["optimizer"] = attsvm.GradientDescent(0.1)
    elif kind == "loss":
        other["loss"] = attsvm.Exponential()
    elif kind == "parameterization":
        other |= {"parameterization": KeyQuery(), "initial": None}
    elif kind == "start":
        other["initial"] = case.start + 1e-9
    else:
        other["ridge"] = 1e-3
    verdict = verify(case.report, fit(other.pop("data"), other.pop("head"), **other))
    assert not bool(verdict.same_problem.any())
    assert not bool(verdict.holds.any())
    assert any(kind in said or (kind == "values" and "data" in said) for said in verdict.differences)
    assert verdict.outcomes[Outcome.ANOTHER_PROBLEM] == 6
    assert "another problem" in verdict.sentence


def test_runs_without_a_fingerprint_are_not_known_to_be_the_same(case: Case, tmp_path: Path) -> None:
    old = {name: value for name, value in case.run.configuration.items() if name not in ("fingerprint", "ridge")}
    replace(case.run, configuration=old).save(tmp_path / "run.npz")
    loaded = Run.load(tmp_path / "run.npz")
    verdict = verify(case.report, loaded)
    assert verdict.unknown == ("data", "head", "start")
    assert not bool(verdict.problem_known.any())
    assert verdict.holds.equal(verify(case.report, case.run).holds)
    assert "not known to be the same: data, head, start" in verdict.sentence
    fit(DATA, resume=loaded, steps=2001)
    case.run.save(tmp_path / "new.safetensors")
    assert bool(verify(case.report, Run.load(tmp_path / "new.safetensors")).problem_known.all())
    assert bool(verify(case.report, fit(DATA, resume=case.run, steps=2010)).problem_known.all())


def test_another_data_set_of_the_same_shape_is_not_resumed() -> None:
    run = fit(DATA, steps=3)
    with pytest.raises(ValueError, match="resume needs the same data; the run was made with another of the same shape"):
        fit(random_sphere(n=3, T=4, d=8, batch=6, seed=5203), resume=run, steps=6)


def test_precision_and_copies_of_the_head_do_not_matter() -> None:
    single = random_sphere(n=3, T=4, d=5, batch=2, seed=5204, dtype=torch.float32)
    assert single.head is not None
    vector = single.head[0]
    start = fit(single, vector, steps=0).weights
    report = diagnose(single, vector, initial=start)
    assert verify(report, fit(single, vector, initial=start, steps=5)).differences == ()
    copies = attsvm.LinearHead(vector.expand(2, 5).clone())
    assert verify(report, fit(single, copies, initial=start, steps=5)).differences == ()


def test_a_selection_that_no_weights_separate_never_holds() -> None:
    """The middle of three tokens on a line is the best one: predicted without a start, and out of reach."""
    line, scores = torch.tensor([[[-1.0], [0.0], [1.0]]]).double(), torch.tensor([[[0.0], [1.0], [0.0]]]).double()
    data = TokenDataset(line, torch.ones(1, 1).double(), [1], values=scores, head=torch.ones(1).double())
    report = diagnose(data)
    run = fit(data, steps=5)
    forged = torch.tensor([[0.0, 1.0, 0.0]]).double()
    saturated = replace(run, attention=forged, log_attention=torch.log(forged))
    verdict = verify(report, saturated)
    assert bool(verdict.selection)
    assert bool(verdict.saturated)
    assert not bool(verdict.holds)
    assert OUTCOMES[int(verdict.codes)] is Outcome.NOT_SEPARABLE


def test_the_direction_is_judged_beside_the_selection(case: Case) -> None:
    """Saturated on the predicted selection along a poor direction: holds, and direction_holds does not."""
    verdict = verify(case.report, case.run)
    held = verdict.holds
    noise = torch.randn(6, 8, 8, generator=torch.Generator().manual_seed(1)).double()
    tilted = 1e3 * (case.report.limit.direction + 0.1 * noise / torch.linalg.matrix_norm(noise)[:, None, None])
    seen = attsvm.attention.evaluate(DATA, tilted)
    forged = replace(case.run, weights=tilted, attention=seen.attention, log_attention=seen.log_attention)
    found = verify(case.report, forged, least_cosine=0.999)
    assert bool((found.holds & held).any())
    assert not bool(found.direction_holds.any())
    assert bool(verify(case.report, forged, least_cosine=0.9, least_efficiency=0.0).direction_holds[found.holds].all())
    assert found.thresholds["cosine"] == 0.999


def test_verdicts_can_be_wrong(case: Case) -> None:
    """The comparison can fail: a made-up prediction is not reached."""
    report = replace(case.report, predicted=(case.run.selected + 1) % 4)
    verdict = verify(report, case.run)
    assert not bool(verdict.selection.any())
    assert not bool(verdict.holds.any())
    assert verdict.outcomes[Outcome.AS_PREDICTED] == 0


def test_early_runs_are_still_improving(case: Case) -> None:
    verdict = verify(case.report, fit(DATA, initial=case.start, steps=100, record=25))
    assert bool(verdict.still_improving.any())


def test_nuclear_directions_may_use_the_distance_to_all_solutions() -> None:
    data = random_sphere(n=2, T=3, d=4, batch=3, seed=5205)
    run = fit(data, parameterization=KeyQuery(), steps=1000, optimizer=NormalizedGradientDescent(0.1))
    verdict = verify(diagnose(data, parameterization=KeyQuery()), run, least_cosine=1.0)
    asked = verdict.solution.solved & ~verdict.solution.unique
    assert torch.isfinite(verdict.distance).equal(asked)


# One row each, in the norm of which every W = A + h B with |h| <= 1 is a solution: no cosine with one of them can tell.
SEGMENTS = {
    "max-entry": (MaxEntry(), [1.0, 0.0], [1.0], [[1.0], [0.0]], [[0.0], [1.0]]),
    "sum-entry": (SumEntry(), [1.0, 1.0], [1.0], [[0.5], [0.5]], [[0.5], [-0.5]]),
    "spectral": (Spectral(), [1.0, 0.0], [1.0, 0.0], [[1.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 1.0]]),
}


@pytest.mark.parametrize("name", SEGMENTS)
def test_every_solution_is_a_direction_that_holds(name: str) -> None:
    norm, token, query, middle, along = SEGMENTS[name]
    tokens = torch.tensor([[token, [0.0, 0.0]]]).double()
    data = TokenDataset(tokens, torch.tensor([query]).double(), [1], head=torch.tensor([1.0, 0.5]).double())
    optimizer = attsvm.SteepestDescent(norm, 0.1)
    report = diagnose(data, optimizer=optimizer)
    run = fit(data, optimizer=optimizer, steps=400, seed=7)
    assert bool(verify(report, run).direction_holds)
    cosines = []
    for h in (-1.0, -0.6, 0.0, 0.3, 1.0, 3.0):
        weights = 100 * (torch.tensor(middle) + h * torch.tensor(along)).double()
        verdict = verify(report, replace(run, weights=weights))
        assert bool(verdict.by_efficiency)
        assert bool(verdict.direction_holds) == (abs(h) <= 1), h
        cosines.append(float(verdict.cosine))
    assert min(cosines[:5]) < 0.99  # the cosine alone would have refused a solution
    assert "efficiency alone decides" in verdict.sentence


@pytest.mark.parametrize("name", ["least_cosine", "least_efficiency"])
def test_thresholds_out_of_range(case: Case, name: str) -> None:
    with pytest.raises(ValueError, match=rf"{name} must lie in \[0, 1\]; got 1.5"):
        verify(case.report, case.run, **{name: 1.5})  # type: ignore[arg-type]
