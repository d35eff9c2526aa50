"""Guesses of the active rows, or of a ray, for many problems at once: by interior point, or by active set on a GPU.

The interior point (CPU or CUDA) solves the least-distance form of the SVM,

    min 1/2 ||A^T u||^2 + 1/2 (1 - b^T u)^2,   u >= 0 (free on equality rows)      (Lawson and Hanson, chapter 23)

which has a solution whether the SVM has one or not. With kappa = 1 - b^T u: W = A^T u / kappa and lam = u / kappa when
kappa > 0; u is a ray (A^T u = 0, b^T u = 1) when kappa = 0. So one iteration serves both verdicts and nothing diverges.

On CUDA `active_set` launches active_set.cu, the dual active set with one warp for each problem; PyTorch compiles it on
first use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from attsvm.svm.solvers.base import INFEASIBLE, row_kinds
from attsvm.svm.solvers.batched.rows import Guess, ScaledRows

_HOPELESS = 1e-6  # kappa below this: try u as a ray first


def interior_point(gram: Tensor, rows: ScaledRows, iterations: int = 30, target: float = 1e-9) -> Guess:
    """Minimiser u and its slacks s by Mehrotra's predictor-corrector, to a complementarity and residual of `target`.

    `gram` holds the Gram matrices of the rows, ``[batch, m, m]``; `iterations` is for the whole batch.
    """
    b, bound = rows.right_hand_side, rows.inequalities
    count = bound.sum(1, keepdim=True).clamp(min=1)
    start = torch.where(bound, 1.0 / count, 0.0).to(gram.dtype)
    dense = _DenseGram(gram + b[:, :, None] * b[:, None, :])
    iterates = predictor_corrector(dense, b, bound, rows.present, start, bound.to(gram.dtype))
    for taken, (u, s, residual) in enumerate(iterates):
        done = ((u * s).sum(1) < target * count[:, 0]) & (residual.abs().amax(1) < target)
        if taken == iterations or bool(done.all()):
            break
    steps = torch.full((len(u),), taken, dtype=torch.int64, device=u.device)
    return Guess(u, s, 1.0 - (b * u).sum(1) < _HOPELESS, steps)


class _DenseGram:
    """Gram matrices that are held, ``[batch, m, m]``."""

    ridge = 1e-13

    def __init__(self, matrices: Tensor) -> None:
        self.matrices = matrices

    def times(self, u: Tensor) -> Tensor:
        return (self.matrices @ u[..., None])[..., 0]

    def factored(self, diagonal: Tensor) -> Callable[[Tensor], Tensor]:
        factor = torch.linalg.cholesky_ex(self.matrices + torch.diag_embed(diagonal)).L
        return lambda right: torch.cholesky_solve(right[..., None], factor)[..., 0]


class Gram(Protocol):
    """Q of a batch of problems, seen through products and systems.

    `ridge` is what is added to the diagonal at rows whose multiplier is free: as small as the solutions bear.
    """

    ridge: float

    def times(self, u: Tensor) -> Tensor:
        """Q u, ``[batch, m]``."""

    def factored(self, diagonal: Tensor) -> Callable[[Tensor], Tensor]:
        """right -> (Q + diag)^-1 right, both ``[batch, m]``."""


def predictor_corrector(
    gram: Gram, b: Tensor, bound: Tensor, present: Tensor, u: Tensor, s: Tensor
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Mehrotra's iterates (u, s, Q u - b - s), without end, from u, s > 0 on the rows `bound` ``[batch, m]``.

        min 1/2 u^T Q u - b^T u,   u >= 0 (free on equality rows)         Q u - b = s >= 0,   u s = 0

    Rows that are `present` and not bound are equalities, with s = 0.
    """
    count = bound.sum(1).clamp(min=1)
    while True:
        residual = torch.where(present, gram.times(u) - b - s, 0.0)
        yield u, s, residual
        safe_u, safe_s = torch.where(bound, u, 1.0), torch.where(bound, s, 1.0)
        solve = gram.factored(torch.where(bound, safe_s / safe_u, torch.where(present, gram.ridge, 1.0)))
        mu = (u * s).sum(1) / count

        def direction(complement: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            """(du, ds) with u ds + s du = complement on bound rows; 1 / the longest step that keeps u, s > 0."""
            du = solve(torch.where(bound, complement / safe_u, 0.0) - residual)  # noqa: B023, used before the next turn
            ds = torch.where(bound, (complement - safe_s * du) / safe_u, 0.0)  # noqa: B023
            blocking = torch.where(bound, torch.maximum(-du / safe_u, -ds / safe_s), 0.0).amax(1)  # noqa: B023
            return torch.where(present, du, 0.0), ds, blocking

        du, ds, blocking = direction(-u * s)
        step = (1.0 / blocking.clamp(min=1.0))[:, None]
        ahead = ((u + step * du) * (s + step * ds)).sum(1) / count
        centre = (ahead / mu.clamp(min=1e-300)).clamp(0, 1) ** 3 * mu
        du, ds, blocking = direction(centre[:, None] - u * s - du * ds)
        step = (1.0 / (blocking / 0.995).clamp(min=1.0))[:, None]
        good = (torch.isfinite(du).all(1) & torch.isfinite(ds).all(1))[:, None]
        u, s = torch.where(good, u + step * du, u), torch.where(good, s + step * ds, s)
        u, s = (torch.where(bound, x.clamp(min=1e-300), x) for x in (u, s))


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

    A violation below `tolerance`, relative to the largest |b|, counts as none.
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
