"""What is trained: the combined weights W, or the factors of W = K Q^T."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from torch import Tensor

from attsvm.attention.gradient import RiskGradient
from attsvm.attention.linear_maps import flat_adjoint, flat_logits
from attsvm.attention.scaled import ScaledTensor
from attsvm.data import TokenDataset
from attsvm.data.counter import Numbers


class Parameterization(ABC):
    """How trained parameters make up W ``[starts, batch, d, dq]``, and how a gradient in W reaches them."""

    #: sets of tokens outside which `from_logits` needs the gradient in its own scale; None where it does not
    kept: Bool[Tensor, "batch n T"] | None = None

    @abstractmethod
    def shapes(self, data: TokenDataset) -> dict[str, tuple[int, int]]:
        """Name and matrix shape of each parameter, in the order in which random starts draw them."""

    @abstractmethod
    def weights(self, parameters: Mapping[str, Tensor]) -> Float[Tensor, "starts batch d dq"]:
        """The combined W."""

    @abstractmethod
    def gradients(self, parameters: Mapping[str, Tensor], gradient: ScaledTensor) -> dict[str, ScaledTensor]:
        """The chain rule: from the gradient in W to one for each parameter."""

    def logits(self, data: TokenDataset, parameters: Mapping[str, Tensor]) -> Float[Tensor, "starts batch n T"]:
        """Attention logits of data with one batch axis."""
        return flat_logits(data, self.weights(parameters))

    def from_logits(
        self, data: TokenDataset, parameters: Mapping[str, Tensor], risk: RiskGradient
    ) -> dict[str, ScaledTensor]:
        """From the gradient in the logits to one for each parameter."""
        return self.gradients(parameters, risk.logits.map(flat_adjoint(data, risk.logits.mantissa)))

    def normal_form(self, parameters: dict[str, Tensor]) -> dict[str, Tensor]:
        """The same W in the form in which training starts; by default as given."""
        return parameters

    def check_initial(self, parameters: Mapping[str, Tensor]) -> None:  # noqa: B027 - most have nothing to check
        """Raise a ValueError where training could never leave this start."""

    def draw(self, data: TokenDataset, stream: Numbers) -> dict[str, np.ndarray]:
        """PyTorch's default start for a linear layer, uniform on +-1/sqrt(inputs of the layer): ``[streams, .]``."""
        return {
            name: stream.uniform(-1.0, 1.0, shape) / math.sqrt(shape[0]) for name, shape in self.shapes(data).items()
        }


@dataclass(frozen=True)
class Weights(Parameterization):
    """W itself; gradient descent tends to the Frobenius-norm SVM [TaSVM, local convergence]."""

    def shapes(self, data: TokenDataset) -> dict[str, tuple[int, int]]:
        return {"weights": (data.d, data.dq)}

    def weights(self, parameters: Mapping[str, Tensor]) -> Tensor:
        return parameters["weights"]

    def gradients(self, parameters: Mapping[str, Tensor], gradient: ScaledTensor) -> dict[str, ScaledTensor]:
        return {"weights": gradient}


@dataclass(frozen=True)
class KeyQuery(Parameterization):
    """W = K Q^T with K ``[d, rank]`` and Q ``[dq, rank]``; biased to the nuclear-norm SVM [TaSVM, regularization path].

    Below a rank of min(n, d, dq) the nuclear solution may be out of reach.
    """

    rank: int | None = None  #: number of columns m; None means d, as in the papers' experiments

    def __post_init__(self) -> None:
        if self.rank is not None and (not isinstance(self.rank, int) or isinstance(self.rank, bool) or self.rank < 1):
            raise ValueError(f"rank must be a positive integer or None; got {self.rank!r}")

    def shapes(self, data: TokenDataset) -> dict[str, tuple[int, int]]:
        rank = self.rank or data.d
        return {"key": (data.d, rank), "query": (data.dq, rank)}

    def weights(self, parameters: Mapping[str, Tensor]) -> Tensor:
        return parameters["key"] @ parameters["query"].mT

    def gradients(self, parameters: Mapping[str, Tensor], gradient: ScaledTensor) -> dict[str, ScaledTensor]:
        return {
            "key": gradient.map(gradient.mantissa @ parameters["query"]),
            "query": gradient.map(gradient.mantissa.mT @ parameters["key"]),
        }

    def check_initial(self, parameters: Mapping[str, Tensor]) -> None:
        key, query = ((parameters[name] == 0).all(-1).all(-1) for name in ("key", "query"))
        if bool((key & query).any()):
            raise ValueError("initial key and query are both zero, a saddle that descent never leaves; change one")
