"""plot_attention, plot_cosines, plot_margins and plot_path on users' own runs, under any names."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
import pytest
import torch

import attsvm
from attsvm.plots import plot_attention, plot_cosines, plot_margins, plot_path, plot_trajectory_2d
from attsvm.plots.style import house_style, label_of, new_figure, text_of
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
    with pytest.raises(ValueError, match="runs must be a Run, or several by name in a dictionary; got an empty one"):
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


PLANE = attsvm.data.example("two-inputs")
ANY_NAMES = [
    "my run_1 50%", "_hidden", "$5 and {}", "$x_$", r"a\b", "{W}", "W_mm", "#1 & ~", "$W$", r"KQ^{\mathsf{T}}", "9%$ n",
]  # fmt: skip


@pytest.mark.parametrize("name", ANY_NAMES)
def test_any_name_can_be_drawn_and_read(name):
    with mpl.rc_context({"text.usetex": True}), house_style():  # TeX would choke on most of these
        figure = new_figure(4, 1)
        for text in (text_of(name), label_of(name), label_of(name, r"\,z_{0}")):
            figure.text(0, 0, text)
        figure.canvas.draw()
    if name not in ("$W$", r"KQ^{\mathsf{T}}"):
        assert label_of(name).replace(r"\$", "$") == name


@pytest.mark.parametrize("name", ["my run_1 50%", "_$x_ " + "n" * 200])
def test_every_plot_takes_any_name(name, data, problem):
    run, solution = trained(data, steps=5), attsvm.solve(problem)
    path = attsvm.regularization_path(data, radii=[1.0], restarts=0)
    flat = attsvm.fit(PLANE, steps=5, record=1, engine=attsvm.descent.TorchEngine())
    plot_cosines({name: run, "other": run}, {name: solution, "other": solution}, title=name)
    plot_path({name: path, "other": path}, solution, title=name)
    plot_trajectory_2d(PLANE, {name: flat}, title=name, caption=name)
    plot_attention(run, title=name)
    figure = plot_margins(problem, solution, {name: run.weights}, title=name)
    label = figure.axes[0].get_legend().get_texts()[0].get_text()
    assert label.startswith(name if len(name) < 20 else "_\\$x_ nnn")
    assert ": least " in label


def test_a_path_is_drawn_as_one_minus_cosine(batch):
    path = attsvm.regularization_path(batch, radii=[1.0, 10.0, 100.0], restarts=0)
    solution = attsvm.solve(attsvm.AttentionSVM(batch, attsvm.optimal_tokens(batch)))
    figure = plot_path(path, solution, title="A title")
    (axes,) = figure.axes
    cosines = attsvm.direction_cosine(path.weights, solution.weights)[:, solution.solved]
    assert np.allclose(axes.lines[0].get_ydata(), np.median(1 - cosines.numpy(), axis=1))
    assert np.array_equal(axes.lines[0].get_xdata(), [1.0, 10.0, 100.0])
    assert axes.get_xscale() == axes.get_yscale() == "log"
    marks = drawn(axes, "path")
    assert sum(len(line.get_xdata()) for line in marks) == 3
    hollow = next(line for line in marks if line.get_markerfacecolor() == "white")
    assert len(hollow.get_xdata()) == int((~path.converged[:, solution.solved]).any(-1).sum())
    assert_no_clipped_text(figure)


def test_paths_by_name_have_their_own_solutions(data):
    selected = attsvm.optimal_tokens(data)
    norms = {"Frobenius": attsvm.Frobenius(), "nuclear": attsvm.Nuclear()}
    options = {"radii": [1.0, 30.0], "restarts": 0}
    paths = {name: attsvm.regularization_path(data, norm=norm, **options) for name, norm in norms.items()}
    solutions = {name: attsvm.solve(attsvm.AttentionSVM(data, selected), norm) for name, norm in norms.items()}
    figure = plot_path(paths, solutions)
    for name, line in zip(norms, figure.axes[0].lines[::3], strict=True):
        expected = 1 - attsvm.direction_cosine(paths[name].weights, solutions[name].weights)
        assert np.allclose(line.get_ydata(), expected)
    with pytest.raises(ValueError, match="solutions must have the names of paths; 'nuclear' is not among Frobenius"):
        plot_path(paths, {"Frobenius": solutions["Frobenius"]})


def test_wrong_kinds_are_one_sentence(data, problem):
    run, solution = trained(data, steps=5), attsvm.solve(problem)
    for call, sentence in (
        (lambda: plot_cosines([run], solution), "runs must be a Run, or several by name in a dictionary; got list"),
        (lambda: plot_cosines(run, [solution]), "solutions must be a SVMSolution.*; got list"),
        (lambda: plot_cosines(run.weights, solution), "runs must be a Run.*; got Tensor"),
        (lambda: plot_cosines({"a": 3}, solution), "runs must be a Run.*; got int for 'a'"),
        (lambda: plot_cosines(solution, run), "runs must be a Run.*; got SVMSolution"),
        (lambda: plot_attention([run]), r"run must be a Run; got \[Run"),
        (lambda: plot_margins(solution, problem, run.weights), "problem must be an AttentionSVM; got SVMSolution"),
        (lambda: plot_path(run, solution), "paths must be a RegularizationPath.*; got Run"),
        (lambda: plot_trajectory_2d(run, PLANE), "runs must be a Run.*; got TokenDataset"),
        (lambda: plot_trajectory_2d(PLANE, run, solutions=[run]), "solutions must be a list of SVM.*; it holds Run"),
    ):
        with pytest.raises(ValueError, match=sentence):
            call()
