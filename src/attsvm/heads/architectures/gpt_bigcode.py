"""GPT-BigCode (SantaCoder, StarCoder): all query heads of a layer may share one key head."""

from __future__ import annotations

from typing import Any

from attsvm.heads.architectures.base import Layer, Projection
from attsvm.heads.architectures.gpt2 import Gpt2


class GptBigCode(Gpt2):
    """GPT-2 with a grouped key: one key head for all query heads where ``multi_query`` is set."""

    model_types = ("gpt_bigcode",)

    def _layer(self, attention: Any, index: int) -> Layer:
        fused, heads, m, d = attention.c_attn, attention.num_heads, attention.head_dim, attention.embed_dim
        scale = m**-0.5 if attention.scale_attn_weights else 1.0
        weight, bias = fused.weight.T, fused.bias
        if attention.multi_query:
            query = Projection(fused, weight[:, :d], bias[:d])
            return Layer(Projection(fused, weight[:, d : d + m], bias[d : d + m]), query, heads, 1, scale)
        # Here the heads stand one behind the other, each with its own query, key and value.
        weights, biases = weight.reshape(d, heads, 3, m), bias.reshape(heads, 3, m)
        query = Projection(fused, weights[:, :, 0].reshape(d, -1), biases[:, 0].reshape(-1))
        key = Projection(fused, weights[:, :, 1].reshape(d, -1), biases[:, 1].reshape(-1))
        return Layer(key, query, heads, heads, scale)
