"""The naive gradient of the page against the loop in Python: the same while it is right, as lost afterwards."""

from __future__ import annotations

import pytest
import torch

from attsvm.app.problem import data_to_problem
from attsvm.data import example
from attsvm.experiments.naive import naive_descent

from .page import MathsPage

STEPS = (0, 1, 10, 100, 1000)


@pytest.mark.parametrize("name", ["single-input-local", "multi-input"])
def test_the_page_repeats_the_naive_loop(maths: MathsPage, name: str) -> None:
    data = example(name)
    starts = torch.as_tensor([[0.0, -1.0], [0.0, -1.5], [0.5, 0.5]], dtype=torch.float64)
    path = naive_descent(data, starts, steps=1000, record=STEPS)[0]
    for k, start in enumerate(starts.tolist()):
        runs = {}
        for optimizer in ("naive", "normalized"):
            settings = {"trained": "p", "optimizer": optimizer, "loss": "logistic", "stepSize": 0.1, "steps": 1000}
            runs[optimizer] = maths.call(
                "train", data_to_problem(data), {**settings, "start": {"p": start}}, list(STEPS)
            )
        page = torch.tensor(runs["naive"]["weights"], dtype=torch.float64)
        assert torch.equal(page, page.float().double()), "every iterate is one of single precision"
        assert torch.allclose(page[:-1], path[:-1, k], rtol=0, atol=2e-3)
        exact = torch.tensor(runs["normalized"]["weights"], dtype=torch.float64)
        assert torch.allclose(page[:-2], exact[:-2], rtol=0, atol=2e-3), "at first it is right"
        for lost in (page[-1], path[-1, k]):
            assert lost.norm() < 0.5 * exact[-1].norm(), "saturated, it no longer walks the way"


def test_round_off_leaves_a_ray_that_the_exact_gradient_keeps(maths: MathsPage) -> None:
    data = example("single-input-local")
    settings = {"trained": "p", "loss": "logistic", "stepSize": 0.1, "steps": 1000, "start": {"p": [0, -1]}}
    problem = data_to_problem(data)
    selected = {
        name: maths.call("train", problem, {**settings, "optimizer": name}, [1000])["selected"]
        for name in ("normalized", "naive")
    }
    assert selected == {"normalized": [1], "naive": [0]}
