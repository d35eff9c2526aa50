"""Which engine runs a task."""

from __future__ import annotations

from attsvm.attention import QuadraticHead, ReluHead
from attsvm.descent.engines.cuda.engine import CudaEngine
from attsvm.descent.engines.numba.engine import CompiledEngine
from attsvm.descent.engines.torch import Engine, Task, TorchEngine

# A compiled run fills eight lanes; with fewer runs than this on data larger than this, BLAS is faster.
_FEW_RUNS = 4
_LARGE = 20_000
# With more features of tokens than this, BLAS on attended values is faster than mixing features.
_WIDE = 100_000


def choose_engine(engine: Engine | None, task: Task, starts: int) -> Engine:
    """The engine asked for, or the fastest that can run the task.

    Raises:
        ValueError: if the engine asked for cannot.
    """
    if engine is not None:
        refusal = engine.refusal(task, starts)
        if refusal is not None:
            raise ValueError(f"{type(engine).__name__} cannot run this task: {refusal}")
        return engine
    data = task.data
    if data.device.type == "cuda":
        return CudaEngine() if CudaEngine().refusal(task, starts) is None else TorchEngine()
    few = starts * data.batch_shape[0] < _FEW_RUNS
    large = few and data.n * data.T * data.d > _LARGE
    wide = isinstance(task.head, ReluHead) and data.n * data.T * task.head.matrix.shape[-1] > _WIDE
    # Where a token's pull vanishes to first order (a quadratic head can do that) only TorchEngine still sees it.
    exact = not isinstance(task.head, QuadraticHead)
    if not large and not wide and exact and CompiledEngine().refusal(task, starts) is None:
        return CompiledEngine()
    return TorchEngine()
