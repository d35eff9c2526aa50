"""Launches active_set.cu, the dual active set with one warp for each problem; PyTorch compiles it on first use."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from attsvm.svm.solvers.base import INFEASIBLE, row_kinds
from attsvm.svm.solvers.batched.rows import Guess, ScaledRows

_SHARED_LIMIT = 220_000  # bytes of shared memory a block may ask for on sm_80 and later, with room to spare
_SHARED_FREE = 48 * 1024  # bytes it has without asking


def supported(gram: Tensor) -> bool:
    """Whether `active_set` can run on these Gram matrices: on CUDA, small enough, and the kernel compiles."""
    shared = _shared_bytes(gram.shape[1])
    if not gram.is_cuda or shared > _SHARED_LIMIT or _kernel() is None:
        return False
    return shared < _SHARED_FREE or hasattr(_kernel(), "set_shared_memory_config")


def active_set(gram: Tensor, rows: ScaledRows, tolerance: float = 1e-12) -> Guess:
    """Guess the active rows, or a ray, of every problem; the slacks are 0 on the active rows and 1 elsewhere.

    Arguments:
        gram: Gram matrices of the rows, ``[batch, m, m]``.
        rows: scaled rows.
        tolerance: violation, relative to the largest |b|, below which a row counts as satisfied.
    """
    batch, m = rows.right_hand_side.shape
    kinds = row_kinds(rows)
    weight = torch.diagonal(gram, dim1=1, dim2=2).clamp(min=1e-300).rsqrt().contiguous()
    reach = (tolerance * rows.reach).contiguous()
    u = torch.empty_like(rows.right_hand_side)
    verdict = torch.empty(batch, dtype=torch.int8, device=gram.device)
    steps = torch.empty(batch, dtype=torch.int32, device=gram.device)
    launch = _kernel()
    shared = _shared_bytes(m)
    if shared >= _SHARED_FREE:
        launch.set_shared_memory_config(shared)
    arrays = [gram.contiguous(), rows.right_hand_side.contiguous(), kinds, weight, reach, u, verdict, steps]
    launch(grid=(batch, 1, 1), block=(32, 1, 1), args=[*arrays, m], shared_mem=shared)
    return Guess(u, (u == 0).to(u.dtype), verdict == INFEASIBLE, steps.to(torch.int64))


@cache
def _kernel() -> Any:
    """The compiled kernel; None where this PyTorch cannot compile one."""
    compile_kernel = getattr(torch.cuda, "compile_kernel", None) or getattr(torch.cuda, "_compile_kernel", None)
    if compile_kernel is None:
        return None
    return compile_kernel(Path(__file__).with_name("active_set.cu").read_text(), "active_set")


def _shared_bytes(m: int) -> int:
    """What active_set.cu lays out for m rows: doubles K, values, r, g, slack; ints active; bytes inside."""
    return 8 * (m * m + 4 * m) + 4 * m + m + 16
