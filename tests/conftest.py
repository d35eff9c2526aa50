"""Shapes checked at run time, one thread, and one hypothesis profile for all tests."""

from __future__ import annotations

from pathlib import Path

import torch
from hypothesis import HealthCheck, settings
from jaxtyping import install_import_hook

SOURCE = Path(__file__).resolve().parents[1] / "src"
# Numba compiles these from their source and cannot see through a decorator; they have no shapes to check.
KERNELS = {"compiled_kernel", "lanes", "cuda_kernel"}


def checked_modules() -> list[str]:
    """Every module of the package except the kernels; packages are left out, since naming one names all inside."""
    files = [path.relative_to(SOURCE) for path in sorted(SOURCE.glob("attsvm/**/*.py"))]
    return [".".join(path.with_suffix("").parts) for path in files if path.stem not in KERNELS | {"__init__"}]


install_import_hook(checked_modules(), "shapes.checked")
torch.set_num_threads(1)
settings.register_profile(
    "attsvm", deadline=None, max_examples=40, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("attsvm")
