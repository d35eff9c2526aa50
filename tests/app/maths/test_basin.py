"""Basins: every cell is where descent from its starting point ends."""

from __future__ import annotations

import numpy as np
import pytest

from attsvm.app.problem import data_to_problem
from attsvm.data import example

WALK = """
async ([problem, settings, grid]) => {
  const { maths } = await import("/maths/index.js");
  let slices = 0;
  let heard = 0;
  let last = null;
  let known = 0;
  let grows = true;
  for (const state of maths.basin(problem, settings, grid, () => heard++)) {
    slices++;
    grows = grows && state.done >= known;
    known = state.done;
    last = state;
  }
  return { ...last, cells: Array.from(last.cells), settled: Array.from(last.settled), slices, heard, grows };
}
"""


def centres(size, extent):
    return [-extent + 2 * extent * (k + 0.5) / size for k in range(size)]


@pytest.mark.parametrize(("name", "trained"), [
    ("single-input-local", "p"), ("multi-input", "p"), ("trajectories", "W"), ("trajectories", "KQ"),
])  # fmt: skip
def test_cells_are_ends_of_runs(maths, name, trained):
    problem = data_to_problem(example(name))
    settings = {"trained": trained, "optimizer": "normalized", "loss": "logistic", "stepSize": 0.1, "steps": 150}
    size, extent = 7, 2.5
    found = maths.page.evaluate(WALK, [problem, settings, {"size": size, "extent": extent, "budgetMs": 0}])
    assert found["done"] == found["total"] == size * size
    assert found["grows"]
    assert found["heard"] == found["slices"] > size
    assert min(found["cells"]) >= 0
    calls = []
    for y in reversed(centres(size, extent)):
        for x in centres(size, extent):
            calls.append(("train", [problem, {**settings, "start": start_at(problem, trained, x, y)}, []]))
    for cell, settled, run in zip(found["cells"], found["settled"], maths.calls(calls), strict=True):
        assert found["selections"][cell] == run["selected"]
        assert bool(settled) == (min(run["probability"][-1]) >= 0.9)


def start_at(problem, trained, x, y):
    """W(0) = w z_1^T / |z_1|^2, or balanced factors of it, as the basin places them."""
    if trained == "p":
        return {"p": [x, y]}
    place, query = np.array([x, y]), np.array(problem["inputs"][0]["query"])
    if trained == "W":
        return {"W": (np.outer(place, query) / (query @ query)).tolist()}
    long, wide = np.linalg.norm(place), np.linalg.norm(query)
    if long == 0:
        return {"K": [[0, 0], [0, 0]], "Q": [[0, 0], [0, 0]]}
    root = np.sqrt(long / wide)
    key, other = root * place / long, root * query / wide
    return {"K": [[key[0], 0], [key[1], 0]], "Q": [[other[0], 0], [other[1], 0]]}


def test_two_basins_of_the_local_example(maths):
    """[MMTS, single input]: starts far down end on token 1, starts high up on the optimal token."""
    settings = {"trained": "p", "optimizer": "normalized", "loss": "logistic", "stepSize": 0.1, "steps": 300}
    problem = data_to_problem(example("single-input-local"))
    found = maths.page.evaluate(WALK, [problem, settings, {"size": 16, "extent": 2, "budgetMs": 1000}])
    cells = np.reshape(found["cells"], (16, 16))
    names = [tuple(each) for each in found["selections"]]
    assert set(names) == {(0,), (1,)}
    assert (cells[0] == names.index((0,))).all()
    assert cells[15, 15] == names.index((1,))
