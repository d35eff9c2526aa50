"""Kernels go through the compiler of a GPU that is not there: what does not type is found before it meets one."""

from __future__ import annotations

import pytest

from attsvm.data.machine import numba_sees_gpu
from attsvm.svm.solvers.nuclear import device
from benchmarks import kernels

numba_sees_gpu()  # loads numba-cuda with any NumPy
pytest.importorskip("numba_cuda", reason="needs numba-cuda")
pytest.importorskip("nvidia", reason="needs NVIDIA's compiler, package cuda-toolkit[nvrtc,nvvm]")

TASKS = {name: task for name, (task, variant) in kernels.variants("cpu", 2).items() if not variant}
CASES = [(name, False) for name in TASKS] + [(name, True) for name in ("linear", "relu", "factors", "spectral")]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "unrolled"), CASES)
def test_kernels_of_descent(name: str, unrolled: bool) -> None:
    kernel, arguments = kernels.launched(TASKS[name], unrolled=unrolled)
    assert ".entry" in kernels.assembly(kernel, arguments, optimized=False)


@pytest.mark.slow
@pytest.mark.parametrize("near", [False, True])
def test_nuclear_kernel(near: bool) -> None:
    text = kernels.assembly(device._KERNELS[near], kernels.nuclear_arguments(), optimized=False)
    assert ".entry" in text
    assert "bar.sync" in text


def test_what_does_not_type_is_found() -> None:
    kernel, (tokens, *others) = kernels.launched(TASKS["linear"], unrolled=False)
    with pytest.raises(Exception, match="cannot index array"):
        kernels.assembly(kernel, (tokens[0], *others))
