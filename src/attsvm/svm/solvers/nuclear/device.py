"""The kernel on a GPU, one thread for each problem; imported only where Numba sees a GPU."""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
from __future__ import annotations

from collections.abc import Sequence

import torch
from numba import cuda
from torch import Tensor

from attsvm.svm.solvers.nuclear.kernel import Workspace, shapes, solve_one

_THREADS, _BLOCKS = 128, 3  # threads of a block, and blocks of a processor


# Compiling takes most of a minute and is cached on disk; Numba looks at the date of this file alone, so touch it after
# a change of the kernel.
@cuda.jit(cache=True)
def _solve(d, z, b, kind, limit, patience, weights, duals, report, h, y, g, dy, core, e, t, c, q, m, s, v, r):
    i = cuda.grid(1)
    work = Workspace(
        h[:, :, i], y[:, :, i], g[:, :, i], dy[:, :, i], core[:, :, i], e[:, :, i], t[:, :, i], c[:, :, i],
        q[:, :, i], m[:, :, i], s[:, :, i], v[:, :, i], r[:, :, i],
    )  # fmt: skip
    for k in range(i, b.shape[1], cuda.gridsize(1)):
        solve_one(
            d[:, :, k], z[:, :, k], b[:, k], kind[:, k], limit, patience,
            weights[:, :, k], duals[:, k], report[:, k], work,
        )  # fmt: skip


def launch(inputs: Sequence[Tensor], limit: float, patience: int, outputs: Sequence[Tensor]) -> None:
    """`solve_one` for every problem; the problem is the last axis on the device, so that threads read side by side."""
    d, z = inputs[0], inputs[1]
    with torch.cuda.device(d.device), cuda.gpus[torch.cuda.current_device()]:
        blocks = _BLOCKS * torch.cuda.get_device_properties(d.device).multi_processor_count
        sizes = shapes(d.shape[1], z.shape[1], d.shape[2], z.shape[2])
        kinds = [torch.int64 if shape is sizes.rows else torch.float64 for shape in sizes]
        work = [
            torch.empty(*shape, blocks * _THREADS, dtype=dtype, device=d.device)
            for shape, dtype in zip(sizes, kinds, strict=True)
        ]
        given, results = ([x.movedim(0, -1).contiguous() for x in group] for group in (inputs, outputs))
        arrays = [[cuda.as_cuda_array(x) for x in group] for group in (given, results, work)]
        # The kernel joins torch's own stream, so everything stays in order without waiting.
        handle = torch.cuda.current_stream().cuda_stream
        stream = cuda.external_stream(handle) if handle else 0
        _solve[blocks, _THREADS, stream](*arrays[0], limit, patience, *arrays[1], *arrays[2])
        for out, result in zip(outputs, results, strict=True):
            out.copy_(result.movedim(-1, 0))
