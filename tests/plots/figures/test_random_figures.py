"""Pictures of the experiments on random data and images: what is drawn is what is stored."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.text import Text

from attsvm.plots import house_style
from attsvm.plots.figures import FIGURES, draw
from attsvm.plots.style import KQ_LINE
from experiments.results import RANDOM, result_of
from plots.checks import assert_no_clipped_text


def figures_of(name):
    with house_style():
        return FIGURES[name](result_of(name))


@pytest.mark.parametrize("name", RANDOM)
def test_every_picture_is_whole_and_labelled(name):
    figures = figures_of(name)
    assert next(iter(figures)) == name
    for figure in figures.values():
        assert_no_clipped_text(figure)
        words = [text.get_text() for text in figure.findobj(Text) if text.get_text().strip()]
        assert len(words) >= 3


@pytest.mark.parametrize("name", ["rank", "causal"])
def test_pictures_are_the_same_bytes_each_time(name, tmp_path):
    first, second = (draw(result_of(name), tmp_path / folder, ["png", "svg"]) for folder in ("a", "b"))
    for one, two in zip(first[name], second[name], strict=True):
        assert one.read_bytes() == two.read_bytes()
        assert one.stat().st_size > 5000


def test_key_query_is_dashed_and_w_solid():
    axes = figures_of("causal")["causal"].axes[1]
    styles = {line.get_linestyle() for line in axes.lines}
    assert styles == {"-", "--"}
    assert KQ_LINE[1][0] > 0


def test_the_causal_curve_is_the_median_of_the_stored_distances():
    result = result_of("causal")
    line = figures_of("causal")["causal"].axes[1].lines[0]
    last = result.column("history", "cosine_frobenius", parameterization="W", step=1500)
    assert line.get_ydata()[-1] == pytest.approx(np.median(1 - last))
    assert line.get_xdata()[-1] == 1500


def test_bars_of_convergence_types_add_up_to_one():
    axes = figures_of("convergence-types")["convergence-types"].axes[0]
    heights: dict[float, float] = {}
    for bar in axes.patches:
        heights[bar.get_x()] = heights.get(bar.get_x(), 0) + bar.get_height()
    assert len(heights) == 3
    assert np.allclose(list(heights.values()), 1)


def test_the_table_of_optimizers_prints_the_means():
    result = result_of("optimizer-geometry")
    axes = figures_of("optimizer-geometry")["optimizer-geometry"].axes[0]
    printed = {text.get_text() for text in axes.texts}
    mean = np.nanmean(result.column("pairs", "cosine", optimizer="sign", norm="max entry"))
    assert f"{mean:.3f}" in printed


def test_unknown_formats_are_refused(tmp_path):
    with pytest.raises(ValueError, match="formats must be of png, pdf, svg; got gif"):
        draw(result_of("rank"), tmp_path, ["gif"])
