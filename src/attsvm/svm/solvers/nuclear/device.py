"""The kernel on a GPU, one thread for each problem: for very many small ones."""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from attsvm.data.machine import numba_sees_gpu

FEWEST = 512  # problems for which a GPU is worth it
MOST_ROWS = 128  # of a problem: a thread on its own takes long for more
_THREADS, _BLOCKS = 64, 4  # threads of a block, and blocks of a processor: what its registers hold


def launchable(batch: int, rows: int, device: torch.device) -> bool:
    """Whether these problems should be solved on this device, and Numba can."""
    return device.type == "cuda" and batch >= FEWEST and rows <= MOST_ROWS and numba_sees_gpu()


@cache
def _kernel() -> Any:
    from numba import cuda

    from attsvm.svm.solvers.nuclear.kernel import Workspace, solve_one

    @cuda.jit
    def kernel(
        d, z, b, kind, limit, patience, weights, duals, report, w0, w1, w2, w3, w4, w5, w6, w7, w8, w9, w10, w11, w12
    ):
        t = cuda.grid(1)
        for i in range(t, b.shape[1], cuda.gridsize(1)):
            work = Workspace(
                w0[:, :, t], w1[:, :, t], w2[:, :, t], w3[:, :, t], w4[:, :, t], w5[:, :, t], w6[:, :, t],
                w7[:, :, t], w8[:, :, t], w9[:, :, t], w10[:, :, t], w11[:, :, t], w12[:, :, t],
            )  # fmt: skip
            solve_one(
                d[:, :, i], z[:, :, i], b[:, i], kind[:, i], limit, patience,
                weights[:, :, i], duals[:, i], report[:, i], work,
            )  # fmt: skip

    return kernel


def launch(inputs: Sequence[Tensor], limit: float, patience: int, outputs: Sequence[Tensor]) -> None:
    """`solve_one` for every problem; the problem is the last axis on the device, so that threads read side by side."""
    from numba import cuda

    from attsvm.svm.solvers.nuclear.kernel import shapes

    d, z = inputs[0], inputs[1]
    device = d.device
    with torch.cuda.device(device), cuda.gpus[torch.cuda.current_device()]:
        blocks = _BLOCKS * torch.cuda.get_device_properties(device).multi_processor_count
        threads = blocks * _THREADS
        *floats, integers = shapes(d.shape[1], z.shape[1], d.shape[2], z.shape[2])
        work = [torch.empty(*shape, threads, dtype=torch.float64, device=device) for shape in floats]
        work.append(torch.empty(*integers, threads, dtype=torch.int64, device=device))
        given, results = ([x.movedim(0, -1).contiguous() for x in group] for group in (inputs, outputs))
        arrays = [[cuda.as_cuda_array(x) for x in group] for group in (given, results, work)]
        # The kernel joins torch's own stream, so everything stays in order without waiting.
        handle = torch.cuda.current_stream().cuda_stream
        stream = cuda.external_stream(handle) if handle else 0
        _kernel()[blocks, _THREADS, stream](*arrays[0], limit, patience, *arrays[1], *arrays[2])
        for out, result in zip(outputs, results, strict=True):
            out.copy_(result.movedim(-1, 0))
