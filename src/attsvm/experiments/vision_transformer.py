"""A small vision transformer in plain PyTorch: patches as tokens, a [CLS] token, attention that can be read."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn


class Attention(nn.Module):
    """Multi-head self-attention that keeps its last attention and the states it read."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.seen, self.attention = torch.empty(0), torch.empty(0)

    def forward(self, states: Float[Tensor, "batch T width"]) -> Float[Tensor, "batch T width"]:
        """Attend; rows of the attention are queries."""
        batch, T, width = states.shape

        def split(value: Tensor) -> Tensor:
            return value.reshape(batch, T, self.heads, -1).transpose(1, 2)

        query, key, value = (split(each(states)) for each in (self.query, self.key, self.value))
        weights = torch.softmax(query @ key.mT / math.sqrt(width / self.heads), -1)
        self.seen, self.attention = states, weights
        out: Tensor = self.out((weights @ value).transpose(1, 2).reshape(batch, T, width))
        return out

    def key_query(self) -> tuple[Float[Tensor, "heads D m"], Float[Tensor, "heads D m"]]:
        """K and Q of each head in homogeneous coordinates, biases last, the scale inside Q: logits x^T K Q^T z."""

        def form(layer: nn.Linear) -> Tensor:
            whole = torch.cat([layer.weight.mT, layer.bias[None]])
            return whole.reshape(whole.shape[0], self.heads, -1).movedim(1, 0)

        scale = math.sqrt(self.query.out_features / self.heads)
        return form(self.key), form(self.query) / scale


class Block(nn.Module):
    """Normalize, attend, add; normalize, two layers with GELU, add."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, states: Float[Tensor, "batch T width"]) -> Float[Tensor, "batch T width"]:
        """One layer."""
        states = states + self.attention(self.first(states))
        out: Tensor = states + self.mlp(self.second(states))
        return out


class VisionTransformer(nn.Module):
    """Patches of an image, a [CLS] token in front, learned positions; the class is read from [CLS]."""

    def __init__(self, patches: int, pixels: int, classes: int, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.embed = nn.Linear(pixels, width)
        self.cls = nn.Parameter(0.02 * torch.randn(1, 1, width))
        self.position = nn.Parameter(0.02 * torch.randn(1, patches + 1, width))
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.classify = nn.LayerNorm(width), nn.Linear(width, classes)

    @property
    def attentions(self) -> list[Attention]:
        """The attention of every layer."""
        return [module for module in self.modules() if isinstance(module, Attention)]

    def forward(self, patches: Float[Tensor, "batch patches pixels"]) -> Float[Tensor, "batch classes"]:
        """Class logits."""
        states = torch.cat([self.cls.expand(len(patches), -1, -1), self.embed(patches)], 1) + self.position
        for block in self.blocks:
            states = block(states)
        logits: Tensor = self.classify(self.norm(states[:, 0]))
        return logits
