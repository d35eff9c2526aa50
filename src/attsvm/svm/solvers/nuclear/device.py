"""The kernel on a GPU, a few warps for each problem; imported only where Numba sees a GPU.

What a problem is worked on with, 70 kB at (n, T, d) = (6, 8, 10), is in shared memory where it fits: threads wait for
global memory ten times as long, and nearly all that they do is to wait.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
from __future__ import annotations

import warnings
from collections.abc import Sequence
from types import FunctionType
from typing import Any

import torch
from numba import cuda, float64, int64, types, uint64
from numba.cuda.extending import intrinsic
from torch import Tensor

from attsvm.data.kernel_text import counting
from attsvm.svm.solvers.nuclear import interior, kernel, workers
from attsvm.svm.solvers.nuclear.workers import Workspace, shapes

_WARP = 32
_LANES, _COLUMNS = 64, 16  # threads of a problem, and of these side by side on a row of a matrix
_WARPS = _LANES // _WARP
_ALL = 0xFFFFFFFF
_NEAR, _FAR = 3, 8  # problems of a processor for which it has registers, and from its caches where they are not near
_RESERVED = 1024  # bytes of shared memory that a block takes besides
_BOARD = _WARPS  # numbers of it on which warps tell each other


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
    """The threads of a problem wait for each other, and see what they wrote."""
    if _WARPS == 1:
        cuda.syncwarp()
    else:
        cuda.syncthreads()


@cuda.jit(device=True)
def added(x, y):
    """The sum of two."""
    return x + y


@cuda.jit(device=True)
def larger(x, y):
    """The larger of two, NaN if one of them is."""
    return x if x >= y or x != x else y


def over_threads(joined):
    """What `joined` makes of two numbers, made of those of all threads of a problem; the same for all of them."""

    @cuda.jit(device=True)
    def over(x):
        barrier()
        lanes = _WARP // 2
        while lanes:
            x = joined(x, cuda.shfl_xor_sync(_ALL, x, lanes))
            lanes //= 2
        if _WARPS > 1:
            board = cuda.shared.array(0, float64)
            board[cuda.threadIdx.x // _WARP] = x
            barrier()
            x = board[0]
            for warp in range(1, _WARPS):
                x = joined(x, board[warp])
        return x

    return over


def gather(x, y, count, begin, end, out):
    """out[j] = sum_k x[k] y[k, j] for begin <= j < end, the sums in registers; no barrier."""
    for j in range(my_column(begin), end, _COLUMNS):
        even = odd = 0.0
        for k in range(0, count - 1, 2):
            even += x[k] * y[k, j]
            odd += x[k + 1] * y[k + 1, j]
        if count % 2:
            even += x[count - 1] * y[count - 1, j]
        out[j] = even + odd


def factor(a, size, width, pivots):
    """Eliminate below the diagonal of a symmetric matrix, as on the CPU, but the sums in registers."""
    for i in range(size):
        for j in range(mine(i), width, _LANES):
            even, odd = a[i, j], 0.0
            for k in range(0, i - 1, 2):
                even -= a[k, i] * pivots[k] * a[k, j]
                odd += a[k + 1, i] * pivots[k + 1] * a[k + 1, j]
            if i % 2:
                even -= a[i - 1, i] * pivots[i - 1] * a[i - 1, j]
            a[i, j] = even - odd
        barrier()
        if not a[i, i] > 0.0:
            barrier()  # before somebody writes on a again
            return False
        if mine(i) == i:
            pivots[i] = 1.0 / a[i, i]
        barrier()
    return True


# The functions of the kernel once more, its words with the meaning that they have here.
_text = vars(workers) | vars(interior) | vars(kernel)
_words: dict[str, Any] = _text | {"WORKERS": _LANES, "LINES": _LANES // _COLUMNS, "COLUMNS": _COLUMNS}
_words |= {"_LANES": _LANES, "_COLUMNS": _COLUMNS, "uint64": uint64}
for _name, _function in (_text | {"gather": gather, "factor": factor}).items():
    if hasattr(_function, "py_func") or _function in (gather, factor):
        _words[_name] = cuda.jit(counting(_function, _words), device=True)
_words |= {"mine": mine, "my_line": my_line, "my_column": my_column, "barrier": barrier}
_words |= {"total": over_threads(added), "highest": over_threads(larger)}
_sizes: Any = FunctionType(shapes.__code__, _words)
_solve_one, _shapes = _words["solve_one"], cuda.jit(_sizes, device=True)


@intrinsic
def parts(typing, space, numbers, sizes):
    """The arrays of a workspace in `space`, one after the other, and its rows in `numbers`, the same bytes.

    They have an odd number of columns: threads that read down one then read from different banks.
    """
    kinds = [(space if name != "rows" else numbers).copy(ndim=2) for name in Workspace._fields]
    workspace = types.NamedTuple(kinds, Workspace)

    def lowered(context, builder, signature, arguments):
        from numba.cuda.np.arrayobj import make_array, populate_array

        begins = [make_array(signature.args[k])(context, builder, arguments[k]).data for k in range(2)]
        at, made = context.get_constant(types.intp, _BOARD), []
        for number, kind in enumerate(kinds):
            rows, columns = (builder.extract_value(arguments[2], [number, axis]) for axis in range(2))
            columns, size = builder.or_(columns, columns.type(1)), columns.type(8)
            array = make_array(kind)(context, builder)
            data = builder.gep(begins[kind.dtype == numbers.dtype], [at])
            strides = [builder.mul(columns, size), size]
            populate_array(array, data=data, shape=[rows, columns], strides=strides, itemsize=size, meminfo=None)
            made.append(array._getvalue())
            at = builder.add(at, builder.mul(rows, columns))
        return context.make_tuple(builder, workspace, made)

    return workspace(space, numbers, sizes), lowered


def _kernel(near):
    """The kernel, its workspace near or far."""

    def solve(d, z, b, kind, limit, patience, weights, duals, report, turn, far, far_rows):
        if near:
            space, numbers = cuda.shared.array(0, float64), cuda.shared.array(0, int64)  # the same bytes
        else:
            space, numbers = far[cuda.blockIdx.x], far_rows[cuda.blockIdx.x]
        work = parts(space, numbers, _shapes(d.shape[1], z.shape[1], d.shape[2], z.shape[2]))
        while True:
            barrier()
            if cuda.threadIdx.x == 0:  # whoever is done takes the next problem
                numbers[0] = cuda.atomic.add(turn, 0, 1)
            barrier()
            k = numbers[0]
            if k >= len(b):
                break
            _solve_one(d[k], z[k], b[k], kind[k], limit, patience, weights[k], duals[k], report[k], work)

    # Compiling takes a while and is cached on disk; Numba looks at the date of this file alone, so touch it after a
    # change of the kernel. Optimized once more when linked it would take twice as long; a decorator forgets `lto`.
    registers = min(255, 65536 // (_NEAR * _LANES) // 8 * 8)
    return cuda.jit(solve, cache=True, lto=False, max_registers=registers, shared_memory_carveout=100 if near else -1)


_KERNELS = _kernel(False), _kernel(True)


def launch(inputs: Sequence[Tensor], limit: float, patience: int, outputs: Sequence[Tensor]) -> None:
    """`solve_one` for every problem, into `outputs`."""
    d, z = inputs[0], inputs[1]
    sizes = _sizes(d.shape[1], z.shape[1], d.shape[2], z.shape[2])
    count = _BOARD + sum(rows * (columns | 1) for rows, columns in sizes)
    with torch.cuda.device(d.device), cuda.gpus[torch.cuda.current_device()], warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*under-utilization")  # of one block, and of a small device
        given = [cuda.as_cuda_array(x.contiguous()) for x in inputs]
        # The kernel joins torch's own stream, so everything stays in order without waiting.
        handle = torch.cuda.current_stream().cuda_stream
        stream = cuda.external_stream(handle) if handle else 0
        device = cuda.current_context().device
        each = device.MAX_SHARED_MEMORY_PER_MULTIPROCESSOR // (8 * count + _RESERVED)

        def run(near: bool, first: int, blocks: int, size: int) -> None:
            """The problems from number `first` on."""
            turn = torch.full((1,), first, dtype=torch.int64, device=d.device)
            far = torch.empty((1, 1) if near else (blocks, count), dtype=torch.float64, device=d.device)
            work = [cuda.as_cuda_array(x) for x in (*outputs, turn, far, far.view(torch.int64))]
            _KERNELS[near][blocks, _LANES, stream, 8 * size](*given, limit, patience, *work)

        if each and device.id not in _granted:
            run(True, len(d), 1, _BOARD)  # compiles, and solves nothing
            _granted[device.id] = _grant(device)
        near = each > 0 and _granted[device.id]
        run(near, 0, min(len(d), (each if near else _FAR) * device.MULTIPROCESSOR_COUNT), count if near else _BOARD)


_granted: dict[int, bool] = {}  # by the number of a device


def _grant(device: Any) -> bool:
    """Let the kernel use all shared memory that there is, where the driver can be asked for it.

    Numba gives the 48 kB that every kernel has, and has no word for more.
    """
    from numba.cuda.cudadrv.driver import CudaDriverError, binding, driver

    most = device.MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
    try:
        name = binding.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        for each in _KERNELS[True].overloads.values():
            driver.cuKernelSetAttribute(name, most, each._codelibrary.get_cufunc().handle, device.id)
    except (AttributeError, TypeError, CudaDriverError) as error:
        warnings.warn(f"nuclear problems are solved in slower memory of GPU {device.id}: {error!r}", stacklevel=2)
        return False
    return True
