"""The kernel on a GPU, one warp for each problem; imported only where Numba sees a GPU."""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
from __future__ import annotations

from collections.abc import Sequence
from types import FunctionType
from typing import Any

import torch
from numba import cuda
from torch import Tensor

from attsvm.svm.solvers.nuclear import interior, kernel, workers
from attsvm.svm.solvers.nuclear.workers import Workspace, shapes

_WARPS = 8  # of a processor, each a block of its own
_LANES, _COLUMNS = 32, 16  # of a warp, and of these side by side on a row of a matrix
_ALL = 0xFFFFFFFF


@cuda.jit(device=True)
def mine(begin):
    """The first own entry of a vector from `begin` on."""
    return begin + ((cuda.threadIdx.x - begin) & (_LANES - 1))


@cuda.jit(device=True)
def my_line(begin):
    """The first own row of a matrix from `begin` on."""
    return begin + ((cuda.threadIdx.x // _COLUMNS - begin) & (_LANES // _COLUMNS - 1))


@cuda.jit(device=True)
def my_column(begin):
    """The first own column of a matrix from `begin` on."""
    return begin + ((cuda.threadIdx.x - begin) & (_COLUMNS - 1))


@cuda.jit(device=True)
def barrier():
    """The warp waits for all its threads, and sees what they wrote."""
    cuda.syncwarp()


@cuda.jit(device=True)
def total(x):
    """The sum over the warp, the same for all of it."""
    cuda.syncwarp()
    lanes = _LANES // 2
    while lanes:
        x += cuda.shfl_xor_sync(_ALL, x, lanes)
        lanes //= 2
    return x


@cuda.jit(device=True)
def highest(x):
    """The largest over the warp, the same for all of it."""
    cuda.syncwarp()
    lanes = _LANES // 2
    while lanes:
        other = cuda.shfl_xor_sync(_ALL, x, lanes)
        x = x if x >= other or x != x else other  # NaN for all lanes if it is for one
        lanes //= 2
    return x


# The functions of the kernel once more, its words with the meaning that they have here.
_text = vars(workers) | vars(interior) | vars(kernel)
_words: dict[str, Any] = _text | {"WORKERS": _LANES, "LINES": _LANES // _COLUMNS, "COLUMNS": _COLUMNS}
for _name, _function in _text.items():
    if hasattr(_function, "py_func"):
        _words[_name] = cuda.jit(FunctionType(_function.py_func.__code__, _words), device=True)
for _function in (mine, my_line, my_column, barrier, total, highest):
    _words[_function.__name__] = _function
_solve_one = _words["solve_one"]


# Compiling takes most of a minute and is cached on disk; Numba looks at the date of this file alone, so touch it after
# a change of the kernel.
@cuda.jit(cache=True)
def _solve(
    d, z, b, kind, limit, patience, weights, duals, report, turn, h, y, g, dy, core, e, t, a, f, i, c, q, m, s, v, w, r
):  # fmt: skip
    k = cuda.blockIdx.x
    work = Workspace(
        h[k], y[k], g[k], dy[k], core[k], e[k], t[k], a[k], f[k], i[k], c[k], q[k], m[k], s[k], v[k], w[k], r[k]
    )
    while True:
        if cuda.threadIdx.x == 0:  # whoever is done takes the next problem
            work.rows[0, 0] = cuda.atomic.add(turn, 0, 1)
        cuda.syncwarp()
        k = work.rows[0, 0]
        if k >= len(b):
            break
        _solve_one(d[k], z[k], b[k], kind[k], limit, patience, weights[k], duals[k], report[k], work)
        cuda.syncwarp()


def launch(inputs: Sequence[Tensor], limit: float, patience: int, outputs: Sequence[Tensor]) -> None:
    """`solve_one` for every problem, into `outputs`."""
    d, z = inputs[0], inputs[1]
    with torch.cuda.device(d.device), cuda.gpus[torch.cuda.current_device()]:
        blocks = min(len(d), _WARPS * torch.cuda.get_device_properties(d.device).multi_processor_count)
        sizes = shapes(d.shape[1], z.shape[1], d.shape[2], z.shape[2])
        kinds = [torch.int64 if shape is sizes.rows else torch.float64 for shape in sizes]
        work = [
            torch.empty(blocks, *shape, dtype=dtype, device=d.device) for shape, dtype in zip(sizes, kinds, strict=True)
        ]
        turn = torch.zeros(1, dtype=torch.int64, device=d.device)
        given = [cuda.as_cuda_array(x.contiguous()) for x in inputs]
        results = [cuda.as_cuda_array(x) for x in (*outputs, turn, *work)]
        # The kernel joins torch's own stream, so everything stays in order without waiting.
        handle = torch.cuda.current_stream().cuda_stream
        stream = cuda.external_stream(handle) if handle else 0
        _solve[blocks, _LANES, stream](*given, limit, patience, *results)
