"""Prediction heads: the papers' h, which turns the attended value of an input into a number.

A prediction head may serve a whole batch of data sets or have parameters for each of them; it is indexed, flattened and
moved like the data. (A "head" without the word prediction is an attention head of a transformer, `attsvm.heads`.)
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from attsvm.data import TokenDataset
from attsvm.data.checks import ArrayLike, as_finite, as_tensor, batch_index, check_kind, check_same_kind, check_shape


class Head(ABC):
    """A prediction head h: a map from values ``[*lead, n, dv]`` to outputs ``[*lead, n]``, with its gradients.

    Parameters have leading axes that broadcast against ``*lead``: none, the batch, or starts and batch.
    """

    @abstractmethod
    def output(self, values: Float[Tensor, "*lead n dv"]) -> Float[Tensor, "*lead n"]:
        """h(x) for every input."""

    @abstractmethod
    def input_gradient(self, values: Float[Tensor, "*lead n dv"]) -> Float[Tensor, "*lead n dv"]:
        """The gradient of h at every value."""

    @abstractmethod
    def parameters(self) -> dict[str, Tensor]:
        """The tensors that training changes, by name: ``head``, or several that begin with ``head.``."""

    @abstractmethod
    def with_parameters(self, parameters: Mapping[str, Tensor]) -> Head:
        """The same h with other parameters."""

    @abstractmethod
    def parameter_gradient(
        self, values: Float[Tensor, "*lead n dv"], weights: Float[Tensor, "*lead n"]
    ) -> dict[str, Tensor]:
        """Gradient of ``sum_i weights_i h(x_i)`` in the parameters, one for each element of ``*lead``."""

    @abstractmethod
    def event_axes(self) -> dict[str, int]:
        """How many trailing axes each parameter of a single data set has; axes before them are the batch."""

    @abstractmethod
    def check(self, data: TokenDataset) -> None:
        """Raise a ValueError if h does not fit the data."""

    def map(self, function: Callable[[Tensor, int], Tensor]) -> Head:
        """The same h with ``function(tensor, axes)`` in place of each of its tensors.

        ``axes`` is the number of trailing axes as in `event_axes`. All methods below rely on this one; a subclass with
        tensors that are not trained overrides it to include them.
        """
        axes = self.event_axes()
        return self.with_parameters({name: function(value, axes[name]) for name, value in self.parameters().items()})

    def __getitem__(self, index: Any) -> Head:
        """The prediction head of ``data[index]``; tensors without a batch serve all data sets and stay."""

        def some(tensor: Tensor, axes: int) -> Tensor:
            lead = tuple(tensor.shape[: tensor.ndim - axes])
            return tensor[batch_index(index, lead, tensor.device)] if lead else tensor

        return self.map(some)

    __iter__ = None  # without a batch every index is valid: iteration would never end

    def flatten(self) -> Head:
        """The prediction head of ``data.flatten()``."""

        def flat(tensor: Tensor, axes: int) -> Tensor:
            return tensor.reshape(-1, *tensor.shape[tensor.ndim - axes :]) if tensor.ndim > axes else tensor

        return self.map(flat)

    def broadcast(self, lead: tuple[int, ...]) -> Head:
        """The same h with a copy of its tensors for each element of `lead`."""
        return self.map(lambda tensor, axes: tensor.expand(*lead, *tensor.shape[tensor.ndim - axes :]).clone())

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Head:
        """The same h on another device or in another precision."""
        return self.map(lambda tensor, _: tensor.to(device=device, dtype=dtype))


class _TensorHead(Head):
    """What prediction heads have in common whose tensors are fields, of which the first is trained."""

    axes: ClassVar[Mapping[str, int]]  # the trailing axes of each field

    def parameters(self) -> dict[str, Tensor]:
        return {"head": getattr(self, next(iter(self.axes)))}

    def with_parameters(self, parameters: Mapping[str, Tensor]) -> Head:
        return _rebuilt(self, **{next(iter(self.axes)): parameters["head"]})

    def event_axes(self) -> dict[str, int]:
        return {"head": next(iter(self.axes.values()))}

    def map(self, function: Callable[[Tensor, int], Tensor]) -> Head:
        return _rebuilt(self, **{name: function(getattr(self, name), axes) for name, axes in self.axes.items()})

    def check(self, data: TokenDataset) -> None:
        for field, axes in self.axes.items():
            value, name = getattr(self, field), "head" if axes else field
            lead = data.batch_shape if value.ndim > axes else ()
            shape = (*lead, *(data.dv, "width")[:axes])
            check_shape(value, name, shape, "to fit the data, alone or for each element of the batch")
            check_same_kind(value, name, data.tokens)


class _VectorHead(_TensorHead):
    """``h(x) = v^T x + (a term without v)``."""

    vector: Tensor
    axes: ClassVar[Mapping[str, int]] = {"vector": 1}

    def parameter_gradient(self, values: Tensor, weights: Tensor) -> dict[str, Tensor]:
        return {"head": (weights.unsqueeze(-2) @ values).squeeze(-2)}

    def output(self, values: Tensor) -> Tensor:
        return (values @ self.vector.unsqueeze(-1)).squeeze(-1)


@dataclass(frozen=True, eq=False)
class LinearHead(_VectorHead):
    """h(x) = v^T x, the prediction head of the theory.

    >>> LinearHead(torch.tensor([1.0, 2.0])).output(torch.tensor([[3.0, 4.0]])).item()
    11.0
    """

    vector: Tensor  #: v, ``[dv]`` or ``[*batch, dv]``

    def __init__(self, vector: ArrayLike) -> None:
        object.__setattr__(self, "vector", as_finite(vector, "head vector", ("coordinate",)))

    def input_gradient(self, values: Tensor) -> Tensor:
        return self.vector.unsqueeze(-2).expand_as(values)


@dataclass(frozen=True, eq=False)
class ReluHead(_TensorHead):
    """h(x) = 1^T relu(V^T x).

    >>> ReluHead(torch.eye(2)).output(torch.tensor([[3.0, -4.0]])).item()
    3.0
    """

    matrix: Tensor  #: V, ``[dv, width]`` or ``[*batch, dv, width]``
    axes: ClassVar[Mapping[str, int]] = {"matrix": 2}

    def __init__(self, matrix: ArrayLike) -> None:
        object.__setattr__(self, "matrix", as_finite(matrix, "head matrix", ("row", "column")))

    def output(self, values: Tensor) -> Tensor:
        return (values @ self.matrix).relu().sum(-1)

    def input_gradient(self, values: Tensor) -> Tensor:
        return ((values @ self.matrix) > 0).to(values.dtype) @ self.matrix.mT

    def parameter_gradient(self, values: Tensor, weights: Tensor) -> dict[str, Tensor]:
        active = ((values @ self.matrix) > 0).to(values.dtype)
        return {"head": values.mT @ (active * weights.unsqueeze(-1))}


@dataclass(frozen=True, eq=False)
class QuadraticHead(_VectorHead):
    """h(x) = v^T x - penalty ||x||^2; only v is trained.

    >>> QuadraticHead(torch.tensor([1.0, 2.0]), 0.5).output(torch.tensor([[1.0, 1.0]])).item()
    2.0
    """

    vector: Tensor  #: v, ``[dv]`` or ``[*batch, dv]``
    penalty: Tensor  #: a number of at least 0, or one for each element of the batch
    axes: ClassVar[Mapping[str, int]] = {"vector": 1, "penalty": 0}

    def __init__(self, vector: ArrayLike, penalty: float | ArrayLike) -> None:
        tensor = as_finite(vector, "head vector", ("coordinate",))
        weight = torch.as_tensor(penalty, dtype=tensor.dtype, device=tensor.device)
        if not bool((torch.isfinite(weight) & (weight >= 0)).all()):
            raise ValueError(f"penalty must be finite and not negative; got {penalty!r}")
        vars(self).update(vector=tensor, penalty=weight)

    def output(self, values: Tensor) -> Tensor:
        return super().output(values) - self.penalty.unsqueeze(-1) * values.square().sum(-1)

    def input_gradient(self, values: Tensor) -> Tensor:
        return self.vector.unsqueeze(-2) - 2 * self.penalty[..., None, None] * values


@dataclass(frozen=True, eq=False)
class ModuleHead(Head):
    """h(x) = module(x), any differentiable torch module from ``[..., dv]`` to ``[...]`` or ``[..., 1]``.

    It acts on each input alone (no batch normalization). The module itself is never changed: training works on copies
    of its parameters, one set for each data set, which are in `stacked`.

    >>> ModuleHead(torch.nn.Sequential(torch.nn.Flatten(-1), torch.nn.Identity())).output(torch.tensor([[2.0]])).item()
    2.0
    """

    module: torch.nn.Module
    stacked: Mapping[str, Tensor] | None = None

    def output(self, values: Tensor) -> Tensor:
        with torch.no_grad():
            return self._forward(values, self.stacked)

    def input_gradient(self, values: Tensor) -> Tensor:
        return _gradients(lambda own: self._forward(own["x"], self.stacked), {"x": values})["x"]

    def parameters(self) -> dict[str, Tensor]:
        if self.stacked is not None:
            return dict(self.stacked)
        return {f"head.{name}": value.detach() for name, value in self.module.named_parameters()}

    def with_parameters(self, parameters: Mapping[str, Tensor]) -> ModuleHead:
        return _rebuilt(self, stacked=dict(parameters))

    def __getitem__(self, index: Any) -> Head:
        return self if self.stacked is None else super().__getitem__(index)

    def flatten(self) -> Head:
        return self if self.stacked is None else super().flatten()

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> ModuleHead:
        stacked = self.stacked and {name: value.to(device, dtype) for name, value in self.stacked.items()}
        return ModuleHead(copy.deepcopy(self.module).to(device, dtype), stacked)

    def parameter_gradient(self, values: Tensor, weights: Tensor) -> dict[str, Tensor]:
        return _gradients(lambda own: self._forward(values, own) * weights, self.parameters())

    def event_axes(self) -> dict[str, int]:
        return {f"head.{name}": value.ndim for name, value in self.module.named_parameters()}

    def check(self, data: TokenDataset) -> None:
        for name, value in self.module.named_parameters():
            check_same_kind(value, f"parameter {name} of the head module", data.tokens)
        probe = data.values.flatten(0, -2)[:2]
        try:
            shape = list(self.output(probe).shape)
        except (RuntimeError, ValueError, TypeError) as error:
            said = str(error).splitlines()[0]
            raise ValueError(f"head module must accept values [..., {data.dv}]; it raised: {said}") from None
        if shape != [len(probe)]:
            raise ValueError(f"head module must return one number per input; for {list(probe.shape)} it gave {shape}")

    def _forward(self, values: Tensor, parameters: Mapping[str, Tensor] | None) -> Tensor:
        bare = {name.removeprefix("head."): value for name, value in (parameters or {}).items()}
        shapes = {name: value.shape for name, value in self.module.named_parameters()}

        def called(own: dict[str, Tensor], x: Tensor) -> Tensor:
            output = torch.func.functional_call(self.module, own, (x,))
            return output.squeeze(-1) if output.ndim == x.ndim and output.shape[-1] == 1 else output

        if all(value.shape == shapes[name] for name, value in bare.items()):
            return called(bare, values)
        lead = values.shape[:-2]
        sets = {name: value.expand(*lead, *shapes[name]).reshape(-1, *shapes[name]) for name, value in bare.items()}
        return torch.func.vmap(called)(sets, values.flatten(0, -3)).reshape(values.shape[:-1])


def _gradients(function: Callable[[dict[str, Tensor]], Tensor], at: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Of the sum of a function's values, in each of its tensors; zero where it does not depend on them."""
    with torch.enable_grad():
        leaves = {name: value.detach().requires_grad_(True) for name, value in at.items()}
        total = function(leaves).sum()
        if not total.requires_grad:
            return {name: torch.zeros_like(leaf) for name, leaf in leaves.items()}
        found = torch.autograd.grad(total, list(leaves.values()), allow_unused=True, materialize_grads=True)
        return dict(zip(leaves, found, strict=True))


def as_head(head: object, data: TokenDataset) -> Head:
    """A prediction head that fits `data`: from one, a vector v, a torch module, or None for the data's own vector."""
    check_kind(data, TokenDataset, "data", "a TokenDataset")
    if head is None:
        if data.head is None:
            raise ValueError("a prediction head is needed: pass one, as LinearHead(v), or data with one (data.head)")
        head = LinearHead(data.head)
    elif isinstance(head, torch.nn.Module):
        head = ModuleHead(head)
    elif not isinstance(head, Head):
        head = LinearHead(head)  # type: ignore[arg-type]
    head.check(data)
    return head


def doubled_head(head: object) -> object:
    """The prediction head in float64, for work on data that were converted to it; other objects unchanged."""
    if isinstance(head, torch.nn.Module):
        head = ModuleHead(head)
    if isinstance(head, Head):
        return head.to(dtype=torch.float64)
    if isinstance(head, np.ndarray | Tensor) and as_tensor(head, "head vector").is_floating_point():
        return as_tensor(head, "head vector").double()
    return head


def _rebuilt(head: Any, **changes: Any) -> Any:
    """A copy of a frozen prediction head with some tensors exchanged and nothing checked again."""
    fresh = copy.copy(head)
    fresh.__dict__.update(changes)
    return fresh
