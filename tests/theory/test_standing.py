"""What is called proved: only where every assumption of a theorem was checked on this input."""

from __future__ import annotations

import json
import math
import secrets
from typing import Any

import pytest
import torch

import attsvm
from attsvm import GradientDescent, KeyQuery, NormalizedGradientDescent, TokenDataset, diagnose, fit
from attsvm.data import equal_scores, random_sphere
from attsvm.descent import Geometric, InverseSqrt, LipschitzStep, TorchEngine
from attsvm.theory import Condition, Diagnosis, Result, Standing

PLAIN = GradientDescent(LipschitzStep())


def two_inputs_of_opposite_pull() -> TokenDataset:
    """dq = 1, keys {(1, 0), (0, 0)} and {(-2, 1), (0, 0)}, scores 1 and 0 in both: B2 holds, n = 2."""
    keys = torch.tensor([[[1.0, 0.0], [0.0, 0.0]], [[-2.0, 1.0], [0.0, 0.0]]]).double()
    values = torch.tensor([[[1.0], [0.0]], [[1.0], [0.0]]]).double()
    return TokenDataset(keys, torch.ones(2, 1).double(), [1, 1], values=values, head=torch.ones(1).double())


def one_tied_input(batch: int, seed: int) -> TokenDataset:
    """n = 1, scores of exactly 1 and 0 through values of one coordinate."""
    drawn = random_sphere(n=1, T=5, d=6, batch=batch, seed=seed)
    values = torch.zeros(batch, 1, 5, 1).double()
    values[..., 2, 0] = 1.0
    labels = torch.ones(batch, 1).double()
    return TokenDataset(drawn.tokens, drawn.queries, labels, values=values, head=torch.ones(batch, 1).double())


def gaussian(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).double()


def proofs(report: Diagnosis) -> list[str]:
    """The statements of the results that apply to some data set."""
    return [one.statement for one in report.results if bool(one.applies.any())]


def condition(report: Diagnosis, name: str) -> Condition:
    return next(one for one in report.conditions if one.name == name)


def result(report: Diagnosis, words: str) -> Result:
    return next(one for one in report.results if words in one.statement or words in one.citation)


def test_b2_with_two_inputs_is_no_proof() -> None:
    """The counterexample: under B2, steps of 1/L, the run keeps to [0, 1] while W_mm(opt) ~ (1, 3) is separable."""
    data = two_inputs_of_opposite_pull()
    start = torch.tensor([[10.0], [0.0]]).double()
    report = diagnose(data, optimizer=PLAIN, initial=start)
    assert bool(condition(report, "B2: equal scores").proved)
    assert bool(report.limits[0].solution.solved)
    run = fit(data, initial=start, optimizer=PLAIN, steps=20_000, record=20_000)
    assert run.selected.tolist() == [0, 1]
    assert float(run.weights[0, 0]) > 10.2
    # With u = e^{w_1}: du ~ c_1 / 2 is constant and dw_2 ~ (c_2 / 2) e^{w_2} / u^2, so w_2 stays below c_2 / (c_1 u_0)
    # for ever; c_1 >= sigmoid(-1) and c_2 <= 1/2 are slopes of the loss, and 1.01 covers the corrections in 1/u.
    assert 0 < float(run.weights[1, 0]) < 1.01 * 0.5 * (1 + math.e) * math.exp(-10)
    assert report.standing == (Standing.PREDICTED,)
    assert not any("every start the direction" in said for said in proofs(report))
    assert "no finite W is a stationary point of the risk" in proofs(report)  # this much B2 does prove


@pytest.mark.parametrize("seed", [4101, 4102])
def test_b2_on_the_sphere_is_no_proof(seed: int) -> None:
    """T = 2 satisfies B2 always; runs of plain descent from norm 1 that end elsewhere were never called proved."""
    data = random_sphere(n=6, T=2, d=4, batch=150, seed=seed)
    start = gaussian(seed, 150, 4, 4)
    start = start / torch.linalg.matrix_norm(start)[:, None, None]
    report = diagnose(data, optimizer=PLAIN, initial=start)
    assert bool(condition(report, "B2: equal scores").proved.all())
    run = fit(data, initial=start, optimizer=PLAIN, steps=10_000, record=10_000, keep=())
    elsewhere = (run.selected != attsvm.optimal_tokens(data)).any(-1)
    assert bool(elsewhere.any())
    proved = torch.tensor([one is not Standing.PREDICTED for one in report.standing])
    print(f"seed {seed}: {int(elsewhere.sum())} of 150 elsewhere, {int(proved.sum())} starts proved")
    assert not bool((proved & elsewhere).any())


def test_b2_with_one_input_is_a_theorem() -> None:
    data = one_tied_input(40, 4103)
    start = gaussian(4103, 40, 6, 6)
    report = diagnose(data, optimizer=PLAIN, initial=start)
    solved = report.limits[0].solution.solved
    assert bool(solved.any())
    assert [one is Standing.PROVED for one in report.standing] == solved.tolist()
    assert bool((report.predicted[solved] == 2).all())
    run = fit(data, initial=start, optimizer=PLAIN, steps=20_000, record=20_000, keep=())
    assert bool((run.selected[solved] == 2).all())


@pytest.mark.parametrize(
    ("optimizer", "name"),
    [
        (GradientDescent(1e6), "steps at most 1/L"),
        (GradientDescent(LipschitzStep(2.5)), "steps at most 1/L"),
        (GradientDescent(Geometric(0.1, 0.99)), "steps not summable"),
        (GradientDescent(Geometric(0.1, 0.99)), "constant steps"),
        (GradientDescent(InverseSqrt(0.1)), "constant steps"),
        (NormalizedGradientDescent(0.1), "plain gradient descent"),
    ],
)
def test_steps_belong_to_the_assumptions(optimizer: Any, name: str) -> None:
    report = diagnose(one_tied_input(5, 4104), optimizer=optimizer, initial="zeros")
    assert bool(condition(report, name).refuted.all())
    said = proofs(report)
    assert not any("norm grows" in one or "every start the direction" in one for one in said)
    assert Standing.PROVED not in report.standing


def test_summable_steps_do_stop() -> None:
    """What the theorem would promise is false there: the norm stays below the sum of the steps."""
    steps = NormalizedGradientDescent(Geometric(0.1, 0.9))
    run = fit(one_tied_input(5, 4105), optimizer=steps, initial="zeros", steps=2000, record=2000)
    assert bool((run.norm < 1.0 + 1e-9).all())
    assert bool((run.attention.amax(-1) < 0.99).any())


def test_equal_to_rounding_is_not_equal() -> None:
    """Scores that tie to 1e-16 pass the condition, and prove nothing."""
    found = attsvm.theory.equal_scores_condition(equal_scores(n=1, T=4, d=6, batch=20, seed=4106))
    assert bool(found.holds.all())
    assert not bool(found.proved.all())


@pytest.mark.parametrize("seed", [4107, 4108])
def test_starts_below_the_barrier_do_reach_the_optimum(seed: int) -> None:
    """Starts around W_mm(opt) at several norms: those inside are proved locally, and plain descent keeps to opt."""
    data = random_sphere(n=3, T=4, d=5, batch=60, seed=seed)
    best = attsvm.solve(attsvm.AttentionSVM(data, attsvm.optimal_tokens(data)))
    data = data[best.solved]
    spread = torch.linspace(0.0, 6.0, len(data)).double()[:, None, None]
    start = spread * best.weights[best.solved] + 0.3 * gaussian(seed, len(data), 5, 5)
    report = diagnose(data, optimizer=PLAIN, initial=start)
    assert report.start is not None
    inside = report.start.inside
    assert 0 < int(inside.sum()) < len(data)
    assert [one is Standing.PROVED_LOCALLY for one in report.standing] == inside.tolist()
    assert report.start.places.count("inside") == int(inside.sum())
    run = fit(data, initial=start, optimizer=PLAIN, steps=5000, record=5000, keep=())
    assert bool((run.selected == attsvm.optimal_tokens(data))[inside].all())
    assert bool((run.risk < attsvm.attention.evaluate(data, start).risk)[inside].all())
    normalized = diagnose(data, initial=start)  # no theorem covers these steps
    assert normalized.start is not None
    assert not bool(normalized.start.inside.any())
    assert "inside" in str(report)


def test_the_barrier_is_the_risk_of_one_second_best_token() -> None:
    """The barrier is the risk of one input wholly on its second-best token, all others wholly on their best."""
    data = random_sphere(n=3, T=4, d=4, batch=200, seed=4109)
    best = attsvm.solve(attsvm.AttentionSVM(data, attsvm.optimal_tokens(data)))
    start = torch.linspace(0, 8, 200)[:, None, None] * torch.nan_to_num(best.weights) + gaussian(4109, 200, 4, 4)
    found = attsvm.theory.below_the_barrier(data, None, start, attsvm.Logistic(), best)
    assert 20 < int(found.holds.sum()) < 180
    top, loss = attsvm.token_scores(data).topk(2).values, attsvm.Logistic()
    barrier = (loss.value(top[..., 1]) - loss.value(top[..., 0])).amin(-1)
    excess = 3 * (attsvm.attention.evaluate(data, start).risk - attsvm.best_risk(data))
    assert found.holds.equal((excess < barrier) & best.solved)


def test_below_the_barrier_the_way_to_the_optimum_is_downhill() -> None:
    """Random weights, many of them on other tokens: where they are below, the risk falls along any U that separates."""
    data = random_sphere(n=2, T=4, d=3, batch=600, seed=secrets.randbelow(2**31))  # fresh every time
    best = attsvm.solve(attsvm.AttentionSVM(data, attsvm.token_scores(data).argmax(-1)))
    data, best = data[best.solved], best[best.solved]
    size = torch.linspace(0, 10, len(data)).double()[:, None, None]
    start = size * best.weights / torch.linalg.matrix_norm(best.weights)[:, None, None] + 3 * gaussian(
        1, len(data), 3, 3
    )
    below = attsvm.theory.below_the_barrier(data, None, start, attsvm.Logistic(), best).holds
    seen = attsvm.attention.evaluate(data, start)
    elsewhere = (seen.attention.argmax(-1) != attsvm.optimal_tokens(data)).any(-1)
    slope = (attsvm.attention.gradient(data, start)["weights"].normalized() * best.weights).sum((-1, -2))
    print(f"{int(below.sum())} of {len(data)} below, {int((below & elsewhere).sum())} of them on another token")
    assert int(below.sum()) > 50
    assert bool((slope[below] < 0).all())
    assert bool((slope[~below] > 0).any())  # it can fail


def test_no_start_just_below_the_barrier_ends_elsewhere() -> None:
    """Fresh starts at 85 to 100 % of the barrier, tokens and values of very different lengths, descent as a flow."""
    base = random_sphere(n=2, T=4, d=3, dq=2, batch=150, seed=secrets.randbelow(2**31))
    seed = secrets.randbelow(2**31)
    lengths = torch.exp(gaussian(seed, 2, 150, 2, 4, 1))
    values = base.tokens * lengths[1]
    data = TokenDataset(base.tokens * lengths[0], base.queries, base.labels, values=values, head=base.head)
    best = attsvm.solve(attsvm.AttentionSVM(data, attsvm.token_scores(data).argmax(-1)))
    data, best = data[best.solved], best[best.solved]
    unit = best.weights / torch.linalg.matrix_norm(best.weights)[:, None, None]
    start, found = torch.zeros_like(unit), torch.zeros(len(data), dtype=torch.bool)
    for trial in range(60):
        size = torch.exp(6 * torch.rand(len(data), 1, 1, generator=torch.Generator().manual_seed(trial)).double() - 1)
        drawn = size * (unit + 0.5 * gaussian(seed + trial, *unit.shape))
        margin = attsvm.theory.below_the_barrier(data, None, drawn, attsvm.Logistic(), best).margin
        near = (margin > 1e-6) & (margin < -math.log(0.85)) & ~found
        start[near], found = drawn[near], found | near
    data, start = data[found], start[found]
    optimal, first = attsvm.optimal_tokens(data), attsvm.attention.evaluate(data, start)
    run = fit(data, initial=start, optimizer=NormalizedGradientDescent(0.01), steps=6000, record=3000)
    there = (run.selected == optimal).all(-1)
    began = (first.attention.argmax(-1) != optimal).any(-1)
    print(f"{len(data)} starts, {int(began.sum())} with most attention elsewhere; {int(there.sum())} on the optimum")
    assert len(data) > 30
    assert float(there.double().mean()) > 0.9
    assert bool((run.history.risk[-1] < run.history.risk[-2])[~there].all())


def test_outside_of_every_cone() -> None:
    data = random_sphere(n=3, T=4, d=5, batch=4, seed=4110)
    report = diagnose(data, initial="zeros")
    assert report.start is not None
    assert set(report.start.places) == {"outside"}
    direction = torch.nan_to_num(report.limits[0].solution.weights)
    assert "not known" in str(diagnose(data, initial=50 * direction).start)


@pytest.mark.parametrize("kind", ["relu", "quadratic"])
def test_theorems_on_linear_heads_stay_with_them(kind: str) -> None:
    data = random_sphere(n=2, T=3, d=4, batch=5, seed=4111)
    head = attsvm.ReluHead(torch.eye(4).double()) if kind == "relu" else attsvm.QuadraticHead(data.head, 0.5)
    report = diagnose(data, head, optimizer=GradientDescent(1e-3), initial="zeros")
    assert bool(condition(report, "linear prediction head").refuted.all())
    for one in report.results:
        assert "linear prediction head" not in names(one) or not bool(one.applies.any())
    assert "one winner" in names(result(report, "one winner"))
    assert any("generalized SVM" in one.citation for one in report.conjectures)
    assert set(report.standing) == {Standing.PREDICTED}


def names(found: Result) -> list[str]:
    return [one.name for one in found.conditions]


def test_conjectures_are_a_list_of_their_own() -> None:
    data = random_sphere(n=3, T=4, d=5, batch=3, seed=4112)
    report = diagnose(data, parameterization=KeyQuery())
    assert all("key-query" not in one.citation for one in report.results)
    assert any("key-query" in one.citation for one in report.conjectures)
    text = str(report)
    assert text.index("Results") < text.index("Conjectures, none of them proved")
    parsed = json.loads(report.to_json())
    assert {one["citation"] for one in parsed["conjectures"]} == {one.citation for one in report.conjectures}


def test_a_rank_below_that_of_the_nuclear_solution_is_outside_the_path_theorem() -> None:
    data = random_sphere(n=4, T=5, d=6, batch=20, seed=4113)
    full = diagnose(data, parameterization=KeyQuery())
    solution = full.limits[0].solution
    rank = solution.rank(1e-6)
    assert int(rank.max()) > 1
    assert result(full, "regularization path of (K, Q)").applies.equal(solution.solved)
    narrow = result(diagnose(data, parameterization=KeyQuery(1)), "regularization path of (K, Q)")
    assert not bool((narrow.applies & (rank > 1)).any())


def test_rows_that_reach_the_diagnosis() -> None:
    small = random_sphere(n=2, T=3, d=20, batch=3, seed=4114)
    only = result(diagnose(small), "no selection but the optimal")
    assert only.applies.equal(attsvm.theory.all_tokens_support_everywhere(small).proved)
    only = result(diagnose(random_sphere(n=6, T=8, d=10, seed=4115)), "no selection but the optimal")
    assert not bool(only.applies)
    assert not bool(only.fails)  # not checked, and said so
    scores = torch.tensor([[[1.0], [1.0], [0.0]]]).double().expand(3, 2, 3, 1).clone()
    positive = torch.ones(3, 2).double()
    tied = TokenDataset(small.tokens, small.queries, positive, values=scores, head=torch.ones(3, 1).double())
    several = result(diagnose(tied), "several optima")
    assert "several optima, separable" in names(several)
    assert bool(several.applies.all())
    joint = diagnose(attsvm.data.example("joint-training-tight"), torch.tensor([0.0, 1.0]).double(), train_head=True)
    assert {"label margin", "logistic loss"} <= set(names(result(joint, "joint training")))
    assert not any(bool(one.applies.any()) for one in joint.results if "fixed prediction head" in names(one))
    assert any("talk" in one.citation for one in diagnose(small).conjectures)


def test_every_loss_that_fit_takes() -> None:
    data = random_sphere(n=2, T=3, d=4, batch=2, seed=4116)
    for loss in (attsvm.Logistic(), attsvm.Exponential(), attsvm.attention.Linear(), lambda m: torch.exp(-0.5 * m)):
        for optimizer in (GradientDescent(0.1), GradientDescent(Geometric(0.1, 1.1)), NormalizedGradientDescent(0.1)):
            report = diagnose(data, optimizer=optimizer, loss=loss)
            fit(data, optimizer=optimizer, loss=loss, steps=1, engine=TorchEngine())
    assert not bool(condition(report, "loss").certain.any())  # the last one is a custom loss


def test_separable_is_yes_no_or_not_known() -> None:
    """Two tokens 1e-6 apart: weights of margin 1 are in hand, so the answer is never no."""
    data = random_sphere(n=4, T=4, d=6, batch=20, seed=4117)
    tokens = data.tokens.clone()
    tokens[:, :, 1] = tokens[:, :, 0] + 1e-6 * gaussian(1, 20, 4, 6)
    close = TokenDataset(tokens, data.queries, data.labels, head=data.head)
    assert not bool(condition(diagnose(close), "separable optimum").refuted.any())
    line, scores = torch.tensor([[[-1.0], [0.0], [1.0]]]).double(), torch.tensor([[[0.0], [1.0], [0.0]]]).double()
    one = torch.ones(1, 1).double()
    between = TokenDataset(line, one, [1], values=scores, head=torch.ones(1).double())
    assert bool(condition(diagnose(between), "separable optimum").refuted)
