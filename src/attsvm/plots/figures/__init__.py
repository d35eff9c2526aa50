"""The figures of the experiments, drawn from stored results alone, and the files they become."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from matplotlib.figure import Figure

from attsvm.experiments.geometry import GEOMETRIES
from attsvm.plots.figures import dimensions, parameters, plane, steps
from attsvm.plots.style import Picture, house_style, save
from attsvm.sweep.result import SweepResult

__all__ = ["FIGURES", "FORMATS", "draw"]

_MODULES = (dimensions, parameters, plane, steps)
_PICTURES = [each for module in _MODULES for each in vars(module).values() if isinstance(each, Picture)]
FIGURES: Mapping[str, Callable[[SweepResult], Mapping[str, Figure]]] = MappingProxyType(
    {
        **{name: each for each in _PICTURES for name in each.ids},
        **dict.fromkeys(GEOMETRIES, parameters.geometry),
        "attention-sparsity": steps.attention_sparsity,
        "loss-comparison": plane.loss_comparison,
    }
)
"""By experiment: a function from its stored result to pictures by name; the first one is the experiment's own."""

FORMATS = ("png", "pdf", "svg")


def draw(
    result: SweepResult, folder: Path | str | None = None, formats: Sequence[str] = FORMATS
) -> dict[str, list[Path]]:
    """Draw a stored result into `folder`, by default its own, and return the files by picture, its own picture first.

    A `ValueError` if a format is unknown, or the result is none of an experiment with a picture.
    """
    if (unknown := [each for each in formats if each not in FORMATS]) or not formats:
        raise ValueError(f"formats must be of {', '.join(FORMATS)}; got {', '.join(unknown) or 'none'}")
    if result.id not in FIGURES:
        raise ValueError(f"there is no picture of {result.id!r}; there are pictures of {', '.join(FIGURES)}")
    target = Path(folder) if folder is not None else result.folder
    target.mkdir(parents=True, exist_ok=True)
    with house_style():
        return {name: [save(figure, target / f"{name}.{each}", each) for each in formats]
                for name, figure in FIGURES[result.id](result).items()}  # fmt: skip
