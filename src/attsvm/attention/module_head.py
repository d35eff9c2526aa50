"""Any torch module as a prediction head."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from attsvm._checks import as_tensor
from attsvm.attention.heads import Head, LinearHead, _rebuilt
from attsvm.data import TokenDataset


@dataclass(frozen=True, eq=False)
class ModuleHead(Head):
    """h(x) = module(x), any differentiable torch module from ``[..., dv]`` to ``[...]`` or ``[..., 1]``.

    It acts on each input alone (no batch normalization). The module itself is never changed: training works on copies
    of its parameters, one set for each data set.

    >>> ModuleHead(torch.nn.Sequential(torch.nn.Flatten(-1), torch.nn.Identity())).output(torch.tensor([[2.0]])).item()
    2.0
    """

    module: torch.nn.Module
    stacked: Mapping[str, Tensor] | None = None

    def output(self, values: Tensor) -> Tensor:
        with torch.no_grad():
            return self._forward(values, self.stacked)

    def input_gradient(self, values: Tensor) -> Tensor:
        with torch.enable_grad():
            at = values.detach().requires_grad_(True)
            total = self._forward(at, self.stacked).sum()
            if not total.requires_grad:
                return torch.zeros_like(values)
            (gradient,) = torch.autograd.grad(total, at, allow_unused=True)
        return torch.zeros_like(values) if gradient is None else gradient

    def parameters(self) -> dict[str, Tensor]:
        if self.stacked is not None:
            return dict(self.stacked)
        return {f"head.{name}": value.detach() for name, value in self.module.named_parameters()}

    def with_parameters(self, parameters: Mapping[str, Tensor]) -> ModuleHead:
        return _rebuilt(self, stacked=dict(parameters))

    def flatten(self, batch_shape: tuple[int, ...]) -> Head:
        return self if self.stacked is None else super().flatten(batch_shape)

    def moved(self, function: Callable[[Tensor], Tensor]) -> Head:
        return self if self.stacked is None else super().moved(function)

    def doubled(self) -> ModuleHead:
        stacked = self.stacked and {name: value.double() for name, value in self.stacked.items()}
        return ModuleHead(copy.deepcopy(self.module).double(), stacked)

    def parameter_gradient(self, values: Tensor, weights: Tensor) -> dict[str, Tensor]:
        with torch.enable_grad():
            leaves = {name: value.detach().requires_grad_(True) for name, value in self.parameters().items()}
            total = (self._forward(values, leaves) * weights).sum()
            gradients = torch.autograd.grad(total, list(leaves.values()), allow_unused=True)
        return {
            name: torch.zeros_like(leaf) if gradient is None else gradient
            for (name, leaf), gradient in zip(leaves.items(), gradients, strict=True)
        }

    def event_axes(self) -> dict[str, int]:
        return {f"head.{name}": value.ndim for name, value in self.module.named_parameters()}

    def check(self, data: TokenDataset) -> None:
        for name, value in self.module.named_parameters():
            if value.dtype != data.dtype or value.device != data.device:
                raise ValueError(
                    f"head module must be {str(data.dtype).removeprefix('torch.')} on {data.device}, like the data; its"
                    f" parameter {name} is {str(value.dtype).removeprefix('torch.')} on {value.device}"
                )
        probe = data.values.flatten(0, -2)[:2]
        try:
            shape = tuple(self.output(probe).shape)
        except (RuntimeError, ValueError, TypeError) as error:
            raise ValueError(
                f"head module must accept values [..., {data.dv}]; it raised: {str(error).splitlines()[0]}"
            ) from None
        if shape != tuple(probe.shape[:-1]):
            raise ValueError(
                f"head module must return one number an input; for {list(probe.shape)} it gave {list(shape)}"
            )

    def _forward(self, values: Tensor, parameters: Mapping[str, Tensor] | None) -> Tensor:
        if parameters is None:
            return _one_number(self.module(values), values)
        bare = {name.removeprefix("head."): value for name, value in parameters.items()}
        axes = {name: value.ndim for name, value in self.module.named_parameters()}
        lead = values.shape[:-2]
        if all(value.ndim == axes[name] for name, value in bare.items()):
            return _one_number(torch.func.functional_call(self.module, bare, (values,)), values)
        rows = values.reshape(-1, *values.shape[-2:])
        sets = {
            name: value.expand(*lead, *value.shape[value.ndim - axes[name] :]).reshape(
                rows.shape[0], *value.shape[value.ndim - axes[name] :]
            )
            for name, value in bare.items()
        }
        each = torch.func.vmap(lambda own, x: _one_number(torch.func.functional_call(self.module, own, (x,)), x))
        return each(sets, rows).reshape(values.shape[:-1])


def _one_number(output: Tensor, values: Tensor) -> Tensor:
    return output.squeeze(-1) if output.ndim == values.ndim and output.shape[-1] == 1 else output


def doubled_head(head: object) -> object:
    """A head in float64, whatever precision the user's data came in; anything that is no head as it is."""
    if isinstance(head, torch.nn.Module):
        head = ModuleHead(head)
    if isinstance(head, Head):
        return head.doubled()
    if isinstance(head, np.ndarray | Tensor) and as_tensor(head, "head vector").is_floating_point():
        return as_tensor(head, "head vector").double()
    return head


def as_head(head: object, data: TokenDataset) -> Head:
    """A head that fits `data`: None means the data's own vector, a vector a `LinearHead`, a module a `ModuleHead`.

    Raises:
        ValueError: if there is no head, or it does not fit.
    """
    if not isinstance(data, TokenDataset):
        raise ValueError(f"data must be a TokenDataset; got {type(data).__name__}")
    if head is None:
        if data.head is None:
            raise ValueError(
                "a head is needed: pass one, for example LinearHead(v), or data that carry theirs (data.head)"
            )
        head = LinearHead(data.head)
    elif isinstance(head, torch.nn.Module):
        head = ModuleHead(head)
    elif not isinstance(head, Head):
        head = LinearHead(head)  # type: ignore[arg-type]
    head.check(data)
    return head
