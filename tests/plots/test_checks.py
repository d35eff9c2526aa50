from __future__ import annotations

import pytest

from attsvm.plots.style import new_figure
from plots.checks import assert_no_clipped_text


@pytest.mark.parametrize(("x", "y"), [(0.95, 0.5), (-0.05, 0.5), (0.3, 0.995), (0.3, -0.02)])
def test_clipped_text_is_seen(x, y):
    figure = new_figure(3, 2)
    figure.text(x, y, "a text that sticks out")
    with pytest.raises(AssertionError):
        assert_no_clipped_text(figure)


def test_text_inside_is_fine():
    figure = new_figure(3, 2)
    figure.text(0.3, 0.5, "inside")
    assert_no_clipped_text(figure)
