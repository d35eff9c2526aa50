"""Optimizers, step sizes, the batched fit loop and its trajectory."""

from attsvm.descent.engines.base import Engine
from attsvm.descent.engines.cuda.engine import CudaEngine
from attsvm.descent.engines.numba.engine import CompiledEngine
from attsvm.descent.engines.torch import TorchEngine
from attsvm.descent.fit import fit
from attsvm.descent.initial import initial_parameters
from attsvm.descent.optimizers.base import Optimizer
from attsvm.descent.optimizers.gradient import (
    Adam,
    GradientDescent,
    Lion,
    NormalizedGradientDescent,
    PolyakDescent,
    TwoPartDescent,
)
from attsvm.descent.optimizers.pytorch import TorchOptimizer
from attsvm.descent.optimizers.steepest import (
    JointSteepestDescent,
    MirrorDescent,
    NewtonSchulzDescent,
    NormalizedMirrorDescent,
    SteepestDescent,
)
from attsvm.descent.run import History, Run
from attsvm.descent.schedules import (
    Constant,
    Geometric,
    InverseSqrt,
    LipschitzStep,
    Saturated,
    Schedule,
    Settled,
    StoppingRule,
)

__all__ = [
    "History", "Run", "fit", "initial_parameters",
    # optimizers
    "Adam", "GradientDescent", "JointSteepestDescent", "Lion", "MirrorDescent", "NewtonSchulzDescent",
    "NormalizedGradientDescent", "NormalizedMirrorDescent", "Optimizer", "PolyakDescent", "SteepestDescent",
    "TorchOptimizer", "TwoPartDescent",
    # step sizes, and when to stop
    "Constant", "Geometric", "InverseSqrt", "LipschitzStep", "Schedule", "Saturated", "Settled", "StoppingRule",
    # engines
    "CompiledEngine", "CudaEngine", "Engine", "TorchEngine",
]  # fmt: skip
