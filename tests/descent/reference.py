"""Straightforward descent: autograd on the risk as the formula reads, one data set, one rule."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from attention.reference import plain_risk
from attsvm import TokenDataset

Rule = Callable[[int, Tensor, Tensor, dict[str, Tensor]], Tensor]
"""(step number, parameter, gradient, memory of the parameter) -> next parameter."""


def normal(seed: int, *shape: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape))


def descend(
    data: TokenDataset, rule: Rule, start: dict[str, Tensor], steps: int, loss: Callable[[Tensor], Tensor] | None = None
) -> dict[str, Tensor]:
    """Parameters after `steps` steps of `rule` on each of ``weights`` or ``key`` and ``query`` (and ``head``)."""
    now = {name: value.clone() for name, value in start.items()}
    memory: dict[str, dict[str, Tensor]] = {name: {} for name in now}
    extra = {} if loss is None else {"loss": loss}
    for step in range(steps):
        leaves = {name: value.requires_grad_(True) for name, value in now.items()}
        weights = leaves["weights"] if "weights" in leaves else leaves["key"] @ leaves["query"].mT
        head = leaves.get("head", data.head)
        risk = plain_risk(data, weights, lambda x, head=head: x @ head, **extra)
        gradients = torch.autograd.grad(risk, list(leaves.values()))
        now = {
            name: rule(step, value.detach(), gradient, memory[name])
            for (name, value), gradient in zip(leaves.items(), gradients, strict=True)
        }
    return now


def assert_close(found: Tensor, expected: Tensor, relative: float = 1e-12) -> None:
    """Raise unless the two agree relative to the expected norm."""
    assert found.shape == expected.shape, (found.shape, expected.shape)
    error = float((found - expected).norm() / expected.norm().clamp(min=1e-300))
    assert error <= relative, f"relative error {error:.2e} above {relative:.0e}"
