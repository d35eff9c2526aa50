"""DistilBERT."""

from __future__ import annotations

from typing import Any

from attsvm.heads.architectures.base import Architecture, Layer, Projection


class DistilBert(Architecture):
    """Post-norm encoder with learned or sinusoidal positions."""

    model_types = ("distilbert",)

    def layers(self, core: Any) -> list[Layer]:
        heads = core.config.n_heads
        scale = (core.config.dim // heads) ** -0.5
        attentions = [block.attention for block in core.transformer.layer]
        return [
            Layer(Projection.linear(attention.k_lin), Projection.linear(attention.q_lin), heads, heads, scale)
            for attention in attentions
        ]
