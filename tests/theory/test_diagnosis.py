"""Diagnosis and verification: what is predicted, how sure it is, and what came of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

import attsvm
from attsvm import KeyQuery, NormalizedGradientDescent, Weights, diagnose, fit, verify
from attsvm.data import equal_scores, example, random_sphere
from attsvm.norms import Projective, SpectralOfRank
from attsvm.theory import Outcome, Standing


@pytest.mark.parametrize(
    ("parameterization", "optimizer", "norm", "standing"),
    [
        (Weights(), attsvm.GradientDescent(0.1), attsvm.Frobenius(), Standing.PROVED_LOCALLY),
        (Weights(), NormalizedGradientDescent(0.1), attsvm.Frobenius(), Standing.PROVED_LOCALLY),
        (KeyQuery(), NormalizedGradientDescent(0.1), attsvm.Nuclear(), Standing.CONJECTURED),
        (Weights(), attsvm.SteepestDescent(attsvm.Spectral(), 0.1), attsvm.Spectral(), Standing.CONJECTURED),
        (KeyQuery(), attsvm.SteepestDescent(attsvm.Spectral()), attsvm.Spectral(), Standing.CONJECTURED),
        (KeyQuery(rank=2), attsvm.SteepestDescent(attsvm.Spectral()), SpectralOfRank(2), Standing.CONJECTURED),
        (KeyQuery(rank=2), attsvm.SteepestDescent(attsvm.MaxEntry()), Projective(), Standing.CONJECTURED),
        (Weights(), attsvm.MirrorDescent(3.0, 0.1), attsvm.Entrywise(3.0), Standing.PROVED_LOCALLY),
        (Weights(), attsvm.NormalizedMirrorDescent(1.5, 0.1), attsvm.Entrywise(1.5), Standing.PROVED_LOCALLY),
        (Weights(), attsvm.Adam(0.1), attsvm.MaxEntry(), Standing.CONJECTURED),
    ],
)
def test_the_norm_that_belongs_to_a_training(parameterization: Any, optimizer: Any, norm: Any, standing: Any) -> None:
    bias = attsvm.implicit_bias(parameterization, optimizer)
    assert bias.norm == norm
    assert bias.standing is standing
    assert bias.citation


def test_nothing_is_claimed_where_nothing_is_known() -> None:
    with pytest.raises(ValueError, match="no limit is proved or conjectured"):
        attsvm.implicit_bias(KeyQuery(), attsvm.Adam(0.1))


@pytest.mark.parametrize("norm", [attsvm.Spectral(), attsvm.MaxEntry()], ids=repr)
def test_muon_and_sign_on_factors_are_diagnosed(norm: Any) -> None:
    data = random_sphere(n=3, T=4, d=5, seed=0)
    report = diagnose(data, parameterization=KeyQuery(rank=2), optimizer=attsvm.SteepestDescent(norm))
    assert report.bias.norm == attsvm.factor_norm(norm, 2)
    assert bool(report.limits[0].solution.solved)
    assert report.bias.norm.name in str(report)


def test_a_diagnosis_prints_and_is_json() -> None:
    data = random_sphere(n=4, T=6, d=10, seed=0)
    report = diagnose(data, initial=fit(data, steps=0).weights)
    text = str(report)
    for words in ("unique optimum", "B1", "B2", "first gradient", "TaSVM", "predicted"):
        assert words in text
    parsed = json.loads(report.to_json())
    assert parsed["predicted"] == report.predicted.tolist()
    assert {one["name"] for one in parsed["conditions"]} >= {"unique optimum", "B2: equal scores"}
    assert report.local is None


def test_all_local_selections_on_request() -> None:
    data = random_sphere(n=2, T=4, d=5, batch=3, seed=1)
    report = diagnose(data, enumerate_local=1000)
    assert report.local is not None
    assert len(report.local) == 3
    assert all(one.exhaustive for one in report.local)
    optimal = attsvm.optimal_tokens(data)
    for element, one in enumerate(report.local):
        found = (one.selections == optimal[element]).all(-1).any()
        assert bool(found) == bool(report.limits[0].locally_optimal[element])
    assert json.loads(report.to_json())["local"][0]["exhaustive"]


def test_equal_scores_mostly_lead_to_the_optimum_and_are_no_proof() -> None:
    """B2 with three inputs: small random starts reach the optimal selection, and nothing is called proved."""
    data = equal_scores(n=3, T=4, d=6, batch=40, seed=2)
    start = fit(data, steps=0, seed=1).weights
    report = diagnose(data, optimizer=attsvm.GradientDescent(0.1), initial=start)
    assert set(report.standing) == {Standing.PREDICTED}
    run = fit(data, steps=4000, initial=start)
    assert (run.selected == attsvm.optimal_tokens(data)).all(-1).double().mean() > 0.9


def test_without_equal_scores_descent_may_go_elsewhere() -> None:
    """Breaking B2 breaks the conclusion: some runs end on another locally optimal selection."""
    data = random_sphere(n=6, T=8, d=10, batch=100, seed=3)
    report = diagnose(data)
    assert Standing.PROVED not in report.standing
    verdict = verify(report, fit(data, steps=2000))
    assert verdict.outcomes[Outcome.ANOTHER_LOCAL] > 5


@pytest.mark.slow
@pytest.mark.parametrize(("n", "T", "d"), [(6, 8, 10), (4, 6, 10), (4, 6, 20)])
def test_predictions_come_true_more_often_than_the_optimal_guess(n: int, T: int, d: int) -> None:
    data = random_sphere(n=n, T=T, d=d, batch=300, seed=77)
    start = fit(data, steps=0).weights
    run = fit(data, steps=4000, initial=start)
    predicted, guessed = (verify(diagnose(data, initial=first), run) for first in (start, None))
    assert sum(predicted.outcomes.values()) == 300
    gain = predicted.holds.double() - guessed.holds.double()
    sigma = gain.std() / len(gain) ** 0.5
    shares = [round(one.holds.double().mean().item(), 3) for one in (guessed, predicted)]
    print(f"({n},{T},{d}), 300 data sets: optimal {shares[0]}, predicted {shares[1]}")
    assert float(gain.mean()) > (3 * float(sigma) if (n, T) == (6, 8) else -2 * float(sigma))
    # Nearly every saturated run ends locally optimal, and close to the max-margin direction of what it selected.
    ended = predicted.saturated
    assert float(predicted.locally_optimal[ended].double().mean()) > 0.97
    assert float(predicted.cosine[ended].median()) > 0.995


def test_key_and_query_are_held_against_the_nuclear_solution() -> None:
    data = random_sphere(n=4, T=5, d=6, batch=50, seed=5)
    run = fit(data, parameterization=KeyQuery(), steps=3000)
    verdict = verify(diagnose(data, parameterization=KeyQuery()), run)
    assert verdict.solution.norm == attsvm.Nuclear()
    other = verify(diagnose(data), run)
    assert float(verdict.cosine.median()) > float(other.cosine.median()) + 0.05


def test_an_unsaturated_run_is_a_class_of_its_own() -> None:
    data = random_sphere(n=6, T=8, d=10, batch=20, seed=6)
    verdict = verify(diagnose(data), fit(data, steps=3))
    assert verdict.outcomes[Outcome.NOT_SATURATED] == 20
    assert "has not saturated" in str(verdict)


def test_examples_of_the_papers() -> None:
    """Single input: in the local variant the start decides, and the prediction says which way."""
    data = example("single-input-local")
    starts = attsvm.data.starting_points("single-input-local").weights
    reached, said = [], []
    for start in starts:
        report = diagnose(data, initial=start)
        run = fit(data, initial=start, steps=1000)
        reached.append(int(run.selected))
        said.append(int(report.predicted))
    assert reached[-2:] == [1, 1]
    assert reached[:3] == [0, 0, 0]
    assert sum(a == b for a, b in zip(reached, said, strict=True)) >= 4


def test_bad_input() -> None:
    data = random_sphere(n=3, T=4, d=5, batch=2, seed=8)
    with pytest.raises(ValueError, match=r"run\.selected must have shape"):
        verify(diagnose(data), fit(data[0], steps=5))
    with pytest.raises(ValueError, match="verify needs a Diagnosis and a Run, in this order; got Run and Diagnosis"):
        verify(fit(data, steps=5), diagnose(data))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="threshold must be a positive finite number"):
        verify(diagnose(data), fit(data, steps=5), threshold=0)
    tied = attsvm.TokenDataset(
        torch.ones(1, 2, 2).double(), torch.ones(1, 2).double(), [1], head=torch.ones(2).double()
    )
    report = diagnose(tied)
    assert not bool(report.conditions[0].holds)


@pytest.mark.parametrize("kind", ["own", "vector", "array", "linear", "relu", "module"])
def test_float32_data_with_float32_heads_and_starts(kind: str) -> None:
    data = random_sphere(n=3, T=4, d=5, seed=3, dtype=torch.float32)
    assert data.head is not None
    module = torch.nn.Linear(5, 1)
    heads: dict[str, object] = {
        "own": None,
        "vector": data.head,
        "array": data.head.numpy(),
        "linear": attsvm.LinearHead(data.head),
        "relu": attsvm.ReluHead(torch.eye(5)),
        "module": module,
    }
    run = fit(data, heads[kind], steps=20)
    report = diagnose(data, heads[kind], initial=fit(data, heads[kind], steps=0).weights)
    assert verify(report, run).reached.shape == (3,)
    factors = fit(data, heads[kind], steps=0, parameterization=KeyQuery()).parameters
    assert diagnose(data, heads[kind], KeyQuery(), initial=factors).predicted.shape == (3,)
    assert attsvm.regularization_path(data, heads[kind], [1.0]).weights.dtype == torch.float64
    assert module.weight.dtype == torch.float32
