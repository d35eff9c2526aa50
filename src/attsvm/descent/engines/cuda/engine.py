"""The CUDA engine: very many small runs at once on an NVIDIA GPU."""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from attsvm.attention import KeyQuery
from attsvm.descent.engines.base import Advance, Engine, Progress
from attsvm.descent.engines.kernel_task import RELU, codes_of, head_terms, task_refusal
from attsvm.descent.task import Task

if TYPE_CHECKING:
    from attsvm.descent.engines.cuda.kernel import Shape

# Terms are kept unscaled down to exp(-200), which leaves room for slopes that differ by exp(2 * 200).
_LARGEST_SCORE = 200.0
# What a block may use without asking.
_PLAIN_BYTES = 48 * 1024
_WARP = 32
_MOST_THREADS = 256


@dataclass(frozen=True)
class CudaEngine(Engine):
    """Numba's CUDA: one thread block a run, its data and weights in shared memory, a stretch of steps a launch.

    For a fixed linear, ReLU or quadratic head with gradient, normalized or sign descent, without ridge. Inside a
    stretch it computes in float64, also for float32 data. Several starts of one data set read the same data. The first
    run of each shape waits for a compiler.

    Arguments:
        threads: of a block, a multiple of 32 up to 256; None chooses by the size of the data.

    Raises:
        ValueError: if `threads` is not such a number.
    """

    threads: int | None = None

    def __post_init__(self) -> None:
        if self.threads is not None and self.threads not in range(_WARP, _MOST_THREADS + 1, _WARP):
            expected = f"a multiple of {_WARP} up to {_MOST_THREADS}, or None"
            raise ValueError(f"threads must be {expected}; got {self.threads!r}")

    def refusal(self, task: Task, starts: int) -> str | None:
        if task.data.device.type != "cuda":
            return f"it runs on a CUDA device, and the data are on {task.data.device}"
        return task_refusal(task, _LARGEST_SCORE, ridge=False) or self._refusal_of_device(task, starts)

    def _refusal_of_device(self, task: Task, starts: int) -> str | None:
        if not _numba_sees_device():
            return "Numba finds no CUDA device; the package numba-cuda may be missing"
        needed, device = shape_of(task).bytes(self._threads(task)), torch.cuda.get_device_properties(task.data.device)
        most = int(getattr(device, "shared_memory_per_block_optin", _PLAIN_BYTES))
        if needed > most:
            return f"a run needs {needed} bytes of shared memory, and a block of this device may have {most}"
        if needed > _PLAIN_BYTES:
            try:
                Launch(task, starts, self._threads(task))
            except Exception as error:  # whatever this version of Numba or of the driver says
                return f"a run needs {needed} bytes of shared memory: {error}"
        return None

    def prepare(self, task: Task, starts: int) -> Advance:
        launch = Launch(task, starts, self._threads(task))

        def advance(progress: Progress, first: int, sizes: np.ndarray) -> None:
            _advance(task, launch, progress, sizes)

        return advance

    def _threads(self, task: Task) -> int:
        if self.threads is not None:
            return self.threads
        data = task.data
        # Four items a thread: fewer threads pay less for barriers, more hide the latency of shared memory.
        items = max(data.n * data.T, data.n * data.d, data.d * data.dq)
        return min(max(_WARP, 2 ** (items // 4 - 1).bit_length()), _MOST_THREADS)


def _advance(task: Task, launch: Launch, progress: Progress, sizes: np.ndarray) -> None:
    before = progress.parameters
    moved = {name: value.contiguous().clone() for name, value in before.items()}
    stalled = launch(list(moved.values()), torch.from_numpy(np.asarray(sizes, dtype=np.float64)), progress.active)
    finite = task.in_range(moved)
    kept = finite.reshape(*finite.shape, 1, 1)
    progress.parameters = {name: torch.where(kept, value, before[name]) for name, value in moved.items()}
    progress.overflowed |= ~finite & progress.active
    progress.active &= ~progress.overflowed
    progress.stalled |= stalled & progress.active


class Launch:
    """A task laid out for the kernel; calling it takes a stretch of steps in place, on the CPU in Numba's simulator."""

    def __init__(self, task: Task, starts: int, threads: int) -> None:
        from attsvm.descent.engines.cuda.kernel import MASKED_SCORE, build

        data, batch = task.data, task.data.batch_shape[0]
        self.device = data.device
        self._lead = (starts, batch)
        self._threads = threads
        shape = shape_of(task)
        self._bytes = shape.bytes(threads)
        self._kernel = build(shape, threads)
        terms = head_terms(data, task.head)
        assert terms is not None  # refused otherwise
        scores = data.fill_masked(terms.scores.to(torch.float64), MASKED_SCORE)
        features, labels = (
            (scores[:1, :1], scores[:1, :1, 0]) if terms.features is None else (terms.features, data.labels)
        )
        parts = (data.tokens, data.queries, scores, features.to(torch.float64), labels.to(torch.float64))
        self._data = [value.reshape(len(value), -1).contiguous() for value in parts]
        self._factors = task.factors.to(torch.float64).expand(self._lead).reshape(-1).contiguous()
        self._codes = codes_of(task)
        self._nothing = torch.zeros(1, 1, dtype=data.dtype, device=data.device)
        if self._bytes > _PLAIN_BYTES and self.device.type == "cuda":
            with self._current():
                _allow_shared(self._kernel, data.dtype, self._bytes)

    def __call__(self, parameters: list[Tensor], sizes: Tensor, active: Tensor) -> Tensor:
        """Change contiguous `parameters` ``[starts, batch, ...]``; returns which runs met a gradient of zero."""
        runs = self._lead[0] * self._lead[1]
        stalled = torch.zeros(runs, dtype=torch.int32, device=self.device)
        first, second = (*(value.view(runs, -1) for value in parameters), self._nothing)[:2]
        if runs and len(sizes):
            steps, on = sizes.to(self.device), active.reshape(-1).to(torch.uint8)
            self._run([*self._data, first, second, steps, self._factors, on, stalled], runs)
        return (stalled != 0).reshape(self._lead)

    @contextmanager
    def _current(self) -> Iterator[None]:
        """The data's device is the current one, for torch and for Numba."""
        from numba import cuda

        with torch.cuda.device(self.device), cuda.gpus[torch.cuda.current_device()]:
            yield

    def _run(self, tensors: list[Tensor], runs: int) -> None:
        from numba import cuda

        if self.device.type == "cpu":
            arrays = [tensor.numpy() for tensor in tensors]
            self._kernel[runs, self._threads, 0, self._bytes](*arrays, *self._codes)
            return
        with self._current(), warnings.catch_warnings():
            # A few runs leave most of the device idle; the warning's class moved between versions, its words did not.
            warnings.filterwarnings("ignore", message=".*under-utilization")
            arguments = (*(cuda.as_cuda_array(tensor) for tensor in tensors), *self._codes)
            # The kernel joins torch's own stream, so everything stays in order without waiting.
            handle = torch.cuda.current_stream().cuda_stream
            stream = cuda.external_stream(handle) if handle else 0
            self._kernel[runs, self._threads, stream, self._bytes](*arguments)


def shape_of(task: Task) -> Shape:
    """The sizes that the kernel is compiled for."""
    from attsvm.descent.engines.cuda.kernel import Shape

    data, parameterization = task.data, task.parameterization
    rank = (parameterization.rank or data.d) if isinstance(parameterization, KeyQuery) else 0
    terms = head_terms(data[:1], task.head[:1])
    width = 0 if terms is None or terms.features is None else terms.features.shape[-1]
    return Shape(data.n, data.T, data.d, data.dq, rank, width, RELU if terms is None else terms.curve)


@cache
def _numba_sees_device() -> bool:
    # numba-cuda up to 0.30 names numpy.row_stack, which NumPy 2.5 no longer has, and will not be mended there: lend it
    # the name while it loads. The other way, numpy<2.5 in the extra `gpu`, would hold back NumPy for everything else.
    lent = not hasattr(np, "row_stack")
    if lent:
        np.row_stack = np.vstack  # noqa: NPY201
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # numba-cuda's own; where warnings are errors they would hide the device
            from numba import cuda
            from numba.cuda import cudaimpl  # noqa: F401 - loads what a first compilation would

            return bool(cuda.is_available())
    except Exception:  # no driver, no compiler or a broken installation: TorchEngine serves
        return False
    finally:
        if lent:
            del np.row_stack  # noqa: NPY201


_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8  # of the driver's CUfunction_attribute


def _allow_shared(kernel: Any, real: torch.dtype, needed: int) -> None:
    """Ask the driver for a block above 48 KB, for which Numba has no call (numba-cuda, issue 94)."""
    from numba import cuda, types

    matrix = (types.float32 if real == torch.float32 else types.float64)[:, ::1]
    numbers, codes = types.float64[::1], (types.int64, types.int64)
    flags = (types.uint8[::1], types.int32[::1])
    double = types.float64[:, ::1]
    signature = (matrix, matrix, double, double, double, matrix, matrix, numbers, numbers, *flags, *codes)
    handle = kernel.compile(signature).library.get_cufunc().handle
    address = ctypes.c_void_p(int(getattr(handle, "value", handle)))
    driver, value = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(needed)
    if type(handle).__name__ == "CUkernel":
        status = driver.cuKernelSetAttribute(
            _MAX_DYNAMIC_SHARED_SIZE_BYTES, value, address, ctypes.c_int(cuda.get_current_device().id)
        )
    else:
        status = driver.cuFuncSetAttribute(address, _MAX_DYNAMIC_SHARED_SIZE_BYTES, value)
    if status != 0:
        raise RuntimeError(f"the driver refused a block {needed} bytes of shared memory (error {status})")
