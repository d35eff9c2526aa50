"""Pictures of the experiments in the plane: what they draw is what is stored."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from attsvm.plots.curves import series
from attsvm.plots.figures import FIGURES
from attsvm.plots.figures.plane import unchosen
from attsvm.plots.style import house_style
from experiments.results import PLANE, result_of
from plots.checks import assert_no_clipped_text, drawn


@pytest.fixture(scope="module")
def pictures():
    with house_style():
        return {name: FIGURES[name](result_of(name))[name] for name in PLANE}


@pytest.mark.parametrize("name", PLANE)
def test_no_text_is_cut_off(pictures, name):
    with house_style():
        assert_no_clipped_text(pictures[name])


@pytest.mark.parametrize("name", PLANE)
def test_curves_have_labelled_axes(pictures, name):
    curves = [axes for axes in pictures[name].get_axes() if axes.axison and axes.spines["left"].get_visible()]
    assert curves
    for axes in curves:
        assert axes.get_xlabel() == "step"
        assert axes.get_ylabel()


def direction(line):
    end = line.get_xydata()[-1]
    return end / np.linalg.norm(end)


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


@pytest.mark.parametrize(("place", "variant"), [(0, "global"), (1, "local")])
def test_single_input_draws_the_stored_paths(pictures, place, variant):
    axes, arrays = pictures["single-input"].get_axes()[place], result_of("single-input").arrays
    paths = drawn(axes, "path")
    assert len(paths) == 6
    assert np.allclose([direction(path) for path in paths], unit(arrays[f"{variant}_paths"][-1]), atol=1e-9)
    assert [tuple(start.get_xydata()[0]) for start in drawn(axes, "start")][:3] == [(0, 1), (0, 0.5), (0, 0)]
    assert np.allclose([direction(ray) for ray in drawn(axes, "ray")], unit(arrays[f"{variant}_rays"]), atol=1e-9)
    assert len(drawn(axes, "separator")) == (1 if variant == "global" else 2)


def test_single_input_colours_tell_the_token_reached(pictures):
    colours = [line.get_color() for line in drawn(pictures["single-input"].get_axes()[1], "path")]
    assert colours[:4] == [colours[0]] * 4
    assert colours[4] == colours[5] != colours[0]


def test_the_naive_loop_is_dotted(pictures):
    for name in ("single-input", "joint-training", "loss-comparison"):
        lines = [line for axes in pictures[name].get_axes() for line in axes.lines]
        exact = [line for line in lines if line.get_gid() == "exact"]
        naive = [line for line in lines if line.get_gid() == "naive"]
        assert len(exact) == len(naive) > 0
        assert not any(line.is_dashed() for line in exact)
        assert all(line.is_dashed() for line in naive)


def test_best_tokens_are_starred_by_the_rule_for_ties():
    """Scores that differ by round-off only: both tokens are best, as for every other comparison of scores."""
    result = result_of("multi-input")
    arrays = dict(result.arrays)
    arrays["scores"], arrays["optimal"] = arrays["scores"].copy(), arrays["optimal"].copy()
    best = int(arrays["scores"][0].argmax())
    other = (best + 1) % arrays["scores"].shape[1]
    arrays["scores"][0, other] = arrays["scores"][0, best] * (1 - 2e-16)
    arrays["optimal"][0, other] = True
    before, after = (
        len(drawn(FIGURES["multi-input"](each)["multi-input"].get_axes()[0], "optimal token"))
        for each in (result, replace(result, arrays=arrays))
    )
    assert after == before + 1


def test_multi_input_has_one_parallel_line_an_input(pictures):
    axes, ray = pictures["multi-input"].get_axes()[0], result_of("multi-input").arrays["ray"]
    lines = drawn(axes, "separator")
    assert len(lines) == 3
    for line in lines:
        first, second = line.get_xydata()
        assert abs((second - first) @ ray) < 1e-9


def test_descent_vs_normalized_shows_the_first_data_set(pictures):
    axes = pictures["descent-vs-normalized"].get_axes()[0]
    (line,) = drawn(axes, "gradient")
    steps, values = series(result_of("descent-vs-normalized"), "probability", ["dataset"], rule="gradient", start=0.0)
    shown = steps <= 200
    assert np.array_equal(line.get_xydata(), np.stack([steps[shown], values[0, shown]], -1))


def test_joint_training_draws_prompt_solid_and_head_dashed(pictures):
    for place in (0, 3):
        paths = drawn(pictures["joint-training"].get_axes()[place], "path")
        assert [path.is_dashed() for path in paths] == [False, True]


def test_loss_comparison_has_a_path_for_every_score(pictures):
    result = result_of("loss-comparison")
    planes = [axes for axes in pictures["loss-comparison"].get_axes() if drawn(axes, "path")]
    assert len(planes) == 3
    for axes, loss in zip(planes, ("linear", "logistic", "exponential"), strict=True):
        ends = np.array([direction(path) for path in drawn(axes, "path")])
        assert np.allclose(ends, unit(result.arrays[f"{loss}_paths"][-1]), atol=1e-9)


@pytest.mark.parametrize("name", ["trajectories", "hyperplanes"])
def test_w_is_solid_and_kq_dashed(pictures, name):
    planes = [axes for axes in pictures[name].get_axes() if drawn(axes, "path")]
    paths = [path for axes in planes for path in drawn(axes, "path")]
    assert [path.is_dashed() for path in paths] == [False, False, True, True]
    stored = np.concatenate([result_of(name).arrays[f"{kind}_paths"][-1] for kind in ("W", "KQ")])
    assert np.allclose([direction(path) for path in paths], unit(stored), atol=1e-9)


def test_hyperplanes_have_a_line_for_each_input_and_parameterization(pictures):
    planes = [axes for axes in pictures["hyperplanes"].get_axes() if drawn(axes, "path")]
    for axes, kind in zip(planes, ("W", "KQ"), strict=True):
        rays, lines = result_of("hyperplanes").arrays[f"{kind}_rays"], drawn(axes, "separator")
        assert len(lines) == 2
        for ray, line in zip(rays, lines, strict=True):
            first, second = line.get_xydata()
            assert abs((second - first) @ ray) < 1e-9 * np.linalg.norm(ray)


@pytest.mark.parametrize("name", ["trajectories", "hyperplanes"])
def test_statistics_leave_the_picture_out(name):
    steps, values = unchosen(result_of(name), "cosine_frobenius", "W")
    assert values.shape == (6, len(steps))
    assert steps[-1] == 20_000
