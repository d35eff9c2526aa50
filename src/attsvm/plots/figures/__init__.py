"""One drawing a figure, from stored results alone."""

from attsvm.plots.figures.registry import FIGURES, FORMATS, draw

__all__ = ["FIGURES", "FORMATS", "draw"]
