"""What an architecture tells: where its key and query projections are, and how to run it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from jaxtyping import Float
from torch import Tensor, nn

from attsvm.heads.homogeneous import head_weights
from attsvm.heads.model import HeadWeights


@dataclass(frozen=True, eq=False)
class Projection:
    """A linear map of hidden states to all heads of a layer.

    Arguments:
        module: the module whose input the map sees; fused projections share one.
        weight: heads side by side, ``[d, heads m]``.
        bias: ``[heads m]``, or None.
    """

    module: nn.Module
    weight: Float[Tensor, "d out"]
    bias: Float[Tensor, " out"] | None

    @staticmethod
    def linear(module: Any) -> Projection:
        """The projection of an ``nn.Linear``, which stores the transpose."""
        return Projection(module, module.weight.T, module.bias)

    def head(self, index: int, size: int) -> tuple[Tensor, Tensor | None]:
        """Weight ``[d, size]`` and bias ``[size]`` of one head."""
        columns = slice(index * size, (index + 1) * size)
        return self.weight[:, columns], None if self.bias is None else self.bias[columns]


@dataclass(frozen=True, eq=False)
class Layer:
    """The key-query side of one attention layer.

    Arguments:
        key: with `key_heads` heads, shared by groups of query heads where there are fewer.
        query: with `heads` heads.
        heads: number of query heads.
        key_heads: number of key heads; divides `heads`.
        scale: what the model multiplies the logits by.
    """

    key: Projection
    query: Projection
    heads: int
    key_heads: int
    scale: float

    def form(self, head: int) -> HeadWeights:
        """The bilinear form of one query head."""
        size = self.query.weight.shape[1] // self.heads
        key, key_bias = self.key.head(head * self.key_heads // self.heads, size)
        query, query_bias = self.query.head(head, size)
        return head_weights(key, query, key_bias, query_bias, self.scale)


class Architecture(ABC):
    """One family of transformers, by the ``model_type`` of their configurations; it holds no weights."""

    model_types: ClassVar[tuple[str, ...]]

    def core(self, module: Any) -> Any:
        """The stack of layers inside a model with a task head."""
        return module.base_model

    def causal(self, config: Any) -> bool:
        """Whether a query sees only itself and the tokens before it."""
        return bool(getattr(config, "is_decoder", False))

    def positions(self, config: Any) -> int:
        """The longest sentence, in tokens."""
        return int(config.max_position_embeddings)

    @abstractmethod
    def layers(self, core: Any) -> list[Layer]:
        """In the order in which they run; a layer that runs twice stands in the list twice."""

    def attentions(self, core: Any, inputs: Mapping[str, Any]) -> Sequence[Tensor]:
        """Run `core`; the attention of each layer, ``[1, heads, T, T]``."""
        return core(**inputs, output_attentions=True).attentions
