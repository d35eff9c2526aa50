"""ALBERT: layers that share their weights behind a factorized embedding."""

from __future__ import annotations

from typing import Any

from attsvm.heads.architectures.base import Architecture, Layer, Projection


class Albert(Architecture):
    """Post-norm encoder; layer i runs the weights of its group, so several layers have the same form."""

    model_types = ("albert",)

    def layers(self, core: Any) -> list[Layer]:
        groups, inner = core.config.num_hidden_groups, core.config.inner_group_num
        per_group = core.config.num_hidden_layers / groups
        found = []
        for layer in range(core.config.num_hidden_layers):
            group = core.encoder.albert_layer_groups[int(layer / per_group)]
            found += [self._layer(group.albert_layers[k].attention) for k in range(inner)]
        return found

    def _layer(self, attention: Any) -> Layer:
        heads = attention.num_attention_heads
        scale = attention.attention_head_size**-0.5
        return Layer(Projection.linear(attention.key), Projection.linear(attention.query), heads, heads, scale)
