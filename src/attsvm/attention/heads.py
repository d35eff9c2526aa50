"""Prediction heads h: what turns the attended value into a number."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from attsvm._checks import ArrayLike, as_floating, check_finite
from attsvm.data import TokenDataset


class Head(ABC):
    """A map from values ``[*lead, n, dv]`` to outputs ``[*lead, n]``, with its gradients.

    Parameters carry leading axes that broadcast against ``*lead`` (none, the batch, or starts and batch), so one head
    may serve a whole batch or each data set its own.
    """

    @abstractmethod
    def output(self, values: Float[Tensor, "*lead n dv"]) -> Float[Tensor, "*lead n"]:
        """h(x) for every input."""

    @abstractmethod
    def input_gradient(self, values: Float[Tensor, "*lead n dv"]) -> Float[Tensor, "*lead n dv"]:
        """The gradient of h at every value."""

    @abstractmethod
    def parameters(self) -> dict[str, Tensor]:
        """What training the head would change."""

    @abstractmethod
    def with_parameters(self, parameters: Mapping[str, Tensor]) -> Head:
        """The same head with other parameters."""

    @abstractmethod
    def parameter_gradient(
        self, values: Float[Tensor, "*lead n dv"], weights: Float[Tensor, "*lead n"]
    ) -> dict[str, Tensor]:
        """Gradient of ``sum_i weights_i h(x_i)``, one set of parameters for each element of ``*lead``."""

    @abstractmethod
    def event_axes(self) -> dict[str, int]:
        """How many trailing axes of each parameter belong to one head."""

    @abstractmethod
    def check(self, data: TokenDataset) -> None:
        """Raise a ValueError if this head does not fit the data."""

    def moved(self, function: Any) -> Head:
        """The head with `function` applied to every tensor of it."""
        return self.with_parameters({name: function(value) for name, value in self.parameters().items()})

    def doubled(self) -> Head:
        """The head in float64; itself unchanged."""
        return self.moved(lambda tensor: tensor.double())

    def broadcast(self, lead: tuple[int, ...]) -> Head:
        """The head with one set of parameters for each element of `lead`."""
        axes = self.event_axes()
        return self.with_parameters(
            {
                name: value.expand(*lead, *value.shape[value.ndim - axes[name] :]).clone()
                for name, value in self.parameters().items()
            }
        )

    def flatten(self, batch_shape: tuple[int, ...]) -> Head:
        """The head for data whose batch axes were flattened into one."""
        axes = self.event_axes()

        def fold(name: str, value: Tensor) -> Tensor:
            lead = value.ndim - axes[name]
            return value if lead == 0 else value.reshape(-1, *value.shape[lead:])

        return self.with_parameters({name: fold(name, value) for name, value in self.parameters().items()})


def check_parameter(value: Tensor, name: str, data: TokenDataset, event: tuple[int | str, ...]) -> None:
    """Raise unless `value` is ``[*event]`` or ``[*batch, *event]``, of the data's kind; names in `event` are free."""
    shape = tuple(value.shape)
    own = shape[len(shape) - len(event) :]
    fits = len(own) == len(event) and all(
        isinstance(want, str) or want == got for want, got in zip(event, own, strict=True)
    )
    lead = shape[: len(shape) - len(event)]
    if not fits or lead not in ((), data.batch_shape):
        both = f" or {[*data.batch_shape, *event]}" if data.batch_shape else ""
        raise ValueError(f"{name} must have shape {list(event)}{both} to fit the data; got {list(shape)}")
    if value.dtype != data.dtype or value.device != data.device:
        raise ValueError(
            f"{name} must be {str(data.dtype).removeprefix('torch.')} on {data.device}, like the data;"
            f" got {str(value.dtype).removeprefix('torch.')} on {value.device}"
        )


@dataclass(frozen=True, eq=False)
class LinearHead(Head):
    """h(x) = v^T x, the head of the theory.

    Arguments:
        vector: v, ``[dv]`` or ``[*batch, dv]``.

    >>> LinearHead(torch.tensor([1.0, 2.0])).output(torch.tensor([[3.0, 4.0]])).item()
    11.0
    """

    vector: Tensor

    def __init__(self, vector: ArrayLike) -> None:
        tensor = as_floating(vector, "head vector")
        check_finite(tensor, "head vector", ("coordinate",))
        object.__setattr__(self, "vector", tensor)

    def output(self, values: Tensor) -> Tensor:
        return (values @ self.vector.unsqueeze(-1)).squeeze(-1)

    def input_gradient(self, values: Tensor) -> Tensor:
        return self.vector.unsqueeze(-2).expand_as(values)

    def parameters(self) -> dict[str, Tensor]:
        return {"head": self.vector}

    def with_parameters(self, parameters: Mapping[str, Tensor]) -> LinearHead:
        return _rebuilt(self, vector=parameters["head"])

    def parameter_gradient(self, values: Tensor, weights: Tensor) -> dict[str, Tensor]:
        return {"head": (weights.unsqueeze(-2) @ values).squeeze(-2)}

    def event_axes(self) -> dict[str, int]:
        return {"head": 1}

    def check(self, data: TokenDataset) -> None:
        check_parameter(self.vector, "head", data, (data.dv,))


@dataclass(frozen=True, eq=False)
class ReluHead(Head):
    """h(x) = 1^T relu(V^T x).

    Arguments:
        matrix: V, ``[dv, width]`` or ``[*batch, dv, width]``.

    >>> ReluHead(torch.eye(2)).output(torch.tensor([[3.0, -4.0]])).item()
    3.0
    """

    matrix: Tensor

    def __init__(self, matrix: ArrayLike) -> None:
        tensor = as_floating(matrix, "head matrix")
        if tensor.ndim < 2:
            raise ValueError(
                f"head matrix must have shape [dv, width] or [*batch, dv, width]; got {list(tensor.shape)}"
            )
        check_finite(tensor, "head matrix", ("row", "column"))
        object.__setattr__(self, "matrix", tensor)

    def output(self, values: Tensor) -> Tensor:
        return (values @ self.matrix).relu().sum(-1)

    def input_gradient(self, values: Tensor) -> Tensor:
        return ((values @ self.matrix) > 0).to(values.dtype) @ self.matrix.mT

    def parameters(self) -> dict[str, Tensor]:
        return {"head": self.matrix}

    def with_parameters(self, parameters: Mapping[str, Tensor]) -> ReluHead:
        return _rebuilt(self, matrix=parameters["head"])

    def parameter_gradient(self, values: Tensor, weights: Tensor) -> dict[str, Tensor]:
        active = ((values @ self.matrix) > 0).to(values.dtype)
        return {"head": values.mT @ (active * weights.unsqueeze(-1))}

    def event_axes(self) -> dict[str, int]:
        return {"head": 2}

    def check(self, data: TokenDataset) -> None:
        check_parameter(self.matrix, "head", data, (data.dv, "width"))


@dataclass(frozen=True, eq=False)
class QuadraticHead(Head):
    """h(x) = v^T x - penalty ||x||^2; only v is trained.

    Arguments:
        vector: v, ``[dv]`` or ``[*batch, dv]``.
        penalty: one non-negative number, or one per element of the batch.

    >>> QuadraticHead(torch.tensor([1.0, 2.0]), 0.5).output(torch.tensor([[1.0, 1.0]])).item()
    2.0
    """

    vector: Tensor
    penalty: Tensor

    def __init__(self, vector: ArrayLike, penalty: float | ArrayLike) -> None:
        tensor = as_floating(vector, "head vector")
        check_finite(tensor, "head vector", ("coordinate",))
        weight = torch.as_tensor(penalty, dtype=tensor.dtype, device=tensor.device)
        if not bool((torch.isfinite(weight) & (weight >= 0)).all()):
            raise ValueError(f"penalty must be finite and not negative; got {penalty!r}")
        object.__setattr__(self, "vector", tensor)
        object.__setattr__(self, "penalty", weight)

    def output(self, values: Tensor) -> Tensor:
        linear = (values @ self.vector.unsqueeze(-1)).squeeze(-1)
        return linear - self.penalty.unsqueeze(-1) * values.square().sum(-1)

    def input_gradient(self, values: Tensor) -> Tensor:
        return self.vector.unsqueeze(-2) - 2 * self.penalty[..., None, None] * values

    def parameters(self) -> dict[str, Tensor]:
        return {"head": self.vector}

    def with_parameters(self, parameters: Mapping[str, Tensor]) -> QuadraticHead:
        return _rebuilt(self, vector=parameters["head"])

    def parameter_gradient(self, values: Tensor, weights: Tensor) -> dict[str, Tensor]:
        return {"head": (weights.unsqueeze(-2) @ values).squeeze(-2)}

    def event_axes(self) -> dict[str, int]:
        return {"head": 1}

    def moved(self, function: Any) -> QuadraticHead:
        return _rebuilt(self, vector=function(self.vector), penalty=function(self.penalty))

    def flatten(self, batch_shape: tuple[int, ...]) -> QuadraticHead:
        vector = self.vector if self.vector.ndim == 1 else self.vector.reshape(-1, self.vector.shape[-1])
        return _rebuilt(self, vector=vector, penalty=self.penalty.reshape(-1) if self.penalty.ndim else self.penalty)

    def check(self, data: TokenDataset) -> None:
        check_parameter(self.vector, "head", data, (data.dv,))
        check_parameter(self.penalty, "penalty", data, ())


def _rebuilt(head: Any, **changes: Any) -> Any:
    """A copy of a frozen head with some tensors exchanged and nothing checked again."""
    fresh = object.__new__(type(head))
    for name, value in {**head.__dict__, **changes}.items():
        object.__setattr__(fresh, name, value)
    return fresh
