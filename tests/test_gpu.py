"""What must be the same on a GPU as on the CPU; needs a CUDA device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import attsvm
from attsvm.data import Counter
from attsvm.data.counter import CounterNumbers

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
NORMS = [
    attsvm.Frobenius(),
    attsvm.Nuclear(),
    attsvm.Spectral(),
    attsvm.Entrywise(1.5),
    attsvm.Entrywise(4.0),
    attsvm.MaxEntry(),
    attsvm.SumEntry(),
]


@pytest.fixture(scope="module")
def data() -> attsvm.TokenDataset:
    return attsvm.data.random_sphere(n=6, T=8, d=10, batch=64, seed=0)


@pytest.mark.parametrize("norm", NORMS, ids=lambda norm: norm.name)
def test_norms(norm: attsvm.norms.Norm) -> None:
    matrix = torch.randn(20, 5, 7, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    far = matrix.cuda()
    for here, there in (
        (norm.value(matrix), norm.value(far)),
        (norm.dual_value(matrix), norm.dual_value(far)),
        (norm.steepest(matrix), norm.steepest(far)),
        (norm.project(matrix, 0.5), norm.project(far, 0.5)),
        (norm.prox(matrix, 0.3), norm.prox(far, 0.3)),
    ):
        assert there.device.type == "cuda"
        torch.testing.assert_close(there.cpu(), here, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    "optimizer",
    [
        attsvm.NormalizedGradientDescent(0.1),
        attsvm.GradientDescent(0.5),
        attsvm.Adam(0.05),
        attsvm.PolyakDescent(),
        attsvm.SteepestDescent(attsvm.Spectral(), 0.1, momentum=0.9),
        attsvm.NormalizedMirrorDescent(3, 0.1),
    ],
    ids=lambda optimizer: type(optimizer).__name__,
)
def test_optimizers(data: attsvm.TokenDataset, optimizer: Any) -> None:
    here = attsvm.fit(data, optimizer=optimizer, steps=30)
    there = attsvm.fit(data, optimizer=optimizer, steps=30, device="cuda")
    assert there.weights.device.type == "cuda"
    torch.testing.assert_close(there.weights.cpu(), here.weights, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("train_head", [False, True])
def test_nonlinear_heads(data: attsvm.TokenDataset, train_head: bool) -> None:
    matrix = torch.randn(10, 10, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    common: dict[str, Any] = {"steps": 30, "train_head": train_head}
    here = attsvm.fit(data, attsvm.ReluHead(matrix), **common)
    there = attsvm.fit(data, attsvm.ReluHead(matrix), device="cuda", **common)
    torch.testing.assert_close(there.weights.cpu(), here.weights, rtol=1e-8, atol=1e-8)


def test_a_saved_run_resumes_on_the_device(data: attsvm.TokenDataset, tmp_path: Path) -> None:
    moved = data.to("cuda")
    whole = attsvm.fit(moved, steps=60, record=20)
    attsvm.fit(moved, steps=40, record=20).save(tmp_path / "run.safetensors")
    resumed = attsvm.fit(moved, steps=60, record=20, resume=attsvm.Run.load(tmp_path / "run.safetensors"))
    assert resumed.history.step.tolist() == whole.history.step.tolist()
    torch.testing.assert_close(resumed.weights, whole.weights, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("norm", [attsvm.Frobenius(), attsvm.Nuclear()], ids=lambda norm: norm.name)
@pytest.mark.parametrize("shape", [(6, 8, 10), (10, 8, 3), (15, 5, 20)])
def test_solutions(norm: attsvm.norms.Norm, shape: tuple[int, int, int]) -> None:
    n, length, d = shape
    data = attsvm.data.random_sphere(n=n, T=length, d=d, batch=600, seed=3)
    selected = attsvm.optimal_tokens(data)
    here = attsvm.solve(attsvm.AttentionSVM(data, selected), norm)
    there = attsvm.solve(attsvm.AttentionSVM(data.to("cuda"), selected.cuda()), norm)
    assert there.codes.cpu().equal(here.codes)
    assert bool((here.solved | here.infeasible).all())
    sure = here.solved & here.unique
    torch.testing.assert_close(there.weights.cpu()[sure], here.weights[sure], rtol=1e-6, atol=1e-6)
    assert (
        float(there.certificate.ray_residual[there.infeasible].max().cpu() if bool(there.infeasible.any()) else 0)
        < 1e-10
    )


def test_numbers_of_a_counter() -> None:
    """Uniform numbers bit for bit, normal ones as well as logarithm and cosine agree."""
    far, near = (CounterNumbers(Counter(9), 0, 300, 8, torch.device(kind)) for kind in ("cuda", "cpu"))
    assert np.array_equal(far.random(101).cpu().numpy(), near.random(101))
    np.testing.assert_allclose(far.standard_normal(1001).cpu().numpy(), near.standard_normal(1001), rtol=4e-15)
    for name in ("random_sphere", "random_gaussian", "orthonormal_tokens", "equal_scores"):
        draw = getattr(attsvm.data, name)
        there, here = (draw(2, 3, 4, batch=7, seed=Counter(1), device=device) for device in ("cuda", "cpu"))
        torch.testing.assert_close(there.tokens.cpu(), here.tokens, rtol=0, atol=1e-14)
        assert torch.equal(there.labels.cpu(), here.labels)
    start = [attsvm.initial_parameters(each, seed=Counter(2))["weights"].cpu() for each in (there, here)]
    assert torch.equal(*start)
