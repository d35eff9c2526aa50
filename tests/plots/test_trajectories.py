from __future__ import annotations

import matplotlib as mpl
import numpy as np
import pytest
import torch

import attsvm
from attsvm.plots import plot_trajectory_2d
from attsvm.plots.plane import DecadePlane
from plots.checks import drawn, texts_outside

EXAMPLES = ("two-inputs", "trajectories", "hyperplanes", "multi-input", "single-input-local", "loss-comparison")


def trained(data, steps=120, **options):
    return attsvm.fit(
        data, steps=steps, record=1, engine=attsvm.descent.TorchEngine(), **{"initial": "zeros", **options}
    )


@pytest.fixture(scope="module")
def data():
    return attsvm.data.example("two-inputs")


@pytest.fixture(scope="module")
def runs(data):
    start = {"key": 0.1 * np.eye(2), "query": np.zeros((2, 2))}
    return {"W": trained(data), "K Q^T": trained(data, parameterization=attsvm.KeyQuery(), initial=start)}


@pytest.fixture(scope="module")
def solutions(data):
    problem = attsvm.AttentionSVM(data, attsvm.optimal_tokens(data))
    return [attsvm.solve(problem, norm) for norm in (attsvm.Frobenius(), attsvm.Nuclear())]


def test_one_path_for_each_input_and_run(data, runs):
    (axes,) = plot_trajectory_2d(data, runs).axes
    paths = drawn(axes, "path")
    assert len(paths) == 4
    assert [line.is_dashed() for line in paths] == [False, False, True, True]
    assert paths[0].get_color() == paths[2].get_color() != paths[1].get_color()


def test_tokens_and_stars(data, runs):
    (axes,) = plot_trajectory_2d(data, runs).axes
    stars = drawn(axes, "optimal token")
    assert len(drawn(axes, "token")) == 6
    assert len(stars) == 2
    places = [tuple(star.get_offsets()[0]) for star in stars]
    assert places == [tuple(place) for place in data.tokens_of(attsvm.optimal_tokens(data)).tolist()]


def test_higher_scores_are_larger(data, runs):
    (axes,) = plot_trajectory_2d(data, runs).axes
    plain = drawn(axes, "token")
    places = np.array([token.get_offsets()[0] for token in plain])
    sizes = np.array([token.get_sizes()[0] for token in plain])
    assert (np.argsort(places[:, 1]) == np.argsort(sizes)).all()  # the head is (0, 1): higher up is better


def test_paths_are_those_of_the_run(data, runs):
    (axes,) = plot_trajectory_2d(data, {"W": runs["W"]}).axes
    path = drawn(axes, "path")[1]
    expected = (runs["W"].weights @ data.queries[1]).numpy()
    last = path.get_xydata()[-1]
    assert np.allclose(last / np.linalg.norm(last), expected / np.linalg.norm(expected), atol=1e-12)
    first = (runs["W"].history.weights[3] @ data.queries[1]).numpy()
    assert np.abs(path.get_xydata() - first).sum(-1).min() < 1e-12  # near the tokens the scale is true


def test_every_path_is_named(data, runs):
    (axes,) = plot_trajectory_2d(data, runs).axes
    named = " ".join(text.get_text() for text in axes.texts if text.get_gid() == "path name")
    for name in ("W", "K Q^T"):
        for i in range(2):
            assert f"${name}\\,z_{{{i}}}$" in named


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("steps", [1, 150])
def test_no_text_is_cut_off(name, steps):
    data = attsvm.data.example(name)
    run = trained(data, steps, initial=attsvm.data.starting_points(name).weights)
    figure = plot_trajectory_2d(data, run, title="A title of ordinary length", caption="Words and more words. " * 12)
    assert texts_outside(figure) == []


def test_the_check_for_cut_off_text_can_fail(data, runs):
    figure = plot_trajectory_2d(data, runs)
    figure.text(0.99, 0.5, "sticks out on the right")
    assert texts_outside(figure) == ["sticks out on the right"]


def test_rays_point_along_the_solution_and_lie_thin_below_the_paths(data, runs, solutions):
    (axes,) = plot_trajectory_2d(data, runs, solutions=solutions[:1]).axes
    rays, paths = drawn(axes, "ray"), drawn(axes, "path")
    assert len(rays) == 2
    for i, ray in enumerate(rays):
        (x, y), end = ray.get_xydata()
        assert (x, y) == (0, 0)
        expected = (solutions[0].weights @ data.queries[i]).numpy()
        assert np.allclose(end / np.linalg.norm(end), expected / np.linalg.norm(expected), atol=1e-12)
        assert ray.get_linewidth() < 0.6 * paths[i].get_linewidth()
        assert ray.get_zorder() < paths[i].get_zorder()
        assert not ray.is_dashed()


def test_rays_that_coincide_are_drawn_once(data, runs, solutions):
    (axes,) = plot_trajectory_2d(data, runs, solutions=solutions).axes
    rays = drawn(axes, "ray")  # the nuclear solution has rank one: both inputs share its ray
    assert [ray.is_dashed() for ray in rays] == [False, False, True]
    assert rays[0].get_color() != rays[1].get_color() != rays[2].get_color()


def test_a_ray_ends_where_the_path_that_follows_it_ends(data, runs, solutions):
    (axes,) = plot_trajectory_2d(data, {"W": trained(data, 600)}, solutions=solutions[:1]).axes
    for ray, path in zip(drawn(axes, "ray"), drawn(axes, "path"), strict=True):
        ends = [np.linalg.norm(line.get_xydata()[-1]) for line in (ray, path)]
        assert ends[0] == pytest.approx(ends[1], rel=1e-9)


def test_rays_are_in_the_legend(data, runs, solutions):
    figure = plot_trajectory_2d(data, runs, solutions=solutions)
    said = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert [text for text in said if text.startswith("ray of")] == [
        r"ray of $W_\mathrm{mm}\,z_i$, Frobenius", r"ray of $W_\mathrm{mm}\,z_i$, nuclear",
    ]  # fmt: skip
    assert texts_outside(figure) == []
    plain = plot_trajectory_2d(data, runs).axes[0].get_legend().get_texts()
    assert not any(text.get_text().startswith("ray of") for text in plain)


def test_rays_of_prompts_and_of_nothing():
    data = attsvm.data.example("multi-input")
    run = trained(data, 50, initial=attsvm.data.starting_points("multi-input").weights)
    solution = attsvm.solve(attsvm.AttentionSVM(data, attsvm.optimal_tokens(data)))
    (axes,) = plot_trajectory_2d(data, {"p": run}, solutions=[solution]).axes
    assert len(drawn(axes, "ray")) == 1  # one query for all inputs
    one = attsvm.TokenDataset(data.tokens[:, :1], data.queries, data.labels)
    nothing = attsvm.solve(attsvm.AttentionSVM(one, [0] * data.n))
    (axes,) = plot_trajectory_2d(data, {"p": run}, solutions=[nothing]).axes
    assert drawn(axes, "ray") == []  # no constraints: W is zero and has no direction


def test_prompts_have_one_path_a_start():
    data = attsvm.data.example("multi-input")
    run = trained(data, 50, initial=attsvm.data.starting_points("multi-input").weights)
    (axes,) = plot_trajectory_2d(data, {"p": run}).axes
    assert len(drawn(axes, "path")) == 6


def test_masked_tokens_are_not_drawn(data):
    mask = torch.ones(2, 4, dtype=torch.bool)
    mask[1, 3] = False
    ragged = attsvm.TokenDataset(data.tokens, data.queries, data.labels, mask=mask, head=data.head)
    (axes,) = plot_trajectory_2d(ragged, trained(ragged, 20)).axes
    assert len(drawn(axes, "token")) + len(drawn(axes, "optimal token")) == 7


def test_without_a_head_all_tokens_are_alike(data, runs):
    (axes,) = plot_trajectory_2d(data.with_head(None), runs).axes
    assert len(drawn(axes, "token")) == 8
    assert len({token.get_sizes()[0] for token in drawn(axes, "token")}) == 1


def test_many_inputs():
    data = attsvm.data.random_gaussian(n=12, T=3, d=2, seed=0)
    figure = plot_trajectory_2d(data, trained(data, 30))
    assert len(drawn(figure.axes[0], "path")) == 12
    assert texts_outside(figure) == []


def test_no_global_state_is_touched(data, runs):
    before = dict(mpl.rcParams)
    plot_trajectory_2d(data, runs)
    assert dict(mpl.rcParams) == before


def test_figures_can_be_saved_anywhere(data, runs, tmp_path):
    figure = plot_trajectory_2d(data, runs)
    for suffix in ("png", "svg", "pdf"):
        figure.savefig(tmp_path / f"picture.{suffix}")
        assert (tmp_path / f"picture.{suffix}").stat().st_size > 5000


def test_bad_input(data, runs):
    batch = attsvm.data.random_sphere(n=2, T=3, d=2, batch=3, seed=0)
    with pytest.raises(ValueError, match=r"pick one with data\[i\]"):
        plot_trajectory_2d(batch, runs)
    with pytest.raises(ValueError, match="d = 2; got d = 5"):
        plot_trajectory_2d(attsvm.data.random_sphere(n=2, T=3, d=5, seed=0), runs)
    with pytest.raises(ValueError, match=r"runs must be a Run.*; got an empty one"):
        plot_trajectory_2d(data, {})
    with pytest.raises(ValueError, match="no recorded weights"):
        plot_trajectory_2d(data, attsvm.fit(data, steps=5, keep=("risk",), engine=attsvm.descent.TorchEngine()))
    with pytest.raises(ValueError, match=r"must have weights \[records, 2, 1\]"):
        plot_trajectory_2d(attsvm.data.example("multi-input"), runs)
    larger = attsvm.data.random_sphere(n=2, T=3, d=5, seed=0)
    other = attsvm.solve(attsvm.AttentionSVM(larger, attsvm.optimal_tokens(larger)))
    with pytest.raises(ValueError, match=r"weights \[2, 2\] to fit the data; solution 0 has \[5, 5\]"):
        plot_trajectory_2d(data, runs, solutions=[other])
    crowd = attsvm.data.random_sphere(n=20, T=8, d=2, seed=0)
    none = attsvm.solve(attsvm.AttentionSVM(crowd, attsvm.optimal_tokens(crowd)))
    with pytest.raises(ValueError, match="solution 0 has no ray to draw: infeasible"):
        plot_trajectory_2d(data, runs, solutions=[none])


def test_the_plane_is_smooth_and_monotone():
    plane = DecadePlane(radius=2.0, decade=0.7)
    distances = np.geomspace(1e-3, 1e8, 4000)
    shown = np.array([plane.distance(distance) for distance in distances])
    assert (np.diff(shown) > 0).all()
    assert plane.distance(2.0) == 2.0
    slope = (plane.distance(2.0 + 1e-6) - 2.0) / 1e-6
    assert abs(slope - 1) < 1e-5
    points = np.array([[3.0, 4.0], [-30.0, 40.0]])
    assert np.allclose(np.arctan2(*plane.shown(points).T), np.arctan2(*points.T))
    assert plane.shown(np.zeros((1, 2))).tolist() == [[0.0, 0.0]]
