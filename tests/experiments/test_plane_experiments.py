"""The seven experiments in the plane: closed forms, and what the papers say of them."""

from __future__ import annotations

import numpy as np
import pytest

from attsvm.experiments import EXPERIMENTS, Verdict, describe_columns, run
from attsvm.experiments.weights_and_factors import PICTURE
from experiments.results import PLANE, result_of


@pytest.mark.parametrize("name", PLANE)
def test_every_check_holds(name):
    checks = EXPERIMENTS[name].checks(result_of(name))
    assert len(checks) >= 3
    failed = [check for check in checks if check.verdict is not Verdict.HOLDS]
    assert [check.what for check in failed if "conjecture" not in check.expected] == []


@pytest.mark.parametrize("name", PLANE)
def test_every_column_is_described(name):
    for table in result_of(name).tables.values():
        assert all(describe_columns(table).values())


@pytest.mark.parametrize(
    ("name", "column", "short"),
    [("multi-input", "cosine", {}), ("trajectories", "cosine_frobenius", {"long_steps": 40})],
)
def test_chunks_do_not_change_what_is_drawn(name, column, short, tmp_path):
    configuration = EXPERIMENTS[name].default.with_values(datasets=3, steps=40, **short)
    found = []
    for size in (1, 3):
        result = run(EXPERIMENTS[name], configuration.with_values(chunk_size=size), folder=tmp_path / str(size))
        found.append([result.column("history", column, dataset=dataset, step=40) for dataset in range(3)])
    assert np.allclose(found[0], found[1], atol=1e-12)
    assert len({tuple(values) for values in found[0]}) == 3


@pytest.mark.parametrize("variant", ["global", "local"])
def test_single_input_rays_are_the_closed_forms(variant):
    rays = result_of("single-input").arrays[f"{variant}_rays"]
    assert np.allclose(rays, [[-10 / 101, 100 / 101], [1, 0]], atol=1e-9)


def test_single_input_starts_are_the_papers():
    paths = result_of("single-input").arrays["local_paths"]
    assert paths[0].tolist() == [[0, c] for c in (1.0, 0.5, 0.0, -0.5, -1.0, -1.5)]
    lengths = np.linalg.norm(np.diff(paths[:201], axis=0), axis=-1)  # every step is kept up to 200
    assert np.allclose(lengths, 0.1, atol=1e-12)


def test_multi_input_line_separates_all_optimal_tokens():
    arrays = result_of("multi-input").arrays
    sides = arrays["tokens"] @ arrays["ray"] - arrays["offsets"][:, None]
    assert np.argwhere(sides > 0).tolist() == [[0, 0], [1, 0], [2, 0]]
    margins = (arrays["tokens"][:, :1] - arrays["tokens"][:, 1:]) @ arrays["ray"]
    assert margins.min() == pytest.approx(1.0)


def test_gradient_descent_is_far_behind():
    result = result_of("descent-vs-normalized")
    where = {"step": 200, "start": 0.0}
    gradient = result.column("history", "probability", rule="gradient", **where)
    missing = result.column("history", "missing", rule="normalized", **where)
    assert ((gradient > 0.9) & (gradient < 0.99)).all()
    assert ((missing > 0) & (missing < 1e-6)).all()
    lengths = result.column("history", "norm", rule="normalized", step=2, dataset=0)
    assert (lengths <= np.abs([1, 0.5, 0, -0.5, -1, -1.5]) + 0.2 + 1e-12).all()


def test_missing_probability_is_right_below_round_off():
    result = result_of("descent-vs-normalized")
    missing = result.column("history", "missing", rule="normalized", start=0.0, dataset=0, step=1000)
    assert 1e-70 < missing[0] < 1e-30


@pytest.mark.parametrize(("variant", "limit"), [("tight", (4 / 3, 1 / 3)), ("relaxed", (1.0, 0.0))])
def test_joint_training_rays_are_the_closed_forms(variant, limit):
    arrays = result_of("joint-training").arrays
    assert np.allclose(arrays[f"{variant}_prompt_ray"], limit, atol=1e-9)
    assert np.allclose(arrays[f"{variant}_head_ray"], (0, 1), atol=1e-9)
    assert arrays[f"{variant}_prompts"][0].tolist() == [0, -1]
    assert arrays[f"{variant}_heads"][0].tolist() == [-1, 0]


def test_equal_scores_go_straight():
    result = result_of("loss-comparison")
    for loss in ("linear", "logistic", "exponential"):
        path = result.arrays[f"{loss}_paths"][:, 0]
        assert np.abs(path[:, 1]).max() < 1e-9
        assert path[-1, 0] == pytest.approx(2000.0)  # 20,000 steps of 0.1


def test_the_first_step_bends_with_the_loss():
    # At p = 0 the gradient is -(1/4) sum_i |loss'(g_i / 2)| g_i x_i with x = (1, 1), (1, -1) and g = (C, 1).
    result = result_of("loss-comparison")
    slopes = {
        "linear": lambda margin: 1.0,
        "logistic": lambda margin: 1 / (1 + np.exp(margin)),
        "exponential": lambda margin: np.exp(-margin),
    }
    for loss, slope in slopes.items():
        for place, score in enumerate(result.configuration["scores"]):
            first, second = score * slope(score / 2), slope(0.5)
            direction = np.array([first + second, first - second])
            expected = 0.1 * direction / np.linalg.norm(direction)
            assert np.allclose(result.arrays[f"{loss}_paths"][1, place], expected, atol=1e-12)


@pytest.mark.parametrize("name", ["trajectories", "hyperplanes"])
def test_the_picture_is_not_among_the_statistics(name):
    result = result_of(name)
    datasets = result.column("history", "dataset")
    assert set(datasets) == {PICTURE, *range(6)}
    assert result.column("history", "optimal", dataset=PICTURE).all()


@pytest.mark.parametrize("name", ["trajectories", "hyperplanes"])
@pytest.mark.parametrize("kind", ["W", "KQ"])
def test_rays_and_lines_separate_the_selected_tokens(name, kind):
    arrays = result_of(name).arrays
    sides = np.einsum("itd,id->it", arrays["tokens"], arrays[f"{kind}_rays"]) - arrays[f"{kind}_offsets"][:, None]
    assert [row.tolist() for row in np.argwhere(sides > 0)] == [
        [i, t] for i, t in enumerate(arrays[f"{kind}_selected"])
    ]


@pytest.mark.parametrize("name", ["trajectories", "hyperplanes"])
def test_paths_start_where_the_paper_says(name):
    arrays = result_of(name).arrays
    assert (arrays["W_paths"][0] == 0).all()
    assert (arrays["KQ_paths"][0] == 0).all()  # Q(0) = 0


def test_both_queries_share_one_nuclear_ray_in_the_picture():
    first, second = result_of("trajectories").arrays["KQ_rays"]
    assert abs(first[0] * second[1] - first[1] * second[0]) < 1e-6 * np.linalg.norm(first) * np.linalg.norm(second)
