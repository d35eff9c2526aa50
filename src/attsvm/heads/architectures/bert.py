"""BERT and the encoders with its module names: RoBERTa, XLM-RoBERTa, CamemBERT, ELECTRA."""

from __future__ import annotations

from typing import Any, ClassVar

from attsvm.heads.architectures.base import Architecture, Layer, Projection


class Bert(Architecture):
    """Post-norm encoder with learned positions; with ``is_decoder`` it is causal."""

    model_types: ClassVar[tuple[str, ...]] = ("bert", "electra")

    def layers(self, core: Any) -> list[Layer]:
        return [self._layer(block.attention.self) for block in core.encoder.layer]

    def _layer(self, attention: Any) -> Layer:
        heads = attention.num_attention_heads
        scale = attention.attention_head_size**-0.5
        return Layer(Projection.linear(attention.key), Projection.linear(attention.query), heads, heads, scale)


class Roberta(Bert):
    """BERT whose positions are counted from behind the padding token's."""

    model_types = ("roberta", "xlm-roberta", "camembert")

    def positions(self, config: Any) -> int:
        return int(config.max_position_embeddings) - int(config.pad_token_id) - 1
