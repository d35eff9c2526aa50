"""The loop that everybody writes first: float32, automatic differentiation, ``gradient / (norm + additive)``.

It is here to be compared with the exact gradient. Once 1 - s falls below the spacing of floating-point numbers the
naive gradient is round-off, and once its norm falls below `additive` the steps fade: docs/saturation.md tells why.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from attsvm.attention import Exponential, Linear, Logistic, Loss
from attsvm.data import TokenDataset
from attsvm.descent import NormalizedGradientDescent, fit
from attsvm.experiments.common import recorded

PUBLIC_ADDITIVE = 1e-9
"""What the public code of most of [MMTS]'s figures adds to the norm of a gradient before it divides by it."""


def naive_descent(
    data: TokenDataset,
    initial: Float[Tensor, "*lead d"],
    *,
    steps: int,
    record: Collection[int],
    loss: Loss | None = None,
    step_size: float = 0.1,
    additive: float = PUBLIC_ADDITIVE,
    initial_head: Float[Tensor, "*lead dv"] | None = None,
) -> tuple[Float[Tensor, "records *lead d"], Float[Tensor, "records ... dv"]]:
    """Normalized descent on prompts of every start and data set, in float32, as a first attempt would write it.

    `initial` is p(0), ``[*starts, *batch, d]``, and the data are prompts (dq = 1). `additive` is added to the norm of
    the gradient. The head is trained too from v(0) = `initial_head`, each parameter normalized by its own gradient;
    None keeps the data's own head. Returns the recorded prompts and heads in float64.
    """
    tokens, values, labels = (part.to(torch.float32) for part in (data.tokens, data.values, data.labels))
    prompt = initial.to(torch.float32)
    head = data.head if initial_head is None else initial_head
    if head is None:
        raise ValueError("the data have no head; give initial_head to train one")
    head, value_of = head.to(torch.float32), _FORMULAS[type(loss or Logistic())]
    prompts, heads = [], []
    for step in range(steps + 1):
        if step in record:
            prompts.append(prompt.double())
            heads.append(head.double())
        asked = [prompt.requires_grad_(), *([] if initial_head is None else [head.requires_grad_()])]
        attention = torch.softmax(torch.einsum("...ntd,...d->...nt", tokens, prompt), -1)
        output = torch.einsum("...nt,...ntd,...d->...n", attention, values, head)
        gradients = torch.autograd.grad(value_of(labels * output).mean(-1).sum(), asked)
        prompt = _step(prompt, gradients[0], step_size, additive)
        if initial_head is not None:
            head = _step(head, gradients[1], step_size, PUBLIC_ADDITIVE)
    return torch.stack(prompts), torch.stack(heads)


def both_gradients(
    data: TokenDataset, starts: Tensor, device: torch.device, step_size: float, additive: float, **told: Any
) -> dict[str, Float[Tensor, "records *lead d 1"]]:
    """Normalized descent with the exact gradient and in the naive loop: the recorded prompts of both, by name.

    `starts` are p(0), ``[*starts, *batch, d, 1]``; `told` are `steps` and `record`, for `fit` and `naive_descent`.
    """
    run = fit(data.to(device), optimizer=NormalizedGradientDescent(step_size), initial=starts.to(device), **told)
    naive, _ = naive_descent(data, starts[..., 0], step_size=step_size, additive=additive, **told)
    return {"exact": recorded(run).cpu(), "naive": naive.unsqueeze(-1)}


def _step(parameter: Tensor, gradient: Tensor, step_size: float, additive: float) -> Tensor:
    length = torch.linalg.vector_norm(gradient, dim=-1, keepdim=True)
    return parameter.detach() - step_size * gradient / (length + additive)


_FORMULAS: dict[type[Loss], Callable[[Tensor], Tensor]] = {
    Logistic: lambda margin: torch.log(1 + torch.exp(-margin)),
    Exponential: lambda margin: torch.exp(-margin),
    Linear: lambda margin: -margin,
}
