"""Curves out of a long table: one row a step becomes one line a run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from attsvm.experiments import ExperimentResult

NAIVE_LINE = (0, (1.2, 1.4))
"""The naive loop is dotted."""


def series(
    result: ExperimentResult, column: str, by: Sequence[str], *, table: str = "history", **where: object
) -> tuple[np.ndarray, np.ndarray]:
    """Recorded steps, and the column as ``[runs, steps]``: a run for every combination of the columns `by`, sorted.

    Arguments:
        result: a stored result whose table has a column ``step``.
        column: what is followed.
        by: the columns that tell runs apart.
        table: its name.
        where: only rows with these values.
    """
    steps = result.column(table, "step", **where)
    keys = [result.column(table, name, **where) for name in by]
    values = result.column(table, column, **where)
    unique = np.unique(steps)
    order = np.lexsort((steps, *reversed(keys)))
    return unique, values[order].reshape(-1, len(unique))
