"""The nuclear kernel as threads of a GPU run it, in plain Python: the same in every order of these."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import FunctionType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks.kernels import Emulated, nuclear_launch, solved

from attsvm.data import random_sphere
from attsvm.svm import AttentionSVM
from attsvm.svm.solvers.nuclear import device, kernel, workers
from lockstep import ORDERS, can_compile, run_block

from .checks import dataset


def problems() -> dict[str, AttentionSVM]:
    draw = torch.Generator().manual_seed(4)
    data, few = random_sphere(2, 4, 3, batch=3, seed=3), random_sphere(3, 3, 4, batch=2, seed=1)
    kept = torch.zeros(2, 3, 3, dtype=torch.bool)
    kept[:, 0, :2] = kept[:, 1:, 0] = True
    sides = torch.tensor([[1.0, 0.0, 1.0]]).double().expand(2, 3)
    mask = torch.ones(2, 4, dtype=torch.bool)
    mask[0, 3] = False
    tokens = torch.randn(2, 4, 3, generator=draw).double()
    ragged = dataset(tokens.numpy()[None], np.eye(2)[None], mask=mask.numpy()[None])
    opposite = dataset(np.array([[[[0.0, 0.0], [1.0, 0.5], [-1.0, -0.5]]]]), np.ones((1, 1, 2)))
    return {
        "random": AttentionSVM(data, torch.tensor([[0, 1], [1, 1], [2, 0]])),
        "equalities": AttentionSVM(few, selected_set=kept),
        "relaxed": AttentionSVM(few, torch.zeros(2, 3, dtype=torch.long), right_hand_side=sides),
        "ragged": AttentionSVM(ragged, [[0, 1]]),
        "infeasible": AttentionSVM(opposite, [[0]]),
    }


def alone(inputs: Any, limits: Any, outputs: Any, size: tuple[int, ...]) -> None:
    kernel.solve_many(*inputs, *limits, *outputs, workers.workspace(workers.shapes(*size)))


def shared(lanes: int, columns: int, order: str, *, warps: int = 1, near: bool = True) -> Callable[..., None]:
    """So many threads, `columns` of them along a row of a matrix; what they write on begins as NaN, near or far."""

    def parts(space: np.ndarray, numbers: np.ndarray, sizes: workers.Workspace) -> workers.Workspace:
        at, made = warps, []
        for name, (rows, width) in zip(workers.Workspace._fields, sizes, strict=True):
            base, width = numbers if name == "rows" else space, width | 1
            made.append(base[at : at + rows * width].reshape(rows, width))
            at += rows * width
        return workers.Workspace(*made)

    shapes = FunctionType(workers.shapes.__code__, vars(workers) | {"LINES": lanes // columns})
    words = {
        "_LANES": lanes, "_COLUMNS": columns, "_WARP": lanes // warps, "_WARPS": warps, "_BOARD": warps,
        "WORKERS": lanes, "COLUMNS": columns, "LINES": lanes // columns, "parts": parts, "_shapes": shapes,
    }  # fmt: skip

    def run(inputs: Any, limits: Any, outputs: Any, size: tuple[int, ...]) -> None:
        turn = np.zeros(1, dtype=np.int64)
        count = warps + sum(rows * (width | 1) for rows, width in shapes(*size))
        far = np.full((1, warps if near else count), np.nan)
        arguments = (*inputs, *limits, *outputs, turn, far, far.view(np.int64))
        space = count if near else warps
        chosen, warp = ORDERS[order](), lanes // warps
        run_block(device._KERNELS[near], arguments, lanes, chosen, space=space, warp=warp, words=words)

    return run


def test_every_word_that_a_gpu_has_of_its_own_is_used() -> None:
    def home(function: Any) -> Any:
        return getattr(getattr(function, "py_func", function), "__code__", SimpleNamespace(co_filename="")).co_filename

    own = {name for name, value in vars(device).items() if name in device._text and home(value) == device.__file__}
    assert {"mine", "my_line", "my_column", "barrier", "gather", "factor"} <= own
    assert {name for name, value in device._words.items() if home(value) == device.__file__} == own | {
        "total",
        "highest",
    }


@pytest.mark.slow
@pytest.mark.parametrize("warps", [1, 2])
@pytest.mark.parametrize("name", list(problems()))
def test_any_order_of_threads_gives_the_solution_of_one(name: str, warps: int) -> None:
    problem = problems()[name]
    weights, _, report = solved(problem, alone)
    found = {order: solved(problem, shared(8, 4, order, warps=warps)) for order in ORDERS}
    for others in (found["downwards"], found["shuffled"]):
        for one, other in zip(found["upwards"], others, strict=True):
            np.testing.assert_array_equal(one, other)
    ours = found["upwards"]
    assert ours[2][:, 3].tolist() == report[:, 3].tolist(), "a ray is looked for where one worker looks for it"
    sure = (report[:, 0] < 1e-8) & (report[:, 2] > 0)
    print(f"{name}: {int(sure.sum())} of {len(sure)} solutions are unique")
    assert sure.any() or name == "infeasible"
    assert (ours[2][report[:, 0] < 1e-8, 0] < 1e-8).all()
    np.testing.assert_allclose(ours[0][sure], weights[sure], rtol=0, atol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize(("lanes", "warps", "near"), [(32, 1, False), (64, 2, True)])
def test_whole_warps(lanes: int, warps: int, near: bool) -> None:
    problem = problems()["random"][:1]
    weights, *_ = solved(problem, alone)
    several = solved(problem, shared(lanes, 16, "downwards", warps=warps, near=near))
    assert (several[2][:, 0] < 1e-8).all()
    np.testing.assert_allclose(several[0], weights, rtol=0, atol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("near", [False, True])
def test_compiled_for_a_gpu(near: bool) -> None:
    """What NVIDIA's compiler makes of it, run in NumPy, where every access to memory is watched."""
    can_compile()
    emulated = Emulated(device._KERNELS[near])
    for name, problem in problems().items() if near else [("random", problems()["random"][:1])]:
        weights, duals, report = solved(problem, alone)
        ours = solved(problem, partial(nuclear_launch, emulated, near))
        assert ours[2][:, 1:].tolist() == report[:, 1:].tolist(), name
        sure = report[:, 0] < 1e-8
        np.testing.assert_allclose(ours[0][sure], weights[sure], rtol=0, atol=1e-12)
        np.testing.assert_allclose(ours[1][sure], duals[sure], rtol=0, atol=1e-12)
    print(f"near {near}: {round(emulated.counts.total)} instructions of a warp, the last time")
