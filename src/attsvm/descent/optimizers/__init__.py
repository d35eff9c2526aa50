"""Optimizers, one file a family."""

from attsvm.descent.optimizers.adam import Adam
from attsvm.descent.optimizers.base import Optimizer
from attsvm.descent.optimizers.gradient import GradientDescent, NormalizedGradientDescent, PolyakDescent
from attsvm.descent.optimizers.steepest import MirrorDescent, NormalizedMirrorDescent, SteepestDescent
from attsvm.descent.optimizers.two_parts import TwoPartDescent

__all__ = [
    "Adam",
    "GradientDescent",
    "MirrorDescent",
    "NormalizedGradientDescent",
    "NormalizedMirrorDescent",
    "Optimizer",
    "PolyakDescent",
    "SteepestDescent",
    "TwoPartDescent",
]
