"""What every picture must keep to."""

from __future__ import annotations

from matplotlib.figure import Figure
from matplotlib.text import Text


def texts_outside(figure: Figure) -> list[str]:
    """Visible texts that stick out of the figure."""
    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()
    width, height = figure.bbox.width, figure.bbox.height
    outside, unseen = [], _labels_beyond_the_limits(figure)
    for text in figure.findobj(Text):
        if not text.get_text().strip() or not text.get_visible() or text in unseen:
            continue
        box = text.get_window_extent(renderer)
        if box.x0 < -0.5 or box.y0 < -0.5 or box.x1 > width + 0.5 or box.y1 > height + 0.5:
            outside.append(text.get_text())
    return outside


def _labels_beyond_the_limits(figure: Figure) -> set[Text]:
    """Labels of ticks outside the limits of their axis, which exist but are never drawn."""
    unseen = set()
    for axes in figure.get_axes():
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()):
                if not low <= tick.get_loc() <= high:
                    unseen |= {tick.label1, tick.label2}
    return unseen


def assert_no_clipped_text(figure: Figure) -> None:
    """Every visible text lies inside the figure."""
    outside = texts_outside(figure)
    assert not outside, outside


def drawn(axes, gid):
    """The artists of this group."""
    return [artist for artist in axes.get_children() if artist.get_gid() == gid]
