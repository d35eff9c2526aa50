"""What the playground shows first: a token data set and where descent starts, as the page's state."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from attsvm.app.problem import LARGEST, data_to_problem
from attsvm.data import StartingPoints, TokenDataset

VERSION = 1
MOST_COMPANIONS = 12
"""Further runs that the page draws beside the first."""


def data_to_state(data: TokenDataset, starting: StartingPoints | None = None) -> dict[str, Any]:
    """The page's state that shows `data`; the page fills in what is not said here.

    Data without a head show it being trained.

    Arguments:
        data: a single data set in the plane.
        starting: starting points of descent, such as `attsvm.data.starting_points` gives: the first becomes the run
            that the page tells about, the others run beside it. None means zero.

    Raises:
        ValueError: if the data do not fit the page.
    """
    problem = data_to_problem(data)
    starts = [] if starting is None else [_start(weights) for weights in starting.weights]
    settings: dict[str, Any] = {"trained": "p" if problem["kind"] == "prompt" else "W", "trainHead": data.head is None}
    if starts:
        settings["start"] = starts[0]
    if starting is not None and starting.head is not None:
        settings["startHead"] = starting.head[0].tolist()
    widest = max(float(part.abs().max()) for part in (data.tokens, data.queries))
    return {
        "version": VERSION,
        "preset": None,
        "problem": problem,
        "settings": settings,
        "companions": [{"start": start} for start in starts[1 : 1 + MOST_COMPANIONS]],
        "view": {"extent": min(1.3 * widest or 1.5, LARGEST)},
    }


def _start(weights: Tensor) -> dict[str, Any]:
    return {"p": weights.flatten().tolist()} if weights.shape[-1] == 1 else {"W": weights.tolist()}
