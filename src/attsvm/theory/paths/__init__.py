"""Regularization paths: the minimiser of the risk in a ball, followed as the ball grows."""

from attsvm.theory.paths.path import RegularizationPath, regularization_path

__all__ = ["RegularizationPath", "regularization_path"]
