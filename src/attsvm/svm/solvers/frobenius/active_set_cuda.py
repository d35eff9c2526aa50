"""Launches active_set.cu, the dual active set with one warp a problem; compiled on first use by PyTorch's NVRTC."""

from functools import cache
from pathlib import Path

import torch

SHARED_LIMIT = 220_000  # bytes of shared memory a block may ask for on sm_80 and later, with room to spare


@cache
def kernel():
    compile_kernel = getattr(torch.cuda, "compile_kernel", None) or getattr(torch.cuda, "_compile_kernel", None)
    if compile_kernel is None:
        return None
    return compile_kernel(Path(__file__).with_name("active_set.cu").read_text(), "active_set")


def shared_bytes(m):
    return 8 * (m * m + 4 * m) + 4 * m + m + 16


def supported(G):
    """Whether `active_set` can run on this Gram batch: on CUDA, small enough for shared memory, and the kernel compiles."""
    shared = shared_bytes(G.shape[1])
    if not G.is_cuda or shared > SHARED_LIMIT or kernel() is None:
        return False
    return shared < 48 * 1024 or hasattr(kernel(), "set_shared_memory_config")


def active_set(G, rows, tolerance=1e-12):
    """Same interface as `interior_point`: (u, s, whether u is a ray, steps); s is 0 on the active rows, 1 elsewhere."""
    B, m = rows.b.shape
    kind = rows.present.to(torch.int8) + rows.equal.to(torch.int8)
    weight = torch.diagonal(G, dim1=1, dim2=2).clamp(min=1e-300).rsqrt().contiguous()
    u = torch.empty_like(rows.b)
    verdict = torch.empty(B, dtype=torch.int8, device=G.device)
    steps = torch.empty(B, dtype=torch.int32, device=G.device)
    launch = kernel()
    shared = shared_bytes(m)
    if shared >= 48 * 1024:
        launch.set_shared_memory_config(shared)
    arrays = [G.contiguous(), rows.b.contiguous(), kind, weight, (tolerance * rows.reach).contiguous(), u, verdict, steps]
    launch(grid=(B, 1, 1), block=(32, 1, 1), args=[*arrays, m], shared_mem=shared)
    return u, (u == 0).to(u.dtype), verdict == 1, steps.to(torch.int64)
