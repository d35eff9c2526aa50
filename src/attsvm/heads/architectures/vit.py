"""ViT: image patches as tokens."""

from __future__ import annotations

from typing import Any

from attsvm.heads.architectures.base import Architecture, Layer, Projection


class Vit(Architecture):
    """Pre-norm encoder of image patches behind a [CLS] token."""

    model_types = ("vit",)

    def layers(self, core: Any) -> list[Layer]:
        heads = core.config.num_attention_heads
        scale = (core.config.hidden_size // heads) ** -0.5
        blocks = core.layers if hasattr(core, "layers") else core.encoder.layer
        found = []
        for attention in (block.attention for block in blocks):
            if hasattr(attention, "q_proj"):
                key, query = attention.k_proj, attention.q_proj
            else:  # before transformers 5
                key, query = attention.attention.key, attention.attention.query
            found.append(Layer(Projection.linear(key), Projection.linear(query), heads, heads, scale))
        return found
