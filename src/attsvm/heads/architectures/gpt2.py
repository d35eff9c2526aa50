"""GPT-2: one fused projection for query, key and value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from attsvm.heads.architectures.base import Architecture, Layer, Projection


class Gpt2(Architecture):
    """Causal pre-norm decoder with learned positions."""

    model_types = ("gpt2",)

    def causal(self, config: Any) -> bool:
        return True

    def layers(self, core: Any) -> list[Layer]:
        return [self._layer(block.attn, index) for index, block in enumerate(core.h)]

    def _layer(self, attention: Any, index: int) -> Layer:
        fused, heads, d = attention.c_attn, attention.num_heads, attention.embed_dim
        scale = attention.head_dim**-0.5 if attention.scale_attn_weights else 1.0
        if attention.scale_attn_by_inverse_layer_idx:
            scale /= index + 1
        query = Projection(fused, fused.weight[:, :d], fused.bias[:d])
        key = Projection(fused, fused.weight[:, d : 2 * d], fused.bias[d : 2 * d])
        return Layer(key, query, heads, heads, scale)

    def attentions(self, core: Any, inputs: Mapping[str, Any]) -> Sequence[Tensor]:
        return core(**inputs, output_attentions=True, use_cache=False).attentions
