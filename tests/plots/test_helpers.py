"""plot_attention, plot_cosines and plot_margins on users' own runs."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import attsvm
from attsvm.plots import plot_attention, plot_cosines, plot_margins
from plots.checks import assert_no_clipped_text, drawn


def trained(data, **options):
    return attsvm.fit(data, engine=attsvm.descent.TorchEngine(), **{"steps": 60, "record": 5, **options})


@pytest.fixture(scope="module")
def data():
    return attsvm.data.random_sphere(n=4, T=5, d=6, seed=1)


@pytest.fixture(scope="module")
def batch():
    return attsvm.data.random_sphere(n=3, T=4, d=6, batch=5, seed=1)


@pytest.fixture(scope="module")
def problem(data):
    return attsvm.AttentionSVM(data, attsvm.optimal_tokens(data))


def test_attention_draws_every_token_of_every_input(data):
    run = trained(data)
    figure = plot_attention(run, title="A title")
    assert len(figure.axes) == 4
    for i, axes in enumerate(figure.axes):
        for t in range(5):
            (line,) = drawn(axes, f"token {t}")
            assert np.allclose(line.get_ydata(), run.history.attention[:, i, t])
            assert line.get_xdata().tolist() == run.history.step.tolist()
    assert_no_clipped_text(figure)


def test_attention_names_the_winner(data):
    run = trained(data, steps=400)
    for i, axes in enumerate(plot_attention(run).axes):
        assert f"token {int(run.selected[i])}" in [text.get_text() for text in axes.texts]


def test_attention_of_one_element_of_a_batch(batch):
    run = trained(batch)
    (line,) = drawn(plot_attention(run, element=3).axes[1], "token 2")
    assert np.allclose(line.get_ydata(), run.history.attention[:, 3, 1, 2])
    several = trained(batch, starts=2)
    (line,) = drawn(plot_attention(several, element=(1, 3)).axes[1], "token 2")
    assert np.allclose(line.get_ydata(), several.history.attention[:, 1, 3, 1, 2])


def test_attention_bad_input(data, batch):
    with pytest.raises(ValueError, match="'attention' in keep="):
        plot_attention(trained(data, keep=("risk",)))
    with pytest.raises(ValueError, match=r"element must be an index into \[5\]"):
        plot_attention(trained(batch))
    with pytest.raises(ValueError, match=r"element must be an index into \[5\].*got 7"):
        plot_attention(trained(batch), element=7)
    with pytest.raises(ValueError, match="element must be left out"):
        plot_attention(trained(data), element=0)


def test_cosines_of_single_runs(data, problem):
    runs = {"W": trained(data), "KQ": trained(data, parameterization=attsvm.KeyQuery())}
    solutions = {"Frobenius": attsvm.solve(problem), "nuclear": attsvm.solve(problem, attsvm.Nuclear())}
    figure = plot_cosines(runs, solutions, title="A title")
    plain, gaps = figure.axes
    assert [line.is_dashed() for line in plain.lines] == [False, False, True, True]
    expected = attsvm.direction_cosine(runs["W"].history.weights, solutions["nuclear"].weights)
    assert np.allclose(plain.lines[1].get_ydata(), expected)
    assert np.allclose(gaps.lines[1].get_ydata(), 1 - expected[1:])
    assert gaps.get_yscale() == gaps.get_xscale() == "log"
    assert_no_clipped_text(figure)


def test_cosines_of_batches_are_medians_of_what_is_solved(batch):
    run = trained(batch)
    solution = attsvm.solve(attsvm.AttentionSVM(batch, run.selected))
    (line,) = plot_cosines(run, solution).axes[0].lines
    cosines = attsvm.direction_cosine(run.history.weights, solution.weights)[:, solution.solved]
    assert np.allclose(line.get_ydata(), np.median(cosines.numpy(), axis=1))


def test_elements_without_a_solution_are_left_out():
    crowd = attsvm.data.random_sphere(n=3, T=5, d=2, batch=40, seed=0)
    run = trained(crowd, steps=5)
    solution = attsvm.solve(attsvm.AttentionSVM(crowd, attsvm.optimal_tokens(crowd)))
    kept = int(solution.solved.sum())
    assert 0 < kept < 40
    (line,) = plot_cosines(run, solution).axes[0].lines
    cosines = attsvm.direction_cosine(run.history.weights, solution.weights)[:, solution.solved]
    assert np.allclose(line.get_ydata(), np.median(cosines.numpy(), axis=1))


def test_cosines_bad_input(data, problem, batch):
    solution = attsvm.solve(problem)
    with pytest.raises(ValueError, match="at least one each"):
        plot_cosines({}, solution)
    with pytest.raises(ValueError, match="'weights' in keep="):
        plot_cosines(trained(data, keep=("risk",)), solution)
    larger = attsvm.data.random_sphere(n=2, T=3, d=9, seed=0)
    with pytest.raises(ValueError, match=r"must fit the weights \[6, 6\] of run 'run'; it has \[9, 9\]"):
        plot_cosines(trained(data), attsvm.solve(attsvm.AttentionSVM(larger, [0, 0])))
    crowd = attsvm.data.random_sphere(n=20, T=8, d=2, seed=0)
    run = trained(crowd, steps=5)
    with pytest.raises(ValueError, match="not solved for any element"):
        plot_cosines(run, attsvm.solve(attsvm.AttentionSVM(crowd, attsvm.optimal_tokens(crowd))))


def drawn_margins(axes):
    points = np.concatenate([line.get_xydata() for line in drawn(axes, "margins")])
    return points[np.argsort(points[:, 0], kind="stable")]


def test_margins_are_those_of_the_weights(data, problem):
    run, solution = trained(data, steps=300), attsvm.solve(problem)
    figure = plot_margins(problem, solution, run.weights, title="A title")
    (axes,) = figure.axes
    found = drawn_margins(axes)
    assert len(found) == 4 * 4  # every token but the selected one
    efficiency = attsvm.margin_efficiency(run.weights, problem)
    assert found[:, 1].min() == pytest.approx(float(efficiency))
    assert_no_clipped_text(figure)


def test_the_solution_touches_one_on_its_support(problem):
    solution = attsvm.solve(problem, attsvm.Nuclear())
    (axes,) = plot_margins(problem, solution, {r"W_\mathrm{mm}": 3 * solution.weights}).axes
    found = drawn_margins(axes)
    count = int(solution.support.sum())
    assert np.allclose(found[:count, 1], 1, atol=1e-5)  # sorted: support tokens first
    assert (found[count:, 1] > 1).all()
    filled = [line for line in drawn(axes, "margins") if line.get_markerfacecolor() != "white"]
    assert sum(len(line.get_xdata()) for line in filled) == count


def test_margins_bad_input(data, problem, batch):
    solution = attsvm.solve(problem)
    several = attsvm.AttentionSVM(batch, attsvm.optimal_tokens(batch))
    with pytest.raises(ValueError, match=r"problem must be one problem.*problem\[i\]"):
        plot_margins(several, solution, torch.eye(6))
    with pytest.raises(ValueError, match=r"weights 'W' must have shape \[6, 6\]"):
        plot_margins(problem, solution, torch.eye(5))
    with pytest.raises(ValueError, match="finite and not zero"):
        plot_margins(problem, solution, torch.zeros(6, 6))
    other = attsvm.data.random_sphere(n=4, T=5, d=3, seed=1)
    with pytest.raises(ValueError, match=r"weights \[3, 3\] to fit the problem; got \[6, 6\]"):
        plot_margins(attsvm.AttentionSVM(other, [0] * 4), solution, torch.eye(3))
    crowd = attsvm.data.random_sphere(n=20, T=8, d=2, seed=0)
    infeasible = attsvm.AttentionSVM(crowd, attsvm.optimal_tokens(crowd))
    with pytest.raises(ValueError, match="no margins to compare with: infeasible"):
        plot_margins(infeasible, attsvm.solve(infeasible), torch.eye(2))
    both = torch.zeros(4, 5, dtype=torch.bool)
    both[:, :2] = True
    pairs = attsvm.AttentionSVM(data, selected_set=both)
    with pytest.raises(ValueError, match="must select one token per input"):
        plot_margins(pairs, attsvm.solve(pairs), torch.eye(6))
